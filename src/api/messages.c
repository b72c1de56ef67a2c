/* api/messages.c - see api/messages.h for the contract. */
#include "api/messages.h"

#include <stdio.h>

#include "api/fields.h"
#include "base/check.h"
#include "base/json.h"

void message_list_init(struct message_list *l) {
    *l = (struct message_list){.list = json_list_create(),
                               .values_left = json_limits_request.values_max};
    buf_init(&l->content, API_MADE_BYTES_MAX);
}

void message_list_deinit(struct message_list *l) {
    json_destroy(l->list);
    buf_deinit(&l->content);
}

static void note(struct message_list *l, enum status st) {
    if (l->status == ST_OK) l->status = st;
}

static void put(struct message_list *l, const char *key, struct json *value) {
    note(l, json_set(l->message, str_of(key), value));
}

void message_begin(struct message_list *l, const char *role) {
    l->message = json_map_create();
    l->calls = NULL;
    l->has_content = false;
    note(l, json_push(l->list, l->message));
    if (l->status != ST_OK) l->message = NULL;
    put(l, "role", json_text_create(str_of(role)));
}

void message_put_member(struct message_list *l, const char *key, struct str text) {
    CHECK(!l->has_content);
    put(l, key, json_text_create(text));
}

void message_put_content(struct message_list *l, const struct json *text) {
    CHECK(!l->has_content);
    l->has_content = true;
    put(l, "content", json_kind(text) == JS_TEXT ? json_pin(text) : json_text_create(STR("")));
}

void message_begin_content(struct message_list *l) {
    CHECK(!l->has_content);
    l->has_content = true;
    buf_clear(&l->content);
}

void message_add_content(struct message_list *l, struct str text) {
    buf_put_str(&l->content, text);
}

void message_end_content(struct message_list *l) {
    note(l, buf_status(&l->content));
    put(l, "content", json_text_create(buf_str(&l->content)));
}

/* A parsed value takes up to a hundred times its bytes in the text, so the sum over all calls is
 * bounded. */
static struct json *read_arguments(struct message_list *l, const struct json *arguments) {
    struct json *parsed = NULL;
    if (json_kind(arguments) == JS_MAP) return json_pin(arguments);
    struct str text = json_str(arguments);
    if (str_trim(text).len == 0) return json_map_create();
    size_t values = json_count_values(text);
    if (values > l->values_left) return json_pin(arguments);
    bool is_json = json_parse(text, &json_limits_request, &parsed, NULL) == ST_OK;
    if (!is_json || json_kind(parsed) != JS_MAP) {
        json_destroy(parsed);
        return json_pin(arguments);
    }
    l->values_left -= values;
    return parsed;
}

static struct json *make_call(struct message_list *l, struct str id, struct str name,
                              const struct json *arguments) {
    struct json *call = json_map_create(), *function = json_map_create();
    if (id.len) note(l, json_set(call, STR("id"), json_text_create(id)));
    note(l, json_set(call, STR("type"), json_text_create(STR("function"))));
    note(l, json_set(function, STR("name"), json_text_create(name)));
    note(l, json_set(function, STR("arguments"), read_arguments(l, arguments)));
    note(l, json_set(call, STR("function"), function));
    return call;
}

void message_put_call(struct message_list *l, struct str id, struct str name,
                      const struct json *arguments) {
    if (!l->has_content) message_put_content(l, NULL);
    if (!l->calls) {
        l->calls = json_list_create();
        put(l, "tool_calls", l->calls);
    }
    if (l->status == ST_OK) note(l, json_push(l->calls, make_call(l, id, name, arguments)));
}

void message_end(struct message_list *l) {
    if (!l->has_content) message_put_content(l, NULL);
}

enum status message_list_finish(struct message_list *l, struct api_request *r) {
    if (!l->list) note(l, ST_NOMEM);
    if (l->status != ST_OK) return l->status;
    r->is_chat = true;
    r->messages = l->list;
    l->list = NULL;
    return ST_OK;
}

/* --- OpenAI's messages ------------------------------------------------------------------ */

struct reader {
    struct message_list *list;
    struct api_error *e;
    size_t message;
};

static enum status refuse_part(const struct reader *g, struct str type, size_t part) {
    static const char *const known[] = {"image_url", "input_audio", "file",       "video_url",
                                        "audio_url", "image",       "input_image"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (str_is(type, known[i]))
            return api_refuse_unsupported(
                g->e, "The models served here read text only, no images, audio or files",
                "messages[%zu].content[%zu].type", g->message, part);
    char param[API_PARAM_BYTES];
    snprintf(param, sizeof(param), "messages[%zu].content[%zu].type", g->message, part);
    return api_refuse(g->e, 400, param, "invalid_value",
                      "Invalid '%s': '%.*s' is not supported; supported: text.", param,
                      (int)(type.len > 100 ? 100 : type.len), type.ptr);
}

static enum status put_part(const struct reader *g, const struct json *part, size_t number) {
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

static enum status put_parts(const struct reader *g, const struct json *parts) {
    message_begin_content(g->list);
    for (size_t i = 0; i < json_count(parts); i++) TRY(put_part(g, json_at(parts, i), i));
    message_end_content(g->list);
    return ST_OK;
}

static void put_calls(const struct reader *g, const struct json *calls) {
    for (size_t i = 0; i < json_count(calls); i++) {
        const struct json *call = json_at(calls, i), *function = json_get(call, "function");
        message_put_call(g->list, json_str(json_get(call, "id")),
                         json_str(json_get(function, "name")), json_get(function, "arguments"));
    }
}

static const char *role_of(struct str role) {
    static const struct {
        const char *sent, *shown;
    } roles[] = {
        {"system", "system"},       {"developer", "system"}, {"user", "user"},
        {"assistant", "assistant"}, {"tool", "tool"},        {"function", "tool"},
    };
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (str_is(role, roles[i].sent)) return roles[i].shown;
    check_failed(__FILE__, __LINE__, "a role that the table of fields accepts");
}

static void put_members(const struct reader *g, const struct json *message) {
    static const char *const members[] = {"name", "tool_call_id", "reasoning_content"};
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const struct json *v = json_get(message, members[i]);
        if (json_kind(v) == JS_TEXT) message_put_member(g->list, members[i], json_str(v));
    }
}

static enum status put_message(const struct reader *g, const struct json *message) {
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
        message_put_content(g->list, content);
    if (is_assistant) put_calls(g, calls);
    message_end(g->list);
    return ST_OK;
}

enum status messages_read_openai(const struct json *messages, struct api_request *r,
                                 struct api_error *e) {
    struct message_list list;
    enum status st = ST_OK;
    message_list_init(&list);
    for (size_t i = 0; i < json_count(messages) && st == ST_OK; i++) {
        const struct reader g = {.list = &list, .e = e, .message = i};
        st = put_message(&g, json_at(messages, i));
    }
    if (st == ST_OK) st = message_list_finish(&list, r);
    message_list_deinit(&list);
    return st;
}
