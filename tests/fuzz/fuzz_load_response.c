/* tests/fuzz/fuzz_load_response.c - any bytes as what a server answers to `jitney bench`.
 *
 * The bytes are read whole and in pieces whose lengths they choose themselves: both must find the
 * same response, the same events and the same meaning, up to the same end.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/buf.h"
#include "loadgen/delta.h"
#include "loadgen/response.h"
#include "loadgen/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct reader {
    struct loadgen_response response;
    struct sse sse;
    struct buf found; /* what the events say */
    struct err err;
};

static enum status on_event(void *ctx, struct str data) {
    struct reader *r = ctx;
    struct delta d;
    enum status st = delta_read(data, &d, &r->err);
    if (st == ST_BAD && !r->err.text[0]) abort();
    buf_printf(&r->found, "[%zu %d %d %d %u %u]", data.len, (int)st, d.has_choice, d.has_text,
               d.prompt_tokens, d.output_tokens);
    return st == ST_UNAVAILABLE ? st : ST_OK;
}

static enum status on_body(void *ctx, struct str bytes) {
    struct reader *r = ctx;
    return sse_feed(&r->sse, bytes, &r->err, on_event, r);
}

static void run(struct str input, bool in_pieces, struct buf *found) {
    struct reader r = {0};
    enum status st = ST_OK;
    size_t end = 0;
    loadgen_response_reset(&r.response);
    sse_init(&r.sse);
    buf_init(&r.found, (size_t)1 << 24);
    while (input.len > 0 && st == ST_OK && r.response.state != RESPONSE_DONE) {
        size_t some = in_pieces ? 1u + (uint8_t)input.ptr[0] % 13u : input.len, used = 0;
        struct str piece = str_take(input, some);
        st = loadgen_response_feed(&r.response, piece, &used, &r.err, on_body, &r);
        if (used > piece.len) abort();
        if (st == ST_OK && r.response.state != RESPONSE_DONE && used != piece.len) abort();
        end += used;
        input = str_skip(input, piece.len);
    }
    if (st != ST_OK && !r.err.text[0]) abort();
    if (st == ST_OK) buf_printf(&r.found, " end %zu", end);
    if (st == ST_OK) st = loadgen_response_close(&r.response, &r.err);
    buf_printf(&r.found, " %d %u %d", (int)st, r.response.status, r.response.keeps_alive);
    buf_put_str(found, buf_str(&r.found));
    buf_deinit(&r.found);
    sse_deinit(&r.sse);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct str input = {(const char *)data, size};
    struct buf whole, pieces;
    buf_init(&whole, (size_t)1 << 24);
    buf_init(&pieces, (size_t)1 << 24);
    run(input, false, &whole);
    run(input, true, &pieces);
    if (!str_eq(buf_str(&whole), buf_str(&pieces))) abort();
    buf_deinit(&whole);
    buf_deinit(&pieces);
    return 0;
}
