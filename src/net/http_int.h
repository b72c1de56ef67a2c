/* net/http_int.h - what the files of net/ share: connections, protocols, exchanges.
 *
 *   uv stream <-> conn (conn.c: bytes, TLS, deadlines) <-> proto (http1.c, http2.c, ws.c)
 *                                                          <-> exchange (http.c: the public calls)
 *
 * A connection has one protocol at a time: http1 until it sees HTTP/2's preface (or ALPN says h2)
 * or a WebSocket is accepted. A protocol gets bytes, makes exchanges, and writes bytes; it never
 * touches the socket.
 */
#ifndef NET_HTTP_INT_H
#define NET_HTTP_INT_H

#include <uv.h>

#include "base/buf.h"
#include "net/http.h"

struct conn;

/* What a connection waits for; each kind has one duration, so each is a queue whose head is due
 * first. */
enum wait_kind {
    WAIT_NONE, /* a response is under way and the peer takes it */
    WAIT_HANDSHAKE,
    WAIT_IDLE,
    WAIT_HEAD,
    WAIT_BODY,
    WAIT_WRITE,
    WAIT_TICK, /* a second: HTTP/2 looks at the deadlines of its streams, a WebSocket at its pings */
    WAIT_KINDS,
};

struct proto {
    const char *name; /* "http/1.1", "h2", "websocket" */

    /* The connection's protocol begins; its state goes to c->state. */
    enum status (*open)(struct conn *c);
    /* Frees its state; calls on_gone for what is under way. */
    void (*close)(struct conn *c);
    /* Bytes have come (decrypted). May call conn_write, conn_finish, conn_kill. */
    void (*on_bytes)(struct conn *c, struct str bytes);
    /* All that waited has been taken by the kernel, or has fallen below the low mark. */
    void (*on_written)(struct conn *c);
    /* The deadline of `kind` has passed. */
    void (*on_late)(struct conn *c, enum wait_kind kind);
    /* Finish what is under way, take nothing new. */
    void (*drain)(struct conn *c);

    /* An exchange's side of it. `body` NULL: more follows. */
    void (*send_head)(struct http_exchange *x, uint32_t status, const struct http_header *headers,
                      uint32_t count, const struct str *body);
    void (*send_data)(struct http_exchange *x); /* x->out: all of it, in one write */
    void (*send_end)(struct http_exchange *x);
    void (*send_abort)(struct http_exchange *x);
    uint64_t (*backlog)(const struct http_exchange *x);
};

extern const struct proto proto_http1, proto_http2, proto_ws;

/* ---- a connection (conn.c) ---- */

struct conn {
    struct http_server *server;
    const struct proto *proto;
    void *state; /* the protocol's */
    struct tls_session *tls;
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    struct buf pending; /* ciphertext or plaintext that the kernel has not taken yet */
    size_t sent;        /* of `pending` */
    bool is_writing, is_finishing, is_closing, is_paused, is_local, is_draining;
    enum wait_kind wait;
    int64_t wait_since_ms;
    struct conn *wait_next, *wait_prev; /* in the queue of its wait */
    struct conn *next, *prev;           /* all of the server's */
    char peer[64];
};

/* Send. Tries the kernel at once; what it does not take waits in `pending`. */
void conn_write(struct conn *c, const uv_buf_t *bufs, uint32_t count);
uint64_t conn_backlog(const struct conn *c);
/* Close after everything has been sent, and the peer had a moment to read it. */
void conn_finish(struct conn *c);
/* Close at once. The protocol's close() is called before this returns. */
void conn_kill(struct conn *c);
/* Stop and go on reading: a request is being answered and more of the next has come than fits. */
void conn_pause(struct conn *c, bool pause);
void conn_wait(struct conn *c, enum wait_kind kind); /* starts that deadline anew */
/* Hand the connection to another protocol, with bytes that came already. */
void conn_switch(struct conn *c, const struct proto *to, void *state, struct str bytes);

/* ---- an exchange (http.c) ---- */

struct http_exchange {
    struct conn *conn;
    const struct proto *proto;
    struct http_head head;
    void *user;
    struct buf text; /* what `head` points into */
    struct http_header *headers;
    struct buf body;
    uint64_t body_max;
    struct buf out; /* put and not yet flushed */
    uint32_t status;
    uint64_t body_sent;
    int32_t stream_id; /* HTTP/2 */
    bool has_head, is_handled, is_answered, is_streaming, has_sent_head, is_over, was_full;
    struct http_exchange *next; /* HTTP/2: of its connection */
    void *state;                /* the protocol's */
};

/* Protocols call these as a request arrives. create: NULL when out of memory. */
struct http_exchange *exchange_create(struct conn *c);
/* Lower-cased and checked header; false: a limit (431) or a bad one (400). */
bool exchange_add_header(struct http_exchange *x, struct str name, struct str value);
void exchange_head_done(struct http_exchange *x);                  /* calls on_head    */
bool exchange_body_add(struct http_exchange *x, struct str bytes); /* false: over its limit */
void exchange_body_done(struct http_exchange *x);                  /* calls on_request */
void exchange_gone(struct http_exchange *x);    /* calls on_gone if due, then destroys */
void exchange_destroy(struct http_exchange *x); /* its response has been handed over */

/* Refuse: the body that the handler words, in *body. */
void exchange_word_fault(struct http_server *s, uint32_t status, const char *sentence,
                         struct buf *body);

struct http_server {
    uv_loop_t *loop;
    struct http_limits limits; /* defaults filled in */
    const struct http_handler *handler;
    void *ctx;
    struct http_stats stats;
    bool is_draining, is_closing;
    struct conn *conns;
    struct {
        struct conn *first, *last;
    } waits[WAIT_KINDS];
    uv_timer_t timer;
    struct listener *listeners;
    char date[40]; /* of the Date header, made once a second */
    int64_t date_s;
    char read_buffer[65536]; /* one for all connections: reads are handled before the next */
};

const char *http_status_text(uint32_t status);
/* Offer HTTP/2 to bytes that begin a connection: are they its preface (or the start of it)? */
bool http2_is_preface(struct str bytes, bool *needs_more);

#endif
