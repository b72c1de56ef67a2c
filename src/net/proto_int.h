/* net/proto_int.h - what a connection calls: the protocol above it, the transport below it.
 *
 * Lifetime: constant tables. Thread: the I/O thread. Memory: none.
 */
#ifndef NET_PROTO_INT_H
#define NET_PROTO_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"
#include "base/str.h"

struct conn;
struct http_exchange;
struct http_header;

/* What a connection waits for. All connections of one kind have the same time limit, so each kind
 * is a queue, and the connection at its head reaches its deadline first. */
enum wait_kind {
    WAIT_NONE, /* no deadline: a response is being produced, and nothing waits to be sent */
    WAIT_HANDSHAKE,
    WAIT_IDLE, /* between requests */
    WAIT_HEAD,
    WAIT_BODY,
    WAIT_WRITE,  /* bytes wait to be sent; conn.c sets it in place of the protocol's kind */
    WAIT_TICK,   /* HTTP/2 checks the deadlines of its streams, a WebSocket its pings */
    WAIT_LINGER, /* everything is sent, the peer may still read it; conn.c sets it */
    WAIT_KINDS,
};

enum conn_use {
    USE_BUSY, /* a response is being produced or sent, or it cannot be said */
    USE_SLOW, /* only requests that arrive, and responses that are read too slowly */
    USE_IDLE,
};

struct proto {
    const char *name; /* "http/1.1", "h2", "websocket" */

    /* Create the protocol's state in c->state. conn_switch does not call it when it passes a
     * state. */
    enum status (*open)(struct conn *c);
    /* Free the state; exchange_gone for every exchange under way. Also called after a failed open,
     * with what that left in c->state. */
    void (*close)(struct conn *c);
    /* Decrypted input, borrowed until it returns. May call conn_write, conn_hold, conn_finish,
     * conn_close. */
    void (*on_bytes)(struct conn *c, struct str bytes);
    /* The kernel has taken one queued write; conn_backlog may be lower than before. */
    void (*on_written)(struct conn *c);
    /* The deadline of `kind` has passed: IDLE, HEAD, BODY or TICK. */
    void (*on_deadline)(struct conn *c, enum wait_kind kind);
    /* Complete the requests under way and accept no new ones. */
    void (*drain)(struct conn *c);

    /* Sending the response of one exchange. `body` NULL: the body follows by send_data. */
    void (*send_head)(struct http_exchange *x, uint32_t status, const struct http_header *headers,
                      uint32_t count, const struct str *body);
    void (*send_data)(struct http_exchange *x); /* x->out: all of it, in one write */
    void (*send_end)(struct http_exchange *x);
    void (*send_abort)(struct http_exchange *x);
    uint64_t (*backlog)(const struct http_exchange *x);

    /* Optional: the deferred call that conn_defer asked for. */
    void (*on_deferred)(struct conn *c);
    /* Optional, for WAIT_TICK: what may be lost if the connection is evicted? */
    enum conn_use (*use)(const struct conn *c);
    /* Bytes that its holders have charged (conn_charge), all or those with an owner; for
     * conns_verify. */
    uint64_t (*charged)(const struct conn *c, bool is_owned);
};

extern const struct proto proto_http1, proto_http2, proto_ws;

/* What carries the bytes: a uv stream (transport.c), or a test's buffers. */
struct transport {
    const char *name;
    /* The number of bytes that the kernel took at once, or a negative uv error; UV_EAGAIN if it
     * took none. */
    ssize_t (*try_write)(struct conn *c, const uv_buf_t *bufs, uint32_t count);
    /* Send all of c->sending and then call conn_sent. */
    int (*write)(struct conn *c);
    size_t (*unsent)(const struct conn *c); /* bytes of c->sending that the kernel has not taken */
    size_t (*queued)(const struct conn *c); /* optional: bytes in the kernel's send queue */
    void (*read)(struct conn *c, bool on);
    int (*shutdown)(struct conn *c); /* end of our output */
    void (*close)(struct conn *c);   /* then call conn_closed */
};
extern const struct transport transport_uv;

#endif
