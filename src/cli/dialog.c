/* cli/dialog.c - see cli/dialog.h. */
#include "cli/dialog.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/template.h"
#include "text/tokenizer.h"

enum { PROMPT_BYTES_MAX = 4 * DIALOG_BYTES_MAX };

struct message {
    char *role, *text; /* heap */
    size_t text_len;
};

struct dialog {
    const struct tokenizer *tokenizer; /* borrowed */
    struct template *template;
    const char *model; /* borrowed, for messages */
    uint32_t count;
    size_t bytes;
    struct message messages[DIALOG_MESSAGES_MAX];
};

enum status dialog_open(const struct tokenizer *t, const char *model, struct dialog **out,
                        struct err *err) {
    struct str source = tokenizer_chat_template(t, false);
    if (source.len == 0)
        return err_set(err, ST_BAD,
                       "%s has no chat template, so it was not made for conversations; \"jitney "
                       "generate\" continues any text",
                       model);
    struct dialog *d = mem_zalloc(sizeof(*d));
    if (!d) return err_set(err, ST_NOMEM, "out of memory");
    d->tokenizer = t;
    d->model = model;
    enum status st = template_create(source, &d->template, err);
    if (st != ST_OK) {
        dialog_close(d);
        return err_prefix(err, st, "chat template");
    }
    *out = d;
    return ST_OK;
}

void dialog_close(struct dialog *d) {
    if (!d) return;
    dialog_truncate(d, 0);
    template_destroy(d->template);
    mem_free(d);
}

uint32_t dialog_count(const struct dialog *d) { return d->count; }

enum status dialog_add(struct dialog *d, const char *role, struct str text, struct err *err) {
    if (d->count == DIALOG_MESSAGES_MAX || text.len > DIALOG_BYTES_MAX - d->bytes)
        return err_set(err, ST_FULL, "the conversation is too long to keep");
    struct str name = str_of(role);
    struct message m = {.role = mem_dup(name.ptr, name.len),
                        .text = mem_dup(text.ptr ? text.ptr : "", text.len),
                        .text_len = text.len};
    if (!m.role || !m.text) {
        mem_free(m.role);
        mem_free(m.text);
        return err_set(err, ST_NOMEM, "out of memory");
    }
    d->messages[d->count++] = m;
    d->bytes += text.len;
    return ST_OK;
}

void dialog_truncate(struct dialog *d, uint32_t count) {
    while (d->count > count) {
        struct message *m = &d->messages[--d->count];
        d->bytes -= m->text_len;
        mem_free(m->role);
        mem_free(m->text);
    }
}

enum status dialog_reset(struct dialog *d, struct str system, struct err *err) {
    dialog_truncate(d, 0);
    return system.len > 0 ? dialog_add(d, "system", system, err) : ST_OK;
}

void dialog_put_json(const struct dialog *d, struct buf *out) {
    buf_put_char(out, '[');
    for (uint32_t i = 0; i < d->count; i++) {
        const struct message *m = &d->messages[i];
        buf_put_text(out, i ? ",\n{\"role\":" : "\n{\"role\":");
        buf_put_json_string(out, str_of(m->role));
        buf_put_text(out, ",\"content\":");
        buf_put_json_string(out, (struct str){m->text, m->text_len});
        buf_put_char(out, '}');
    }
    buf_put_text(out, "\n]");
}

static void put_token_text(struct buf *out, const struct dialog *d, const char *key, token_id id) {
    if (id == TOKEN_NONE) return;
    buf_printf(out, ",\"%s\":", key);
    buf_put_json_string(out, tokenizer_piece(d->tokenizer, id));
}

/* The variables that `transformers` hands to a template: tools and documents are there, null. */
static void put_vars(const struct dialog *d, struct buf *out) {
    buf_put_text(out, "{\"messages\":");
    dialog_put_json(d, out);
    buf_put_text(out, ",\"tools\":null,\"documents\":null,\"add_generation_prompt\":true");
    put_token_text(out, d, "bos_token", tokenizer_bos(d->tokenizer));
    put_token_text(out, d, "eos_token", tokenizer_eos(d->tokenizer));
    buf_put_char(out, '}');
}

static enum status render(const struct dialog *d, struct buf *out, struct err *err) {
    struct buf text;
    struct json *vars = NULL;
    buf_init(&text, PROMPT_BYTES_MAX);
    put_vars(d, &text);
    enum status st = buf_status(&text);
    if (st != ST_OK) err_set(err, st, "out of memory");
    if (st == ST_OK) st = json_parse(buf_str(&text), &json_limits_model_file, &vars, err);
    if (st == ST_OK)
        st = template_render(d->template, vars, clock_wall_s(), &template_limits_default, out, err);
    json_destroy(vars);
    buf_deinit(&text);
    return st == ST_OK ? ST_OK : err_prefix(err, st == ST_FULL ? ST_BAD : st, "chat template");
}

enum status dialog_encode(const struct dialog *d, struct tokens *out, struct err *err) {
    struct buf prompt;
    buf_init(&prompt, PROMPT_BYTES_MAX);
    enum status st = render(d, &prompt, err);
    /* Templates spell BOS themselves, so the tokenizer adds nothing. */
    if (st == ST_OK) {
        st = tokenizer_encode(d->tokenizer, buf_str(&prompt), (struct encode_options){0}, out);
        if (st != ST_OK) err_set(err, st, "out of memory");
    }
    buf_deinit(&prompt);
    return st;
}

enum status dialog_load_json(struct dialog *d, const struct json *list, struct err *err) {
    if (json_kind(list) != JS_LIST) return err_set(err, ST_BAD, "not a list of messages");
    size_t count = json_count(list);
    for (size_t i = 0; i < count; i++) {
        const struct json *m = json_at(list, i);
        if (json_kind(json_get(m, "role")) != JS_TEXT ||
            json_kind(json_get(m, "content")) != JS_TEXT)
            return err_set(err, ST_BAD, "message %zu has no role or content", i);
    }
    dialog_truncate(d, 0);
    for (size_t i = 0; i < count; i++) {
        const struct json *m = json_at(list, i);
        /* json text has a NUL behind it; a role with a NUL inside ends there. */
        TRY(dialog_add(d, json_str(json_get(m, "role")).ptr, json_str(json_get(m, "content")),
                       err));
    }
    return ST_OK;
}
