/* api/tools_as_text.c - see api/tools_as_text.h for the contract. */
#include "api/tools_as_text.h"

#include "api/tools.h"
#include "base/buf.h"
#include "base/json.h"

enum { TEXT_BYTES_MAX = 1 << 26 }; /* of one message */

bool tools_as_text_needed(struct str chat_template) {
    return !tool_template_has(chat_template, STR("tools"));
}

static void put_tools(const struct json *tools, struct buf *text) {
    buf_put_text(text, "You can call functions to help with the request. These are described, one "
                       "a line, in JSON:\n<tools>\n");
    for (size_t i = 0; i < json_count(tools); i++) {
        json_put(json_at(tools, i), text);
        buf_put_char(text, '\n');
    }
    buf_put_text(text, "</tools>\nTo call one, write its name and its arguments like this:\n"
                       "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {}}\n</tool_call>\n"
                       "Its result comes between <tool_response> and </tool_response>.");
}

static void put_calls(const struct json *calls, struct buf *text) {
    for (size_t i = 0; i < json_count(calls); i++) {
        const struct json *function = json_get(json_at(calls, i), "function");
        if (text->len) buf_put_char(text, '\n');
        buf_put_text(text, "<tool_call>\n{\"name\": ");
        json_put(json_get(function, "name"), text);
        buf_put_text(text, ", \"arguments\": ");
        json_put(json_get(function, "arguments"), text);
        buf_put_text(text, "}\n</tool_call>");
    }
}

static struct json *make_message(const char *role, struct str content) {
    struct json *message = json_map_create();
    enum status st = json_set(message, STR("role"), json_text_create(str_of(role)));
    if (st == ST_OK) st = json_set(message, STR("content"), json_text_create(content));
    if (st == ST_OK) return message;
    json_destroy(message);
    return NULL;
}

/* `text` is a buffer for the new content. NULL: out of memory. */
static struct json *convert_message(const struct json *m, struct buf *text) {
    const struct str content = json_str(json_get(m, "content"));
    const struct json *calls = json_get(m, "tool_calls");
    buf_clear(text);
    if (str_is(json_str(json_get(m, "role")), "tool")) {
        buf_put_text(text, "<tool_response>\n");
        buf_put_str(text, content);
        buf_put_text(text, "\n</tool_response>");
        return make_message("user", buf_str(text));
    }
    if (json_count(calls) == 0) return json_pin(m);
    buf_put_str(text, content);
    put_calls(calls, text);
    return make_message("assistant", buf_str(text));
}

/* The conversation's own system message followed by the tools, or a new one. */
static struct json *make_system(const struct json *own, const struct json *tools,
                                struct buf *text) {
    buf_put_str(text, json_str(json_get(own, "content")));
    if (text->len) buf_put_text(text, "\n\n");
    put_tools(tools, text);
    return make_message("system", buf_str(text));
}

static enum status convert(const struct json *messages, const struct json *tools, struct buf *text,
                           struct json *out) {
    const struct json *first = json_at(messages, 0);
    const bool has_system = str_is(json_str(json_get(first, "role")), "system");
    size_t next = 0;
    if (json_count(tools) > 0) {
        TRY(json_push(out, make_system(has_system ? first : NULL, tools, text)));
        next = has_system ? 1 : 0;
    }
    TRY(buf_status(text));
    for (; next < json_count(messages); next++) {
        TRY(json_push(out, convert_message(json_at(messages, next), text)));
        TRY(buf_status(text));
    }
    return ST_OK;
}

enum status tools_as_text(const struct json *messages, const struct json *tools,
                          struct json **out) {
    struct json *list = json_list_create();
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    enum status st = list ? convert(messages, tools, &text, list) : ST_NOMEM;
    buf_deinit(&text);
    if (st == ST_OK)
        *out = list;
    else
        json_destroy(list);
    return st;
}
