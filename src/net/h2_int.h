/* net/h2_int.h - HTTP/2: the state of a connection and of its streams.
 *
 *   http2.c    what comes in: requests, deadlines, floods, the end
 *   h2_send.c  what goes out: responses, flow control, one write for what is ready
 *   h2_mem.c   the memory of nghttp2's session
 *
 * A stream outlives its exchange: once the handler has ended a response its exchange is gone,
 * while the stream holds what the peer's window or the socket has not let go yet.
 *
 *     head --END_HEADERS--> body --END_STREAM--> answer --all sent--> closed
 *
 * Only code that the loop has called tells the handler anything: a stream that ends within a
 * call of the handler is marked, and told in the next turn.
 *
 * Lifetime: a stream lives from its first HEADERS until nghttp2 has closed it and its handler
 * knows. Thread: the loop's. Memory: what is queued, with CONN_PENDING_MAX as the wall.
 */
#ifndef NET_H2_INT_H
#define NET_H2_INT_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "net/http_int.h"

struct h2_stream {
    struct h2 *h2;
    struct http_exchange *x; /* NULL once it is over for the handler */
    struct h2_stream *next, *prev;
    int32_t id;
    bool has_head;    /* the request's head is whole */
    bool has_request; /* and so is all of it */
    bool is_bare;     /* the response has no body: HEAD, 204, 304 */
    bool is_asleep;   /* nghttp2 waits for more to send */
    bool is_last;     /* nothing follows what is queued */
    bool is_spent;    /* the response has been sent before the request was whole */
    bool is_reset;    /* by us, on purpose */
    bool is_curt;     /* an early answer cuts the request off: nothing is on its way */
    bool has_sent;    /* some of its response has left */
    bool is_closed;   /* nghttp2 has forgotten it; the handler is to be told */
    uint32_t refusal; /* the status for a head that must not reach the handler */
    const char *sentence;
    struct str method, target, authority, host; /* in the exchange's arena */
    struct buf queue;                           /* flushed by the handler, to be sent */
    size_t sent;                                /* of `queue` */
    uint64_t discarded;                         /* bytes of a body that nobody wants */
    int64_t since_ms;                           /* the last step forward */
    int64_t began_ms;
};

/* Things that a peer does too often: a bucket that leaks. */
struct h2_tally {
    uint32_t count;
    int64_t at_ms;
};

struct h2 {
    struct conn *conn;
    nghttp2_session *session;
    struct h2_stream *streams; /* newest first */
    uint32_t stream_count;
    bool is_receiving; /* within nghttp2's parser: what is to be sent waits for its end */
    bool is_over;      /* the connection is: nghttp2 is not called any more */
    bool is_poisoned;  /* because it has run out of memory */
    bool is_ending;    /* its last words are on their way */
    bool is_leaving;   /* GOAWAY was sent */
    bool has_settings; /* the peer's first ones came */
    bool has_goaway;   /* the peer's */
    struct h2_tally resets;
    struct h2_tally frames;
    bool is_trimmed;         /* idle, and its memory given back as far as that goes */
    struct h2_block *blocks; /* of the session */
    struct h2_block *frame_block;
};

int64_t h2_now_ms(const struct h2 *h);

/* ---- h2_send.c ---- */

/* Everything that flow control and the socket's backlog allow, in one write. */
void h2_flush(struct h2 *h);
/* Answer in the handler's place and end the exchange. The stream goes when that is sent. */
void h2_refuse(struct h2_stream *st, uint32_t status, const char *sentence);
void h2_reset(struct h2_stream *st, uint32_t code);
void h2_continue(struct h2_stream *st); /* 100 */
void h2_stream_free(struct h2_stream *st);

void h2_send_head(struct http_exchange *x, uint32_t status, const struct http_header *headers,
                  uint32_t count, const struct str *body);
void h2_send_data(struct http_exchange *x);
void h2_send_end(struct http_exchange *x);
void h2_send_abort(struct http_exchange *x);
uint64_t h2_backlog(const struct http_exchange *x);

/* ---- h2_mem.c ---- */

nghttp2_mem h2_mem_of(struct h2 *h);
void h2_mem_trim(struct h2 *h); /* only while the session has nothing to send */
void h2_mem_free_all(struct h2 *h);

/* nghttp2's: a frame is on its way. */
int h2_on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *ctx);

#endif
