/* net/conn_int.h - a connection and the protocol that is spoken on it. Part of net/http_int.h.
 *
 *   uv stream <-> wire <-> conn (conn.c: bytes, TLS, deadlines) <-> proto (http1.c, http2.c, ws.c)
 *
 * Who may call whom. The handler calls the public functions at any time, also from within its own
 * callbacks, and no callback of the handler comes from within them. So what a public call sets
 * off that would call the handler (a failed write, the next pipelined request) waits for the next
 * *turn*: conn_break and conn_release put the connection into a queue that the loop works off
 * before it reads again. conn_kill is for code that the loop has called: on_bytes, on_late,
 * on_written, on_turn.
 *
 * Lifetime: from accept until the loop has closed its handle. Thread: the loop's. Memory: the
 * struct, and buffers only while something waits in them.
 */
#ifndef NET_CONN_INT_H
#define NET_CONN_INT_H

#include <uv.h>

#include "base/buf.h"
#include "net/http.h"

struct conn;
struct tls_session; /* tls.c */

enum {
    CONN_AHEAD_BYTES = 16384,     /* held for later before reading pauses */
    CONN_PENDING_MAX = 256 << 20, /* waiting to be sent; a connection that has more is broken */
    CONN_LINGER_MS = 1000,        /* how long a closed conversation waits for the peer to leave */
    CONN_PEER_BYTES = 64,
    READ_BUFFER_BYTES = 65536,
    PLAIN_BUFFER_BYTES = 16384, /* a TLS record */
};

/* What a connection waits for; each kind has one duration, so each is a queue whose head is due
 * first. */
enum wait_kind {
    WAIT_NONE, /* a response is under way and the peer takes it */
    WAIT_HANDSHAKE,
    WAIT_IDLE, /* the oldest of these gives way when there are too many connections */
    WAIT_HEAD,
    WAIT_BODY,
    WAIT_WRITE,  /* set by conn.c alone, in place of what the protocol asked for */
    WAIT_TICK,   /* HTTP/2 looks at the deadlines of its streams, a WebSocket at its pings */
    WAIT_LINGER, /* set by conn.c alone: all is said, the peer has a moment to read it */
    WAIT_KINDS,
};

struct proto {
    const char *name; /* "http/1.1", "h2", "websocket" */

    /* The connection's protocol begins; its state goes to c->state. Not called by conn_switch
     * where the state is handed over. */
    enum status (*open)(struct conn *c);
    /* Frees its state; calls on_gone for what is under way (exchange_gone). Also after a failed
     * open, with what that left in c->state. */
    void (*close)(struct conn *c);
    /* Bytes have come (decrypted). May call conn_write, conn_hold, conn_finish, conn_kill. They
     * are borrowed until it returns. */
    void (*on_bytes)(struct conn *c, struct str bytes);
    /* All that waited has been taken by the kernel, or has fallen below the low mark. */
    void (*on_written)(struct conn *c);
    /* The deadline of `kind` has passed: IDLE, HEAD, BODY or TICK. */
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

    /* Optional: a turn that conn_defer asked for. */
    void (*on_turn)(struct conn *c);
};

extern const struct proto proto_http1, proto_http2, proto_ws;

/* What carries the bytes: a uv stream (wire.c), or a test's buffers. */
struct wire {
    const char *name;
    /* Bytes taken at once, or a negative uv error; UV_EAGAIN if none. */
    ssize_t (*try_write)(struct conn *c, const uv_buf_t *bufs, uint32_t count);
    /* Send all of c->sending and then call conn_sent. */
    int (*write)(struct conn *c);
    size_t (*unsent)(const struct conn *c); /* of c->sending */
    size_t (*queued)(const struct conn *c); /* optional: sent, and not yet taken by the peer */
    void (*read)(struct conn *c, bool on);
    int (*shutdown)(struct conn *c); /* no more bytes will be sent */
    void (*close)(struct conn *c);   /* and then call conn_closed */
};
extern const struct wire wire_uv;

struct conn_link {
    struct conn *next, *prev;
};
enum { LINK_ALL, LINK_WAIT, LINK_TURN, LINKS };
struct conn_list {
    struct conn *first, *last;
};

struct conn {
    struct http_server *server;
    const struct wire *wire;
    const struct proto *proto;
    void *state; /* the protocol's */
    struct tls_session *tls;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    union {
        uv_write_t write;
        uv_shutdown_t shutdown;
    } req;
    struct buf sending; /* with the kernel: must not move */
    struct buf pending; /* to be sent after `sending` */
    struct buf ahead;   /* came, and the protocol does not want it yet */
    size_t untaken;     /* by the peer, of what was sent, when WAIT_WRITE began */
    bool is_writing;    /* `sending` is under way */
    bool is_finishing;  /* conn_finish was called: writes are ignored, reads thrown away */
    bool is_shut;       /* the peer has been told that nothing more comes */
    bool is_broken;     /* to be killed in the next turn */
    bool is_closing;    /* killed; freed when the loop says so */
    bool is_paused;     /* by the protocol */
    bool is_full;       /* `ahead` is */
    bool is_reading;
    bool is_released; /* `ahead` is to be given to the protocol */
    bool is_deferred; /* in the queue of turns */
    bool is_local, is_draining;
    bool has_eof;               /* the peer has ended its side while ours was finishing */
    bool is_reset;              /* closed so that the peer sees an error, not an end */
    enum wait_kind wait;        /* whose queue it is in */
    enum wait_kind wait_wanted; /* by the protocol; differs while bytes wait to be sent */
    int64_t wait_since_ms;
    struct conn_link links[LINKS];
    char peer[CONN_PEER_BYTES];
};

/* A connection on `wire`; open begins to read, with http1 or, for `tls`, a handshake. NULL: out
 * of memory. */
struct conn *conn_create(struct http_server *s, const struct wire *wire);
void conn_open(struct conn *c, struct tls_context *tls);
/* What the wire tells. eof: a negative uv error that ends reading, UV_EOF among them. */
void conn_received(struct conn *c, struct str bytes);
void conn_eof(struct conn *c, int status);
void conn_sent(struct conn *c, int status);
void conn_closed(struct conn *c); /* frees it */

/* What the server's sweep and turn handles call. */
void conns_sweep(uv_timer_t *timer);
void conns_turn(uv_idle_t *idle);
void conns_verify(const struct http_server *s); /* CHECKs every queue; slow, for tests */

/* Send. Tries the kernel at once; what it does not take waits in `pending`. Never calls the
 * protocol; a failure breaks the connection. */
void conn_write(struct conn *c, const uv_buf_t *bufs, uint32_t count);
uint64_t conn_backlog(const struct conn *c);
size_t conn_untaken(const struct conn *c); /* under way, or in the kernel: less if the peer reads */
/* Close after everything has been sent, and the peer had a moment to read it. The protocol hears
 * no more of bytes; its close() is called when the connection ends. */
void conn_finish(struct conn *c);
/* Close at once. The protocol's close() is called before this returns. */
void conn_kill(struct conn *c);
/* The same in the next turn: for calls that may come from the handler. */
void conn_break(struct conn *c);
/* on_turn in the next turn. */
void conn_defer(struct conn *c);
/* Stop and go on reading. */
void conn_pause(struct conn *c, bool pause);
/* Keep bytes of on_bytes for later: they come again, once, after conn_release, before what is
 * read then. Reading stops by itself when there are many. */
void conn_hold(struct conn *c, struct str bytes);
void conn_release(struct conn *c);
void conn_wait(struct conn *c, enum wait_kind kind); /* starts that deadline anew */
/* Hand the connection to another protocol, with bytes that came already. The old one's close() is
 * called first. `state` NULL: the new one's open() is called. */
void conn_switch(struct conn *c, const struct proto *to, void *state, struct str bytes);

#endif
