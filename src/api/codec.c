/* api/codec.c - a view of an answer's log. See api/codec.h for the contract. */
#include "api/codec.h"

#include <string.h>

#include "api/grammar_read.h"
#include "base/json.h"

enum { SCRATCH_BYTES_MAX = 1 << 28, PREFIX_BYTES = 32 };

enum status codec_read_body(const struct codec *codec, struct json *doc, bool keeps_body,
                            struct api_request *r, struct api_error *e) {
    api_request_init(r, codec);
    TRY(codec->read_body(doc, r, e));
    TRY(grammar_check(r, e));
    if (!keeps_body) return api_request_drop_body(r);
    r->held_bytes = json_memory(doc);
    return ST_OK;
}

void encoder_init(struct encoder *e, const struct codec *codec, const struct answer *answer,
                  uint32_t after, enum stream_framing framing) {
    *e = (struct encoder){.codec = codec, .answer = answer, .after = after, .framing = framing};
    buf_init(&e->scratch, SCRATCH_BYTES_MAX);
    buf_init(&e->text, SCRATCH_BYTES_MAX);
}

void encoder_deinit(struct encoder *e) {
    buf_deinit(&e->scratch);
    buf_deinit(&e->text);
}

uint32_t encoder_after_sequence(uint64_t sequence_number) {
    return sequence_number < UINT32_MAX ? (uint32_t)sequence_number + 1 : UINT32_MAX;
}

/* "id: N\n" and, if there is no name, "data: " in one write: it is done for every token. */
static void put_event(uint32_t number, struct str name, struct str data, struct buf *out) {
    static const char ID[] = "id: ";
    char text[PREFIX_BYTES];
    const size_t tail = name.len > 0 ? 8 : 7;
    size_t at = sizeof(text) - tail;
    memcpy(text + at, name.len > 0 ? "\nevent: " : "\ndata: ", tail);
    do text[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    at -= sizeof(ID) - 1;
    memcpy(text + at, ID, sizeof(ID) - 1);
    buf_put(out, text + at, sizeof(text) - at);
    if (name.len > 0) {
        buf_put_str(out, name);
        buf_put(out, "\ndata: ", 7);
    }
    buf_put_str(out, data);
    buf_put(out, "\n\n", 2);
}

static void put_list_item(uint32_t number, struct str name, struct str data, struct buf *out) {
    buf_printf(out, "%s{\"id\":%u,\"event\":", out->len > 0 ? "," : "", number);
    if (name.len > 0)
        buf_put_json_string(out, name);
    else
        buf_put_text(out, "null");
    buf_put_text(out, ",\"data\":");
    if (str_starts(data, STR("{")))
        buf_put_str(out, data);
    else
        buf_put_json_string(out, data); /* "[DONE]" */
    buf_put_char(out, '}');
}

void encoder_put(struct encoder *e, struct str name, struct str data) {
    if (e->status == ST_OK) e->status = buf_status(&e->scratch);
    if (e->status == ST_OK) e->status = buf_status(&e->text);
    if (e->status != ST_OK) return;
    e->pieces++;
    if (e->pieces <= e->after) return;
    if (e->framing == FRAMING_SSE) {
        put_event(e->pieces, name, data, e->out);
    } else if (e->framing == FRAMING_LIST) {
        put_list_item(e->pieces, name, data, e->out);
    } else {
        buf_put_str(e->out, data);
        buf_put_char(e->out, '\n');
    }
}

/* After a failure before the first event only end() writes. */
static void begin(struct encoder *e, uint32_t events) {
    e->has_begun = true;
    if (events > 0 || e->answer->failure.status == 0) e->codec->begin(e);
}

bool encoder_run(struct encoder *e, uint32_t events_max, struct buf *out) {
    const struct event_log *log = e->answer->log;
    const uint32_t count = event_log_count(log);
    const bool is_done = answer_is_done(e->answer);
    if (e->has_ended || (count == 0 && !is_done)) return true;
    e->out = out;
    if (!e->has_begun) begin(e, count);
    for (uint32_t i = 0; i < events_max && e->next_event < count; i++) {
        struct api_event ev = event_log_at(log, e->next_event++);
        e->codec->event(e, &ev);
    }
    if (e->next_event < count) return false;
    if (is_done) e->codec->end(e);
    /* A client that has seen more pieces than there are: it saw those of an answer that was begun
     * before a crash and could not be continued. It is told of the failure. */
    if (is_done && e->answer->failure.status != 0 && e->pieces < e->after) {
        e->pieces = e->after;
        e->codec->end(e);
    }
    e->has_ended = is_done;
    return true;
}
