/* api/codec_openai_responses.c - OpenAI's /v1/responses: answers.
 *
 * An answer is a list of items: the model's reasoning, messages with one text part each, and
 * function calls. In a stream
 * every item is opened, sent in deltas, and sent again as a whole when it closes:
 *
 *   response.created, response.in_progress
 *     response.output_item.added
 *       response.content_part.added, response.output_text.delta .., response.output_text.done,
 *       response.content_part.done                                           (a message)
 *       the same with response.reasoning_text.delta .. and .done              (reasoning)
 *       response.function_call_arguments.delta .., .done                     (a call)
 *     response.output_item.done
 *   response.completed, or .incomplete, or .failed
 *
 * Each event carries its number in the stream, from 0 on, which is the encoder's count of pieces.
 */
#include "api/codec.h"
#include "api/body_readers.h"
#include "api/conversation_items.h"
#include "api/items.h"
#include "api/openai.h"
#include "base/check.h"
#include "base/json.h"

/* Indices into the encoder's notes. encoder.text holds the open item's text; for a call, its name
 * and then its arguments. */
enum { NOTE_OPEN, NOTE_ITEMS, NOTE_CALL, NOTE_NAME_BYTES, NOTE_FIRST_TOKEN, NOTE_TOKENS };
enum { OPEN_NONE, OPEN_TEXT, OPEN_THOUGHT, OPEN_CALL };

/* --- values ------------------------------------------------------------------------------ */

/* A field of the request as it was sent, or its default. */
static void put_sent(const struct answer *a, const char *key, const char *fallback,
                     struct buf *out) {
    const struct json *v = json_get(a->request->doc, key);
    buf_printf(out, ",\"%s\":", key);
    if (json_kind(v) == JS_NONE || json_kind(v) == JS_NULL)
        buf_put_text(out, fallback);
    else
        json_put(v, out);
}

static void put_tools(const struct answer *a, struct buf *out) {
    static const char *const keys[] = {"name", "description", "parameters", "strict"};
    const struct json *tools = json_get(a->request->doc, "tools");
    PUT(out, ",\"tools\":[");
    for (size_t i = 0; i < json_count(tools); i++) {
        buf_put_text(out, i ? ",{\"type\":\"function\"" : "{\"type\":\"function\"");
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            buf_printf(out, ",\"%s\":", keys[k]);
            json_put(json_get(json_at(tools, i), keys[k]), out);
        }
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

static void put_usage(const struct answer *a, struct buf *out) {
    uint32_t answered = answer_completion_tokens(a);
    buf_printf(out,
               ",\"usage\":{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u,"
               "\"cache_write_tokens\":0},\"output_tokens\":%u,\"output_tokens_details\":"
               "{\"reasoning_tokens\":%u},\"total_tokens\":%u}",
               a->prompt_tokens, a->cached_tokens, answered, answer_thought_tokens(a),
               a->prompt_tokens + answered);
}

/* Only the last event has the error, so that earlier pieces are the same in every view. */
static void put_error(const struct answer *a, bool has_failed, struct buf *out) {
    if (!has_failed) {
        PUT(out, ",\"error\":null");
        return;
    }
    const char *code = a->failure.status == 429   ? "rate_limit_exceeded"
                       : a->failure.status == 400 ? "invalid_prompt"
                                                  : "server_error";
    buf_printf(out, ",\"error\":{\"code\":\"%s\",\"message\":", code);
    buf_put_json_string(out, str_of(a->failure.message.text));
    buf_put_char(out, '}');
}

/* The log-probabilities of a text, if they were requested. */
static void put_logprobs(const struct answer *a, uint32_t first, uint32_t count, struct buf *out) {
    PUT(out, ",\"logprobs\":[");
    if (a->request->logprobs) openai_put_logprobs(a, 0, first, count, out);
    buf_put_char(out, ']');
}

/* --- items -------------------------------------------------------------------------------- */

static void put_part(const struct answer *a, const struct answer_item *item, struct buf *out) {
    if (item->kind == ITEM_THOUGHT) {
        PUT(out, "{\"type\":\"reasoning_text\",\"text\":");
        buf_put_json_string(out, item->text);
        buf_put_char(out, '}');
        return;
    }
    PUT(out, "{\"type\":\"output_text\",\"text\":");
    buf_put_json_string(out, item->text);
    PUT(out, ",\"annotations\":[]");
    put_logprobs(a, item->first_token, item->token_count, out);
    buf_put_char(out, '}');
}

static void put_item_id(const struct answer *a, const struct answer_item *item, struct buf *out) {
    static const char *const prefixes[] = {
        [ITEM_TEXT] = "\"msg_", [ITEM_THOUGHT] = "\"rs_", [ITEM_CALL] = "\"fc_"};
    buf_put_text(out, prefixes[item->kind]);
    buf_put_text(out, a->id);
    buf_put_char(out, '_');
    buf_put_uint(out, item->idx);
    buf_put_char(out, '"');
}

/* A message, or reasoning. */
static void put_message(const struct answer *a, const struct answer_item *item, const char *status,
                        bool with_content, struct buf *out) {
    const bool is_thought = item->kind == ITEM_THOUGHT;
    PUT(out, "{\"id\":");
    put_item_id(a, item, out);
    buf_printf(out, ",\"type\":\"%s\",\"status\":\"%s\",%s,\"content\":[",
               is_thought ? "reasoning" : "message", status,
               is_thought ? "\"summary\":[]" : "\"role\":\"assistant\"");
    if (with_content) put_part(a, item, out);
    PUT(out, "]}");
}

static void put_call(const struct answer *a, const struct answer_item *item, const char *status,
                     struct buf *out) {
    char call_id[CALL_ID_BYTES];
    answer_call_id(a, 0, item->call, "call_", call_id);
    PUT(out, "{\"id\":");
    put_item_id(a, item, out);
    buf_printf(out,
               ",\"type\":\"function_call\",\"status\":\"%s\",\"call_id\":\"%s\",\"name\":", status,
               call_id);
    buf_put_json_string(out, item->name);
    PUT(out, ",\"arguments\":");
    buf_put_json_string(out, item->text);
    buf_put_char(out, '}');
}

static void put_item(const struct answer *a, const struct answer_item *item, const char *status,
                     struct buf *out) {
    if (item->kind == ITEM_CALL)
        put_call(a, item, status, out);
    else
        put_message(a, item, status, true, out);
}

static bool is_complete(const struct answer *a) { return answer_finish(a) == FINISH_STOP; }

/* Only the last item can be incomplete. */
static const char *item_status(const struct answer *a, bool is_last) {
    return is_last && !is_complete(a) ? "incomplete" : "completed";
}

/* An answer without text has one empty message. The items are counted first, because the status of
 * the last one depends on how the answer ended. */
static void put_items(const struct answer *a, struct buf *out) {
    struct answer_items it;
    struct answer_item item;
    uint32_t last = 0;
    answer_items_init(&it, a, ARGS_AS_TEXT);
    while (answer_items_next(&it, &item)) last = item.idx;
    bool is_empty = it.next_idx == 0;
    answer_items_deinit(&it, out);

    answer_items_init(&it, a, ARGS_AS_TEXT);
    while (answer_items_next(&it, &item)) {
        if (item.idx) buf_put_char(out, ',');
        put_item(a, &item, item_status(a, item.idx == last), out);
    }
    answer_items_deinit(&it, out);
    if (is_empty) put_item(a, &(struct answer_item){.idx = 0}, item_status(a, true), out);
}

/* --- the response -------------------------------------------------------------------------- */

static const char *response_status(const struct answer *a) {
    if (a->failure.status != 0) return a->failure.status == 499 ? "cancelled" : "failed";
    if (!answer_is_done(a)) return "in_progress";
    switch (answer_finish(a)) {
    case FINISH_STOP:
        return "completed";
    case FINISH_LENGTH:
    case FINISH_EXPIRED: /* cut off by a limit */
        return "incomplete";
    default:
        return "cancelled";
    }
}

static void put_format(const struct answer *a, struct buf *out) {
    const struct json *format = json_path(a->request->doc, "text.format");
    PUT(out, ",\"text\":{\"format\":");
    if (json_kind(format) == JS_MAP)
        json_put(format, out);
    else
        PUT(out, "{\"type\":\"text\"}");
    buf_put_char(out, '}');
}

/* What the answer continues. */
static void put_previous(const struct api_keeping *k, struct buf *out) {
    if (k->conversation.len) {
        PUT(out, ",\"conversation\":{\"id\":");
        buf_put_json_string(out, k->conversation);
        buf_put_char(out, '}');
    }
    PUT(out, ",\"previous_response_id\":");
    if (k->previous.len)
        buf_put_json_string(out, k->previous);
    else
        PUT(out, "null");
}

static void put_settings(const struct answer *a, struct buf *out) {
    const struct json *reasoning = json_get(a->request->doc, "reasoning");
    put_sent(a, "instructions", "null", out);
    put_sent(a, "max_output_tokens", "null", out);
    put_sent(a, "max_tool_calls", "null", out);
    PUT(out, ",\"model\":");
    buf_put_json_string(out, a->model);
    put_sent(a, "parallel_tool_calls", "true", out);
    put_previous(&a->request->keeping, out);
    PUT(out, ",\"reasoning\":{\"effort\":");
    json_put(json_get(reasoning, "effort"), out);
    PUT(out, ",\"summary\":null},\"service_tier\":\"default\",\"store\":");
    buf_put_text(out, a->request->keeping.store ? "true" : "false");
    put_sent(a, "temperature", "1.0", out);
    put_format(a, out);
    put_sent(a, "tool_choice", "\"auto\"", out);
    put_tools(a, out);
    put_sent(a, "top_logprobs", "0", out);
    put_sent(a, "top_p", "1.0", out);
    PUT(out, ",\"truncation\":\"disabled\"");
    put_sent(a, "user", "null", out);
    put_sent(a, "metadata", "{}", out);
}

static int64_t completed_s(const struct answer *a) {
    return a->created_s + (a->finished_us - a->arrived_us) / 1000000;
}

static bool is_under_way(const char *status) {
    return str_is(str_of(status), "in_progress") || str_is(str_of(status), "queued");
}

static void put_response(const struct answer *a, const char *status, bool with_items,
                         struct buf *out) {
    bool is_over = !is_under_way(status);
    bool is_cut = str_is(str_of(status), "incomplete");
    buf_printf(out,
               "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\","
               "\"background\":%s",
               a->id, (long long)a->created_s, status,
               a->request->keeping.background ? "true" : "false");
    if (str_is(str_of(status), "completed"))
        buf_printf(out, ",\"completed_at\":%lld", (long long)completed_s(a));
    else
        PUT(out, ",\"completed_at\":null");
    put_error(a, str_is(str_of(status), "failed"), out);
    PUT(out, ",\"incomplete_details\":");
    buf_put_text(out, is_cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    put_settings(a, out);
    PUT(out, ",\"output\":[");
    if (with_items) put_items(a, out);
    buf_put_char(out, ']');
    if (is_over)
        put_usage(a, out);
    else
        PUT(out, ",\"usage\":null");
    buf_put_char(out, '}');
}

static void whole(const struct answer *a, struct buf *out) {
    const char *status = response_status(a);
    put_response(a, status, !is_under_way(status), out);
}

/* An answer that ended early has the items that it had until then. */
static void state(const struct answer *a, const char *status, struct buf *out) {
    const bool has_events = a->log && event_log_count(a->log) > 0;
    put_response(a, status, has_events && !is_under_way(status), out);
}

void responses_output_items(const struct answer *a, struct buf *out) {
    buf_put_char(out, '[');
    put_items(a, out);
    buf_put_char(out, ']');
}

/* --- streams -------------------------------------------------------------------------------- */

static struct buf *begin_piece(struct encoder *e, const char *type) {
    buf_clear(&e->scratch);
    PUT(&e->scratch, "{\"type\":\"");
    buf_put_text(&e->scratch, type);
    PUT(&e->scratch, "\",\"sequence_number\":");
    buf_put_uint(&e->scratch, e->pieces);
    return &e->scratch;
}

static void end_piece(struct encoder *e, const char *type) {
    buf_put_char(&e->scratch, '}');
    encoder_put(e, str_of(type), buf_str(&e->scratch));
}

static void put_response_event(struct encoder *e, const char *type, const char *status) {
    struct buf *out = begin_piece(e, type);
    PUT(out, ",\"response\":");
    put_response(e->answer, status, !is_under_way(status), out);
    end_piece(e, type);
}

/* The open item with its text so far. */
static struct answer_item open_item(const struct encoder *e) {
    struct str text = buf_str(&e->text);
    size_t name_bytes = e->notes[NOTE_NAME_BYTES];
    static const enum item_kind kinds[] = {[OPEN_NONE] = ITEM_TEXT,
                                           [OPEN_TEXT] = ITEM_TEXT,
                                           [OPEN_THOUGHT] = ITEM_THOUGHT,
                                           [OPEN_CALL] = ITEM_CALL};
    return (struct answer_item){.kind = kinds[e->notes[NOTE_OPEN]],
                                .idx = e->notes[NOTE_ITEMS] - 1,
                                .call = e->notes[NOTE_CALL],
                                .name = str_take(text, name_bytes),
                                .text = str_skip(text, name_bytes),
                                .first_token = e->notes[NOTE_FIRST_TOKEN],
                                .token_count = e->notes[NOTE_TOKENS]};
}

static void put_place(const struct encoder *e, struct buf *out) {
    struct answer_item item = open_item(e);
    PUT(out, ",\"item_id\":");
    put_item_id(e->answer, &item, out);
    PUT(out, ",\"output_index\":");
    buf_put_uint(out, item.idx);
    if (item.kind != ITEM_CALL) PUT(out, ",\"content_index\":0");
}

static void put_item_event(struct encoder *e, const char *type, const char *status,
                           bool with_content) {
    struct answer_item item = open_item(e);
    struct buf *out = begin_piece(e, type);
    buf_printf(out, ",\"output_index\":%u,\"item\":", item.idx);
    if (item.kind == ITEM_CALL)
        put_call(e->answer, &item, status, out);
    else
        put_message(e->answer, &item, status, with_content, out);
    end_piece(e, type);
}

static void put_part_event(struct encoder *e, const char *type) {
    struct answer_item item = open_item(e);
    struct buf *out = begin_piece(e, type);
    put_place(e, out);
    PUT(out, ",\"part\":");
    put_part(e->answer, &item, out);
    end_piece(e, type);
}

/* OPEN_TEXT or OPEN_THOUGHT. */
static void open_text(struct encoder *e, uint32_t kind) {
    buf_clear(&e->text);
    e->notes[NOTE_OPEN] = kind;
    e->notes[NOTE_ITEMS]++;
    e->notes[NOTE_NAME_BYTES] = e->notes[NOTE_FIRST_TOKEN] = e->notes[NOTE_TOKENS] = 0;
    put_item_event(e, "response.output_item.added", "in_progress", false);
    put_part_event(e, "response.content_part.added");
}

static void open_call(struct encoder *e, const struct api_event *ev) {
    buf_clear(&e->text);
    buf_put_str(&e->text, ev->text);
    e->notes[NOTE_OPEN] = OPEN_CALL;
    e->notes[NOTE_ITEMS]++;
    e->notes[NOTE_CALL] = ev->tool;
    e->notes[NOTE_NAME_BYTES] = (uint32_t)ev->text.len;
    put_item_event(e, "response.output_item.added", "in_progress", false);
}

static void close_item(struct encoder *e, const char *status) {
    static const char *const types[] = {[ITEM_TEXT] = "response.output_text.done",
                                        [ITEM_THOUGHT] = "response.reasoning_text.done",
                                        [ITEM_CALL] = "response.function_call_arguments.done"};
    if (e->notes[NOTE_OPEN] == OPEN_NONE) return;
    struct answer_item item = open_item(e);
    const bool is_call = item.kind == ITEM_CALL;
    struct buf *out = begin_piece(e, types[item.kind]);
    put_place(e, out);
    if (is_call) {
        PUT(out, ",\"name\":");
        buf_put_json_string(out, item.name);
    }
    buf_put_text(out, is_call ? ",\"arguments\":" : ",\"text\":");
    buf_put_json_string(out, item.text);
    if (item.kind == ITEM_TEXT) put_logprobs(e->answer, item.first_token, item.token_count, out);
    end_piece(e, types[item.kind]);
    if (!is_call) put_part_event(e, "response.content_part.done");
    put_item_event(e, "response.output_item.done", status, true);
    e->notes[NOTE_OPEN] = OPEN_NONE;
}

static void put_delta(struct encoder *e, const char *type, const struct api_event *ev) {
    struct buf *out = begin_piece(e, type);
    buf_put_str(&e->text, ev->text);
    put_place(e, out);
    PUT(out, ",\"delta\":");
    buf_put_json_string(out, ev->text);
    if (ev->kind == EVENT_TEXT) put_logprobs(e->answer, ev->first_token, ev->token_count, out);
    end_piece(e, type);
}

static void note_tokens(struct encoder *e, const struct api_event *ev) {
    if (ev->token_count == 0) return;
    if (e->notes[NOTE_TOKENS] == 0) e->notes[NOTE_FIRST_TOKEN] = ev->first_token;
    e->notes[NOTE_TOKENS] = ev->first_token + ev->token_count - e->notes[NOTE_FIRST_TOKEN];
}

static void begin(struct encoder *e) {
    put_response_event(e, "response.created", "in_progress");
    put_response_event(e, "response.in_progress", "in_progress");
}

/* A piece of text or reasoning. */
static void put_words(struct encoder *e, uint32_t kind, const char *type,
                      const struct api_event *ev) {
    if (e->notes[NOTE_OPEN] != kind) {
        close_item(e, "completed");
        open_text(e, kind);
    }
    note_tokens(e, ev);
    put_delta(e, type, ev);
}

static void event(struct encoder *e, const struct api_event *ev) {
    if (ev->choice != 0) return;
    switch (ev->kind) {
    case EVENT_THOUGHT:
        if (ev->text.len) put_words(e, OPEN_THOUGHT, "response.reasoning_text.delta", ev);
        return;
    case EVENT_TEXT:
        if (ev->text.len)
            put_words(e, OPEN_TEXT, "response.output_text.delta", ev);
        else if (e->notes[NOTE_OPEN] == OPEN_TEXT)
            note_tokens(e, ev); /* tokens without text of their own */
        return;
    case EVENT_TOOL:
        close_item(e, "completed");
        open_call(e, ev);
        return;
    case EVENT_ARGS:
        CHECK(e->notes[NOTE_OPEN] == OPEN_CALL);
        put_delta(e, "response.function_call_arguments.delta", ev);
        return;
    case EVENT_FINISH:
        if (e->notes[NOTE_ITEMS] == 0) open_text(e, OPEN_TEXT);
        close_item(e, ev->finish == FINISH_STOP ? "completed" : "incomplete");
        return;
    }
}

static void end(struct encoder *e) {
    const char *status = response_status(e->answer);
    const char *type = "response.incomplete";
    if (str_is(str_of(status), "completed")) type = "response.completed";
    if (e->answer->failure.status != 0) type = "response.failed"; /* also if it was cancelled */
    put_response_event(e, type, status);
}

/* Those that put_settings reads. */
static const char *const repeated[] = {"instructions",
                                       "max_output_tokens",
                                       "max_tool_calls",
                                       "parallel_tool_calls",
                                       "reasoning.effort",
                                       "temperature",
                                       "text.format",
                                       "tool_choice",
                                       "tools",
                                       "top_logprobs",
                                       "top_p",
                                       "user",
                                       "metadata",
                                       NULL};

const struct codec codec_openai_responses = {.name = "openai.responses",
                                             .id_prefix = "resp_",
                                             .framing = FRAMING_SSE,
                                             .repeated = repeated,
                                             .read_body = responses_read_body,
                                             .begin = begin,
                                             .event = event,
                                             .end = end,
                                             .whole = whole,
                                             .state = state,
                                             .put_error = api_error_put_openai};
