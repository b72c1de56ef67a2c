/* net/http_int.h - what the files of net/ share: connections, protocols, exchanges.
 *
 *   uv stream <-> wire <-> conn (conn.c: bytes, TLS, deadlines) <-> proto (http1.c, http2.c, ws.c)
 *                                                                   <-> exchange (http.c)
 *
 * A connection has one protocol at a time: http1 until it sees HTTP/2's preface (or ALPN says h2)
 * or a WebSocket is accepted. A protocol gets bytes, makes exchanges, and writes bytes; it never
 * touches the socket.
 */
#ifndef NET_HTTP_INT_H
#define NET_HTTP_INT_H

#include <uv.h>

#include "base/buf.h"
#include "net/conn_int.h"
#include "net/http.h"

struct arena;
struct listener; /* listen.c */

/* ---- an exchange (http.c) ---- */

struct http_exchange {
    struct conn *conn;
    const struct proto *proto;
    struct http_head head;
    void *user;
    struct arena *arena; /* what `head` points into */
    struct http_header *headers;
    uint32_t header_cap;
    uint32_t head_bytes; /* names and values so far */
    struct buf body;
    uint64_t body_max;
    struct buf out;  /* put and not yet flushed */
    size_t out_head; /* http1: bytes of the response's head that `out` begins with */
    uint32_t status;
    uint64_t body_sent;
    int32_t stream_id; /* HTTP/2 */
    bool has_head;     /* on_head was called */
    bool is_handled;   /* on_request was called */
    bool is_answered;  /* reply or stream_begin was called */
    bool is_streaming; /* between stream_begin and its end */
    bool has_sent_head;
    bool is_over;
    bool was_full;              /* the backlog was above its limit; on_room is due */
    struct http_exchange *next; /* HTTP/2: of its connection */
    void *state;                /* the protocol's */
};

/* Protocols call these as a request arrives. create: NULL when out of memory; it copies peer,
 * is_tls and is_local from the connection. */
struct http_exchange *exchange_create(struct conn *c);
/* Lower-cased and checked header. 0: added; 431: a limit; 400: a bad one; 500: no memory. The
 * caller deals with those that frame the message, with Host and with pseudo headers. */
uint32_t exchange_add_header(struct http_exchange *x, struct str name, struct str value);
/* Method, path and query, host: copied and checked. The target is in origin form ("/a?b"), or "*"
 * with OPTIONS. 0 or a status as above. */
uint32_t exchange_set_target(struct http_exchange *x, struct str method, struct str target);
uint32_t exchange_set_host(struct http_exchange *x, struct str host);
/* These call the handler, which may answer at once and so end the exchange: `x` may be dead when
 * they return. */
void exchange_head_done(struct http_exchange *x); /* calls on_head    */
/* 0: added; 413: over its limit; 503: no memory, or too much in all requests. Never calls. */
uint32_t exchange_body_add(struct http_exchange *x, struct str bytes);
void exchange_body_done(struct http_exchange *x); /* calls on_request */
void exchange_gone(struct http_exchange *x);      /* calls on_gone if due, then destroys */
/* The response has been handed over whole: calls on_end and destroys. For send_head with a body,
 * send_end and send_abort of a protocol, as the last thing that they do. */
void exchange_end(struct http_exchange *x);
void exchange_destroy(struct http_exchange *x); /* without a word */
/* Bytes have left: calls on_room if it is due. Called by on_written. */
void exchange_written(struct http_exchange *x);

/* Refuse: the body that the handler words, in *body. Counts the fault. */
void exchange_word_fault(struct http_server *s, uint32_t status, const char *sentence,
                         struct buf *body);

/* http1: `x` asked for an upgrade whose 101 has been written. Destroys `x` without on_end and
 * hands its connection to `to`; bytes that came behind the request follow after the call that the
 * loop made has returned, or in the next turn. */
void http1_upgrade(struct http_exchange *x, const struct proto *to, void *state);

struct http_server {
    uv_loop_t *loop;
    struct http_limits limits; /* defaults filled in */
    const struct http_handler *handler;
    void *ctx;
    struct http_stats stats;
    bool is_draining, is_closing;
    uint64_t bodies_bytes; /* of all exchanges, and of messages that are coming */
    struct conn_list conns;
    struct conn_list turns;
    struct conn_list waits[WAIT_KINDS];
    int64_t wait_ms[WAIT_KINDS]; /* how long each may take */
    uv_timer_t sweep;            /* looks for deadlines that have passed */
    uv_idle_t turn;              /* runs while `turns` has something */
    struct listener *listeners;
    uint32_t open_handles; /* of uv, that must be closed before destroy */
    struct buf scratch;    /* of a response's head, while it is being sent */
    struct buf gather;     /* plaintext of one TLS write */
    struct buf cipher;     /* and its ciphertext */
    char date[40];         /* of the Date header, made once a second */
    int64_t date_s;
    char read_buffer[READ_BUFFER_BYTES]; /* one for all connections: reads are handled before the
                                            next */
    char plain_buffer[PLAIN_BUFFER_BYTES];
};

/* The value that a Date header has at this second. */
const char *server_date(struct http_server *s);
/* Close what keeps the loop running once the last connection has gone. */
void server_settle(struct http_server *s);
void listeners_close(struct http_server *s); /* listen.c */

/* Characters of tokens (methods, header names); of values; of Host. */
bool text_is_token(struct str s);
bool text_is_value(struct str s);
bool text_is_host(struct str s);
bool text_is_nocase(struct str a, const char *lower);   /* equal but for the case of ASCII */
bool text_list_has(struct str list, const char *lower); /* "a, B,c": is it one of them? */

const char *http_status_text(uint32_t status);
/* Offer HTTP/2 to bytes that begin a connection: are they its preface (or the start of it)? */
bool http2_is_preface(struct str bytes, bool *needs_more);

#endif
