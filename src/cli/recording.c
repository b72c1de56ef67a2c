/* cli/recording.c - see cli/recording.h. */
#include "cli/recording.h"

#include "base/buf.h"
#include "engine/engine.h"
#include "engine/record_json.h"
#include "page/page.h"

static const size_t JSON_BYTES_MAX = (size_t)1 << 32;
enum { STEPS_MAX = 10000 }; /* the page keeps no more */

static enum status put_json(const struct engine *e, const struct record_hello *hello,
                            struct buf *out) {
    buf_put_text(out, "{\"jitney_recording\":1,\"hello\":");
    record_put_hello(hello, out);
    buf_put_text(out, ",\"state\":{},\"steps\":[");
    TRY(record_put_steps(engine_records(e), STEPS_MAX, out));
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
