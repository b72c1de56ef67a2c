/* tests/fuzz/fuzz_http2.c - any bytes as what an HTTP/2 client sends.
 *
 * The first byte selects the size of the pieces, whether the preface and SETTINGS come first, how
 * much the socket takes, and when held requests get their response. The rest is sent, time passes,
 * and the peer disconnects. Every exchange must end and nothing may leak.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "unit/net/h2_client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BEGIN NGHTTP2_CLIENT_MAGIC "\0\0\0\x04\0\0\0\0\0"

static void send_all(struct fake *f, struct str bytes, size_t piece, bool answers) {
    while (bytes.len && f->conn) {
        const struct str part = str_take(bytes, piece);
        fake_send(f, part);
        bytes = str_skip(bytes, part.len);
        if (answers) fake_answer_held(f);
        if (f->is_writing && bytes.len % 3 == 0) fake_drain(f);
    }
}

/* What a handler that streams may do with what it holds. */
static void stream_held(struct fake *f) {
    uint32_t left = f->held_count;
    for (uint32_t i = 0; i < left; i++) {
        http_stream_begin(f->held[i], 200, NULL, 0);
        for (int k = 0; k < 3; k++) {
            http_stream_put(f->held[i], STR("some text, "));
            http_stream_flush(f->held[i]);
        }
    }
    while (left-- && f->held_count) http_stream_end(f->held[0]);
    fake_run_loop(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const size_t pieces[] = {SIZE_MAX, 1, 7, 100};
    const struct http_limits limits = {
        .head_bytes = 2000, .headers = 20, .body_bytes = 1000, .streams = 7, .backlog_bytes = 1000};
    if (size == 0) return 0;
    const uint8_t mode = data[0];
    const struct str bytes = {(const char *)data + 1, size - 1};
    struct fake f;
    if (fake_init(&f, &limits) != ST_OK) abort();
    if (!fake_connect(&f)) abort();
    if (mode & 4) fake_send(&f, STR(BEGIN));
    if (mode & 8) f.room = 50;
    send_all(&f, bytes, pieces[mode & 3], mode & 16);
    if (mode & 32) stream_held(&f);
    if (mode & 64) fake_pass_ms(&f, 100000);
    if (mode & 128) http_server_drain(f.server);
    fake_drain(&f);
    fake_end_input(&f, UV_EOF);
    if (f.held_count) abort();
    fake_deinit(&f);
    return 0;
}
