/* api/tokenize.c - see api/tokenize.h for the contract. */
#include "api/tokenize.h"

#include "api/api_int.h"
#include "api/messages.h"
#include "api/openai.h"
#include "api/prompts.h"
#include "api/tools_read.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

enum { TEXT_BYTES_MAX = 1 << 26 };

/* --- requests --------------------------------------------------------------------------- */

static enum status read_fields(enum api_endpoint endpoint, struct json *body,
                               struct tokenize_request *r, struct api_error *e) {
    *r = (struct tokenize_request){0};
    api_request_init(&r->text, NULL);
    r->text.doc = body;
    return api_fields_read(endpoint, body, r, e);
}

static enum status read_conversation(const struct json *body, struct tokenize_request *r,
                                     struct api_error *e) {
    TRY(openai_check(body, &r->text, e));
    TRY(tools_read_openai(json_get(body, "tools"), NULL, &r->text, e));
    return messages_read_openai(json_get(body, "messages"), true, &r->text, e);
}

enum status tokenize_request_read(struct json *body, struct tokenize_request *r,
                                  struct api_error *e) {
    TRY(read_fields(EP_TOKENIZE, body, r, e));
    const struct json *prompt = json_get(body, "prompt"), *content = json_get(body, "content");
    bool has_prompt = json_kind(prompt) == JS_TEXT, has_content = json_kind(content) == JS_TEXT;
    bool has_messages = json_kind(json_get(body, "messages")) == JS_LIST;
    if (has_prompt + has_content + has_messages == 0) return api_refuse_missing(e, "prompt");
    if (has_prompt + has_content + has_messages > 1)
        return api_refuse(e, 400, "prompt", NULL,
                          "Only one of 'prompt', 'content' and 'messages' may be given.");
    /* vLLM adds special tokens to `prompt`, llama.cpp does not to `content`. */
    r->text.raw_prompt = r->has_add_special ? r->plain : !has_prompt;
    if (has_messages) return read_conversation(body, r, e);
    return prompts_read(has_prompt ? prompt : content, "prompt", 1, &r->text, e);
}

enum status detokenize_request_read(struct json *body, struct tokenize_request *r,
                                    struct api_error *e) {
    TRY(read_fields(EP_DETOKENIZE, body, r, e));
    const struct json *tokens = json_get(body, "tokens");
    if (json_count(tokens) > 0 && !field_is_int(json_at(tokens, 0)))
        return api_refuse_kind(e, json_at(tokens, 0), FIELD_INT, "tokens[0]");
    if (json_count(tokens) > 0) return prompts_read(tokens, "tokens", 1, &r->text, e);
    r->text.prompts = mem_zalloc(sizeof(r->text.prompts[0])); /* without ids: an empty text */
    if (!r->text.prompts) return ST_NOMEM;
    r->text.prompt_count = 1;
    return ST_OK;
}

enum status template_request_read(struct json *body, struct tokenize_request *r,
                                  struct api_error *e) {
    TRY(read_fields(EP_TEMPLATE, body, r, e));
    return read_conversation(body, r, e);
}

void tokenize_request_deinit(struct tokenize_request *r) { api_request_deinit(&r->text); }

/* --- answers ---------------------------------------------------------------------------- */

static void put_byte_list(struct str bytes, struct buf *out) {
    PUT(out, "[");
    for (size_t i = 0; i < bytes.len; i++) {
        if (i) PUT(out, ",");
        buf_put_uint(out, (uint8_t)bytes.ptr[i]);
    }
    PUT(out, "]");
}

/* A string, or a list of bytes if they are not valid UTF-8, as llama.cpp does. */
static enum status put_piece(const struct tokenizer *t, int32_t id, bool or_bytes,
                             struct buf *out) {
    struct buf bytes;
    buf_init(&bytes, TEXT_BYTES_MAX);
    enum status st = tokenizer_token_bytes(t, id, &bytes);
    if (or_bytes && !utf8_is_valid(buf_str(&bytes)))
        put_byte_list(buf_str(&bytes), out);
    else
        buf_put_json_string(out, buf_str(&bytes));
    buf_deinit(&bytes);
    return st;
}

static enum status put_pieces(const struct tokenizer *t, const int32_t *ids, uint32_t count,
                              struct buf *out) {
    enum status st = ST_OK;
    PUT(out, "[");
    for (uint32_t i = 0; i < count && st == ST_OK; i++) {
        buf_put_text(out, i ? ",{\"id\":" : "{\"id\":");
        buf_put_uint(out, (uint64_t)ids[i]);
        PUT(out, ",\"piece\":");
        st = put_piece(t, ids[i], true, out);
        PUT(out, "}");
    }
    PUT(out, "]");
    return st;
}

static enum status put_texts(const struct tokenizer *t, const int32_t *ids, uint32_t count,
                             struct buf *out) {
    enum status st = ST_OK;
    PUT(out, "[");
    for (uint32_t i = 0; i < count && st == ST_OK; i++) {
        if (i) PUT(out, ",");
        st = put_piece(t, ids[i], false, out);
    }
    PUT(out, "]");
    return st;
}

enum status tokenize_answer_put(const struct tokenize_request *r, const struct tokenizer *t,
                                const int32_t *ids, uint32_t count, uint32_t ctx_tokens,
                                struct buf *out) {
    PUT(out, "{\"tokens\":");
    if (r->with_pieces)
        TRY(put_pieces(t, ids, count, out));
    else
        openai_put_ids(ids, count, out);
    PUT(out, ",\"count\":");
    buf_put_uint(out, count);
    PUT(out, ",\"max_model_len\":");
    buf_put_uint(out, ctx_tokens);
    PUT(out, ",\"token_strs\":");
    if (r->with_texts)
        TRY(put_texts(t, ids, count, out));
    else
        PUT(out, "null");
    PUT(out, "}");
    return buf_status(out);
}

enum status detokenize_answer_put(const struct tokenize_request *r, const struct tokenizer *t,
                                  uint64_t text_max, struct buf *out, struct api_error *e) {
    const struct api_prompt *p = &r->text.prompts[0];
    for (uint32_t i = 0; i < p->count; i++)
        if ((uint32_t)p->ids[i] >= tokenizer_vocab(t))
            return api_refuse(e, 400, "tokens", "invalid_value",
                              "Invalid 'tokens': %d is not a token of the model, which has %u.",
                              p->ids[i], tokenizer_vocab(t));
    struct buf text;
    buf_init(&text, text_max ? text_max : TEXT_BYTES_MAX);
    enum status st = tokenizer_decode(t, p->ids, p->count, false, &text);
    if (buf_status(&text) == ST_FULL) {
        st = api_refuse(e, 413, NULL, "text_too_long",
                        "the text of these %u tokens is longer than %zu bytes, the limit of this "
                        "server (--text-max)",
                        p->count, text.max);
        buf_deinit(&text);
        return st;
    }
    PUT(out, "{\"prompt\":");
    buf_put_json_string(out, buf_str(&text));
    PUT(out, ",\"content\":");
    buf_put_json_string(out, buf_str(&text));
    PUT(out, "}");
    buf_deinit(&text);
    return st == ST_OK ? buf_status(out) : st;
}

void template_answer_put(struct str prompt, struct buf *out) {
    PUT(out, "{\"prompt\":");
    buf_put_json_string(out, prompt);
    PUT(out, "}");
}
