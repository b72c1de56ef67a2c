/* net/conn_int.h - a connection and the protocol that is spoken on it. Part of net/http_int.h.
 *
 *   uv stream <-> transport <-> conn <-> proto (http1.c, http2.c, ws.c)
 *
 * Who may call whom. The handler may call the public functions at any time, also from within its
 * own callbacks, and a public function never calls the handler. Work that would call the handler
 * (a failed write, the next pipelined request) is therefore *deferred*: conn_fail and conn_release
 * put the connection into the queue of deferred calls, which the loop runs before it reads again.
 * conn_close may call the handler; only code that the loop has called may use it: on_bytes,
 * on_deadline, on_written, on_deferred.
 *
 * Lifetime: from accept until the loop has closed its handle. Thread: the I/O thread. Memory: the
 * struct, and buffers only while they hold bytes.
 */
#ifndef NET_CONN_INT_H
#define NET_CONN_INT_H

#include <uv.h>

#include "base/buf.h"
#include "base/list.h"
#include "net/http.h"
#include "net/proto_int.h"

struct account; /* account_int.h */
struct conn;
struct tls_session; /* tls.c */

enum {
    CONN_HELD_BYTES = 16384,      /* of input kept for later, before reading pauses */
    CONN_PENDING_MAX = 256 << 20, /* waiting to be sent; a connection that has more fails */
    CONN_LINGER_MS = 1000,        /* after our last byte: time for the peer to read it and close */
    CONN_SLOW_MS = 2000,          /* a response that waits for less time is not slow */
    CONN_PEER_BYTES = 64,
    READ_BUFFER_BYTES = 65536,
    PLAIN_BUFFER_BYTES = 16384, /* a TLS record */
};

enum {
    LINK_ALL,
    LINK_WAIT,
    LINK_DEFERRED,
    LINK_PEER,
    LINKS
}; /* the lists that a connection can be in */

struct conn {
    struct http_server *server;
    const struct transport *transport;
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
    struct buf sending; /* the write under way: the kernel reads it, so it must not move */
    struct buf pending; /* to be sent after `sending` */
    struct buf held;    /* input for later (conn_hold): the protocol's, or of the TLS handshake */
    uint64_t written;   /* bytes that were given to the connection to send */
    uint64_t mark_read; /* when WAIT_WRITE began: how many of them the peer had acknowledged, */
    uint64_t mark_due;  /* and how many waited */
    bool is_writing;    /* `sending` is under way */
    bool is_finishing;  /* conn_finish was called: writes are ignored, input is discarded */
    bool is_shut;       /* our output has ended (FIN, close_notify) */
    bool has_failed;    /* conn_fail was called: closed by the next deferred call */
    bool is_closing;    /* conn_close was called: freed when the loop has closed the handle */
    bool is_paused;     /* the protocol has stopped reading */
    bool is_full;       /* `held` has CONN_HELD_BYTES or more, so reading has stopped */
    bool is_reading;
    bool is_release_due; /* the next deferred call gives `held` to the protocol */
    bool is_deferred;    /* in the queue of its peer's deferred calls */
    bool is_local, is_draining;
    bool is_reserved;           /* see http_is_reserved */
    bool has_eof;               /* the peer has ended its output; what it sent is handled first */
    bool is_reset;              /* close with a reset, so that the peer sees an error */
    enum wait_kind wait;        /* the queue that it is in */
    enum wait_kind wait_wanted; /* the protocol's; another one than `wait` while bytes are unsent */
    int64_t wait_since_ms;
    uint64_t wait_bytes;     /* that have arrived since */
    struct account *account; /* its peer's */
    struct account *owner;   /* of `charged`; NULL: not known, or HTTP/2 */
    uint64_t charged;        /* of `sending` and `pending` */
    uint64_t queued;         /* charged by this connection and its streams */
    struct list_link links[LINKS];
    char peer[CONN_PEER_BYTES];
};

/* The connection whose links[which] is `link`; NULL for NULL. */
static inline struct conn *conn_at(struct list_link *link, int which) {
    return list_item(link, offsetof(struct conn, links) + (size_t)which * sizeof(*link));
}

/* A connection on `transport`; NULL: out of memory. conn_open starts reading, with a handshake if
 * `tls` is given, else with HTTP/1.1. */
struct conn *conn_create(struct http_server *s, const struct transport *transport);
void conn_open(struct conn *c, struct tls_context *tls);
/* Move the connection to the account of its peer. */
void conn_set_account(struct conn *c, struct account *to);
/* The transport calls these. conn_eof: reading has ended with a negative uv error or UV_EOF. */
void conn_received(struct conn *c, struct str bytes);
void conn_eof(struct conn *c, int status);
void conn_sent(struct conn *c, int status);
void conn_closed(struct conn *c); /* frees it */

uint64_t
conn_read_since(const struct conn *c); /* bytes that the peer read since WAIT_WRITE began */

/* evict.c. conns_make_room: a place for `newcomer`, or for one more if NULL; if all places but
 * the reserve are taken another connection is closed. False: all places are taken.
 * conn_admit: a new connection, with its account; false: it must be closed. */
bool conns_make_room(struct http_server *s, const struct conn *newcomer);
bool conn_admit(struct conn *c);

/* Has the loop handled input, or deferred calls, for so long that other events must have their
 * turn? Further input is then held, and a protocol stops between two requests (conn_release). */
bool conns_turn_is_over(struct http_server *s);

/* Called by the server's timer and idle handle. */
void conns_sweep(uv_timer_t *timer);
void conns_run_deferred(uv_idle_t *idle);
void conns_verify(const struct http_server *s); /* CHECKs every queue; slow, for tests */

/* Send. The kernel is tried at once; bytes that it does not take are copied to `pending`. Never
 * calls the protocol; on an error the connection fails (conn_fail). */
void conn_write(struct conn *c, const uv_buf_t *bufs, uint32_t count);
uint64_t conn_backlog(const struct conn *c); /* bytes written and not yet taken by the kernel */
/* Bytes of the write under way and of the kernel's send queue (without `pending`): the number falls
 * while the peer reads. */
size_t conn_unacked(const struct conn *c);
/* Close gracefully: send everything, then give the peer CONN_LINGER_MS to read it. The protocol
 * gets no more bytes; its close() is called when the connection ends. */
void conn_finish(struct conn *c);
/* Close at once. The protocol's close() is called before this returns. */
void conn_close(struct conn *c);
/* Close by a deferred call: for functions that the handler may have called. */
void conn_fail(struct conn *c);
/* Have the loop call on_deferred. */
void conn_defer(struct conn *c);
/* Stop reading, or start it again. */
void conn_pause(struct conn *c, bool pause);
/* Keep input for later. After conn_release on_bytes gets it again, once, before newer input. When
 * CONN_HELD_BYTES or more are held the connection stops reading: this is the back-pressure on a
 * client that sends ahead. */
void conn_hold(struct conn *c, struct str bytes);
void conn_release(struct conn *c);
void conn_wait(struct conn *c, enum wait_kind kind); /* restarts that deadline */
/* Queued responses are counted by connection, peer, owner and server. A holder (the connection's
 * buffers, a stream's queue, an exchange's output) keeps in *charged what it was counted with; this
 * sets it to `bytes`. */
void conn_charge_change(struct conn *c, struct account *owner, uint64_t *charged, uint64_t bytes);
static inline void conn_charge(struct conn *c, struct account *owner, uint64_t *charged,
                               uint64_t bytes) {
    if (*charged != bytes) conn_charge_change(c, owner, charged, bytes);
}
void conn_set_owner(struct conn *c,
                    struct account *owner); /* of what the connection itself holds */

/* Give the connection to another protocol, with input that has been read already. The old
 * protocol's close() is called first; the new one's open() only if `state` is NULL. */
void conn_switch(struct conn *c, const struct proto *to, void *state, struct str bytes);

#endif
