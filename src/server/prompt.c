/* server/prompt.c - see server/prompt.h. */
#include "server/prompt.h"

#include <string.h>

#include "api/think.h"
#include "api/tools.h"
#include "api/tools_as_text.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/request.h"
#include "server/registry.h"
#include "text/chat_prompt.h"
#include "text/content_guard.h"

static enum status no_memory(struct api_error *e) {
    api_refuse(e, 503, NULL, "out_of_memory", "the server has no memory for this prompt");
    return ST_NOMEM;
}

static struct chat_turn turn_of(const struct api_request *r) {
    struct chat_turn turn = {.messages = r->messages,
                             .kwargs = r->template_kwargs,
                             .no_generation_prompt = r->no_generation_prompt,
                             .continue_final = r->continue_final};
    if (r->tool_choice != TOOLS_NONE) turn.tools = r->tools;
    return turn;
}

static enum status check_chat(const struct served_model *m, struct api_error *e) {
    if (m->chat) return ST_OK;
    return api_refuse(e, 400, "messages", NULL,
                      "the model \"%s\" has no usable chat template: %s; /v1/completions "
                      "takes plain text",
                      m->name, m->chat_missing.text);
}

/* A template that refuses the messages says why, and the client gets that sentence. */
static enum status put_template_error(enum status st, const struct err *err, struct api_error *e) {
    if (st == ST_OK) return ST_OK;
    if (st == ST_NOMEM) return no_memory(e);
    return api_refuse(e, 400, "messages", NULL, "%s", err->text);
}

static enum status render(const struct served_model *m, const struct api_request *r,
                          struct buf *out, struct text_places *plain, struct api_error *e) {
    struct err err = {0};
    struct json *converted = NULL;
    struct chat_turn turn = turn_of(r);
    enum status st = ST_OK;
    if (m->forms.tools_as_text) {
        st = tools_as_text(turn.messages, turn.tools, &converted);
        turn.messages = converted;
        turn.tools = NULL;
    }
    if (st == ST_OK) st = chat_prompt_render(m->chat, &turn, out, plain, &err);
    json_destroy(converted);
    return put_template_error(st, &err, e);
}

enum status prompt_render(const struct served_model *m, const struct api_request *r,
                          struct buf *out, struct api_error *e) {
    TRY(check_chat(m, e));
    return render(m, r, out, NULL, e);
}

static enum status check_tools(const struct served_model *m, const struct api_request *r,
                               struct api_error *e) {
    if (m->forms.tools || !r->tools) return ST_OK;
    return api_refuse(e, 400, "tools", "unsupported_parameter",
                      "this server cannot parse the tool calls that the model \"%s\" writes",
                      m->name);
}

/* `is_minimum`: as in request_check_prompt. */
static enum status check_length(const struct api_request *r, uint32_t ctx_tokens, uint64_t tokens,
                                bool is_minimum, struct api_error *e) {
    struct err err = {0};
    if (ctx_tokens == 0) return ST_OK;
    enum status st = request_check_prompt(tokens, ctx_tokens, is_minimum, &err);
    if (st == ST_OK) return ST_OK;
    return api_refuse(e, 400, r->is_chat ? "messages" : "prompt",
                      st == ST_FULL ? "context_length_exceeded" : NULL, "%s", err.text);
}

enum status prompt_check_text(uint64_t bytes, uint64_t max, struct api_error *e) {
    if (max == 0 || bytes <= max) return ST_OK;
    return api_refuse(e, 413, NULL, "text_too_long",
                      "the text has %llu bytes; this server accepts at most %llu (--text-max)",
                      (unsigned long long)bytes, (unsigned long long)max);
}

/* A text has at least as many tokens as the longest piece goes into it. One that cannot fit is
 * refused before it is tokenised. */
static enum status check_text(const struct served_model *m, const struct api_request *r,
                              const struct prompts *limits, struct str text, struct api_error *e) {
    uint64_t longest = m->piece_bytes_max;
    TRY(prompt_check_text(text.len, limits->text_bytes_max, e));
    if (longest == 0) return ST_OK;
    return check_length(r, limits->ctx_tokens, (text.len + longest - 1) / longest, true, e);
}

static enum status encode(const struct served_model *m, struct str text,
                          struct encode_options options, struct tokens *out, struct api_error *e) {
    return tokenizer_encode(m->tokenizer, text, options, out) == ST_OK ? ST_OK : no_memory(e);
}

/* Templates write BOS themselves, so the tokenizer adds nothing. */
static enum status encode_chat(const struct served_model *m, const struct api_request *r,
                               struct prompts *all, struct tokens *out, struct api_error *e) {
    struct buf text;
    struct text_places plain = {.at = NULL};
    buf_init(&text, CHAT_PROMPT_BYTES_MAX);
    enum status st = check_chat(m, e);
    if (st == ST_OK) st = check_tools(m, r, e);
    if (st == ST_OK) st = render(m, r, &text, &plain, e);
    if (st == ST_OK) st = check_text(m, r, all, buf_str(&text), e);
    if (m->forms.thinks) {
        all->in_thought = think_is_open(m->forms.thinks, buf_str(&text));
        all->thought_is_over = think_is_over(m->forms.thinks, buf_str(&text));
    }
    struct encode_options options = {.plain = {plain.at, plain.count}};
    if (st == ST_OK) st = encode(m, buf_str(&text), options, out, e);
    text_places_deinit(&plain);
    buf_deinit(&text);
    return st;
}

static enum status copy_ids(const struct served_model *m, const struct api_prompt *p,
                            struct tokens *out, struct api_error *e) {
    uint32_t vocab = tokenizer_vocab(m->tokenizer);
    for (uint32_t i = 0; i < p->count; i++) {
        if (p->ids[i] < 0 || (uint32_t)p->ids[i] >= vocab)
            return api_refuse(e, 400, "prompt", NULL,
                              "token %u is %d; the model's vocabulary has 0 to %u", i, p->ids[i],
                              vocab - 1);
        if (tokens_push(out, p->ids[i]) != ST_OK) return no_memory(e);
    }
    return ST_OK;
}

static enum status encode_prompt(const struct served_model *m, const struct api_request *r,
                                 struct prompts *all, uint32_t i, struct api_error *e) {
    const struct api_prompt *p = &r->prompts[i];
    struct tokens *out = &all->list[i];
    if (r->is_chat) return encode_chat(m, r, all, out, e);
    if (p->ids) return copy_ids(m, p, out, e);
    TRY(check_text(m, r, all, p->text, e));
    return encode(m, p->text, (struct encode_options){.add_special = !r->raw_prompt}, out, e);
}

/* Thoughts are limited if the request says so and the answer may have some. */
static enum status encode_closing(const struct served_model *m, const struct api_request *r,
                                  struct prompts *all, struct api_error *e) {
    if (!r->is_chat || !r->thinking.has_budget || !m->forms.thinks || all->thought_is_over)
        return ST_OK;
    return encode(m, str_of(m->forms.thinks->closing),
                  (struct encode_options){.add_special = false}, &all->closing, e);
}

/* An answer is no longer than the context, so neither is the part of a prediction that is used. It
 * is cut before it is tokenised, by the longest piece if that is known. */
static enum status encode_prediction(const struct served_model *m, const struct api_request *r,
                                     struct prompts *all, struct api_error *e) {
    enum { PIECE_BYTES = 64 };
    const struct encode_options options = {.plain_special = true};
    struct str text = buf_str(&r->speculation.prediction);
    uint64_t piece = m->piece_bytes_max > 0 ? m->piece_bytes_max : PIECE_BYTES;
    if (text.len == 0 || all->prediction.count > 0) return ST_OK;
    if (text.len > m->ctx_tokens * piece) text = str_take(text, m->ctx_tokens * piece);
    TRY(encode(m, text, options, &all->prediction, e));
    if (all->prediction.count > m->ctx_tokens) all->prediction.count = m->ctx_tokens;
    return ST_OK;
}

enum status prompts_prepare(const struct served_model *m, const struct api_request *r,
                            struct prompts *out, struct api_error *e) {
    uint32_t count = r->is_chat ? 1 : r->prompt_count;
    TRY(encode_prediction(m, r, out, e));
    if (out->list) return ST_OK;  /* they were stored */
    if (count == 0) return ST_OK; /* Ollama: the client only asks whether the model is there */
    out->list = mem_zalloc_array(count, sizeof(out->list[0]));
    if (!out->list) return no_memory(e);
    out->count = count;
    for (uint32_t i = 0; i < count; i++) {
        TRY(encode_prompt(m, r, out, i, e));
        TRY(check_length(r, out->ctx_tokens, out->list[i].count, false, e));
    }
    return encode_closing(m, r, out, e);
}

void prompts_deinit(struct prompts *p) {
    tokens_deinit(&p->closing);
    tokens_deinit(&p->prediction);
    for (uint32_t i = 0; i < p->count; i++) tokens_deinit(&p->list[i]);
    mem_free(p->list);
    *p = (struct prompts){0};
}

/* ---- stored ---- */

enum { PROMPTS_MARK = 0x31706a00, PROMPTS_MOST = 1 << 20 };

struct stored_head {
    uint32_t mark, count, closing_count, answer_max;
    uint8_t in_thought, thought_is_over, unused[2];
};

static void put_tokens(const struct tokens *t, struct buf *out) {
    const uint32_t count = (uint32_t)t->count;
    buf_put(out, &count, sizeof(count));
    buf_put(out, t->ids, t->count * sizeof(t->ids[0]));
}

void prompts_put(const struct prompts *p, struct buf *out) {
    const struct stored_head head = {.mark = PROMPTS_MARK,
                                     .count = p->count,
                                     .closing_count = (uint32_t)p->closing.count,
                                     .answer_max = p->answer_max,
                                     .in_thought = p->in_thought,
                                     .thought_is_over = p->thought_is_over};
    buf_put(out, &head, sizeof(head));
    put_tokens(&p->closing, out);
    for (uint32_t i = 0; i < p->count; i++) put_tokens(&p->list[i], out);
}

static enum status get_tokens(struct str *rest, struct tokens *out) {
    uint32_t count;
    if (rest->len < sizeof(count)) return ST_BAD;
    memcpy(&count, rest->ptr, sizeof(count));
    *rest = str_skip(*rest, sizeof(count));
    if (rest->len / sizeof(token_id) < count) return ST_BAD;
    for (uint32_t i = 0; i < count; i++) {
        token_id id;
        memcpy(&id, rest->ptr + i * sizeof(id), sizeof(id));
        TRY(tokens_push(out, id));
    }
    *rest = str_skip(*rest, count * sizeof(token_id));
    return ST_OK;
}

enum status prompts_get(struct str bytes, struct prompts *out) {
    struct stored_head head;
    CHECK(!out->list);
    if (bytes.len < sizeof(head)) return ST_BAD;
    memcpy(&head, bytes.ptr, sizeof(head));
    bytes = str_skip(bytes, sizeof(head));
    if (head.mark != PROMPTS_MARK || head.count > PROMPTS_MOST) return ST_BAD;
    out->list = mem_zalloc_array(head.count + 1, sizeof(out->list[0]));
    if (!out->list) return ST_NOMEM;
    out->count = head.count;
    out->answer_max = head.answer_max;
    out->in_thought = head.in_thought != 0;
    out->thought_is_over = head.thought_is_over != 0;
    TRY(get_tokens(&bytes, &out->closing));
    for (uint32_t i = 0; i < head.count; i++) TRY(get_tokens(&bytes, &out->list[i]));
    return bytes.len == 0 ? ST_OK : ST_BAD;
}
