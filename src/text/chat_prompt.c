/* text/chat_prompt.c - see text/chat_prompt.h for the contract. */
#include "text/chat_prompt.h"

#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/template.h"
#include "text/tokenizer.h"

struct chat_prompt {
    const struct tokenizer *tokenizer; /* borrowed */
    struct template *template;
    struct template *tools; /* the one for tool use; NULL: `template` is for that too */
};

/* The text that `template_create` gets when the model has one of its own for tools. */
static enum status create_tools(struct chat_prompt *p, struct str plain, struct err *err) {
    struct str source = tokenizer_chat_template(p->tokenizer, true);
    if (source.len == 0 || str_eq(source, plain)) return ST_OK;
    return template_create(source, &p->tools, err);
}

enum status chat_prompt_create(const struct tokenizer *t, struct chat_prompt **out,
                               struct err *err) {
    struct str source = tokenizer_chat_template(t, false);
    if (source.len == 0) return err_set(err, ST_MISSING, "the model has no chat template");
    struct chat_prompt *p = mem_zalloc(sizeof(*p));
    if (!p) return err_set(err, ST_NOMEM, "out of memory for a chat template");
    p->tokenizer = t;
    enum status st = template_create(source, &p->template, err);
    if (st == ST_OK) st = create_tools(p, source, err);
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
    template_destroy(p->tools);
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

/* Members of a map without its braces, and a comma behind them. */
static void put_members(struct buf *out, struct str map) {
    struct str inside = str_trim(map);
    if (inside.len < 2) return;
    inside = str_trim((struct str){inside.ptr + 1, inside.len - 2});
    if (inside.len == 0) return;
    buf_put_str(out, inside);
    buf_put_char(out, ',');
}

/* The variables that `transformers` hands to a template: tools and documents are there, null.
 * The client's own come first, so that they cannot replace these. */
static void put_vars(const struct chat_prompt *p, const struct chat_ask *ask, struct buf *out) {
    bool asks = !ask->no_generation_prompt && !ask->continue_final;
    buf_put_char(out, '{');
    put_members(out, ask->kwargs);
    buf_put_text(out, "\"messages\":");
    buf_put_str(out, ask->messages);
    buf_put_text(out, ",\"tools\":");
    buf_put_str(out, ask->tools.len > 0 ? ask->tools : STR("null"));
    buf_printf(out, ",\"documents\":null,\"add_generation_prompt\":%s", asks ? "true" : "false");
    put_token_text(out, p->tokenizer, "bos_token", tokenizer_bos(p->tokenizer));
    put_token_text(out, p->tokenizer, "eos_token", tokenizer_eos(p->tokenizer));
    buf_put_char(out, '}');
}

/* Cut the prompt behind the last place where the last message's text stands. */
static enum status cut_final(const struct json *vars, size_t from, struct buf *out,
                             struct err *err) {
    const struct json *messages = json_get(vars, "messages");
    size_t count = json_count(messages);
    const struct json *last = count > 0 ? json_at(messages, count - 1) : NULL;
    struct str text = str_trim(json_str(json_get(last, "content")));
    if (text.len == 0)
        return err_set(err, ST_BAD, "continue_final_message: the last message has no text");
    for (size_t end = out->len; end >= from + text.len; end--) {
        if (memcmp(out->ptr + end - text.len, text.ptr, text.len) != 0) continue;
        out->len = end;
        out->ptr[end] = 0;
        return ST_OK;
    }
    return err_set(err, ST_BAD,
                   "continue_final_message: the chat template changes the last message's text");
}

enum status chat_prompt_render(const struct chat_prompt *p, const struct chat_ask *ask,
                               struct buf *out, struct err *err) {
    struct buf text;
    struct json *vars = NULL;
    size_t from = out->len;
    const struct template *t = ask->tools.len > 0 && p->tools ? p->tools : p->template;
    buf_init(&text, CHAT_PROMPT_BYTES_MAX);
    put_vars(p, ask, &text);
    enum status st = buf_status(&text);
    if (st != ST_OK) err_set(err, st, "out of memory for the messages");
    if (st == ST_OK) st = json_parse(buf_str(&text), &json_limits_model_file, &vars, err);
    if (st == ST_OK)
        st = template_render(t, vars, clock_wall_s(), &template_limits_default, out, err);
    if (st != ST_OK) err_prefix(err, st, "chat template");
    if (st == ST_OK && ask->continue_final) st = cut_final(vars, from, out, err);
    json_destroy(vars);
    buf_deinit(&text);
    return st == ST_FULL ? ST_BAD : st;
}

enum status chat_prompt_encode_ask(const struct chat_prompt *p, const struct chat_ask *ask,
                                   struct tokens *out, struct err *err) {
    struct buf prompt;
    buf_init(&prompt, CHAT_PROMPT_BYTES_MAX);
    enum status st = chat_prompt_render(p, ask, &prompt, err);
    /* Templates spell BOS themselves, so the tokenizer adds nothing. */
    if (st == ST_OK) {
        st = tokenizer_encode(p->tokenizer, buf_str(&prompt), (struct encode_options){0}, out);
        if (st != ST_OK) err_set(err, st, "out of memory for the prompt");
    }
    buf_deinit(&prompt);
    return st;
}

enum status chat_prompt_encode(const struct chat_prompt *p, struct str messages, struct tokens *out,
                               struct err *err) {
    TRY(check_messages(messages, err));
    return chat_prompt_encode_ask(p, &(struct chat_ask){.messages = messages}, out, err);
}
