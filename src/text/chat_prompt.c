/* text/chat_prompt.c - see text/chat_prompt.h for the contract. */
#include "text/chat_prompt.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/template.h"
#include "text/tokenizer.h"

struct chat_prompt {
    const struct tokenizer *tokenizer; /* borrowed */
    struct template *template;
};

enum status chat_prompt_create(const struct tokenizer *t, struct chat_prompt **out,
                               struct err *err) {
    struct str source = tokenizer_chat_template(t, false);
    if (source.len == 0) return err_set(err, ST_MISSING, "the model has no chat template");
    struct chat_prompt *p = mem_zalloc(sizeof(*p));
    if (!p) return err_set(err, ST_NOMEM, "out of memory for a chat template");
    p->tokenizer = t;
    enum status st = template_create(source, &p->template, err);
    if (st != ST_OK) {
        chat_prompt_destroy(p);
        return err_prefix(err, st, "chat template");
    }
    *out = p;
    return ST_OK;
}

void chat_prompt_destroy(struct chat_prompt *p) {
    if (!p) return;
    template_destroy(p->template);
    mem_free(p);
}

/* By itself, before it stands among the variables: what is no list must not become one there. */
static enum status check_messages(struct str messages, struct err *err) {
    struct json *list;
    enum status st = json_parse(messages, &json_limits_model_file, &list, err);
    if (st != ST_OK) return err_prefix(err, st, "messages");
    if (json_kind(list) != JS_LIST) st = err_set(err, ST_BAD, "messages: not a list");
    for (size_t i = 0; i < json_count(list) && st == ST_OK; i++)
        if (json_kind(json_get(json_at(list, i), "role")) != JS_TEXT)
            st = err_set(err, ST_BAD, "message %zu has no role", i);
    json_destroy(list);
    return st;
}

static void put_token_text(struct buf *out, const struct tokenizer *t, const char *key,
                           token_id id) {
    if (id == TOKEN_NONE) return;
    buf_printf(out, ",\"%s\":", key);
    buf_put_json_string(out, tokenizer_piece(t, id));
}

/* The variables that `transformers` hands to a template: tools and documents are there, null. */
static void put_vars(const struct chat_prompt *p, struct str messages, struct buf *out) {
    buf_put_text(out, "{\"messages\":");
    buf_put_str(out, messages);
    buf_put_text(out, ",\"tools\":null,\"documents\":null,\"add_generation_prompt\":true");
    put_token_text(out, p->tokenizer, "bos_token", tokenizer_bos(p->tokenizer));
    put_token_text(out, p->tokenizer, "eos_token", tokenizer_eos(p->tokenizer));
    buf_put_char(out, '}');
}

static enum status render(const struct chat_prompt *p, struct str messages, struct buf *out,
                          struct err *err) {
    struct buf text;
    struct json *vars = NULL;
    buf_init(&text, CHAT_PROMPT_BYTES_MAX);
    put_vars(p, messages, &text);
    enum status st = buf_status(&text);
    if (st != ST_OK) err_set(err, st, "out of memory for the messages");
    if (st == ST_OK) st = json_parse(buf_str(&text), &json_limits_model_file, &vars, err);
    if (st == ST_OK)
        st = template_render(p->template, vars, clock_wall_s(), &template_limits_default, out, err);
    json_destroy(vars);
    buf_deinit(&text);
    return st == ST_OK ? ST_OK : err_prefix(err, st == ST_FULL ? ST_BAD : st, "chat template");
}

enum status chat_prompt_encode(const struct chat_prompt *p, struct str messages, struct tokens *out,
                               struct err *err) {
    TRY(check_messages(messages, err));
    struct buf prompt;
    buf_init(&prompt, CHAT_PROMPT_BYTES_MAX);
    enum status st = render(p, messages, &prompt, err);
    /* Templates spell BOS themselves, so the tokenizer adds nothing. */
    if (st == ST_OK) {
        st = tokenizer_encode(p->tokenizer, buf_str(&prompt), (struct encode_options){0}, out);
        if (st != ST_OK) err_set(err, st, "out of memory for the prompt");
    }
    buf_deinit(&prompt);
    return st;
}
