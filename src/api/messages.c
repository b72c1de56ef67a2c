/* api/messages.c - see api/messages.h for the contract. */
#include "api/messages.h"

#include <stdio.h>

#include "api/call_ids.h"
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
    struct call_ids *ids;
    struct api_error *e;
    bool may_be_part;
    size_t message;
    const char *before; /* the role of the message before; NULL: none */
};

static const struct call_words words = {
    .call_param = "messages[%u].tool_calls[%u].id",
    .call = "the assistant's message with the call",
    .result = "a message of the role tool with this tool_call_id",
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

static enum status put_calls(const struct reader *g, const struct json *calls) {
    for (size_t i = 0; i < json_count(calls); i++) {
        const struct json *call = json_at(calls, i), *function = json_get(call, "function");
        const struct call_place place = {.id = json_str(json_get(call, "id")),
                                         .name = json_str(json_get(function, "name")),
                                         .message = (uint32_t)g->message,
                                         .part = (uint32_t)i};
        TRY(call_ids_add(g->ids, &place));
        message_put_call(g->list, place.id, place.name, json_get(function, "arguments"));
    }
    return ST_OK;
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
    static const char *const members[] = {"name", "reasoning_content"};
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const struct json *v = json_get(message, members[i]);
        if (json_kind(v) == JS_TEXT) message_put_member(g->list, members[i], json_str(v));
    }
    const struct json *thought = json_get(message, "reasoning");
    if (json_kind(thought) != JS_TEXT) return;
    if (json_kind(json_get(message, "reasoning_content")) == JS_TEXT) return;
    message_put_member(g->list, "reasoning_content", json_str(thought));
}

/* A tool's message gets the id and the name that only its call has: some templates need them.
 * Messages of the role function, which is older than ids, may be without a call. */
static enum status put_result_members(const struct reader *g, const struct json *message) {
    struct str id = json_str(json_get(message, "tool_call_id"));
    struct str name = json_str(json_get(message, "name"));
    const struct call_entry *call = call_ids_take(g->ids, id, name);
    const bool needs_call = !g->may_be_part && str_is(json_str(json_get(message, "role")), "tool");
    if (!call && needs_call) {
        char param[API_PARAM_BYTES];
        snprintf(param, sizeof(param), "messages[%zu].tool_call_id", g->message);
        return call_ids_refuse(g->ids, id, param, g->e);
    }
    if (call && !id.len) id = call->place.id;
    if (call && !name.len) name = call->place.name;
    if (name.len) message_put_member(g->list, "name", name);
    if (id.len) message_put_member(g->list, "tool_call_id", id);
    return ST_OK;
}

/* A message that ends a run of results, or of calls: every call must have its result. Calls with
 * which the conversation ends are accepted. */
static enum status begin_turn(const struct reader *g, const char *role) {
    const bool is_tool = str_is(str_of(role), "tool");
    const bool continues =
        str_is(str_of(role), "assistant") && g->before && str_is(str_of(g->before), "assistant");
    if (is_tool || continues) return ST_OK;
    if (!g->may_be_part) TRY(call_ids_check_results(g->ids, g->e));
    call_ids_begin_turn(g->ids);
    return ST_OK;
}

static enum status put_message(struct reader *g, const struct json *message) {
    const struct json *content = json_get(message, "content");
    const struct json *calls = json_get(message, "tool_calls");
    const char *role = role_of(json_str(json_get(message, "role")));
    bool is_assistant = str_is(str_of(role), "assistant");
    bool has_content = json_kind(content) == JS_TEXT || json_kind(content) == JS_LIST;
    if (!has_content && !is_assistant)
        return api_refuse_missing(g->e, "messages[%zu].content", g->message);
    TRY(begin_turn(g, role));
    g->before = role;
    message_begin(g->list, role);
    if (str_is(str_of(role), "tool"))
        TRY(put_result_members(g, message));
    else
        put_members(g, message);
    if (json_kind(content) == JS_LIST)
        TRY(put_parts(g, content));
    else if (has_content)
        message_put_content(g->list, content);
    if (is_assistant) TRY(put_calls(g, calls));
    message_end(g->list);
    return ST_OK;
}

static enum status put_messages(struct reader *g, const struct json *messages) {
    for (; g->message < json_count(messages); g->message++)
        TRY(put_message(g, json_at(messages, g->message)));
    const bool ends_with_result = g->before && str_is(str_of(g->before), "tool");
    const bool must_be_whole = ends_with_result && !g->may_be_part;
    return must_be_whole ? call_ids_check_results(g->ids, g->e) : ST_OK;
}

enum status messages_read_openai(const struct json *messages, bool may_be_part,
                                 struct api_request *r, struct api_error *e) {
    struct message_list list;
    struct call_ids ids;
    struct reader g = {.list = &list, .ids = &ids, .e = e, .may_be_part = may_be_part};
    message_list_init(&list);
    call_ids_init(&ids, &words);
    enum status st = put_messages(&g, messages);
    if (st == ST_OK) st = message_list_finish(&list, r);
    message_list_deinit(&list);
    call_ids_deinit(&ids);
    return st;
}
