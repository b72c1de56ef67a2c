/* net/ws.h - WebSocket (RFC 6455) on an upgraded HTTP/1.1 connection.
 *
 *     on_request: ws_is_upgrade -> ws_accept -> ws_send ... / on_text ... -> ws_close or on_closed
 *
 * Text messages only. The connection is closed with 1003 after a binary message, with 1009 after a
 * message over the limit, 1007 after invalid UTF-8, 1013 if all bodies and messages together are
 * over their limit, and 1002 after any other protocol error. Pings are answered. A silent peer is
 * pinged; if it does not answer it is disconnected. No subprotocols, no extensions. A drain of the
 * server does not close WebSockets: their owner knows what is under way and closes them with 1001.
 *
 * Lifetime: from ws_accept until on_closed was called; after ws_close only on_closed is called.
 * Functions of this module never call the handler. Thread: the I/O thread.
 */
#ifndef NET_WS_H
#define NET_WS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "net/http.h"

struct http_exchange;
struct ws; /* opaque */

enum ws_code {
    WS_NORMAL = 1000,
    WS_GOING_AWAY = 1001,
    WS_PROTOCOL_ERROR = 1002,
    WS_UNSUPPORTED_DATA = 1003,
    WS_NO_CODE = 1005,  /* only in on_closed: the peer closed without a code */
    WS_ABNORMAL = 1006, /* only in on_closed: the connection ended without a close frame */
    WS_INVALID_PAYLOAD = 1007,
    WS_POLICY_VIOLATION = 1008,
    WS_TOO_BIG = 1009,
    WS_INTERNAL_ERROR = 1011,
    WS_TRY_AGAIN_LATER = 1013,
};

struct ws_handler {
    void (*on_text)(void *ctx, struct ws *ws, struct str message);
    void (*on_writable)(void *ctx, struct ws *ws); /* as in struct http_handler */
    /* Optional: is no answer under way? An idle connection may be closed to make room. */
    bool (*is_idle)(void *ctx, const struct ws *ws);
    /* Closed, by the peer or by us. The pointer is invalid afterwards. */
    void (*on_closed)(void *ctx, struct ws *ws, uint32_t code);
};

struct ws_options {
    const struct ws_handler *handler;
    void *ctx;
    uint64_t message_bytes; /* the longest message that is accepted; 0: 8 MiB */
    int64_t ping_ms;        /* of silence before a ping, and again before closing; 0: 30000 */
};

/* Is it a valid HTTP/1.1 upgrade request of WebSocket version 13? The caller checks the Origin, and
 * responds if this is false (426 with sec-websocket-version: 13). */
bool ws_is_upgrade(const struct http_exchange *x);

/* Respond with 101: the exchange ends and the connection belongs to *out. To be called after
 * on_request, for an exchange with ws_is_upgrade. On failure nothing was sent and the exchange
 * stays open. */
enum status ws_accept(struct http_exchange *x, const struct ws_options *options, struct ws **out,
                      struct err *err);

void ws_send(struct ws *ws, struct str text); /* valid UTF-8; copied; sent with the next flush */
void ws_flush(struct ws *ws);                 /* everything since the last flush, in one write */
/* `reason` is cut at 123 bytes. The handler gets on_closed after the peer has answered, or after
 * 5 s. A second call does nothing. */
void ws_close(struct ws *ws, uint32_t code, const char *reason);
/* As http_room, for a message that asks for an answer. */
enum http_room ws_room(const struct ws *ws);
uint64_t ws_backlog(const struct ws *ws); /* bytes sent that the kernel has not taken yet */

#endif
