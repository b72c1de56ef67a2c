/* net/http_int.h - what the files of net/ share: connections, protocols, exchanges.
 *
 *   uv stream <-> transport <-> conn <-> proto <-> exchange <-> the handler
 *                  transport.c   conn.c   http1.c, http2.c, ws.c   exchange.c
 *
 * A connection has one protocol at a time: HTTP/1.1 until it reads HTTP/2's preface (or ALPN
 * selects h2) or a WebSocket is accepted. A protocol parses bytes, creates exchanges and writes
 * bytes; it never uses the socket.
 */
#ifndef NET_HTTP_INT_H
#define NET_HTTP_INT_H

#include <uv.h>

#include "base/buf.h"
#include "net/account_int.h"
#include "net/conn_int.h"
#include "net/http.h"
#include "net/http_listen.h"

struct arena;
struct listener; /* listen.c */

/* ---- an exchange (exchange.c) ---- */

struct http_exchange {
    struct conn *conn;
    const struct proto *proto;
    struct http_head head;
    void *user;
    struct arena *arena; /* what `head` points into */
    struct http_header *headers;
    uint32_t header_cap;
    uint32_t head_bytes;   /* names and values so far */
    struct account *owner; /* NULL: not known, the peer's shares apply */
    uint32_t head_charged; /* bytes that exchange_admit has counted */
    struct buf body;
    uint64_t body_max;
    uint64_t body_taken;            /* bytes that http_take_body has given away */
    struct http_document *document; /* the body of the response; borrowed within http_reply */
    struct buf out;                 /* put and not yet flushed */
    size_t out_head;                /* http1: length of the response head at the start of `out` */
    uint64_t charged;               /* of `out`: see conn_charge */
    uint32_t status;
    uint64_t body_sent;
    bool has_head;        /* on_head was called */
    bool is_handled;      /* on_request was called */
    bool is_answered;     /* http_reply or http_stream_begin was called */
    bool is_streaming;    /* between http_stream_begin and its end */
    bool is_writable_due; /* the backlog was above its limit: on_writable follows */
    void *state;          /* the protocol's */
};

/* Protocols call these while a request arrives. create copies peer, is_tls and is_local from the
 * connection; NULL: out of memory. */
struct http_exchange *exchange_create(struct conn *c);
/* Check a header and add it, with its name in lower case. 0: added; 431: over a limit; 400:
 * malformed; 500: out of memory. The caller handles framing headers, Host and pseudo headers. */
uint32_t exchange_add_header(struct http_exchange *x, struct str name, struct str value);
/* Check and copy method, path and query, and host. The target is in origin form ("/a?b"), or "*"
 * with OPTIONS. 0 or a status as above, or 414. */
uint32_t exchange_set_target(struct http_exchange *x, struct str method, struct str target);
uint32_t exchange_set_host(struct http_exchange *x, struct str host);
/* The head is complete. The protocol then calls the handler's on_head, and on_request when the body
 * is complete. A handler may respond at once and so end the exchange: `x` may be freed when it
 * returns. */
void exchange_head_done(struct http_exchange *x);
/* After on_head, if it has not responded: count the memory of the head. 0: fine; 429 or 503: the
 * request must be refused, because the heads of its owner or peer, or of all, are too many. */
uint32_t exchange_admit(struct http_exchange *x);
/* 0: added; 413: over its limit; 429: its owner or peer has its share already; 503: out of memory,
 * or all bodies together are over their limit. Does not call the handler. */
uint32_t exchange_body_add(struct http_exchange *x, struct str bytes);
/* The message of an error response with one of these statuses. */
const char *exchange_body_sentence(const struct http_exchange *x, uint32_t status);
/* The same for bytes that are not an exchange's. charge: 0, 429 or 503. */
uint32_t bodies_charge(struct conn *c, struct account *owner, size_t bytes);
void bodies_release(struct conn *c, struct account *owner, size_t bytes);
enum http_room replies_room(const struct conn *c, const struct account *owner);
void exchange_gone(struct http_exchange *x); /* calls on_gone if needed, then destroys */
/* The response has ended: calls on_end and destroys. The last call of a protocol's send_head with
 * a body, send_end and send_abort. */
void exchange_end(struct http_exchange *x);
void exchange_destroy(struct http_exchange *x); /* calls no handler */
/* The backlog has fallen: calls on_writable if it is due. A protocol's on_written calls this. */
void exchange_written(struct http_exchange *x);

struct http_document {
    uint32_t pins;
    size_t len;
    char bytes[];
};
struct http_document *document_pin(struct http_document *d);

/* Have the handler write the body of an error response, and count the error. */
void exchange_put_error(struct http_server *s, uint32_t status, const char *sentence,
                        struct buf *body);

/* http1: `x` is an upgrade request whose 101 response has been written. Destroys `x` without on_end
 * and gives its connection to `to`. Input that followed the request is delivered to `to` later,
 * when the current on_bytes returns or by a deferred call. */
void http1_upgrade(struct http_exchange *x, const struct proto *to, void *state);

struct http_server {
    uv_loop_t *loop;
    struct http_limits limits; /* defaults filled in */
    const struct http_handler *handler;
    void *ctx;
    struct http_stats stats;
    bool is_draining, is_closing;
    uint64_t heads_bytes; /* of all exchanges that were admitted */
    uint64_t peak_bytes;  /* of what clients held, since memory was last returned to the system */
    int64_t fallen_ms;    /* since when less than a quarter of it is held; 0: more is */
    uv_work_t trim_work;  /* returns memory to the system while is_trimming */
    bool is_trimming;
    uint64_t bodies_bytes; /* of all exchanges, and of incomplete WebSocket messages */
    struct accounts peers, owners;
    struct network trusted[HTTP_TRUSTED_MAX];
    uint32_t trusted_count;
    struct account local;   /* of unix sockets, and until the address is known */
    uint64_t replies_bytes; /* queued on all connections */
    struct list conns;
    struct list deferred;       /* peers with connections whose deferred call is due */
    uint64_t (*clock_ns)(void); /* uv_hrtime, or a test's */
    int64_t turn_ms;            /* uv_now of the loop's turn that began at turn_ns */
    uint64_t turn_ns;
    struct list waits[WAIT_KINDS];
    int64_t wait_ms[WAIT_KINDS]; /* the time limit of each kind */
    uv_timer_t sweep;            /* looks for deadlines that have passed */
    uv_idle_t defer_idle;        /* active while `deferred` is not empty */
    struct listener *listeners;
    uint32_t open_handles; /* uv handles that must be closed before destroy */
    struct buf scratch;    /* the head of the response that is being sent */
    struct buf gather;     /* plaintext of one TLS write */
    struct buf cipher;     /* and its ciphertext */
    char date[40];         /* value of the Date header, written once a second */
    int64_t date_s;
    char read_buffer[READ_BUFFER_BYTES]; /* for all connections: each read is handled at once */
    char plain_buffer[PLAIN_BUFFER_BYTES];
};

/* A leaky bucket: counts what a peer does, and forgets at a fixed rate. */
struct bucket {
    uint32_t count;
    uint32_t leaked_thousandths; /* of the next one: so that no fraction is lost */
    int64_t at_ms;
};
/* Count one; true: the bucket overflows. */
bool bucket_add(struct bucket *t, int64_t now_ms, uint32_t per_s, uint32_t burst);
void bucket_remove(struct bucket *t);

/* Bytes that must pass in `ms` at the least rate that is allowed. */
static inline uint64_t rate_bytes(const struct http_limits *l, int64_t ms) {
    return (uint64_t)ms * l->rate / 1000;
}

/* The value of the Date header now. */
const char *server_date(struct http_server *s);
/* If the server is closing and has no connections left: close the handles that keep the loop
 * running. */
void server_close_handles(struct http_server *s);
void listeners_close(struct http_server *s); /* listen.c */

/* Does it contain only characters allowed in tokens (methods, header names), values, Host? */
bool text_is_token(struct str s);
bool text_is_value(struct str s);
bool text_is_host(struct str s);
bool text_is_nocase(struct str a, const char *lower);   /* equal, ignoring the case of ASCII */
bool text_list_has(struct str list, const char *lower); /* is it an item of "a, B,c"? */

const char *http_status_text(uint32_t status);
/* Are the first bytes of a connection HTTP/2's preface, or (needs_more) the start of it? */
bool http2_is_preface(struct str bytes, bool *needs_more);

#endif
