/* text/chat_prompt.c - see text/chat_prompt.h for the contract. */
#include "text/chat_prompt.h"

#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "jinja/template.h"
#include "text/content_guard.h"
#include "text/tokenizer.h"

/* The longest text that a template may write after the last message. It is limited because the
 * search for the message compares its whole text at every place. */
enum { CLOSING_BYTES_MAX = 1024 };

struct chat_prompt {
    const struct tokenizer *tokenizer; /* borrowed */
    struct template *template;
    struct template *tools;      /* NULL: `template` is for tools, too */
    struct content_guard *guard; /* NULL: there are no control tokens, or content is trusted */
};

static enum status read_template(struct str source, struct template **out, struct err *err) {
    enum status st = template_create(source, out, err);
    return st == ST_OK ? ST_OK : err_prefix(err, st, "chat template");
}

enum status chat_prompt_create(const struct tokenizer *t, struct chat_prompt **out,
                               struct err *err) {
    struct str source = tokenizer_chat_template(t, false), tools = tokenizer_chat_template(t, true);
    if (source.len == 0 && tools.len == 0)
        return err_set(err, ST_MISSING, "the model has no chat template");
    struct chat_prompt *p = mem_zalloc(sizeof(*p));
    if (!p) return err_set(err, ST_NOMEM, "out of memory for a chat template");
    p->tokenizer = t;
    enum status st = read_template(source.len ? source : tools, &p->template, err);
    if (st == ST_OK && source.len && tools.ptr != source.ptr)
        st = read_template(tools, &p->tools, err);
    if (st == ST_OK && content_guard_create(t, &p->guard) != ST_OK)
        st = err_set(err, ST_NOMEM, "out of memory for a chat template");
    if (st != ST_OK) {
        chat_prompt_destroy(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

void chat_prompt_trust_content(struct chat_prompt *p) {
    content_guard_destroy(p->guard);
    p->guard = NULL;
}

void chat_prompt_destroy(struct chat_prompt *p) {
    if (!p) return;
    content_guard_destroy(p->guard);
    template_destroy(p->template);
    template_destroy(p->tools);
    mem_free(p);
}

struct str chat_prompt_source(const struct chat_prompt *p, bool tools) {
    struct str source = tokenizer_chat_template(p->tokenizer, tools);
    return source.len ? source : tokenizer_chat_template(p->tokenizer, true);
}

bool chat_prompt_is_reserved(struct str name) {
    static const char *const reserved[] = {
        "messages",  "tools",     "documents",     "add_generation_prompt",
        "bos_token", "eos_token", "chat_template", "continue_final_message",
    };
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (str_is(name, reserved[i])) return true;
    return false;
}

/* --- the text --------------------------------------------------------------------------- */

static enum status check_messages(const struct json *messages, struct err *err) {
    if (json_kind(messages) != JS_LIST) return err_set(err, ST_BAD, "messages: not a list");
    for (size_t i = 0; i < json_count(messages); i++)
        if (json_kind(json_get(json_at(messages, i), "role")) != JS_TEXT)
            return err_set(err, ST_BAD, "message %zu has no role", i);
    return ST_OK;
}

static enum status set_token(struct json *vars, const struct tokenizer *t, const char *name,
                             token_id id) {
    if (id == TOKEN_NONE) return ST_OK;
    return json_set(vars, str_of(name), json_text_create(tokenizer_piece(t, id)));
}

/* The variables that `transformers` hands to a template; without tools or documents it sets them
 * to null. Values of the turn are pinned, not copied. */
static enum status set_vars(const struct chat_prompt *p, const struct chat_turn *turn,
                            const struct marked_turn *marked, struct json *vars) {
    bool add_generation_prompt = !turn->no_generation_prompt && !turn->continue_final;
    struct json_iter it = json_iter_first(marked->kwargs);
    for (; json_iter_ok(&it); json_iter_next(&it)) TRY(json_set(vars, it.key, json_pin(it.value)));
    TRY(json_set(vars, STR("messages"), json_pin(marked->messages)));
    TRY(json_set(vars, STR("tools"), turn->tools ? json_pin(marked->tools) : json_null_create()));
    TRY(json_set(vars, STR("documents"), json_null_create()));
    TRY(json_set(vars, STR("add_generation_prompt"), json_bool_create(add_generation_prompt)));
    TRY(set_token(vars, p->tokenizer, "bos_token", tokenizer_bos(p->tokenizer)));
    return set_token(vars, p->tokenizer, "eos_token", tokenizer_eos(p->tokenizer));
}

/* Where `needle` last begins in `text`; text.len if more than CLOSING_BYTES_MAX
 * bytes would follow it. */
static size_t find_last(struct str text, struct str needle) {
    if (needle.len > text.len) return text.len;
    size_t last = text.len - needle.len;
    for (size_t after = 0; after <= last && after <= CLOSING_BYTES_MAX; after++)
        if (memcmp(text.ptr + last - after, needle.ptr, needle.len) == 0) return last - after;
    return text.len;
}

/* End the prompt where the last message's text ends. A template may have trimmed that text. */
static enum status cut_after_final(const struct json *messages, struct buf *prompt, size_t start,
                                   struct err *err) {
    const struct json *last = json_at(messages, json_count(messages) - 1);
    struct str said = json_str(json_get(last, "content")), text = buf_str(prompt);
    struct str kept = str_trim(said);
    text = str_skip(text, start);
    size_t at = find_last(text, kept);
    if (kept.len == 0 || at == text.len)
        return err_set(
            err, ST_BAD,
            "the prompt does not contain the text of the last message, so it cannot be continued");
    size_t blanks = (size_t)(kept.ptr - said.ptr);
    struct str tail = str_skip(said, blanks);
    size_t end = at + (str_starts(str_skip(text, at), tail) ? tail.len : kept.len);
    prompt->len = start + end;
    prompt->ptr[prompt->len] = 0;
    return ST_OK;
}

static enum status render_marked(const struct chat_prompt *p, const struct chat_turn *turn,
                                 const struct marked_turn *marked, struct buf *out,
                                 struct err *err) {
    const struct template *template = turn->tools && p->tools ? p->tools : p->template;
    struct json *vars = json_map_create();
    enum status st = set_vars(p, turn, marked, vars);
    if (st == ST_OK)
        st = template_render(template, vars, clock_wall_s(), &template_limits_default, out, err);
    else
        err_set(err, st, "out of memory for the template's variables");
    json_destroy(vars);
    return st;
}

enum status chat_prompt_render(const struct chat_prompt *p, const struct chat_turn *turn,
                               struct buf *out, struct text_places *plain, struct err *err) {
    size_t start = out->len;
    struct marked_turn marked;
    struct text_places ignored = {.at = NULL};
    enum status st =
        content_guard_mark(p->guard, turn->messages, turn->tools, turn->kwargs, &marked, err);
    if (st == ST_OK) st = render_marked(p, turn, &marked, out, err);
    if (st == ST_OK &&
        content_guard_unmark(marked.mark, out, start, plain ? plain : &ignored) != ST_OK)
        st = err_set(err, ST_NOMEM, "out of memory for the prompt");
    if (st == ST_OK && turn->continue_final) st = cut_after_final(turn->messages, out, start, err);
    text_places_deinit(&ignored);
    marked_turn_deinit(&marked);
    return st == ST_OK ? ST_OK : err_prefix(err, st == ST_FULL ? ST_BAD : st, "chat template");
}

/* --- the ids ---------------------------------------------------------------------------- */

enum status chat_prompt_encode_turn(const struct chat_prompt *p, const struct chat_turn *turn,
                                    struct tokens *out, struct err *err) {
    struct buf prompt;
    struct text_places plain = {.at = NULL};
    buf_init(&prompt, CHAT_PROMPT_BYTES_MAX);
    enum status st = chat_prompt_render(p, turn, &prompt, &plain, err);
    /* The template writes BOS itself, so the tokenizer adds nothing. */
    if (st == ST_OK) {
        struct encode_options options = {.plain = {plain.at, plain.count}};
        st = tokenizer_encode(p->tokenizer, buf_str(&prompt), options, out);
        if (st != ST_OK) err_set(err, st, "out of memory for the prompt");
    }
    text_places_deinit(&plain);
    buf_deinit(&prompt);
    return st;
}

enum status chat_prompt_encode(const struct chat_prompt *p, const struct json *messages,
                               struct tokens *out, struct err *err) {
    TRY(check_messages(messages, err));
    return chat_prompt_encode_turn(p, &(struct chat_turn){.messages = messages}, out, err);
}

enum status chat_prompt_encode_json(const struct chat_prompt *p, struct str messages,
                                    struct tokens *out, struct err *err) {
    struct json *list = NULL;
    enum status st = json_parse(messages, &json_limits_model_file, &list, err);
    if (st != ST_OK) return err_prefix(err, st, "messages");
    st = chat_prompt_encode(p, list, out, err);
    json_destroy(list);
    return st;
}
