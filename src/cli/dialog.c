/* cli/dialog.c - see cli/dialog.h. */
#include "cli/dialog.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/chat_prompt.h"

struct message {
    char *role, *text; /* heap */
    size_t text_len;
};

struct dialog {
    struct chat_prompt *prompt;
    uint32_t count;
    size_t bytes;
    struct message messages[DIALOG_MESSAGES_MAX];
};

enum status dialog_open(const struct tokenizer *t, const char *model, struct dialog **out,
                        struct err *err) {
    struct dialog *d = mem_zalloc(sizeof(*d));
    if (!d) return err_set(err, ST_NOMEM, "out of memory");
    enum status st = t ? chat_prompt_create(t, &d->prompt, err) : ST_OK;
    if (st != ST_OK) {
        dialog_close(d);
        if (st != ST_MISSING) return st;
        return err_set(err, ST_BAD,
                       "%s has no chat template, so it was not made for conversations; \"jitney "
                       "generate\" continues any text",
                       model);
    }
    *out = d;
    return ST_OK;
}

void dialog_close(struct dialog *d) {
    if (!d) return;
    dialog_truncate(d, 0);
    chat_prompt_destroy(d->prompt);
    mem_free(d);
}

uint32_t dialog_count(const struct dialog *d) { return d->count; }

enum status dialog_add(struct dialog *d, const char *role, struct str text, struct err *err) {
    if (d->count == DIALOG_MESSAGES_MAX || text.len > DIALOG_BYTES_MAX - d->bytes)
        return err_set(err, ST_FULL,
                       "the conversation is too long: at most %d messages and %d bytes of text",
                       DIALOG_MESSAGES_MAX, DIALOG_BYTES_MAX);
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

static enum status build_messages(const struct dialog *d, struct json *list) {
    for (uint32_t i = 0; i < d->count; i++) {
        const struct message *m = &d->messages[i];
        const struct str text = {m->text, m->text_len};
        struct json *message = json_map_create();
        TRY(json_push(list, message));
        TRY(json_set(message, STR("role"), json_text_create(str_of(m->role))));
        TRY(json_set(message, STR("content"), json_text_create(text)));
    }
    return list ? ST_OK : ST_NOMEM;
}

enum status dialog_encode(const struct dialog *d, struct tokens *out, struct err *err) {
    CHECK(d->prompt);
    struct json *messages = json_list_create();
    enum status st = build_messages(d, messages);
    if (st == ST_OK)
        st = chat_prompt_encode(d->prompt, messages, out, err);
    else
        err_set(err, st, "out of memory");
    json_destroy(messages);
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
        /* JSON strings are NUL-terminated; a role with a NUL inside ends there. */
        TRY(dialog_add(d, json_str(json_get(m, "role")).ptr, json_str(json_get(m, "content")),
                       err));
    }
    return ST_OK;
}
