/* net/http.h - an HTTP server: requests in, responses out, whatever the framing.
 *
 * One server owns listeners and connections on one event loop. A request with its response is an
 * *exchange*; the same calls serve HTTP/1.1, HTTP/2 (h2 and h2c) and TLS.
 *
 *     on_head -> (body arrives, counted against its limit) -> on_request -> http_reply
 *                                                                       or http_stream_begin,
 *                                                                          put, flush ..., end
 *                                                                       or ws_accept (net/ws.h)
 *
 * A handler may answer as early as in on_head (a refusal); the rest of the body is then not kept,
 * and the connection is closed unless little is left of it. An exchange lives until its response
 * has ended or on_gone was called, whichever is first; after that its pointer is dead.
 *
 * What breaks the protocol never reaches the handler: it is answered here with the right status
 * and a body that the handler words (put_fault), and the connection is closed.
 *
 * Lifetime: create, listen, run the loop, close, destroy after the loop has run dry.
 * Thread: the loop's. Memory: a connection that waits holds about a KiB; request and response
 * memory is taken when it is needed and given back when the exchange ends.
 */
#ifndef NET_HTTP_H
#define NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct http_server;   /* opaque */
struct http_exchange; /* opaque */
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
    HTTP_OTHER, /* any further valid method: the handler answers 405 or 501 */
};
const char *http_method_name(enum http_method m);

struct http_header {
    struct str name; /* lower case */
    struct str value;
};

/* What stands before the body. Borrowed: valid as long as the exchange. */
struct http_head {
    enum http_method method;
    uint32_t version; /* 10, 11 or 20 */
    struct str path;  /* as sent, up to the '?': begins with '/'; percent signs not decoded */
    struct str query; /* behind the '?', without it; may be empty */
    struct str host;  /* Host or :authority; empty if HTTP/1.0 gave none */
    const struct http_header *headers;
    uint32_t header_count;
    struct str peer; /* "127.0.0.1:5123", "unix" */
    bool is_tls;
    bool is_local; /* came by loopback or unix socket */
};

/* The value of the first header of that name (lower case); ptr NULL if absent. */
struct str http_find(const struct http_head *h, const char *name);

/* Everything has a limit. Zero: the default that stands here. */
struct http_limits {
    uint32_t head_bytes;    /* 16384: request line and headers together          -> 431, 414 */
    uint32_t headers;       /* 100                                               -> 431      */
    uint64_t body_bytes;    /* 8 MiB                                             -> 413      */
    uint64_t bodies_bytes;  /* 64 times that: of all requests and messages at once -> 503    */
    uint32_t connections;   /* 0: what the descriptor limit allows; the oldest idle one goes */
    uint32_t streams;       /* 100: concurrent exchanges of one HTTP/2 connection            */
    uint64_t backlog_bytes; /* 256 KiB: http_backlog above which a writer should wait        */
    int64_t head_ms;        /* 10000: from the first byte of a request to its last header    */
    int64_t body_ms;        /* 30000: without any byte of a body                    -> 408   */
    int64_t body_total_ms;  /* 300000: for a whole body                             -> 408   */
    int64_t idle_ms;        /* 75000: between requests                                       */
    int64_t write_ms;       /* 60000: the peer takes no byte of what waits for it: it is gone */
    int64_t handshake_ms;   /* 10000: TLS                                                    */
};

/* Called on the loop, and but for on_end never from within a call into this module, so a handler
 * may call anything from anywhere. `ctx` is the options'. on_request and put_fault are needed. */
struct http_handler {
    /* Headers are in. May answer at once, may lower or raise this body's limit. */
    void (*on_head)(void *ctx, struct http_exchange *x);
    /* The body is in, too. Not called if on_head has answered. */
    void (*on_request)(void *ctx, struct http_exchange *x);
    /* The client is gone, was too slow, or reset the stream before the response had ended. Only
     * after on_request (or a stream that was begun before it). */
    void (*on_gone)(void *ctx, struct http_exchange *x);
    /* What waited to be sent has fallen below half of backlog_bytes after having been above it. */
    void (*on_room)(void *ctx, struct http_exchange *x);
    /* Word the body (JSON) of a refusal that happens below the handler. */
    void (*put_fault)(void *ctx, uint32_t status, const char *sentence, struct buf *body);
    /* Optional: a response was handed over whole or has ended; for access logs. The one callback
     * that comes from within a call (reply, end, abort). */
    void (*on_end)(void *ctx, struct http_exchange *x, uint32_t status, uint64_t body_bytes);
};

struct http_options {
    struct http_limits limits;
    const struct http_handler *handler;
    void *ctx;
};

/* Raise the process's soft limit of descriptors to the hard one; tells what it was and is. Call it
 * before http_server_create, which derives the limit of connections from it. */
void http_raise_fd_limit(uint64_t *before, uint64_t *after);

/* Also makes the process ignore SIGPIPE if nothing else was chosen: a write to a client that has
 * left must be an error and not the end. */
enum status http_server_create(struct uv_loop_s *loop, const struct http_options *options,
                               struct http_server **out, struct err *err);
void http_server_destroy(struct http_server *s); /* NULL is fine; after close and a dry loop */
/* New limits for what begins from here on (a reload); zeros as in http_options. */
void http_set_limits(struct http_server *s, const struct http_limits *limits);

/* Listeners. `tls` may be NULL. ST_UNAVAILABLE: the port is taken, with the sentence. *port
 * tells which was chosen for port 0. A stale socket file of ours at `path` is replaced; a living
 * one is ST_UNAVAILABLE. `fd`: one that the service manager hands over, listening already. */
enum status http_listen_tcp(struct http_server *s, const char *host, uint16_t *port,
                            struct tls_context *tls, struct err *err);
enum status http_listen_unix(struct http_server *s, const char *path, struct err *err);
enum status http_listen_fd(struct http_server *s, int fd, struct tls_context *tls, struct err *err);

/* Drain: HTTP/1.1 connections close after the response under way (Connection: close), HTTP/2
 * gets GOAWAY; idle ones close at once. Listeners stay open until http_server_close, so that new
 * requests can be refused in words. */
void http_server_drain(struct http_server *s);
/* Everything at once; on_gone is called for exchanges under way. */
void http_server_close(struct http_server *s);

struct http_stats {
    uint32_t connections, exchanges; /* open now */
    uint64_t accepted, refused;      /* connections since the start */
    uint64_t faults;                 /* protocol breaches answered here */
    uint64_t bytes_in, bytes_out, writes;
};
struct http_stats http_stats(const struct http_server *s);

/* ---- an exchange ---- */

const struct http_head *http_head(const struct http_exchange *x);
struct str http_body(const struct http_exchange *x); /* whole; in on_request and after it */
void http_set_body_max(struct http_exchange *x, uint64_t bytes); /* in on_head */

void http_set_user(struct http_exchange *x, void *user);
void *http_user(const struct http_exchange *x);

/* A whole response. Content-Length, Date and Connection are added here; HEAD gets no body. The
 * exchange is over for the caller. */
struct http_reply {
    uint32_t status;
    const struct http_header *headers; /* names in lower case; values checked for CR and LF */
    uint32_t header_count;
    struct str body; /* copied if it cannot be sent at once */
};
void http_reply(struct http_exchange *x, const struct http_reply *r);

/* A response in pieces. put copies; flush hands all that was put since the last flush to the
 * kernel in one write (one chunk, one DATA frame if it fits). begin sends the headers with the
 * first flush. abort cuts the response off so that the client can see it (no last chunk,
 * RST_STREAM). After end and abort the exchange is over for the caller. */
void http_stream_begin(struct http_exchange *x, uint32_t status, const struct http_header *headers,
                       uint32_t header_count);
void http_stream_put(struct http_exchange *x, struct str bytes);
void http_stream_flush(struct http_exchange *x);
void http_stream_end(struct http_exchange *x); /* flushes */
void http_stream_abort(struct http_exchange *x);

/* Bytes put and not yet taken by the kernel. */
uint64_t http_backlog(const struct http_exchange *x);

/* Percent-decoding of a query: the value of `name`, decoded into `out`; false if absent or
 * damaged. */
bool http_query_find(struct str query, const char *name, struct buf *out);

#endif
