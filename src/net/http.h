/* net/http.h - an HTTP server: HTTP/1.1 and HTTP/2 (h2 and h2c), with and without TLS.
 *
 * One server owns listeners and connections on one event loop. One request with its response is an
 * *exchange*; the calls are the same for every HTTP version.
 *
 *     on_head -> (body arrives, counted against its limit) -> on_request -> http_reply
 *                                                                       or http_stream_begin,
 *                                                                          put, flush ..., end
 *                                                                       or ws_accept (net/ws.h)
 *
 * A handler may respond as early as in on_head (a refusal). The rest of the body is then discarded,
 * and the connection is closed if that rest is long. An exchange exists until its response has
 * ended or on_gone was called, whichever is first; after that its pointer is invalid.
 *
 * A request that breaks the protocol does not reach the handler: the server responds with the right
 * status and a body that the handler writes (put_error_body), and closes the connection.
 *
 * Lifetime: create, listen, run the loop, close, run the loop until it is empty, destroy.
 * Thread: the I/O thread. Memory: an idle connection holds about a KiB; memory for requests and
 * responses is allocated when it is needed and freed when the exchange ends.
 */
#ifndef NET_HTTP_H
#define NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "net/http_limits.h"

struct buf;
struct http_server;   /* opaque */
struct http_exchange; /* opaque */
struct http_document; /* opaque */
struct tls_context;   /* net/tls.h */
struct uv_loop_s;     /* libuv's */

enum http_method {
    HTTP_GET,
    HTTP_HEAD,
    HTTP_POST,
    HTTP_PUT,
    HTTP_DELETE,
    HTTP_OPTIONS,
    HTTP_PATCH,
    HTTP_OTHER, /* any other valid method: the handler responds with 405 or 501 */
};
const char *http_method_name(enum http_method m);

struct http_header {
    struct str name; /* lower case */
    struct str value;
};

/* Request line and headers. Borrowed: valid as long as the exchange. */
struct http_head {
    enum http_method method;
    uint32_t version; /* 10, 11 or 20 */
    struct str path;  /* as sent, up to the '?': starts with '/'; percent signs not decoded */
    struct str query; /* after the '?'; may be empty */
    struct str host;  /* Host or :authority; empty if HTTP/1.0 gave none */
    const struct http_header *headers;
    uint32_t header_count;
    struct str peer; /* "127.0.0.1:5123", "unix" */
    bool is_tls;
    bool is_local; /* the client is on a loopback address or a unix socket */
};

/* The value of the first header of that name (lower case); ptr NULL if absent. */
struct str http_find(const struct http_head *h, const char *name);

/* The loop calls these. Except on_end none is called from within a function of this module, so a
 * handler may call any function from any callback. `ctx` is the options'. on_request and
 * put_error_body are required, the others may be NULL. */
struct http_handler {
    /* The headers are complete. May respond at once; may change the limit of this body. */
    void (*on_head)(void *ctx, struct http_exchange *x);
    /* The body is complete too. Not called if on_head has responded. */
    void (*on_request)(void *ctx, struct http_exchange *x);
    /* Before the body was complete, the client disconnected, or the body was too slow or too
     * long. Called instead of on_request: free what on_head has attached to the exchange. */
    void (*on_incomplete)(void *ctx, struct http_exchange *x);
    /* Before the response had ended, the client disconnected, was too slow, or reset the stream.
     * Only called after on_request, or after http_stream_begin. */
    void (*on_gone)(void *ctx, struct http_exchange *x);
    /* http_backlog was above backlog_bytes and has fallen to half of it: write again. */
    void (*on_writable)(void *ctx, struct http_exchange *x);
    /* Write the body (JSON) of an error response that the server sends by itself. */
    void (*put_error_body)(void *ctx, uint32_t status, const char *sentence, struct buf *body);
    /* A response has ended, for access logs. The one callback that is called from within a
     * function of this module (reply, end, abort). */
    void (*on_end)(void *ctx, struct http_exchange *x, uint32_t status, uint64_t body_bytes);
};

struct http_options {
    struct http_limits limits;
    const struct http_handler *handler;
    void *ctx;
};

/* Raise the process's soft limit of descriptors to the hard one; returns the old and the new
 * limit. Call it before http_server_create, which derives the limit of connections from it. */
void http_raise_fd_limit(uint64_t *before, uint64_t *after);

/* How many connections the limit of descriptors allows. */
uint32_t http_connections_allowed(void);

/* Also makes the process ignore SIGPIPE, unless the caller has set a handler: a write to a client
 * that has disconnected must return an error and not end the process. */
enum status http_server_create(struct uv_loop_s *loop, const struct http_options *options,
                               struct http_server **out, struct err *err);
void http_server_destroy(struct http_server *s); /* NULL is fine; after close, with an empty loop */
/* New limits, for requests and connections that start from now on; zeros as in http_options. */
void http_set_limits(struct http_server *s, const struct http_limits *limits);

/* Drain: an HTTP/1.1 connection closes after its current response (Connection: close), an HTTP/2
 * connection gets GOAWAY, an idle one closes at once. Listeners stay open until http_server_close,
 * so that new requests get an error response. */
void http_server_drain(struct http_server *s);
/* Close all listeners and connections at once; on_gone is called for exchanges under way. */
void http_server_close(struct http_server *s);

struct http_stats http_stats(const struct http_server *s);

/* ---- an exchange ---- */

const struct http_head *http_head(const struct http_exchange *x);
struct str http_body(const struct http_exchange *x);             /* complete from on_request on */
void http_set_body_max(struct http_exchange *x, uint64_t bytes); /* in on_head */
/* The body is not needed any more: its memory is freed, http_body is empty from here on. */
void http_drop_body(struct http_exchange *x);
/* The same, but the bytes are the caller's from here on (mem_free); NULL: there is no body. They
 * count against their owner's share until the exchange ends. */
char *http_take_body(struct http_exchange *x, size_t *len);
/* In on_head: who the request belongs to, such as the tenant of its key. Its bytes count against
 * that owner's share from here on, not against the share of the client's address. */
void http_set_owner(struct http_exchange *x, uint32_t owner);

void http_set_user(struct http_exchange *x, void *user);
void *http_user(const struct http_exchange *x);

/* May another response be queued? Asked in on_head, after http_set_owner. Below its limit is not a
 * promise: responses of requests under way are queued in any case, and if they exceed the limit by
 * a quarter, the connections that hold most are closed. */
enum http_room {
    HTTP_ROOM,
    HTTP_ROOM_SHARE, /* the owner, or the peer without one, holds its share: respond with 429 */
    HTTP_ROOM_NONE,  /* all together hold replies_bytes: respond with 503 */
};
enum http_room http_room(const struct http_exchange *x);

/* All places but the reserve are taken, and this connection has a reserved one: only a request that
 * must always be answered (a probe, an administrator) may use it, others get 503. The connection is
 * closed after its first response. */
bool http_is_reserved(const struct http_exchange *x);

/* A body that many responses send without a copy for each. create copies the bytes (NULL: out of
 * memory); unpin gives up the creator's reference, and responses under way keep theirs. */
struct http_document *http_document_create(struct str bytes);
void http_document_unpin(struct http_document *d); /* NULL is fine */
struct str http_document_bytes(const struct http_document *d);

/* Send a complete response. Content-Length, Date and Connection are added; a HEAD request gets no
 * body. The caller must not use the exchange afterwards. */
struct http_reply {
    uint32_t status;
    const struct http_header *headers; /* names in lower case; values checked for CR and LF */
    uint32_t header_count;
    struct str body;                /* copied if the kernel does not take it at once */
    struct http_document *document; /* not NULL: the body, in place of `body` */
};
void http_reply(struct http_exchange *x, const struct http_reply *r);

/* Send a response in pieces. put copies its bytes; buf returns the buffer that put writes to, valid
 * until the next flush. flush sends everything that was put since the last flush in one write (one
 * chunk, or one DATA frame if it fits). The headers of begin are sent with the first flush. abort
 * ends the response so that the client sees an error (no last chunk, RST_STREAM). The caller must
 * not use the exchange after end or abort. */
void http_stream_begin(struct http_exchange *x, uint32_t status, const struct http_header *headers,
                       uint32_t header_count);
void http_stream_put(struct http_exchange *x, struct str bytes);
struct buf *http_stream_buf(struct http_exchange *x);
void http_stream_flush(struct http_exchange *x);
void http_stream_end(struct http_exchange *x); /* flushes */
void http_stream_abort(struct http_exchange *x);

/* Bytes that were put and that wait. HTTP/1.1: until the kernel takes them. HTTP/2: until they are
 * framed; the client's flow control and the connection's unsent bytes can delay that. */
uint64_t http_backlog(const struct http_exchange *x);

/* The value of `name` in a query, percent-decoded into `out`; false if absent or malformed. */
bool http_query_find(struct str query, const char *name, struct buf *out);

#endif
