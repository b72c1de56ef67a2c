/* net/h2_int.h - HTTP/2: the state of a connection and of its streams.
 *
 *   http2.c    input: requests, deadlines, floods, closing
 *   h2_send.c  output: responses, flow control, one write for all frames that are ready
 *   h2_mem.c   the memory of nghttp2's session
 *
 * A stream may exist longer than its exchange. When the handler ends a response the exchange is
 * destroyed; the stream keeps the bytes that the peer's window or the socket has not accepted yet.
 *
 *     head --END_HEADERS--> body --END_STREAM--> response --all sent--> closed
 *
 * Only code that the loop has called may call the handler. If a stream ends while the handler is
 * calling us, it is marked (is_closed) and reported by a deferred call.
 *
 * Lifetime: a stream exists from its first HEADERS until nghttp2 has closed it and the handler has
 * been notified. Thread: the I/O thread. Memory: what is queued, CONN_PENDING_MAX bytes at most.
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
    struct http_exchange *x; /* NULL once the handler's part has ended */
    struct list_link link;   /* in h2->streams */
    int32_t id;
    bool has_header;    /* the first header has arrived */
    bool has_head;      /* the request head is complete */
    bool has_request;   /* the request is complete */
    bool is_bodyless;   /* the response has no body: HEAD, 204, 304 */
    bool is_suspended;  /* the queue is empty, nghttp2 waits for resume_stream */
    bool is_last;       /* the response ends with what is queued */
    bool is_discarding; /* the response has been sent, the rest of the request is discarded */
    bool is_reset;      /* we have sent RST_STREAM */
    bool resets_early;  /* an early response resets the stream: the client is not sending a body */
    bool has_sent;      /* some of the response has been sent */
    bool is_closed;     /* nghttp2 has closed it; the handler is still to be notified */
    uint32_t refusal;   /* the error status of a malformed head, which the handler must not see */
    const char *sentence;
    struct str method, target, authority, host; /* in the exchange's arena */
    struct buf queue;                           /* flushed by the handler, to be sent */
    struct http_document *document;             /* not NULL: to be sent in place of `queue` */
    size_t sent;           /* bytes at the front of `queue` or `document` that are sent */
    struct account *owner; /* the exchange's, which may have ended */
    uint64_t charged;      /* of `queue`: see conn_charge */
    uint64_t discarded;    /* bytes of the body that were discarded */
    int64_t since_ms;      /* when the head or body began, or had kept its rate until */
    uint64_t arrived;      /* bytes of the body since then */
    int64_t mark_ms;       /* when the response last had kept its rate, or began to wait */
    uint64_t mark_out;     /* `out` at that time */
    uint64_t mark_due;     /* and how many bytes waited */
    uint64_t out;          /* bytes of the response that were framed */
    int64_t began_ms;
};

struct h2 {
    struct conn *conn;
    nghttp2_session *session;
    struct list streams;   /* newest first */
    uint32_t heads;        /* read since on_bytes was called */
    uint64_t head_bytes;   /* unpacked, of the head or trailer that is being read */
    bool is_cut;           /* the rest of the input waits until others were served */
    bool is_receiving;     /* within nghttp2's parser: h2_flush waits until it returns */
    bool is_over;          /* nghttp2 must not be called any more */
    bool is_out_of_memory; /* the reason for is_over */
    bool is_ending;        /* the session was terminated; its last frames are being sent */
    bool has_sent_goaway;
    bool has_settings; /* the peer's first SETTINGS have arrived */
    bool has_goaway;   /* the peer has sent GOAWAY */
    struct bucket resets;
    struct bucket frames;
    bool is_trimmed;         /* idle, and h2_mem_trim was called */
    int64_t checked_ms;      /* when the deadlines of streams were last checked */
    struct list allocations; /* of the session */
    struct h2_allocation *frame_allocation;
};

/* The stream at this link; NULL for NULL. */
static inline struct h2_stream *h2_stream_at(struct list_link *link) {
    return LIST_ITEM(link, struct h2_stream, link);
}

int64_t h2_now_ms(const struct h2 *h);

/* ---- h2_send.c ---- */

/* Send everything that flow control and the socket's backlog allow, in one write. */
void h2_flush(struct h2 *h);
/* Send an error response in place of the handler and end the exchange. The stream is closed when
 * the response has been sent. */
void h2_refuse(struct h2_stream *st, uint32_t status, const char *sentence);
void h2_reset(struct h2_stream *st, uint32_t code);
void h2_continue(struct h2_stream *st);       /* sends "100 Continue" */
size_t h2_queued(const struct h2_stream *st); /* bytes of the response that are not framed yet */
void h2_start_rate(struct h2_stream *st);
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

/* Callback of nghttp2: a frame is being sent. */
int h2_on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *ctx);

#endif
