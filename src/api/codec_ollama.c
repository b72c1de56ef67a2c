/* api/codec_ollama.c - Ollama's /api/chat and /api/generate: answers, one JSON object per line.
 *
 * Every line but the last has a piece of a thought or text, or one whole tool call; the last has
 * the counts and durations. A request without a prompt has no choices, and its answer is such a
 * last line only.
 */
#include "api/codec.h"
#include "api/body_readers.h"
#include "api/items.h"
#include "api/ollama.h"

/* Indices into the encoder's notes. encoder.text holds the open call: name, then arguments. */
enum { NOTE_IN_CALL, NOTE_CALL, NOTE_NAME_BYTES };

static void put_head(const struct answer *a, struct buf *out) {
    buf_put_text(out, "{\"model\":");
    buf_put_json_string(out, a->model);
    buf_put_text(out, ",\"created_at\":");
    ollama_time_put(a->created_s, out);
}

/* False: the arguments are not an object; then what was written is of no use. */
static bool put_call(const struct answer *a, const struct answer_item *item, struct buf *out) {
    char id[CALL_ID_BYTES];
    answer_call_id(a, 0, item->call, "call_", id);
    buf_printf(out, "{\"id\":\"%s\",\"function\":{\"index\":%u,\"name\":", id, item->call);
    buf_put_json_string(out, item->name);
    buf_put_text(out, ",\"arguments\":");
    if (!put_args_object(item->text, out)) return false;
    buf_put_text(out, "}}");
    return true;
}

/* The beginning of a line with text; a chat's message stays open after it. */
static void open_text(bool chat, struct buf *out) {
    buf_put_text(out,
                 chat ? ",\"message\":{\"role\":\"assistant\",\"content\":\"" : ",\"response\":\"");
}

static void put_text(bool chat, struct str text, struct buf *out) {
    open_text(chat, out);
    buf_put_json_inner(out, text);
    buf_put_char(out, '"');
}

static void put_thought(struct str thought, struct buf *out) {
    if (!thought.len) return;
    buf_put_text(out, ",\"thinking\":");
    buf_put_json_string(out, thought);
}

static const char *done_reason(const struct answer *a) {
    if (a->choice_count == 0) return "load";
    return answer_finish(a) == FINISH_STOP ? "stop" : "length";
}

static int64_t ns_between(int64_t from_us, int64_t to_us) {
    return from_us && to_us > from_us ? (to_us - from_us) * 1000 : 0;
}

static void put_tail(const struct answer *a, struct buf *out) {
    int64_t first = a->first_token_us ? a->first_token_us : a->finished_us;
    buf_printf(out, ",\"done\":true,\"done_reason\":\"%s\"", done_reason(a));
    if (a->choice_count)
        buf_printf(out,
                   ",\"total_duration\":%lld,\"load_duration\":0,\"prompt_eval_count\":%u,"
                   "\"prompt_eval_duration\":%lld,\"eval_count\":%u,\"eval_duration\":%lld",
                   (long long)ns_between(a->arrived_us, a->finished_us), a->prompt_tokens,
                   (long long)ns_between(a->arrived_us, first), answer_completion_tokens(a),
                   (long long)ns_between(first, a->finished_us));
    buf_put_char(out, '}');
}

/* --- whole answers -------------------------------------------------------------------------- */

/* All text, also text between calls, then the thoughts, then all calls. */
static void put_answer(const struct answer *a, bool chat, struct buf *out) {
    struct answer_items it;
    struct answer_item item;
    open_text(chat, out);
    answer_items_init(&it, a, ARGS_AS_OBJECT);
    while (answer_items_next(&it, &item))
        if (item.kind == ITEM_TEXT) buf_put_json_inner(out, item.text);
    answer_items_deinit(&it, out);
    buf_put_char(out, '"');

    uint32_t calls = 0;
    answer_items_init(&it, a, ARGS_AS_OBJECT);
    while (answer_items_next(&it, &item)) {
        if (item.kind == ITEM_THOUGHT) put_thought(item.text, out);
        if (item.kind != ITEM_CALL) continue;
        buf_put_text(out, calls++ ? "," : ",\"tool_calls\":[");
        put_call(a, &item, out);
    }
    answer_items_deinit(&it, out);
    if (calls) buf_put_char(out, ']');
    if (chat) buf_put_char(out, '}');
}

static void put_whole(const struct answer *a, bool chat, struct buf *out) {
    put_head(a, out);
    put_answer(a, chat, out);
    put_tail(a, out);
}

/* --- lines ---------------------------------------------------------------------------------- */

static void begin(struct encoder *e) { (void)e; }

/* Either of the two is empty. */
static void put_text_line(struct encoder *e, bool chat, struct str text, struct str thought) {
    buf_clear(&e->scratch);
    put_head(e->answer, &e->scratch);
    put_text(chat, text, &e->scratch);
    put_thought(thought, &e->scratch);
    buf_put_text(&e->scratch, chat ? "},\"done\":false}" : ",\"done\":false}");
    encoder_put(e, STR(""), buf_str(&e->scratch));
}

/* As text, for what items.h says of calls without an object. */
static void put_call_as_text(struct encoder *e, const struct answer_item *item) {
    struct buf text;
    buf_init(&text, SIZE_MAX);
    buf_put_str(&text, item->name);
    buf_put_char(&text, ' ');
    buf_put_str(&text, item->text);
    put_text_line(e, true, buf_str(&text), STR(""));
    if (buf_status(&text) != ST_OK) e->status = buf_status(&text);
    buf_deinit(&text);
}

/* Write the open call, which has ended: only now its arguments are complete. */
static void put_call_line(struct encoder *e) {
    if (!e->notes[NOTE_IN_CALL]) return;
    e->notes[NOTE_IN_CALL] = false;
    struct str text = buf_str(&e->text);
    const struct answer_item item = {.call = e->notes[NOTE_CALL],
                                     .name = str_take(text, e->notes[NOTE_NAME_BYTES]),
                                     .text = str_skip(text, e->notes[NOTE_NAME_BYTES])};
    buf_clear(&e->scratch);
    put_head(e->answer, &e->scratch);
    put_text(true, STR(""), &e->scratch);
    buf_put_text(&e->scratch, ",\"tool_calls\":[");
    if (!put_call(e->answer, &item, &e->scratch)) {
        if (buf_status(&e->scratch) != ST_OK) e->status = buf_status(&e->scratch);
        put_call_as_text(e, &item);
        return;
    }
    buf_put_text(&e->scratch, "]},\"done\":false}");
    encoder_put(e, STR(""), buf_str(&e->scratch));
}

static void open_call(struct encoder *e, const struct api_event *ev) {
    buf_clear(&e->text);
    buf_put_str(&e->text, ev->text);
    e->notes[NOTE_IN_CALL] = true;
    e->notes[NOTE_CALL] = ev->tool;
    e->notes[NOTE_NAME_BYTES] = (uint32_t)ev->text.len;
}

static void put_event(struct encoder *e, bool chat, const struct api_event *ev) {
    if (ev->choice != 0) return;
    switch (ev->kind) {
    case EVENT_THOUGHT:
        if (ev->text.len) put_text_line(e, chat, STR(""), ev->text);
        return;
    case EVENT_TEXT:
        if (ev->text.len == 0) return;
        put_call_line(e);
        put_text_line(e, chat, ev->text, STR(""));
        return;
    case EVENT_TOOL:
        put_call_line(e);
        open_call(e, ev);
        return;
    case EVENT_ARGS:
        buf_put_str(&e->text, ev->text);
        return;
    case EVENT_FINISH:
        put_call_line(e);
        return;
    }
}

static void put_end(struct encoder *e, bool chat) {
    buf_clear(&e->scratch);
    if (e->answer->failure.status != 0) {
        ollama_error_put(&e->answer->failure, STR(""), &e->scratch);
    } else {
        put_head(e->answer, &e->scratch);
        put_text(chat, STR(""), &e->scratch);
        if (chat) buf_put_char(&e->scratch, '}');
        put_tail(e->answer, &e->scratch);
    }
    encoder_put(e, STR(""), buf_str(&e->scratch));
}

/* --- the two codecs ------------------------------------------------------------------------- */

static void chat_event(struct encoder *e, const struct api_event *ev) { put_event(e, true, ev); }
static void chat_end(struct encoder *e) { put_end(e, true); }
static void chat_whole(const struct answer *a, struct buf *out) { put_whole(a, true, out); }

const struct codec codec_ollama_chat = {.name = "ollama.chat",
                                        .id_prefix = "",
                                        .framing = FRAMING_LINES,
                                        .streams_by_default = true,
                                        .read_body = ollama_chat_read_body,
                                        .begin = begin,
                                        .event = chat_event,
                                        .end = chat_end,
                                        .whole = chat_whole,
                                        .put_error = ollama_error_put};

static void generate_event(struct encoder *e, const struct api_event *ev) {
    put_event(e, false, ev);
}
static void generate_end(struct encoder *e) { put_end(e, false); }
static void generate_whole(const struct answer *a, struct buf *out) { put_whole(a, false, out); }

const struct codec codec_ollama_generate = {.name = "ollama.generate",
                                            .id_prefix = "",
                                            .framing = FRAMING_LINES,
                                            .streams_by_default = true,
                                            .read_body = ollama_generate_read_body,
                                            .begin = begin,
                                            .event = generate_event,
                                            .end = generate_end,
                                            .whole = generate_whole,
                                            .put_error = ollama_error_put};
