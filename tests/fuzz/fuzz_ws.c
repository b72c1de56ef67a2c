/* tests/fuzz/fuzz_ws.c - any bytes as what a WebSocket's client sends.
 *
 * The first byte selects the size of the pieces, what the handler does with texts, how much the
 * socket takes, and whether the rest is sent as it is or describes frames, which reach more code
 * than random bytes: three bytes (first byte of the frame, form of its head, length) and a payload
 * each. Texts that arrive must be valid UTF-8 within the limit; on_closed is called once.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "unit/net/ws_client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DESCRIPTION_BYTES = 3 };

static void put_described(struct buf *out, struct str bytes) {
    while (bytes.len >= DESCRIPTION_BYTES) {
        const uint8_t *p = (const uint8_t *)bytes.ptr;
        const size_t len = (size_t)p[2] << (p[1] & 0x30 ? (p[1] >> 4) & 3 : 0);
        bytes = str_skip(bytes, DESCRIPTION_BYTES);
        const struct str payload = str_take(bytes, len);
        ws_put(out, p[0], payload, p[1] & 15);
        bytes = str_skip(bytes, payload.len);
    }
}

static void send_all(struct ws_bench *b, struct str bytes, size_t piece) {
    while (bytes.len && b->f.conn) {
        const struct str part = str_take(bytes, piece);
        fake_send(&b->f, part);
        bytes = str_skip(bytes, part.len);
        if (b->f.is_writing && bytes.len % 3 == 0) fake_drain(&b->f);
    }
}

static void check_received(const struct ws_bench *b) {
    struct str rest = buf_str(&b->received);
    if (!utf8_is_valid(rest)) abort();
    if (rest.len && rest.ptr[rest.len - 1] != '|') abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const size_t pieces[] = {SIZE_MAX, 1, 3, 100};
    const struct http_limits limits = {.backlog_bytes = 1000};
    if (size == 0) return 0;
    const uint8_t mode = data[0];
    struct ws_bench b;
    struct buf bytes;
    if (ws_bench_init(&b, &limits) != ST_OK) abort();
    b.echoes = mode & 4;
    b.closes = mode & 8;
    buf_init(&bytes, FAKE_OUT_MAX);
    if (mode & 16)
        put_described(&bytes, (struct str){(const char *)data + 1, size - 1});
    else
        buf_put(&bytes, data + 1, size - 1);
    if (!fake_connect(&b.f)) abort();
    if (mode & 32) b.f.room = 500;
    fake_send(&b.f, STR(WS_HELLO_TO("/")));
    if (!b.ws) abort();
    send_all(&b, buf_str(&bytes), pieces[mode & 3]);
    check_received(&b);
    if ((mode & 64) && b.ws) ws_close(b.ws, WS_GOING_AWAY, "over");
    fake_drain(&b.f);
    fake_end_input(&b.f, UV_EOF);
    if (b.closed != 1) abort();
    buf_deinit(&bytes);
    ws_bench_deinit(&b);
    return 0;
}
