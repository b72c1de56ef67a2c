/* api/messages.c - see api/messages.h for the contract. */
#include "api/messages.h"

#include <stdio.h>

#include "api/api_int.h"
#include "base/check.h"
#include "base/json.h"

void message_list_init(struct message_list *l) {
    *l = (struct message_list){0};
    buf_init(&l->text, API_MADE_BYTES_MAX);
}

void message_list_deinit(struct message_list *l) { buf_deinit(&l->text); }

void message_begin(struct message_list *l, const char *role) {
    buf_put_text(&l->text, l->count++ ? ",{\"role\":" : "[{\"role\":");
    buf_put_json_string(&l->text, str_of(role));
    l->call_count = 0;
    l->has_content = false;
}

void message_put_member(struct message_list *l, const char *key, struct str value) {
    CHECK(!l->has_content);
    buf_put_text(&l->text, ",\"");
    buf_put_text(&l->text, key);
    buf_put_text(&l->text, "\":");
    buf_put_json_string(&l->text, value);
}

void message_put_content(struct message_list *l, struct str text) {
    message_begin_content(l);
    message_add_content(l, text);
    message_end_content(l);
}

void message_begin_content(struct message_list *l) {
    CHECK(!l->has_content);
    l->has_content = true;
    buf_put_text(&l->text, ",\"content\":\"");
}

void message_add_content(struct message_list *l, struct str text) {
    buf_put_json_inner(&l->text, text);
}

void message_end_content(struct message_list *l) { buf_put_char(&l->text, '"'); }

/* Templates go through the arguments as a map; what is none stays the text that it is. */
static enum status put_arguments(struct buf *out, const struct json *arguments) {
    struct json *map = NULL;
    struct str text = json_str(arguments);
    if (json_kind(arguments) == JS_MAP) {
        json_put(arguments, out);
        return ST_OK;
    }
    if (str_trim(text).len == 0) {
        buf_put_text(out, "{}");
        return ST_OK;
    }
    if (json_parse(text, &json_limits_request, &map, NULL) == ST_OK && json_kind(map) == JS_MAP)
        json_put(map, out);
    else
        buf_put_json_string(out, text);
    json_destroy(map);
    return buf_status(out);
}

enum status message_put_call(struct message_list *l, struct str id, struct str name,
                             const struct json *arguments) {
    if (!l->has_content) message_put_content(l, STR(""));
    buf_put_text(&l->text, l->call_count++ ? ",{" : ",\"tool_calls\":[{");
    if (id.len) {
        buf_put_text(&l->text, "\"id\":");
        buf_put_json_string(&l->text, id);
        buf_put_char(&l->text, ',');
    }
    buf_put_text(&l->text, "\"type\":\"function\",\"function\":{\"name\":");
    buf_put_json_string(&l->text, name);
    buf_put_text(&l->text, ",\"arguments\":");
    enum status st = put_arguments(&l->text, arguments);
    buf_put_text(&l->text, "}}");
    return st;
}

void message_end(struct message_list *l) {
    if (!l->has_content) message_put_content(l, STR(""));
    buf_put_text(&l->text, l->call_count ? "]}" : "}");
}

enum status message_list_finish(struct message_list *l, struct api_request *r) {
    buf_put_text(&l->text, l->count ? "]" : "[]");
    r->is_chat = true;
    return api_request_keep(r, &l->text, &r->messages);
}

/* --- OpenAI's messages ------------------------------------------------------------------ */

struct reading {
    struct message_list *list;
    struct api_error *e;
    size_t message;
};

static enum status refuse_part(const struct reading *g, struct str type, size_t part) {
    static const char *const known[] = {"image_url", "input_audio", "file",       "video_url",
                                        "audio_url", "image",       "input_image"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (str_is(type, known[i]))
            return api_refuse_unsupported(
                g->e, "The models served here read text, no images, sounds or files",
                "messages[%zu].content[%zu].type", g->message, part);
    char param[API_PARAM_BYTES];
    snprintf(param, sizeof(param), "messages[%zu].content[%zu].type", g->message, part);
    return api_refuse(g->e, 400, param, "invalid_value",
                      "Invalid '%s': '%.*s' is not supported; it can be: text.", param,
                      (int)(type.len > 100 ? 100 : type.len), type.ptr);
}

static enum status put_part(const struct reading *g, const struct json *part, size_t number) {
    struct str type = json_str(json_get(part, "type"));
    bool is_refusal = str_is(type, "refusal");
    const char *key = is_refusal ? "refusal" : "text";
    if (!str_is(type, "text") && !is_refusal) return refuse_part(g, type, number);
    const struct json *text = json_get(part, key);
    if (json_kind(text) != JS_TEXT)
        return api_refuse_missing(g->e, "messages[%zu].content[%zu].%s", g->message, number, key);
    message_add_content(g->list, json_str(text));
    return ST_OK;
}

static enum status put_parts(const struct reading *g, const struct json *parts) {
    message_begin_content(g->list);
    for (size_t i = 0; i < json_count(parts); i++) TRY(put_part(g, json_at(parts, i), i));
    message_end_content(g->list);
    return ST_OK;
}

static enum status put_calls(const struct reading *g, const struct json *calls) {
    for (size_t i = 0; i < json_count(calls); i++) {
        const struct json *call = json_at(calls, i), *function = json_get(call, "function");
        TRY(message_put_call(g->list, json_str(json_get(call, "id")),
                             json_str(json_get(function, "name")),
                             json_get(function, "arguments")));
    }
    return ST_OK;
}

static const char *role_of(struct str role) {
    static const struct {
        const char *sent, *told;
    } roles[] = {
        {"system", "system"},       {"developer", "system"}, {"user", "user"},
        {"assistant", "assistant"}, {"tool", "tool"},        {"function", "tool"},
    };
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (str_is(role, roles[i].sent)) return roles[i].told;
    check_failed(__FILE__, __LINE__, "a role that the table of fields lets through");
}

static void put_members(const struct reading *g, const struct json *message) {
    static const char *const members[] = {"name", "tool_call_id", "reasoning_content"};
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const struct json *v = json_get(message, members[i]);
        if (json_kind(v) == JS_TEXT) message_put_member(g->list, members[i], json_str(v));
    }
}

static enum status put_message(const struct reading *g, const struct json *message) {
    const struct json *content = json_get(message, "content");
    const struct json *calls = json_get(message, "tool_calls");
    const char *role = role_of(json_str(json_get(message, "role")));
    bool is_assistant = str_is(str_of(role), "assistant");
    bool has_content = json_kind(content) == JS_TEXT || json_kind(content) == JS_LIST;
    if (!has_content && !is_assistant)
        return api_refuse_missing(g->e, "messages[%zu].content", g->message);
    message_begin(g->list, role);
    put_members(g, message);
    if (json_kind(content) == JS_LIST)
        TRY(put_parts(g, content));
    else if (has_content)
        message_put_content(g->list, json_str(content));
    if (is_assistant) TRY(put_calls(g, calls));
    message_end(g->list);
    return ST_OK;
}

enum status messages_read_openai(const struct json *messages, struct api_request *r,
                                 struct api_error *e) {
    struct message_list list;
    enum status st = ST_OK;
    message_list_init(&list);
    for (size_t i = 0; i < json_count(messages) && st == ST_OK; i++) {
        const struct reading g = {.list = &list, .e = e, .message = i};
        st = put_message(&g, json_at(messages, i));
    }
    if (st == ST_OK) st = message_list_finish(&list, r);
    message_list_deinit(&list);
    return st;
}

/* --- OpenAI's tools --------------------------------------------------------------------- */

static bool has_tool(const struct json *tools, struct str name) {
    for (size_t i = 0; i < json_count(tools); i++)
        if (str_eq(json_str(json_get(json_get(json_at(tools, i), "function"), "name")), name))
            return true;
    return false;
}

static enum status read_choice(const struct json *tools, const struct json *choice,
                               struct api_request *r, struct api_error *e) {
    static const char *const words[] = {
        [TOOLS_NONE] = "none", [TOOLS_AUTO] = "auto", [TOOLS_REQUIRED] = "required"};
    r->tool_choice = json_count(tools) ? TOOLS_AUTO : TOOLS_NONE;
    if (json_kind(choice) == JS_MAP) {
        r->tool_choice = TOOLS_NAMED;
        r->tool_name = json_str(json_get(json_get(choice, "function"), "name"));
        if (has_tool(tools, r->tool_name)) return ST_OK;
        return api_refuse(e, 400, "tool_choice", "invalid_value",
                          "Invalid 'tool_choice': there is no tool '%.*s' in 'tools'.",
                          (int)r->tool_name.len, r->tool_name.ptr);
    }
    if (json_kind(choice) != JS_TEXT) return ST_OK;
    for (uint32_t i = TOOLS_NONE; i <= TOOLS_REQUIRED; i++) {
        if (!str_is(json_str(choice), words[i])) continue;
        r->tool_choice = (enum tool_choice)i;
        if (i == TOOLS_NONE || json_count(tools)) return ST_OK;
        return api_refuse(e, 400, "tool_choice", NULL,
                          "'tool_choice' is only possible where 'tools' are given.");
    }
    return api_refuse(e, 400, "tool_choice", "invalid_value",
                      "Invalid 'tool_choice': it can be: none auto required, or a function.");
}

/* Those that the choice leaves open: all, the named one, or none. */
static void put_tools(const struct json *tools, const struct api_request *r, struct buf *out) {
    const char *before = "[";
    for (size_t i = 0; i < json_count(tools); i++) {
        const struct json *tool = json_at(tools, i);
        struct str name = json_str(json_get(json_get(tool, "function"), "name"));
        if (r->tool_choice == TOOLS_NAMED && !str_eq(name, r->tool_name)) continue;
        buf_put_text(out, before);
        json_put(tool, out);
        before = ",";
    }
    buf_put_char(out, ']');
}

enum status tools_keep(struct buf *made, struct api_request *r, struct api_error *e) {
    enum status st = api_request_keep(r, made, &r->tools);
    buf_deinit(made);
    if (st != ST_FULL) return st;
    return api_refuse(e, 400, "tools", "string_above_max_length",
                      "Invalid 'tools': together they have more than %d bytes.",
                      API_TOOLS_BYTES_MAX);
}

enum status tools_read_openai(const struct json *tools, const struct json *choice,
                              struct api_request *r, struct api_error *e) {
    TRY(read_choice(tools, choice, r, e));
    if (r->tool_choice == TOOLS_NONE) return ST_OK;
    if (r->tool_choice == TOOLS_REQUIRED && json_count(tools) == 1) {
        r->tool_choice = TOOLS_NAMED;
        r->tool_name = json_str(json_path(json_at(tools, 0), "function.name"));
    }
    struct buf text;
    buf_init(&text, API_TOOLS_BYTES_MAX);
    put_tools(tools, r, &text);
    return tools_keep(&text, r, e);
}
