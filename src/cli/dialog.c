/* cli/dialog.c - see cli/dialog.h. */
#include "cli/dialog.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/chat_prompt.h"

struct dialog {
    struct chat_prompt *prompt;
    uint32_t count;
    size_t bytes;
    struct json *messages[DIALOG_MESSAGES_MAX];
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

enum status dialog_add_message(struct dialog *d, struct json *message, struct err *err) {
    if (!message) return err_set(err, ST_NOMEM, "out of memory");
    size_t bytes = json_weight(message);
    if (d->count == DIALOG_MESSAGES_MAX || bytes > DIALOG_BYTES_MAX - d->bytes) {
        json_destroy(message);
        return err_set(err, ST_FULL,
                       "the conversation is too long: at most %d messages and %d bytes of text",
                       DIALOG_MESSAGES_MAX, DIALOG_BYTES_MAX);
    }
    d->messages[d->count++] = message;
    d->bytes += bytes;
    return ST_OK;
}

static enum status fill_message(struct json *message, const char *role, struct str text) {
    TRY(json_set(message, STR("role"), json_text_create(str_of(role))));
    return json_set(message, STR("content"), json_text_create(text));
}

enum status dialog_add(struct dialog *d, const char *role, struct str text, struct err *err) {
    struct json *message = json_map_create();
    if (fill_message(message, role, text) == ST_OK) return dialog_add_message(d, message, err);
    json_destroy(message);
    return err_set(err, ST_NOMEM, "out of memory");
}

static enum status fill_result(struct json *message, struct str id, struct str name,
                               struct str text) {
    TRY(fill_message(message, "tool", text));
    TRY(json_set(message, STR("tool_call_id"), json_text_create(id)));
    return json_set(message, STR("name"), json_text_create(name));
}

enum status dialog_add_result(struct dialog *d, struct str id, struct str name, struct str text,
                              struct err *err) {
    struct json *message = json_map_create();
    if (fill_result(message, id, name, text) == ST_OK) return dialog_add_message(d, message, err);
    json_destroy(message);
    return err_set(err, ST_NOMEM, "out of memory");
}

void dialog_truncate(struct dialog *d, uint32_t count) {
    while (d->count > count) {
        struct json *message = d->messages[--d->count];
        d->bytes -= json_weight(message);
        json_destroy(message);
    }
}

enum status dialog_reset(struct dialog *d, struct str system, struct err *err) {
    dialog_truncate(d, 0);
    return system.len > 0 ? dialog_add(d, "system", system, err) : ST_OK;
}

void dialog_put_json(const struct dialog *d, struct buf *out) {
    buf_put_char(out, '[');
    for (uint32_t i = 0; i < d->count; i++) {
        buf_put_text(out, i ? ",\n" : "\n");
        json_put(d->messages[i], out);
    }
    buf_put_text(out, "\n]");
}

struct json *dialog_messages(const struct dialog *d) {
    struct json *list = json_list_create();
    for (uint32_t i = 0; list && i < d->count; i++) {
        if (json_push(list, json_pin(d->messages[i])) == ST_OK) continue;
        json_destroy(list);
        list = NULL;
    }
    return list;
}

const struct chat_prompt *dialog_template(const struct dialog *d) { return d->prompt; }

enum status dialog_encode(const struct dialog *d, struct tokens *out, struct err *err) {
    CHECK(d->prompt);
    struct json *messages = dialog_messages(d);
    if (!messages) return err_set(err, ST_NOMEM, "out of memory");
    enum status st = chat_prompt_encode(d->prompt, messages, out, err);
    json_destroy(messages);
    return st;
}

/* ---- a saved conversation ---- */

static bool are_calls(const struct json *calls) {
    for (size_t i = 0; i < json_count(calls); i++) {
        const struct json *call = json_at(calls, i), *function = json_get(call, "function");
        bool is_call = json_kind(json_get(call, "id")) == JS_TEXT &&
                       json_kind(json_get(function, "name")) == JS_TEXT &&
                       json_kind(json_get(function, "arguments")) == JS_TEXT;
        if (!is_call) return false;
    }
    return json_kind(calls) == JS_LIST;
}

static enum status check_message(const struct json *m, size_t i, struct err *err) {
    static const char *const texts[] = {"reasoning_content", "tool_call_id", "name"};
    if (json_kind(json_get(m, "role")) != JS_TEXT || json_kind(json_get(m, "content")) != JS_TEXT)
        return err_set(err, ST_BAD, "message %zu has no role or content", i);
    for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
        const struct json *value = json_get(m, texts[k]);
        if (value && json_kind(value) != JS_TEXT)
            return err_set(err, ST_BAD, "message %zu: %s is not a text", i, texts[k]);
    }
    const struct json *calls = json_get(m, "tool_calls");
    if (calls && !are_calls(calls))
        return err_set(err, ST_BAD,
                       "message %zu: tool_calls is not a list of {\"id\", \"function\": {\"name\", "
                       "\"arguments\"}}, all of them texts",
                       i);
    return ST_OK;
}

/* A copy of what is known of a message. */
static struct json *copy_message(const struct json *m) {
    static const char *const members[] = {"role",       "reasoning_content", "content",
                                          "tool_calls", "tool_call_id",      "name"};
    struct json *copy = json_map_create();
    for (size_t k = 0; copy && k < sizeof(members) / sizeof(members[0]); k++) {
        const struct json *value = json_get(m, members[k]);
        if (!value || json_set(copy, str_of(members[k]), json_pin(value)) == ST_OK) continue;
        json_destroy(copy);
        copy = NULL;
    }
    return copy;
}

enum status dialog_load_json(struct dialog *d, const struct json *list, struct err *err) {
    if (json_kind(list) != JS_LIST) return err_set(err, ST_BAD, "not a list of messages");
    size_t count = json_count(list);
    for (size_t i = 0; i < count; i++) TRY(check_message(json_at(list, i), i, err));
    dialog_truncate(d, 0);
    for (size_t i = 0; i < count; i++)
        TRY(dialog_add_message(d, copy_message(json_at(list, i)), err));
    return ST_OK;
}
