/* loadgen/conn.h - one client: a connection that stays open, and the request under way on it.
 *
 *     IDLE --begin--> CONNECTING -> SENDING -> READING --on_ready: true--> IDLE
 *            \-- connection kept --^
 *
 * If the server closes a reused connection before the first byte of its response, the client
 * connects once more: servers may close idle connections at any time.
 *
 * Lifetime: the caller's storage; init, any number of requests, deinit. Thread: its owner.
 * Memory:   the request, and one event or a whole body up to CONN_BODY_BYTES; reused.
 */
#ifndef LOADGEN_CONN_H
#define LOADGEN_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/status.h"
#include "loadgen/measurement.h"
#include "loadgen/response.h"
#include "loadgen/sse.h"
#include "loadgen/target.h"

enum { CONN_BODY_BYTES = 1 << 24, CONN_REQUEST_BYTES = 1 << 26, CONN_READ_BYTES = 1 << 16 };

enum conn_phase { CONN_IDLE, CONN_CONNECTING, CONN_SENDING, CONN_READING };

struct conn {
    const struct target *target; /* borrowed */
    const struct clock *clock;
    int epoll, fd;                   /* fd -1: closed */
    struct loadgen_tls_session *tls; /* of an https address, while the socket is open */
    enum conn_phase phase;
    bool is_kept, watches_out; /* is_kept: it has carried a request before */
    bool streams;
    size_t sent_bytes;
    struct buf request; /* filled by the caller before begin */
    struct buf body;    /* of a response that is not a stream */
    struct loadgen_response response;
    struct sse sse;
    struct hist *gaps; /* gets the times between events; may be NULL */
    int64_t now_us;    /* when the bytes that are being read arrived */

    /* Of the request under way, or the last one. */
    struct request_result result;
    enum status status; /* once it ended */
    struct err why;     /* unless ST_OK */
};

/* Events of `epoll` have the connection's address as data. */
void conn_init(struct conn *c, const struct target *target, const struct clock *clock, int epoll);
void conn_deinit(struct conn *c);

/* Send c->request; its times are measured from `begun_us`. Both return true when the request has
 * ended: see c->status and c->result. */
bool conn_begin(struct conn *c, bool streams, int64_t begun_us);
bool conn_on_ready(struct conn *c); /* the socket is readable or writable */

/* End the request under way as failed. */
void conn_abort(struct conn *c, const char *why);

#endif
