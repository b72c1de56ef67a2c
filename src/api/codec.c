/* api/codec.c - a view of an answer's log. See api/codec.h for the contract. */
#include "api/codec.h"

#include <string.h>

enum { SCRATCH_BYTES_MAX = 1 << 28 };

enum status codec_decode(const struct codec *codec, struct json *doc, struct api_request *r,
                         struct api_error *e) {
    api_request_init(r, codec);
    return codec->decode(doc, r, e);
}

void encoder_init(struct encoder *e, const struct codec *codec, const struct answer *answer,
                  uint32_t after, piece_fn *put, void *ctx) {
    *e = (struct encoder){.codec = codec, .answer = answer, .after = after, .put = put, .ctx = ctx};
    buf_init(&e->scratch, SCRATCH_BYTES_MAX);
    buf_init(&e->text, SCRATCH_BYTES_MAX);
    buf_init(&e->pending, SCRATCH_BYTES_MAX);
}

void encoder_deinit(struct encoder *e) {
    buf_deinit(&e->scratch);
    buf_deinit(&e->text);
    buf_deinit(&e->pending);
}

/* Before each piece in `pending`, which then holds its name and its data. */
struct piece_head {
    uint32_t number;
    size_t name_bytes, data_bytes;
};

void encoder_put(struct encoder *e, struct str name, struct str data) {
    if (e->status == ST_OK) e->status = buf_status(&e->scratch);
    if (e->status == ST_OK) e->status = buf_status(&e->text);
    if (e->status != ST_OK) return;
    e->pieces++;
    if (e->pieces <= e->after) return;
    const struct piece_head head = {e->pieces, name.len, data.len};
    buf_put(&e->pending, &head, sizeof(head));
    buf_put_str(&e->pending, name);
    buf_put_str(&e->pending, data);
    e->status = buf_status(&e->pending);
}

static void send_pending(struct encoder *e) {
    struct str left = buf_str(&e->pending);
    while (e->status == ST_OK && left.len > 0) {
        struct piece_head head;
        memcpy(&head, left.ptr, sizeof(head));
        left = str_skip(left, sizeof(head));
        const struct str name = str_take(left, head.name_bytes);
        left = str_skip(left, head.name_bytes);
        e->put(e->ctx, head.number, name, str_take(left, head.data_bytes));
        left = str_skip(left, head.data_bytes);
    }
    buf_clear(&e->pending);
}

/* After a failure before the first event only end() writes. */
static void begin(struct encoder *e, uint32_t events) {
    e->has_begun = true;
    if (events > 0 || e->answer->failure.status == 0) e->codec->begin(e);
}

bool encoder_run(struct encoder *e, uint32_t events_max) {
    const struct event_log *log = e->answer->log;
    const uint32_t count = event_log_count(log);
    const bool is_done = answer_is_done(e->answer);
    if (e->has_ended || (count == 0 && !is_done)) return true;
    if (!e->has_begun) begin(e, count);
    for (uint32_t i = 0; i < events_max && e->next_event < count; i++) {
        struct api_event ev = event_log_at(log, e->next_event++);
        e->codec->event(e, &ev);
    }
    const bool is_all = e->next_event == count;
    if (is_all && is_done) e->codec->end(e);
    e->has_ended = is_all && is_done;
    send_pending(e);
    return is_all;
}
