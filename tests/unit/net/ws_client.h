/* unit/net/ws_client.h - a WebSocket's client as bytes, on a connection without sockets (fake.h).
 *
 * The handler accepts every upgrade at once, or for /later when the test calls ws_bench_accept, and
 * keeps the texts that it gets. Frames are written by hand, so that malformed ones can be sent too.
 * Shared by the unit, fault and fuzz programs of net/.
 */
#ifndef UNIT_NET_WS_CLIENT_H
#define UNIT_NET_WS_CLIENT_H

#include "net/ws.h"
#include "unit/net/fake.h"

#define WS_KEY "dGhlIHNhbXBsZSBub25jZQ=="
#define WS_PROOF "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
#define WS_HELLO_TO(path)                                                                          \
    "GET " path " HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n"                      \
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " WS_KEY "\r\n\r\n"

struct ws_bench {
    struct fake f; /* first: the handler's context is both */
    struct ws_options options;
    struct ws *ws;                 /* NULL before and after */
    struct http_exchange *waiting; /* for ws_bench_accept */
    struct buf received;           /* "text|text|" */
    uint32_t closed, code, ws_writables, refused;
    bool echoes, closes; /* in on_text */
    size_t read;         /* of f.out, by ws_next */
};

static inline void ws_bench_on_text(void *ctx, struct ws *ws, struct str message) {
    struct ws_bench *b = ctx;
    CHECK(!b->f.is_inside);
    CHECK(ws == b->ws);
    buf_put_str(&b->received, message);
    buf_put_char(&b->received, '|');
    b->f.is_inside = true;
    if (b->echoes) ws_send(ws, message);
    if (b->echoes) ws_flush(ws);
    if (b->closes) ws_close(ws, WS_NORMAL, "enough");
    b->f.is_inside = false;
}

static inline void ws_bench_on_room(void *ctx, struct ws *ws) {
    struct ws_bench *b = ctx;
    CHECK(!b->f.is_inside);
    CHECK(ws == b->ws);
    b->ws_writables++;
}

static inline void ws_bench_on_closed(void *ctx, struct ws *ws, uint32_t code) {
    struct ws_bench *b = ctx;
    CHECK(!b->f.is_inside);
    CHECK(ws == b->ws);
    b->closed++;
    b->code = code;
    b->ws = NULL;
}

static const struct ws_handler ws_bench_handler = {
    .on_text = ws_bench_on_text,
    .on_writable = ws_bench_on_room,
    .on_closed = ws_bench_on_closed,
};

static inline void ws_bench_accept(struct ws_bench *b, struct http_exchange *x) {
    b->f.is_inside = true;
    if (!ws_is_upgrade(x) || ws_accept(x, &b->options, &b->ws, NULL) != ST_OK) {
        b->refused++;
        http_reply(x, &(struct http_reply){.status = 426, .body = STR("no")});
    }
    b->f.is_inside = false;
}

static inline void ws_bench_on_request(void *ctx, struct http_exchange *x) {
    struct ws_bench *b = ctx;
    CHECK(!b->f.is_inside);
    if (str_is(http_head(x)->path, "/later"))
        b->waiting = x;
    else
        ws_bench_accept(b, x);
}

static inline void ws_bench_on_gone(void *ctx, struct http_exchange *x) {
    struct ws_bench *b = ctx;
    (void)x;
    CHECK(!b->f.is_inside);
    b->waiting = NULL;
}

static const struct http_handler ws_bench_http = {
    .on_request = ws_bench_on_request,
    .on_gone = ws_bench_on_gone,
    .put_error_body = fake_put_error_body,
};

static inline enum status ws_bench_init(struct ws_bench *b, const struct http_limits *limits) {
    *b = (struct ws_bench){.options = {.handler = &ws_bench_handler, .message_bytes = 1000}};
    b->options.ctx = b;
    const enum status st = fake_init(&b->f, limits);
    if (st != ST_OK) return st;
    b->f.server->handler = &ws_bench_http;
    b->f.server->ctx = b;
    buf_init(&b->received, FAKE_OUT_MAX);
    return ST_OK;
}

static inline void ws_bench_deinit(struct ws_bench *b) {
    fake_deinit(&b->f);
    CHECK(!b->ws);
    buf_deinit(&b->received);
}

/* ---- frames ---- */

enum { WS_BARE = 1, WS_LEN16 = 2, WS_LEN64 = 4, WS_LEN_HUGE = 8 };

/* `first`: FIN, RSV and opcode. `how`: without a mask, lengths longer than need be. */
static inline void ws_put(struct buf *out, uint8_t first, struct str payload, int how) {
    static const uint8_t mask[4] = {0x37, 0xfa, 0x21, 0x3d};
    const uint64_t len = payload.len | (how & WS_LEN_HUGE ? UINT64_C(1) << 63 : 0);
    const bool is_64 = how & (WS_LEN64 | WS_LEN_HUGE) || payload.len > 65535;
    const bool is_16 = !is_64 && (how & WS_LEN16 || payload.len > 125);
    const uint8_t masked = how & WS_BARE ? 0 : 0x80;
    buf_put_char(out, (char)first);
    buf_put_char(out, (char)(masked | (is_64 ? 127 : is_16 ? 126 : payload.len)));
    for (int shift = is_64 ? 56 : is_16 ? 8 : -8; shift >= 0; shift -= 8)
        buf_put_char(out, (char)(len >> shift));
    if (masked) buf_put(out, mask, sizeof(mask));
    for (size_t i = 0; i < payload.len; i++)
        buf_put_char(out, (char)(payload.ptr[i] ^ (masked ? mask[i % 4] : 0)));
}

struct ws_frame {
    uint8_t first;
    struct str payload;
};

/* The next frame of the server's; false: none is whole. */
static inline bool ws_next(struct ws_bench *b, struct ws_frame *frame) {
    const struct str rest = str_skip(buf_str(&b->f.out), b->read);
    const uint8_t *p = (const uint8_t *)rest.ptr;
    if (rest.len < 2) return false;
    CHECK(!(p[1] & 0x80)); /* a server does not mask */
    size_t head = 2;
    uint64_t len = p[1];
    if (len >= 126) {
        const size_t bytes = len == 126 ? 2 : 8;
        if (rest.len < 2 + bytes) return false;
        for (len = 0; head < 2 + bytes; head++) len = len << 8 | p[head];
    }
    if (rest.len - head < len) return false;
    *frame = (struct ws_frame){p[0], {rest.ptr + head, (size_t)len}};
    b->read += head + (size_t)len;
    return true;
}

/* Past the server's 101. */
static inline bool ws_skip_hello(struct ws_bench *b) {
    const struct str all = buf_str(&b->f.out);
    const char *end = all.len ? strstr(all.ptr, "\r\n\r\n") : NULL;
    if (!end || !str_starts(all, STR("HTTP/1.1 101 "))) return false;
    b->read = (size_t)(end - all.ptr) + 4;
    return true;
}

static inline void ws_say(struct ws_bench *b, uint8_t first, struct str payload) {
    struct buf bytes;
    buf_init(&bytes, FAKE_OUT_MAX);
    ws_put(&bytes, first, payload, 0);
    fake_send(&b->f, buf_str(&bytes));
    buf_deinit(&bytes);
}

#endif
