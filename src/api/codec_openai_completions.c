/* api/codec_openai_completions.c - OpenAI's older completions: /v1/completions.
 *
 * One text in, its continuation out; several texts and several continuations of each are choices
 * of one answer. text_offset of a token counts the characters before it in its choice's text, so
 * a stream keeps a count for each choice: encoder.text begins with these counts (only if
 * log-probabilities were asked for), and the prepared beginning of a chunk follows.
 */
#include <string.h>

#include "api/codec.h"
#include "api/fields.h"
#include "api/openai.h"
#include "api/prompts.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

enum { MAX_TOKENS_DEFAULT = 16, TOKEN_BYTES_MAX = 1 << 16, ECHO_BYTES_MAX = 1 << 26 };

/* --- requests --------------------------------------------------------------------------- */

static enum status check(const struct json *body, const struct api_request *r,
                         struct api_error *e) {
    int64_t best_of = json_int(json_get(body, "best_of"), r->n);
    if (best_of != r->n)
        return api_refuse(e, 400, "best_of", "unsupported_value",
                          "'best_of' is %lld; it can only be as large as 'n', which is %u.",
                          (long long)best_of, r->n);
    if (r->echo && r->logprobs)
        return api_refuse(e, 400, "echo", "unsupported_value",
                          "'echo' together with 'logprobs' is not supported: the "
                          "log-probabilities of the prompt are not known.");
    if (r->prompt_count * r->n > API_CHOICES_MAX)
        return api_refuse(e, 400, "n", "integer_above_max_value",
                          "%u prompts with %u answers each are too many: at most %d answers.",
                          r->prompt_count, r->n, API_CHOICES_MAX);
    return ST_OK;
}

static enum status decode(struct json *body, struct api_request *r, struct api_error *e) {
    r->doc = body;
    r->max_tokens = MAX_TOKENS_DEFAULT;
    TRY(api_fields_read(EP_COMPLETIONS, body, r, e));
    r->has_max_tokens = true;
    TRY(openai_check(body, r, e));
    TRY(prompts_read(json_get(body, "prompt"), "prompt", API_PROMPTS_MAX, r, e));
    return check(body, r, e);
}

/* --- what both shapes have -------------------------------------------------------------- */

static void put_head(const struct answer *a, struct buf *out) {
    PUT(out, "{\"id\":\"cmpl-");
    buf_put_json_inner(out, str_of(a->id));
    PUT(out, "\",\"object\":\"text_completion\",\"created\":");
    buf_put_uint(out, (uint64_t)a->created_s);
    PUT(out, ",\"model\":");
    buf_put_json_string(out, a->model);
    PUT(out, ",\"system_fingerprint\":");
    buf_put_json_string(out, a->fingerprint);
    PUT(out, ",\"choices\":[");
}

/* The prompt of a choice, inside an open string. */
static void put_echo(const struct answer *a, uint32_t choice, struct buf *out) {
    const struct api_prompt *p = &a->request->prompts[a->choices[choice].prompt];
    if (!p->ids) {
        buf_put_json_inner(out, p->text);
        return;
    }
    struct buf text;
    buf_init(&text, ECHO_BYTES_MAX);
    enum status st =
        tokenizer_decode(a->tokenizer, p->ids, p->count, !a->request->keep_special, &text);
    if (st != ST_OK && out->status == ST_OK) out->status = st;
    buf_put_json_inner(out, buf_str(&text));
    buf_deinit(&text);
}

static void put_prompt_ids(const struct answer *a, uint32_t choice, struct buf *out) {
    const struct choice *c = a->choices[choice].tokens;
    PUT(out, ",\"prompt_token_ids\":");
    openai_put_ids(c->tokens, c->prompt_tokens, out);
}

/* --- log-probabilities: four lists side by side ----------------------------------------- */

struct span {
    const struct answer *answer;
    uint32_t choice, first, count;
};

/* The bytes of a token; a failure is one of memory and stays with `out`. */
static void find_bytes(const struct answer *a, int32_t token, struct buf *bytes, struct buf *out) {
    buf_clear(bytes);
    enum status st = tokenizer_token_bytes(a->tokenizer, token, bytes);
    if (st != ST_OK && out->status == ST_OK) out->status = st;
}

/* A token that is no whole character is shown by its bytes, as OpenAI does, so that two of them
 * have two names. */
static void put_name(struct str bytes, struct buf *out) {
    if (utf8_is_valid(bytes)) {
        buf_put_json_string(out, bytes);
        return;
    }
    PUT(out, "\"bytes:");
    for (size_t i = 0; i < bytes.len; i++) buf_printf(out, "\\\\x%02x", (uint8_t)bytes.ptr[i]);
    PUT(out, "\"");
}

static void put_tokens(const struct span *s, struct buf *bytes, struct buf *out) {
    for (uint32_t i = s->first; i < s->first + s->count; i++) {
        if (i > s->first) PUT(out, ",");
        find_bytes(s->answer, answer_token(s->answer, s->choice, i).token, bytes, out);
        put_name(buf_str(bytes), out);
    }
}

static void put_values(const struct span *s, struct buf *out) {
    for (uint32_t i = s->first; i < s->first + s->count; i++) {
        if (i > s->first) PUT(out, ",");
        openai_put_logprob(answer_token(s->answer, s->choice, i).logprob, out);
    }
}

static bool is_listed(const struct sample_result *tops, uint32_t count, int32_t token) {
    for (uint32_t k = 0; k < count; k++)
        if (tops->top[k].token == token) return true;
    return false;
}

static void put_member(const struct answer *a, struct token_logprob t, struct buf *bytes,
                       struct buf *out) {
    find_bytes(a, t.token, bytes, out);
    put_name(buf_str(bytes), out);
    PUT(out, ":");
    openai_put_logprob(t.logprob, out);
}

/* The likeliest tokens and, where it is none of them, the chosen one. */
static void put_tops(const struct span *s, struct buf *bytes, struct buf *out) {
    for (uint32_t i = s->first; i < s->first + s->count; i++) {
        const struct sample_result *tops = answer_tops(s->answer, s->choice, i);
        const struct token_logprob chosen = answer_token(s->answer, s->choice, i);
        uint32_t count = tops ? tops->top_count : 0;
        if (i > s->first) PUT(out, ",");
        PUT(out, "{");
        for (uint32_t k = 0; k < count; k++) {
            if (k) PUT(out, ",");
            put_member(s->answer, tops->top[k], bytes, out);
        }
        if (!tops || !is_listed(tops, count, chosen.token)) {
            if (count) PUT(out, ",");
            put_member(s->answer, chosen, bytes, out);
        }
        PUT(out, "}");
    }
}

/* `offset`: the characters before the first of them. */
static void put_offsets(const struct span *s, uint64_t offset, struct buf *bytes, struct buf *out) {
    for (uint32_t i = s->first; i < s->first + s->count; i++) {
        if (i > s->first) PUT(out, ",");
        buf_put_uint(out, offset);
        find_bytes(s->answer, answer_token(s->answer, s->choice, i).token, bytes, out);
        offset += utf8_count(buf_str(bytes));
    }
}

/* All but the offsets, whose list is left open. */
static void open_logprobs(const struct span *s, struct buf *bytes, struct buf *out) {
    PUT(out, "{\"tokens\":[");
    put_tokens(s, bytes, out);
    PUT(out, "],\"token_logprobs\":[");
    put_values(s, out);
    PUT(out, "],\"top_logprobs\":[");
    put_tops(s, bytes, out);
    PUT(out, "],\"text_offset\":[");
}

static void put_piece_logprobs(const struct span *s, uint64_t offset, struct buf *out) {
    struct buf bytes;
    buf_init(&bytes, TOKEN_BYTES_MAX);
    open_logprobs(s, &bytes, out);
    put_offsets(s, offset, &bytes, out);
    PUT(out, "]}");
    buf_deinit(&bytes);
}

/* Every event says where its tokens begin, because not every token has become text of its own. */
static void put_whole_logprobs(const struct span *s, struct buf *out) {
    const struct event_log *log = s->answer->log;
    struct buf bytes;
    uint64_t offset = 0;
    bool has_any = false;
    buf_init(&bytes, TOKEN_BYTES_MAX);
    open_logprobs(s, &bytes, out);
    for (uint32_t i = 0; i < event_log_count(log); i++) {
        struct api_event ev = event_log_at(log, i);
        if (ev.choice != s->choice) continue;
        struct span part = {s->answer, s->choice, ev.first_token, ev.token_count};
        if (has_any && part.count) PUT(out, ",");
        put_offsets(&part, offset, &bytes, out);
        has_any |= part.count > 0;
        if (ev.kind == EVENT_TEXT) offset += utf8_count(ev.text);
    }
    PUT(out, "]}");
    buf_deinit(&bytes);
}

/* --- a stream --------------------------------------------------------------------------- */

static size_t counts_bytes(const struct answer *a) {
    return a->request->logprobs ? a->choice_count * sizeof(uint32_t) : 0;
}

/* How many characters the choice had before this piece; then it has so many more. */
static uint64_t count_on(struct encoder *e, uint32_t choice, struct str text) {
    uint32_t before = 0, after;
    if (buf_status(&e->text) != ST_OK) return 0;
    char *at = e->text.ptr + choice * sizeof(before);
    memcpy(&before, at, sizeof(before));
    after = before + (uint32_t)utf8_count(text);
    memcpy(at, &after, sizeof(after));
    return before;
}

static struct buf *open_chunk(struct encoder *e, uint32_t choice) {
    struct buf *out = &e->scratch;
    buf_clear(out);
    buf_put_str(out, str_skip(buf_str(&e->text), counts_bytes(e->answer)));
    PUT(out, "{\"index\":");
    buf_put_uint(out, choice);
    PUT(out, ",\"text\":\"");
    return out;
}

static void put_chunk(struct encoder *e, const struct api_event *ev, const char *finish) {
    const struct answer *a = e->answer;
    const struct span span = {a, ev->choice, ev->first_token, ev->token_count};
    struct buf *out = &e->scratch;
    PUT(out, "\",\"logprobs\":");
    if (a->request->logprobs && ev->token_count)
        put_piece_logprobs(&span, count_on(e, ev->choice, ev->text), out);
    else
        PUT(out, "null");
    PUT(out, ",\"finish_reason\":");
    if (finish)
        buf_put_json_string(out, str_of(finish));
    else
        PUT(out, "null");
    if (a->request->return_token_ids) {
        PUT(out, ",\"token_ids\":");
        openai_put_answer_ids(a, ev->choice, ev->first_token, ev->token_count, out);
    }
    PUT(out, "}]");
    if (a->request->include_usage) PUT(out, ",\"usage\":null");
    PUT(out, "}");
    encoder_put(e, STR(""), buf_str(out));
}

static void begin(struct encoder *e) {
    const struct answer *a = e->answer;
    const uint32_t zero = 0;
    for (size_t i = 0; i < counts_bytes(a); i += sizeof(zero))
        buf_put(&e->text, &zero, sizeof(zero));
    put_head(a, &e->text);
    for (uint32_t i = 0; a->request->echo && i < a->choice_count; i++) {
        put_echo(a, i, open_chunk(e, i));
        put_chunk(e, &(struct api_event){.choice = i}, NULL);
    }
}

static void event(struct encoder *e, const struct api_event *ev) {
    if (ev->kind != EVENT_TEXT && ev->kind != EVENT_FINISH) return; /* a text calls no tools */
    bool is_last = ev->kind == EVENT_FINISH;
    struct buf *out = open_chunk(e, ev->choice);
    if (!is_last) buf_put_json_inner(out, ev->text);
    put_chunk(e, ev, is_last ? openai_finish(ev->finish, 0) : NULL);
}

static void end(struct encoder *e) {
    const struct answer *a = e->answer;
    struct buf *out = &e->scratch;
    buf_clear(out);
    if (a->failure.status) {
        api_error_put_openai(&a->failure, STR(""), out);
        encoder_put(e, STR(""), buf_str(out));
        return;
    }
    if (a->request->include_usage) {
        buf_put_str(out, str_skip(buf_str(&e->text), counts_bytes(a)));
        PUT(out, "],\"usage\":");
        openai_put_usage(a, out);
        PUT(out, "}");
        encoder_put(e, STR(""), buf_str(out));
    }
    encoder_put(e, STR(""), STR("[DONE]"));
}

/* --- the whole answer ------------------------------------------------------------------- */

static void put_text(const struct answer *a, uint32_t choice, struct buf *out) {
    if (a->request->echo) put_echo(a, choice, out);
    for (uint32_t i = 0; i < event_log_count(a->log); i++) {
        struct api_event ev = event_log_at(a->log, i);
        if (ev.choice == choice && ev.kind == EVENT_TEXT) buf_put_json_inner(out, ev.text);
    }
}

static void put_choice(const struct answer *a, uint32_t choice, struct buf *out) {
    const struct api_event last = answer_last_event(a, choice);
    const struct span span = {a, choice, 0, last.first_token + last.token_count};
    PUT(out, "{\"index\":");
    buf_put_uint(out, choice);
    PUT(out, ",\"text\":\"");
    put_text(a, choice, out);
    PUT(out, "\",\"logprobs\":");
    if (a->request->logprobs)
        put_whole_logprobs(&span, out);
    else
        PUT(out, "null");
    PUT(out, ",\"finish_reason\":");
    buf_put_json_string(out, str_of(openai_finish(last.finish, 0)));
    if (a->request->return_token_ids) {
        PUT(out, ",\"token_ids\":");
        openai_put_answer_ids(a, choice, 0, span.count, out);
        put_prompt_ids(a, choice, out);
    }
    PUT(out, "}");
}

static void whole(const struct answer *a, struct buf *out) {
    put_head(a, out);
    for (uint32_t i = 0; i < a->choice_count; i++) {
        if (i) PUT(out, ",");
        put_choice(a, i, out);
    }
    PUT(out, "],\"usage\":");
    openai_put_usage(a, out);
    PUT(out, "}");
}

const struct codec codec_openai_completions = {
    .name = "openai.completions",
    .id_prefix = "cmpl-",
    .framing = FRAMING_SSE,
    .decode = decode,
    .begin = begin,
    .event = event,
    .end = end,
    .whole = whole,
    .put_error = api_error_put_openai,
};
