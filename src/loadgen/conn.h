/* loadgen/conn.h - one client: a connection that is kept, and the request that is under way on it.
 *
 *     IDLE --begin--> CONNECTING -> SENDING -> READING --turn says ended--> IDLE
 *            \-- connection kept --^
 *
 * A kept connection that the server closes before it says a word is opened anew, once: servers
 * may close idle ones at any time.
 *
 * Lifetime: the caller's storage; init, any number of requests, deinit. Thread: its owner.
 * Memory:   the request, one event or a whole answer up to CONN_BODY_BYTES; kept and used again.
 */
#ifndef LOADGEN_CONN_H
#define LOADGEN_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/status.h"
#include "loadgen/measure.h"
#include "loadgen/reply.h"
#include "loadgen/sse.h"
#include "loadgen/target.h"

enum { CONN_BODY_BYTES = 1 << 24, CONN_REQUEST_BYTES = 1 << 26, CONN_READ_BYTES = 1 << 16 };

enum conn_phase { CONN_IDLE, CONN_CONNECTING, CONN_SENDING, CONN_READING };

struct conn {
    const struct target *target; /* borrowed */
    const struct clock *clock;
    int epoll, fd; /* fd -1: closed */
    enum conn_phase phase;
    bool is_kept, watches_out; /* is_kept: it has carried a request before */
    bool streams;
    size_t sent_bytes;
    struct buf request; /* filled by the caller before begin */
    struct buf body;    /* of an answer that is no stream */
    struct reply reply;
    struct sse sse;
    struct hist *gaps; /* where times between events go; NULL: nowhere */
    int64_t now_us;    /* of the bytes that are being read */

    /* Of the request under way, or the last one. */
    struct trip trip;
    enum status status; /* once it ended */
    struct err why;     /* unless ST_OK */
};

/* Readiness is waited for in `epoll`, with the connection's address as data. */
void conn_init(struct conn *c, const struct target *target, const struct clock *clock, int epoll);
void conn_deinit(struct conn *c);

/* Send what is in c->request. `begun_us` is what its times are measured from. Both tell whether
 * the request has ended: c->status, c->trip. */
bool conn_begin(struct conn *c, bool streams, int64_t begun_us);
bool conn_turn(struct conn *c); /* the socket is ready for something */

/* End the request under way: it has taken too long. */
void conn_give_up(struct conn *c, const char *why);

#endif
