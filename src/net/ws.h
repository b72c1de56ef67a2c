/* net/ws.h - WebSocket (RFC 6455) on an exchange that asked for it.
 *
 *     on_request: ws_wants(x) -> ws_accept -> ws_send ... / on_text ... -> ws_close or on_closed
 *
 * Text messages only; a binary one closes with 1003, a message over the limit with 1009, bad
 * UTF-8 with 1007, one for which the server has no room with 1013, any other breach of the
 * protocol with 1002. Pings are answered, and sent when the connection is silent for long; a peer
 * that does not answer is gone. No subprotocols, no extensions. A drain of the server leaves
 * WebSockets to their owner, who knows what is under way on each and closes it with 1001.
 *
 * Lifetime: from ws_accept until on_closed was called; after ws_close nothing but on_closed
 * comes. Handlers are never called from within a call into this module. Thread: the loop's.
 */
#ifndef NET_WS_H
#define NET_WS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct http_exchange;
struct ws; /* opaque */

enum ws_code {
    WS_NORMAL = 1000,
    WS_GOING_AWAY = 1001,
    WS_BREACH = 1002,
    WS_NOT_TEXT = 1003,
    WS_NO_CODE = 1005, /* told only: the peer closed without giving one */
    WS_CUT_OFF = 1006, /* told only: the connection ended without a close */
    WS_BAD_UTF8 = 1007,
    WS_REFUSED = 1008,
    WS_TOO_BIG = 1009,
    WS_FAULT = 1011,
    WS_TRY_LATER = 1013,
};

struct ws_handler {
    void (*on_text)(void *ctx, struct ws *ws, struct str message);
    void (*on_room)(void *ctx, struct ws *ws); /* as in struct http_handler */
    /* The end, whoever began it. The pointer is dead afterwards. */
    void (*on_closed)(void *ctx, struct ws *ws, uint32_t code);
};

struct ws_options {
    const struct ws_handler *handler;
    void *ctx;
    uint64_t message_bytes; /* the longest that may come in; 0: 8 MiB */
    int64_t ping_ms;        /* of silence before a ping, and again before the end; 0: 30000 */
};

/* A valid upgrade request of version 13, HTTP/1.1. Whether its Origin is welcome is the caller's
 * to judge; so is the answer where this is false (426 with sec-websocket-version: 13). */
bool ws_wants(const struct http_exchange *x);

/* Answers 101; the exchange is over for its handler and the connection belongs to *out. The
 * exchange must be one that ws_wants, after on_request was called. On failure nothing was sent
 * and it lives on. */
enum status ws_accept(struct http_exchange *x, const struct ws_options *options, struct ws **out,
                      struct err *err);

void ws_send(struct ws *ws, struct str text); /* valid UTF-8; copied; sent with the next flush */
void ws_flush(struct ws *ws);                 /* everything since the last one, in one write */
/* `reason` is cut at 123 bytes; the handler still gets on_closed, after the peer has answered
 * or has had its time. A second call does nothing. */
void ws_close(struct ws *ws, uint32_t code, const char *reason);
uint64_t ws_backlog(const struct ws *ws); /* bytes sent and not yet taken by the kernel */

#endif
