/* api/codec_openai_chat.c - OpenAI's chat completions: /v1/chat/completions.
 *
 * The part of a chunk up to "choices" is the same in every chunk. It is written once
 * (encoder.text), so that an event costs a few copies.
 */

#include "api/codec.h"
#include "api/fields.h"
#include "api/messages.h"
#include "api/openai.h"
#include "api/tools_read.h"
#include "base/json.h"

/* --- requests --------------------------------------------------------------------------- */

static enum status read_body(struct json *body, struct api_request *r, struct api_error *e) {
    r->doc = body;
    TRY(api_fields_read(EP_CHAT, body, r, e));
    TRY(openai_check(body, r, e));
    TRY(openai_read_effort(json_path(body, "reasoning.effort"), r));
    TRY(openai_read_effort(json_get(body, "reasoning_effort"), r));
    TRY(tools_read_openai(json_get(body, "tools"), json_get(body, "tool_choice"), r, e));
    return messages_read_openai(json_get(body, "messages"), false, r, e);
}

/* --- what streams and whole answers share ----------------------------------------------- */

static void put_prompt_ids(const struct answer *a, struct buf *out) {
    if (!a->request->return_token_ids || a->choice_count == 0) return;
    const struct choice *c = a->choices[0].tokens;
    PUT(out, ",\"prompt_token_ids\":");
    openai_put_ids(c->tokens, c->prompt_tokens, out);
}

static void put_call_head(const struct answer *a, const struct api_event *ev, struct buf *out) {
    char id[CALL_ID_BYTES];
    answer_call_id(a, ev->choice, ev->tool, "call_", id);
    PUT(out, "\"id\":\"");
    buf_put_text(out, id);
    PUT(out, "\",\"type\":\"function\",\"function\":{\"name\":");
    buf_put_json_string(out, ev->text);
    PUT(out, ",\"arguments\":\"");
}

/* --- a stream --------------------------------------------------------------------------- */

/* {"index":N,"delta":{ of a chunk. */
static struct buf *open_chunk(struct encoder *e, uint32_t choice) {
    struct buf *out = &e->scratch;
    buf_clear(out);
    buf_put_str(out, buf_str(&e->text));
    PUT(out, "{\"index\":");
    buf_put_uint(out, choice);
    PUT(out, ",\"delta\":{");
    return out;
}

/* What follows the delta: log-probabilities, finish reason, token ids, usage. */
static void close_chunk(struct encoder *e, const struct api_event *ev, const char *finish) {
    const struct answer *a = e->answer;
    struct buf *out = &e->scratch;
    if (a->request->logprobs && ev->token_count) {
        PUT(out, "},\"logprobs\":{\"content\":[");
        openai_put_logprobs(a, ev->choice, ev->first_token, ev->token_count, out);
        PUT(out, "],\"refusal\":null},\"finish_reason\":");
    } else {
        PUT(out, "},\"logprobs\":null,\"finish_reason\":");
    }
    if (finish)
        buf_put_json_string(out, str_of(finish));
    else
        PUT(out, "null");
    if (a->request->return_token_ids) {
        PUT(out, ",\"token_ids\":");
        openai_put_answer_ids(a, ev->choice, ev->first_token, ev->token_count, out);
    }
    PUT(out, "}]");
    openai_put_chunk_usage(a, ev, out);
}

static void put_chunk(struct encoder *e) {
    buf_put_char(&e->scratch, '}');
    encoder_put(e, STR(""), buf_str(&e->scratch));
}

static void begin(struct encoder *e) {
    const struct answer *a = e->answer;
    openai_open_answer(a, "chat.completion.chunk", &e->text);
    for (uint32_t i = 0; i < a->choice_count; i++) {
        struct buf *out = open_chunk(e, i);
        PUT(out, "\"role\":\"assistant\",\"content\":\"\",\"refusal\":null");
        close_chunk(e, &(struct api_event){.choice = i}, NULL);
        if (i == 0) put_prompt_ids(a, out);
        put_chunk(e);
    }
}

static void event(struct encoder *e, const struct api_event *ev) {
    struct buf *out = open_chunk(e, ev->choice);
    switch (ev->kind) {
    case EVENT_THOUGHT:
        PUT(out, "\"reasoning_content\":\"");
        buf_put_json_inner(out, ev->text);
        PUT(out, "\"");
        break;
    case EVENT_TEXT:
        PUT(out, "\"content\":\"");
        buf_put_json_inner(out, ev->text);
        PUT(out, "\"");
        break;
    case EVENT_TOOL:
        PUT(out, "\"tool_calls\":[{\"index\":");
        buf_put_uint(out, ev->tool);
        PUT(out, ",");
        put_call_head(e->answer, ev, out);
        PUT(out, "\"}}]");
        break;
    case EVENT_ARGS:
        PUT(out, "\"tool_calls\":[{\"index\":");
        buf_put_uint(out, ev->tool);
        PUT(out, ",\"function\":{\"arguments\":\"");
        buf_put_json_inner(out, ev->text);
        PUT(out, "\"}}]");
        break;
    case EVENT_FINISH:
        close_chunk(e, ev, openai_finish(ev->finish, ev->tool));
        put_chunk(e);
        return;
    }
    close_chunk(e, ev, NULL);
    put_chunk(e);
}

static void end(struct encoder *e) { openai_end_stream(e, buf_str(&e->text)); }

/* --- the whole answer ------------------------------------------------------------------- */

/* Writes one choice from its events. */
struct choice_writer {
    const struct answer *answer;
    uint32_t choice;
    struct buf *out;
};

static void put_content(const struct choice_writer *t) {
    const struct event_log *log = t->answer->log;
    struct buf *out = t->out;
    bool has_text = false, has_calls = false;
    size_t start = out->len;
    PUT(out, "\"");
    for (uint32_t i = event_log_first(log, t->choice); i != EVENT_NO; i = event_log_after(log, i)) {
        struct api_event ev = event_log_at(log, i);
        has_calls |= ev.kind == EVENT_TOOL;
        if (ev.kind != EVENT_TEXT) continue;
        has_text |= ev.text.len > 0;
        buf_put_json_inner(out, ev.text);
    }
    PUT(out, "\"");
    if (has_text || !has_calls || buf_status(out) != ST_OK) return;
    out->len = start; /* calls alone have no content */
    PUT(out, "null");
}

static void put_thoughts(const struct choice_writer *t) {
    const struct event_log *log = t->answer->log;
    bool is_open = false;
    for (uint32_t i = event_log_first(log, t->choice); i != EVENT_NO; i = event_log_after(log, i)) {
        struct api_event ev = event_log_at(log, i);
        if (ev.kind != EVENT_THOUGHT || ev.text.len == 0) continue;
        if (!is_open) PUT(t->out, ",\"reasoning_content\":\"");
        is_open = true;
        buf_put_json_inner(t->out, ev.text);
    }
    if (is_open) PUT(t->out, "\"");
}

static void put_calls(const struct choice_writer *t) {
    const struct event_log *log = t->answer->log;
    bool is_open = false;
    for (uint32_t i = event_log_first(log, t->choice); i != EVENT_NO; i = event_log_after(log, i)) {
        struct api_event ev = event_log_at(log, i);
        if (ev.kind == EVENT_TOOL) {
            buf_put_text(t->out, is_open ? "\"}},{" : ",\"tool_calls\":[{");
            put_call_head(t->answer, &ev, t->out);
            is_open = true;
        }
        if (ev.kind == EVENT_ARGS) buf_put_json_inner(t->out, ev.text);
    }
    if (is_open) PUT(t->out, "\"}}]");
}

static void put_logprobs(const struct choice_writer *t, uint32_t tokens) {
    if (!t->answer->request->logprobs) {
        PUT(t->out, "null");
        return;
    }
    PUT(t->out, "{\"content\":[");
    openai_put_logprobs(t->answer, t->choice, 0, tokens, t->out);
    PUT(t->out, "],\"refusal\":null}");
}

static void put_choice(const struct choice_writer *t) {
    const struct api_event last = answer_last_event(t->answer, t->choice);
    const uint32_t tokens = last.first_token + last.token_count;
    struct buf *out = t->out;
    PUT(out, "{\"index\":");
    buf_put_uint(out, t->choice);
    PUT(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
    put_content(t);
    put_thoughts(t);
    PUT(out, ",\"refusal\":null,\"annotations\":[]");
    put_calls(t);
    PUT(out, "},\"logprobs\":");
    put_logprobs(t, tokens);
    PUT(out, ",\"finish_reason\":");
    buf_put_json_string(out, str_of(openai_finish(last.finish, last.tool)));
    if (t->answer->request->return_token_ids) {
        PUT(out, ",\"token_ids\":");
        openai_put_answer_ids(t->answer, t->choice, 0, tokens, out);
    }
    PUT(out, "}");
}

static void whole(const struct answer *a, struct buf *out) {
    openai_open_answer(a, "chat.completion", out);
    for (uint32_t i = 0; i < a->choice_count; i++) {
        if (i) PUT(out, ",");
        put_choice(&(struct choice_writer){.answer = a, .choice = i, .out = out});
    }
    PUT(out, "],\"usage\":");
    openai_put_usage(a, out);
    put_prompt_ids(a, out);
    PUT(out, "}");
}

const struct codec codec_openai_chat = {
    .name = "openai.chat",
    .id_prefix = "chatcmpl-",
    .framing = FRAMING_SSE,
    .end_mark = OPENAI_END_MARK,
    .read_body = read_body,
    .begin = begin,
    .event = event,
    .end = end,
    .whole = whole,
    .put_error = api_error_put_openai,
};
