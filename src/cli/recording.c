/* cli/recording.c - see cli/recording.h. */
#include "cli/recording.h"

#include "base/buf.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/record.h"
#include "engine/record_json.h"
#include "page/page.h"

static const size_t JSON_BYTES_MAX = (size_t)1 << 32;
enum { STEPS_MAX = 10000 }; /* the page keeps no more */

/* Records from `c` on, separated by commas. */
static enum status put_steps(struct record_ring *ring, struct record_cursor *c, struct buf *out) {
    const size_t bytes = record_bytes_max(ring);
    uint64_t *piece = mem_alloc(bytes);
    if (!piece) return ST_NOMEM;
    bool is_first = true;
    for (size_t used; (used = record_read(ring, c, piece, bytes)) > 0;) {
        const void *at = piece, *end = (const char *)piece + used;
        for (struct record r; record_next(&at, end, &r); is_first = false) {
            buf_put_text(out, is_first ? "\n" : ",\n");
            record_put_step(&r, out);
        }
    }
    mem_free(piece);
    return ST_OK;
}

static enum status put_json(const struct engine *e, const struct record_hello *hello,
                            struct buf *out) {
    struct record_ring *ring = engine_records(e);
    const struct record_span span = record_span(ring);
    struct record_cursor c = {.next = span.first};
    if (span.next - span.first > STEPS_MAX) c.next = span.next - STEPS_MAX;
    buf_put_text(out, "{\"jitney_recording\":1,\"hello\":");
    record_put_hello(hello, out);
    buf_put_text(out, ",\"state\":{},\"steps\":[");
    TRY(put_steps(ring, &c, out));
    buf_put_text(out, "]}\n");
    return buf_status(out);
}

enum status recording_put(const struct engine *e, const struct record_hello *hello, bool is_page,
                          struct buf *out) {
    if (!is_page) return put_json(e, hello, out);
    struct buf json;
    buf_init(&json, JSON_BYTES_MAX);
    enum status st = put_json(e, hello, &json);
    if (st == ST_OK) {
        page_put_recording(buf_str(&json), out);
        st = buf_status(out);
    }
    buf_deinit(&json);
    return st;
}
