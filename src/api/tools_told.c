/* api/tools_told.c - see api/tools_told.h for the contract. */
#include "api/tools_told.h"

#include <stdint.h>

#include "api/tools.h"
#include "base/buf.h"
#include "base/json.h"

/* What was written here is read again: everything counts but the bytes, which have been counted. */
static const struct json_limits LIMITS = {
    .bytes_max = (size_t)1 << 28, .depth_max = 256, .values_max = 1 << 22};

bool tools_must_be_told(struct str chat_template) {
    return !tool_template_has(chat_template, STR("tools"));
}

/* ---- texts, gathered plain and then written as one JSON string ---- */

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

static void put_message(struct buf *out, const char *role, struct str content) {
    buf_put_text(out, "{\"role\":\"");
    buf_put_text(out, role);
    buf_put_text(out, "\",\"content\":");
    buf_put_json_string(out, content);
    buf_put_char(out, '}');
}

/* ---- messages ---- */

static void tell_message(const struct json *m, struct buf *text, struct buf *out) {
    const struct str role = json_str(json_get(m, "role"));
    const struct str content = json_str(json_get(m, "content"));
    const struct json *calls = json_get(m, "tool_calls");
    buf_clear(text);
    if (str_is(role, "tool")) {
        buf_put_text(text, "<tool_response>\n");
        buf_put_str(text, content);
        buf_put_text(text, "\n</tool_response>");
        put_message(out, "user", buf_str(text));
    } else if (json_count(calls) > 0) {
        buf_put_str(text, content);
        put_calls(calls, text);
        put_message(out, "assistant", buf_str(text));
    } else {
        json_put(m, out);
    }
}

/* Begins with a system message, the conversation's own with the tools behind it, if there are
 * any. Returns how many messages that has used up. */
static size_t tell_system(const struct json *messages, const struct json *tools, struct buf *text,
                          struct buf *out) {
    const struct json *first = json_at(messages, 0);
    const bool has_own = str_is(json_str(json_get(first, "role")), "system");
    if (json_count(tools) == 0) return 0;
    if (has_own) buf_put_str(text, json_str(json_get(first, "content")));
    if (text->len) buf_put_text(text, "\n\n");
    put_tools(tools, text);
    put_message(out, "system", buf_str(text));
    return has_own ? 1 : 0;
}

static enum status tell(const struct json *messages, const struct json *tools, struct buf *out) {
    struct buf text;
    buf_init(&text, out->max);
    buf_put_char(out, '[');
    size_t from = tell_system(messages, tools, &text, out);
    for (size_t i = from; i < json_count(messages); i++) {
        if (i > 0 || json_count(tools) > 0) buf_put_char(out, ',');
        tell_message(json_at(messages, i), &text, out);
    }
    buf_put_char(out, ']');
    enum status st = buf_status(&text);
    buf_deinit(&text);
    return st == ST_OK ? buf_status(out) : st;
}

enum status tools_tell(struct str messages, struct str tools, struct buf *out) {
    struct json *list = NULL, *told = NULL;
    enum status st = json_parse(messages, &LIMITS, &list, NULL);
    if (st == ST_OK && tools.len) st = json_parse(tools, &LIMITS, &told, NULL);
    if (st == ST_OK) st = tell(list, told, out);
    json_destroy(list);
    json_destroy(told);
    return st;
}
