/* net/ws.h - WebSocket (RFC 6455) on an exchange that asked for it.
 *
 *     on_request: ws_wants(x) -> ws_accept -> ws_send ... / on_text ... -> ws_close or on_closed
 *
 * Text messages only; a binary one closes with 1003, a message over the limit with 1009, bad
 * UTF-8 with 1007. Pings are answered, and sent when the connection is silent for long; a peer
 * that does not answer is gone.
 *
 * Lifetime: from ws_accept until on_closed was called; after ws_close nothing but on_closed
 * comes. Thread: the loop's.
 */
#ifndef NET_WS_H
#define NET_WS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct http_exchange;
struct ws; /* opaque */

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
    int64_t ping_ms;        /* 0: 30000 */
};

bool ws_wants(const struct http_exchange *x); /* a valid upgrade request, HTTP/1.1 */

/* Answers 101; the exchange is over for its handler and the connection belongs to *out. */
enum status ws_accept(struct http_exchange *x, const struct ws_options *options, struct ws **out,
                      struct err *err);
void ws_send(struct ws *ws, struct str text); /* copied; sent with the next flush */
void ws_flush(struct ws *ws);
void ws_close(struct ws *ws, uint32_t code, const char *reason);
uint64_t ws_backlog(const struct ws *ws);

#endif
