/* api/codec_openai_completions.c - OpenAI's older completions: /v1/completions.
 *
 * Each prompt has one or more continuations, and each continuation is a choice of the answer.
 * text_offset of a token is the number of characters before it in its choice's text, so a stream
 * keeps a count for each choice: encoder.text begins with these counts (only if log-probabilities
 * were requested), followed by the part of a chunk that is always the same.
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
                          "'best_of' is %lld; it must equal 'n', which is %u.", (long long)best_of,
                          r->n);
    if (r->prompt_count * r->n > API_CHOICES_MAX)
        return api_refuse(e, 400, "n", "integer_above_max_value",
                          "%u prompts with %u answers each are too many: at most %d answers.",
                          r->prompt_count, r->n, API_CHOICES_MAX);
    return ST_OK;
}

static enum status read_body(struct json *body, struct api_request *r, struct api_error *e) {
    r->doc = body;
    r->max_tokens = MAX_TOKENS_DEFAULT;
    TRY(api_fields_read(EP_COMPLETIONS, body, r, e));
    r->has_max_tokens = true;
    r->prompt_logprobs = r->echo && r->logprobs;
    TRY(openai_check(body, r, e));
    TRY(prompts_read(json_get(body, "prompt"), "prompt", API_PROMPTS_MAX, r, e));
    return check(body, r, e);
}

/* --- what streams and whole answers share ----------------------------------------------- */

/* Append the prompt of a choice to an open string. */
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

/* --- log-probabilities: four parallel lists --------------------------------------------- */

/* Some tokens of a choice's answer, or of its prompt. */
struct token_range {
    const struct answer *answer;
    uint32_t choice, first, count;
    bool is_prompt;
};

static struct token_range prompt_range(const struct answer *a, uint32_t choice) {
    bool is_wanted = a->request->prompt_logprobs;
    uint32_t count = is_wanted ? a->choices[choice].tokens->prompt_tokens : 0;
    return (struct token_range){a, choice, 0, count, true};
}

static struct token_range event_range(const struct answer *a, const struct api_event *ev) {
    return (struct token_range){a, ev->choice, ev->first_token, ev->token_count, false};
}

static struct token_logprob token_at(const struct token_range *s, uint32_t i) {
    if (s->is_prompt) return answer_prompt_token(s->answer, s->choice, i);
    return answer_token(s->answer, s->choice, i);
}

static const struct sample_result *tops_at(const struct token_range *s, uint32_t i) {
    if (s->is_prompt) return answer_prompt_tops(s->answer, s->choice, i);
    return answer_tops(s->answer, s->choice, i);
}

/* The first token of a prompt has no log-probability. */
static bool is_known(const struct token_range *s, uint32_t i) { return !s->is_prompt || i > 0; }

/* The four lists while they are written. A list may cover two ranges, so it counts its items. */
struct lists {
    struct buf bytes; /* of the current token */
    struct buf *out;
    uint32_t written;
};

static void put_comma(struct lists *l) {
    if (l->written++) PUT(l->out, ",");
}

/* The bytes of a token; if memory ran out, `out` gets that status. */
static struct str find_bytes(struct lists *l, const struct answer *a, int32_t token) {
    buf_clear(&l->bytes);
    enum status st = tokenizer_token_bytes(a->tokenizer, token, &l->bytes);
    if (st != ST_OK && l->out->status == ST_OK) l->out->status = st;
    return buf_str(&l->bytes);
}

/* A token that is not valid UTF-8 is written as its bytes, as OpenAI does, so that different tokens
 * have different names. */
static void put_name(struct lists *l, const struct answer *a, int32_t token) {
    struct str bytes = find_bytes(l, a, token);
    if (utf8_is_valid(bytes)) {
        buf_put_json_string(l->out, bytes);
        return;
    }
    PUT(l->out, "\"bytes:");
    for (size_t i = 0; i < bytes.len; i++) buf_printf(l->out, "\\\\x%02x", (uint8_t)bytes.ptr[i]);
    PUT(l->out, "\"");
}

static void put_names(struct lists *l, const struct token_range *s) {
    for (uint32_t i = s->first; i < s->first + s->count; i++) {
        put_comma(l);
        put_name(l, s->answer, token_at(s, i).token);
    }
}

static void put_values(struct lists *l, const struct token_range *s) {
    for (uint32_t i = s->first; i < s->first + s->count; i++) {
        put_comma(l);
        if (is_known(s, i))
            openai_put_logprob(token_at(s, i).logprob, l->out);
        else
            PUT(l->out, "null");
    }
}

static bool is_listed(const struct sample_result *tops, uint32_t count, int32_t token) {
    for (uint32_t k = 0; k < count; k++)
        if (tops->top[k].token == token) return true;
    return false;
}

static void put_member(struct lists *l, const struct answer *a, struct token_logprob t) {
    put_name(l, a, t.token);
    PUT(l->out, ":");
    openai_put_logprob(t.logprob, l->out);
}

/* The likeliest tokens, and the chosen one if it is not among them. */
static void put_top(struct lists *l, const struct token_range *s, uint32_t i) {
    const struct sample_result *tops = tops_at(s, i);
    const struct token_logprob chosen = token_at(s, i);
    uint32_t count = tops ? tops->top_count : 0;
    PUT(l->out, "{");
    for (uint32_t k = 0; k < count; k++) {
        if (k) PUT(l->out, ",");
        put_member(l, s->answer, tops->top[k]);
    }
    if (!is_listed(tops, count, chosen.token)) {
        if (count) PUT(l->out, ",");
        put_member(l, s->answer, chosen);
    }
    PUT(l->out, "}");
}

static void put_tops(struct lists *l, const struct token_range *s) {
    for (uint32_t i = s->first; i < s->first + s->count; i++) {
        put_comma(l);
        if (is_known(s, i))
            put_top(l, s, i);
        else
            PUT(l->out, "null");
    }
}

/* `offset`: the number of characters before the first token. */
static void put_offsets(struct lists *l, const struct token_range *s, uint64_t offset) {
    for (uint32_t i = s->first; i < s->first + s->count; i++) {
        put_comma(l);
        buf_put_uint(l->out, offset);
        offset += utf8_count(find_bytes(l, s->answer, token_at(s, i).token));
    }
}

/* The offsets of the prompt's tokens; returns the number of characters of the prompt. */
static uint64_t put_prompt_offsets(struct lists *l, const struct token_range *s) {
    const struct answer *a = s->answer;
    struct detok detok = {0};
    uint64_t offset = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        put_comma(l);
        buf_put_uint(l->out, offset);
        buf_clear(&l->bytes);
        enum status st = detok_push(&detok, a->tokenizer, token_at(s, i).token,
                                    !a->request->keep_special, &l->bytes);
        if (st != ST_OK && l->out->status == ST_OK) l->out->status = st;
        offset += utf8_count(buf_str(&l->bytes));
    }
    buf_clear(&l->bytes);
    detok_finish(&detok, &l->bytes);
    return offset + utf8_count(buf_str(&l->bytes));
}

/* Writes one list for the prompt's range and the answer's. */
typedef void list_fn(struct lists *l, const struct token_range *s);

static void put_list(struct lists *l, const struct token_range ranges[2], list_fn *put) {
    l->written = 0;
    put(l, &ranges[0]);
    put(l, &ranges[1]);
}

/* Write all lists but the offsets, whose list stays open. */
static void open_logprobs(struct lists *l, const struct token_range ranges[2], struct buf *out) {
    *l = (struct lists){.out = out};
    buf_init(&l->bytes, TOKEN_BYTES_MAX);
    PUT(out, "{\"tokens\":[");
    put_list(l, ranges, put_names);
    PUT(out, "],\"token_logprobs\":[");
    put_list(l, ranges, put_values);
    PUT(out, "],\"top_logprobs\":[");
    put_list(l, ranges, put_tops);
    PUT(out, "],\"text_offset\":[");
    l->written = 0;
}

static void close_logprobs(struct lists *l) {
    PUT(l->out, "]}");
    buf_deinit(&l->bytes);
}

/* Write the log-probabilities of one event. */
static void put_piece_logprobs(const struct token_range *s, uint64_t offset, struct buf *out) {
    const struct token_range ranges[2] = {{.answer = s->answer}, *s};
    struct lists l;
    open_logprobs(&l, ranges, out);
    put_offsets(&l, s, offset);
    close_logprobs(&l);
}

/* Write the log-probabilities of the prompt; returns its number of characters. */
static uint64_t put_prompt_logprobs(const struct token_range *s, struct buf *out) {
    const struct token_range ranges[2] = {*s, {.answer = s->answer}};
    struct lists l;
    open_logprobs(&l, ranges, out);
    uint64_t offset = put_prompt_offsets(&l, s);
    close_logprobs(&l);
    return offset;
}

/* Offsets go by event, because a token does not always have text of its own. */
static void put_whole_logprobs(const struct token_range *s, struct buf *out) {
    const struct answer *a = s->answer;
    const struct event_log *log = a->log;
    const struct token_range ranges[2] = {prompt_range(a, s->choice), *s};
    struct lists l;
    open_logprobs(&l, ranges, out);
    uint64_t offset = put_prompt_offsets(&l, &ranges[0]);
    for (uint32_t i = event_log_first(log, s->choice); i != EVENT_NO; i = event_log_after(log, i)) {
        struct api_event ev = event_log_at(log, i);
        const struct token_range part = event_range(a, &ev);
        put_offsets(&l, &part, offset);
        if (ev.kind == EVENT_TEXT) offset += utf8_count(ev.text);
    }
    close_logprobs(&l);
}

/* --- a stream --------------------------------------------------------------------------- */

static size_t counts_bytes(const struct answer *a) {
    return a->request->logprobs ? a->choice_count * sizeof(uint32_t) : 0;
}

/* Return the number of characters of the choice so far, and add to it. */
static uint64_t count_on(struct encoder *e, uint32_t choice, uint64_t more) {
    uint32_t before = 0, after;
    if (buf_status(&e->text) != ST_OK) return 0;
    char *at = e->text.ptr + choice * sizeof(before);
    memcpy(&before, at, sizeof(before));
    after = before + (uint32_t)more;
    memcpy(at, &after, sizeof(after));
    return before;
}

/* The part with which every chunk begins. */
static struct str chunk_head(const struct encoder *e) {
    return str_skip(buf_str(&e->text), counts_bytes(e->answer));
}

static struct buf *open_chunk(struct encoder *e, uint32_t choice) {
    struct buf *out = &e->scratch;
    buf_clear(out);
    buf_put_str(out, chunk_head(e));
    PUT(out, "{\"index\":");
    buf_put_uint(out, choice);
    PUT(out, ",\"text\":\"");
    return out;
}

/* What follows the log-probabilities: finish reason, token ids, usage. */
static void put_chunk(struct encoder *e, const struct api_event *ev, const char *finish) {
    const struct answer *a = e->answer;
    struct buf *out = &e->scratch;
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
    openai_put_chunk_usage(a, ev, out);
    PUT(out, "}");
    encoder_put(e, STR(""), buf_str(out));
}

static void put_echo_chunk(struct encoder *e, uint32_t choice) {
    const struct token_range prompt = prompt_range(e->answer, choice);
    struct buf *out = open_chunk(e, choice);
    put_echo(e->answer, choice, out);
    PUT(out, "\",\"logprobs\":");
    if (prompt.count)
        count_on(e, choice, put_prompt_logprobs(&prompt, out));
    else
        PUT(out, "null");
    put_chunk(e, &(struct api_event){.choice = choice}, NULL);
}

static void begin(struct encoder *e) {
    const struct answer *a = e->answer;
    const uint32_t zero = 0;
    for (size_t i = 0; i < counts_bytes(a); i += sizeof(zero))
        buf_put(&e->text, &zero, sizeof(zero));
    openai_open_answer(a, "text_completion", &e->text);
    for (uint32_t i = 0; a->request->echo && i < a->choice_count; i++) put_echo_chunk(e, i);
}

static void event(struct encoder *e, const struct api_event *ev) {
    if (ev->kind != EVENT_TEXT && ev->kind != EVENT_FINISH) return; /* completions have no tools */
    const bool is_last = ev->kind == EVENT_FINISH;
    const struct token_range range = event_range(e->answer, ev);
    struct buf *out = open_chunk(e, ev->choice);
    if (!is_last) buf_put_json_inner(out, ev->text);
    PUT(out, "\",\"logprobs\":");
    if (e->answer->request->logprobs && ev->token_count)
        put_piece_logprobs(&range, count_on(e, ev->choice, is_last ? 0 : utf8_count(ev->text)),
                           out);
    else
        PUT(out, "null");
    put_chunk(e, ev, is_last ? openai_finish(ev->finish, 0) : NULL);
}

static void end(struct encoder *e) { openai_end_stream(e, chunk_head(e)); }

/* --- the whole answer ------------------------------------------------------------------- */

static void put_text(const struct answer *a, uint32_t choice, struct buf *out) {
    const struct event_log *log = a->log;
    if (a->request->echo) put_echo(a, choice, out);
    for (uint32_t i = event_log_first(log, choice); i != EVENT_NO; i = event_log_after(log, i)) {
        struct api_event ev = event_log_at(log, i);
        if (ev.kind == EVENT_TEXT) buf_put_json_inner(out, ev.text);
    }
}

static void put_choice(const struct answer *a, uint32_t choice, struct buf *out) {
    const struct api_event last = answer_last_event(a, choice);
    const struct token_range range = {a, choice, 0, last.first_token + last.token_count, false};
    PUT(out, "{\"index\":");
    buf_put_uint(out, choice);
    PUT(out, ",\"text\":\"");
    put_text(a, choice, out);
    PUT(out, "\",\"logprobs\":");
    if (a->request->logprobs)
        put_whole_logprobs(&range, out);
    else
        PUT(out, "null");
    PUT(out, ",\"finish_reason\":");
    buf_put_json_string(out, str_of(openai_finish(last.finish, 0)));
    if (a->request->return_token_ids) {
        PUT(out, ",\"token_ids\":");
        openai_put_answer_ids(a, choice, 0, range.count, out);
        put_prompt_ids(a, choice, out);
    }
    PUT(out, "}");
}

static void whole(const struct answer *a, struct buf *out) {
    openai_open_answer(a, "text_completion", out);
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
    .end_mark = OPENAI_END_MARK,
    .read_body = read_body,
    .begin = begin,
    .event = event,
    .end = end,
    .whole = whole,
    .put_error = api_error_put_openai,
};
