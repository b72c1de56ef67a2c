/* api/codec_anthropic.c - Anthropic's /v1/messages and /v1/messages/count_tokens: answers.
 *
 * An answer is a list of content blocks: thoughts, texts and tool uses. A stream:
 *
 *   message_start, ping
 *     content_block_start, content_block_delta .., content_block_stop       (for each block)
 *   message_delta with the stop reason and the usage, message_stop;  or error
 */
#include "api/codec.h"

#include <string.h>

#include "api/body_readers.h"
#include "api/items.h"
#include "base/check.h"

/* Indices into the encoder's notes. */
enum { NOTE_OPEN, NOTE_BLOCKS };
enum { OPEN_NONE, OPEN_TEXT, OPEN_THOUGHT, OPEN_CALL };

/* --- values -------------------------------------------------------------------------------- */

static const char *error_type(uint32_t status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
    case 529:
        return "overloaded_error";
    case 504:
        return "timeout_error";
    default:
        return status < 500 ? "invalid_request_error" : "api_error";
    }
}

/* Anthropic's package asks for threads, conversations that the server keeps, by itself. It goes on
 * without them after an error with this code. */
static void put_details(const struct api_error *e, struct buf *out) {
    if (strcmp(e->param, "thread") == 0)
        buf_put_text(out, ",\"details\":{\"error_code\":\"thread_unsupported_request\"}");
}

static void put_error(const struct api_error *e, struct str request_id, struct buf *out) {
    buf_printf(
        out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", error_type(e->status));
    buf_put_json_string(out, str_of(e->message.text));
    put_details(e, out);
    buf_put_text(out, "},\"request_id\":");
    if (request_id.len)
        buf_put_json_string(out, request_id);
    else
        buf_put_text(out, "null");
    buf_put_char(out, '}');
}

static const char *stop_reason(const struct answer *a, bool has_calls) {
    if (answer_finish(a) != FINISH_STOP) return "max_tokens";
    if (has_calls) return "tool_use";
    return answer_stop_text(a).len ? "stop_sequence" : "end_turn";
}

/* The stop string that ended the answer, or null. */
static void put_stop(const struct answer *a, bool has_calls, struct buf *out) {
    const char *reason = stop_reason(a, has_calls);
    buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (str_is(str_of(reason), "stop_sequence"))
        buf_put_json_string(out, answer_stop_text(a));
    else
        buf_put_text(out, "null");
}

/* As Anthropic counts: cached tokens are not part of input_tokens. */
static void put_usage(const struct answer *a, struct buf *out) {
    uint32_t cached = a->cached_tokens < a->prompt_tokens ? a->cached_tokens : a->prompt_tokens;
    buf_printf(out,
               "\"usage\":{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,"
               "\"cache_read_input_tokens\":%u,\"output_tokens\":%u}",
               a->prompt_tokens - cached, cached, answer_completion_tokens(a));
}

static void put_head(const struct answer *a, struct buf *out) {
    buf_printf(out,
               "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", a->id);
    buf_put_json_string(out, a->model);
}

static void put_call_head(const struct answer *a, uint32_t call, struct str name, struct buf *out) {
    char id[CALL_ID_BYTES];
    answer_call_id(a, 0, call, "toolu_", id);
    buf_printf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", id);
    buf_put_json_string(out, name);
    buf_put_text(out, ",\"input\":");
}

/* A signature is required by the format; nobody has signed the thoughts of these models. */
static void put_thought(struct str text, struct buf *out) {
    buf_put_text(out, "{\"type\":\"thinking\",\"thinking\":");
    buf_put_json_string(out, text);
    buf_put_text(out, ",\"signature\":\"\"}");
}

static void put_block(const struct answer *a, const struct answer_item *item, struct buf *out) {
    if (item->kind == ITEM_THOUGHT) {
        put_thought(item->text, out);
        return;
    }
    if (item->kind == ITEM_CALL) {
        put_call_head(a, item->call, item->name, out);
        put_args_object(item->text, out);
    } else {
        buf_put_text(out, "{\"type\":\"text\",\"text\":");
        buf_put_json_string(out, item->text);
    }
    buf_put_char(out, '}');
}

static void whole(const struct answer *a, struct buf *out) {
    struct answer_items it;
    struct answer_item item;
    bool has_calls = false;
    put_head(a, out);
    buf_put_text(out, ",\"content\":[");
    answer_items_init(&it, a, ARGS_AS_OBJECT);
    while (answer_items_next(&it, &item)) {
        if (item.idx) buf_put_char(out, ',');
        has_calls = has_calls || item.kind == ITEM_CALL;
        put_block(a, &item, out);
    }
    if (it.next_idx == 0) put_block(a, &(struct answer_item){.idx = 0}, out);
    answer_items_deinit(&it, out);
    buf_put_text(out, "],");
    put_stop(a, has_calls, out);
    buf_put_char(out, ',');
    put_usage(a, out);
    buf_put_char(out, '}');
}

/* --- streams -------------------------------------------------------------------------------- */

static struct buf *begin_piece(struct encoder *e, const char *type) {
    buf_clear(&e->scratch);
    buf_put_text(&e->scratch, "{\"type\":\"");
    buf_put_text(&e->scratch, type);
    buf_put_char(&e->scratch, '"');
    return &e->scratch;
}

static void end_piece(struct encoder *e, const char *type) {
    buf_put_char(&e->scratch, '}');
    encoder_put(e, str_of(type), buf_str(&e->scratch));
}

/* The count of cached tokens is not known yet; message_delta has it. */
static void begin(struct encoder *e) {
    struct buf *out = begin_piece(e, "message_start");
    buf_put_text(out, ",\"message\":");
    put_head(e->answer, out);
    buf_printf(out,
               ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":"
               "{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,"
               "\"cache_read_input_tokens\":0,\"output_tokens\":0}}",
               e->answer->prompt_tokens);
    end_piece(e, "message_start");
    begin_piece(e, "ping");
    end_piece(e, "ping");
}

/* `kind`: the beginning of the delta, with its type and the key of the piece. */
static void put_delta(struct encoder *e, const char *kind, struct str piece) {
    struct buf *out = begin_piece(e, "content_block_delta");
    buf_put_text(out, ",\"index\":");
    buf_put_uint(out, e->notes[NOTE_BLOCKS] - 1);
    buf_put_text(out, kind);
    buf_put_json_string(out, piece);
    buf_put_char(out, '}');
    end_piece(e, "content_block_delta");
}

static void close_block(struct encoder *e) {
    if (e->notes[NOTE_OPEN] == OPEN_NONE) return;
    if (e->notes[NOTE_OPEN] == OPEN_THOUGHT)
        put_delta(e, ",\"delta\":{\"type\":\"signature_delta\",\"signature\":", STR(""));
    struct buf *out = begin_piece(e, "content_block_stop");
    buf_printf(out, ",\"index\":%u", e->notes[NOTE_BLOCKS] - 1);
    end_piece(e, "content_block_stop");
    e->notes[NOTE_OPEN] = OPEN_NONE;
}

/* `call` is the event of a call's block; NULL for the others. */
static void open_block(struct encoder *e, uint32_t kind, const struct api_event *call) {
    close_block(e);
    struct buf *out = begin_piece(e, "content_block_start");
    buf_printf(out, ",\"index\":%u,\"content_block\":", e->notes[NOTE_BLOCKS]);
    if (kind == OPEN_CALL) {
        put_call_head(e->answer, call->tool, call->text, out);
        buf_put_text(out, "{}}");
    } else if (kind == OPEN_THOUGHT) {
        put_thought(STR(""), out);
    } else {
        buf_put_text(out, "{\"type\":\"text\",\"text\":\"\"}");
    }
    end_piece(e, "content_block_start");
    e->notes[NOTE_OPEN] = kind;
    e->notes[NOTE_BLOCKS]++;
}

static void event(struct encoder *e, const struct api_event *ev) {
    if (ev->choice != 0) return;
    switch (ev->kind) {
    case EVENT_THOUGHT:
        if (ev->text.len == 0) return;
        if (e->notes[NOTE_OPEN] != OPEN_THOUGHT) open_block(e, OPEN_THOUGHT, NULL);
        put_delta(e, ",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":", ev->text);
        return;
    case EVENT_TEXT:
        if (ev->text.len == 0) return;
        if (e->notes[NOTE_OPEN] != OPEN_TEXT) open_block(e, OPEN_TEXT, NULL);
        put_delta(e, ",\"delta\":{\"type\":\"text_delta\",\"text\":", ev->text);
        return;
    case EVENT_TOOL:
        open_block(e, OPEN_CALL, ev);
        return;
    case EVENT_ARGS:
        CHECK(e->notes[NOTE_OPEN] == OPEN_CALL);
        put_delta(e, ",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":", ev->text);
        return;
    case EVENT_FINISH:
        if (e->notes[NOTE_BLOCKS] == 0) open_block(e, OPEN_TEXT, NULL);
        close_block(e);
        return;
    }
}

static void end(struct encoder *e) {
    if (e->answer->failure.status != 0) {
        buf_clear(&e->scratch);
        put_error(&e->answer->failure, STR(""), &e->scratch);
        encoder_put(e, STR("error"), buf_str(&e->scratch));
        return;
    }
    struct buf *out = begin_piece(e, "message_delta");
    buf_put_text(out, ",\"delta\":{");
    put_stop(e->answer, e->answer->choices[0].has_tools, out);
    buf_put_text(out, "},");
    put_usage(e->answer, out);
    end_piece(e, "message_delta");
    begin_piece(e, "message_stop");
    end_piece(e, "message_stop");
}

const struct codec codec_anthropic = {.name = "anthropic.messages",
                                      .id_prefix = "msg_",
                                      .framing = FRAMING_SSE,
                                      .read_body = anthropic_read_body,
                                      .begin = begin,
                                      .event = event,
                                      .end = end,
                                      .whole = whole,
                                      .put_error = put_error};

/* --- counting -------------------------------------------------------------------------------- */

static void whole_count(const struct answer *a, struct buf *out) {
    buf_printf(out, "{\"input_tokens\":%u}", a->prompt_tokens);
}

static void no_begin(struct encoder *e) { (void)e; }
static void no_event(struct encoder *e, const struct api_event *ev) { (void)e, (void)ev; }

/* A stream of a count has one piece. */
static void end_count(struct encoder *e) {
    buf_clear(&e->scratch);
    if (e->answer->failure.status != 0)
        put_error(&e->answer->failure, STR(""), &e->scratch);
    else
        whole_count(e->answer, &e->scratch);
    encoder_put(e, STR(""), buf_str(&e->scratch));
}

const struct codec codec_anthropic_count = {.name = "anthropic.count_tokens",
                                            .id_prefix = "msg_",
                                            .framing = FRAMING_SSE,
                                            .read_body = anthropic_count_read_body,
                                            .begin = no_begin,
                                            .event = no_event,
                                            .end = end_count,
                                            .whole = whole_count,
                                            .put_error = put_error};
