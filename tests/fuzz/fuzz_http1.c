/* tests/fuzz/fuzz_http1.c - any bytes as what a client sends to an HTTP/1.1 server.
 *
 * The bytes are sent in one piece and, on a second connection, in pieces whose lengths are taken
 * from the bytes: both connections must get the same responses and end in the same state.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unit/net/fake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 16000 }; /* so that reading never has to stop */

#define CONTINUE "HTTP/1.1 100 Continue\r\n\r\n"

/* What a client received, without dates and without what depends on the pieces. */
static void collect(const struct fake *f, struct buf *out) {
    struct buf lines;
    buf_init(&lines, FAKE_OUT_MAX);
    fake_received(f, &lines);
    buf_clear(out);
    for (struct str rest = buf_str(&lines); rest.len;) {
        const bool is_interim = str_starts(rest, STR(CONTINUE));
        if (!is_interim) buf_put_char(out, rest.ptr[0]);
        rest = str_skip(rest, is_interim ? sizeof(CONTINUE) - 1 : 1);
    }
    buf_put_text(out, f->conn && !f->conn->is_finishing ? "(open)" : "(ended)");
    buf_deinit(&lines);
}

static void run(struct fake *f, const uint8_t *data, size_t size, bool in_pieces, struct buf *out) {
    struct str rest = {(const char *)data, size};
    if (!fake_connect(f)) abort();
    while (rest.len) {
        const size_t n = in_pieces ? 1u + (uint8_t)rest.ptr[0] % 61u : rest.len;
        fake_send(f, str_take(rest, n));
        rest = str_skip(rest, n < rest.len ? n : rest.len);
        if (in_pieces) fake_answer_held(f);
    }
    fake_answer_held(f);
    collect(f, out);
    fake_end_input(f, size % 2 ? UV_EOF : UV_ECONNRESET);
    fake_disconnect(f);
    if (http_stats(f->server).exchanges || http_stats(f->server).connections) abort();
    if (f->ends + f->gones > f->heads || f->requests > f->heads) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fake f;
    struct buf whole, pieces;
    if (size == 0 || size > INPUT_MAX) return 0;
    if (fake_init(&f, NULL) != ST_OK) abort();
    buf_init(&whole, FAKE_OUT_MAX);
    buf_init(&pieces, FAKE_OUT_MAX);
    run(&f, data, size, false, &whole);
    run(&f, data, size, true, &pieces);
    /* HTTP/2 answers in frames that do depend on the pieces. */
    const bool is_h2 = size >= 3 && memcmp(data, "PRI", 3) == 0;
    if (!is_h2 && !str_eq(buf_str(&whole), buf_str(&pieces))) abort();
    buf_deinit(&whole);
    buf_deinit(&pieces);
    fake_deinit(&f);
    return 0;
}
