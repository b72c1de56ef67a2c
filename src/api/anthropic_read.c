/* api/anthropic_read.c - the bodies of /v1/messages and /v1/messages/count_tokens.
 *
 * Content blocks become messages in the form that chat templates read: a user's tool_result
 * becomes a message of the role "tool", an assistant's tool_use a tool call. Consecutive messages
 * of the user are joined, as Anthropic does, because many templates require alternating roles. If
 * the last message is the assistant's, the answer continues it. */
#include <stdio.h>

#include "api/body_readers.h"
#include "api/call_ids.h"
#include "api/fields.h"
#include "api/messages.h"
#include "api/tools_read.h"
#include "base/json.h"

static const struct call_words words = {
    .call_param = "messages[%u].content[%u].id",
    .call = "the assistant's message with the tool_use block",
    .result = "a tool_result block with this tool_use_id in the message",
};

struct reader {
    struct message_list list;
    struct call_ids ids;
    struct api_error *e;
    size_t message;
    bool in_user;  /* a user's message is open for more content */
    bool was_user; /* the message before was the user's */
};

static void end_user(struct reader *g) {
    if (!g->in_user) return;
    message_end_content(&g->list);
    message_end(&g->list);
    g->in_user = false;
}

static void add_user(struct reader *g, struct str text) {
    if (!g->in_user) {
        message_begin(&g->list, "user");
        message_begin_content(&g->list);
    }
    g->in_user = true;
    message_add_content(&g->list, text);
}

static bool is_type(const struct json *block, const char *type) {
    return str_is(json_str(json_get(block, "type")), type);
}

static enum status refuse_block(const struct reader *g, size_t block) {
    return api_refuse_unsupported(g->e,
                                  "Content blocks of this type are not supported by this server",
                                  "messages[%zu].content[%zu].type", g->message, block);
}

static enum status require(const struct reader *g, const struct json *block, size_t number,
                           const char *key, enum json_kind kind) {
    if (json_kind(json_get(block, key)) == kind) return ST_OK;
    return api_refuse_missing(g->e, "messages[%zu].content[%zu].%s", g->message, number, key);
}

static enum status put_result_members(struct reader *g, const struct json *block, size_t number) {
    const struct str id = json_str(json_get(block, "tool_use_id"));
    const struct call_entry *call = call_ids_take(&g->ids, id, STR(""));
    if (!call) {
        char param[API_PARAM_BYTES];
        snprintf(param, sizeof(param), "messages[%zu].content[%zu].tool_use_id", g->message,
                 number);
        return call_ids_refuse(&g->ids, id, param, g->e);
    }
    message_put_member(&g->list, "name", call->place.name);
    message_put_member(&g->list, "tool_call_id", id);
    return ST_OK;
}

/* The result of a tool: a text, text blocks, or nothing. */
static enum status read_result(struct reader *g, const struct json *block, size_t number) {
    const struct json *content = json_get(block, "content");
    TRY(require(g, block, number, "tool_use_id", JS_TEXT));
    end_user(g);
    message_begin(&g->list, "tool");
    TRY(put_result_members(g, block, number));
    message_begin_content(&g->list);
    message_add_content(&g->list, json_str(content));
    for (size_t i = 0; i < json_count(content); i++) {
        const struct json *part = json_at(content, i);
        if (!is_type(part, "text"))
            return api_refuse_unsupported(g->e, "The models served here read text only",
                                          "messages[%zu].content[%zu].content[%zu].type",
                                          g->message, number, i);
        message_add_content(&g->list, json_str(json_get(part, "text")));
    }
    if (g->list.content.len == 0 && json_bool(json_get(block, "is_error"), false))
        return api_refuse_missing(g->e, "messages[%zu].content[%zu].content", g->message, number);
    message_end_content(&g->list);
    message_end(&g->list);
    return ST_OK;
}

static enum status read_user_block(struct reader *g, const struct json *block, size_t number) {
    if (is_type(block, "tool_result")) return read_result(g, block, number);
    if (!is_type(block, "text")) return refuse_block(g, number);
    TRY(require(g, block, number, "text", JS_TEXT));
    add_user(g, json_str(json_get(block, "text")));
    return ST_OK;
}

static enum status read_user(struct reader *g, const struct json *content) {
    if (json_kind(content) == JS_LIST && json_count(content) == 0)
        return api_refuse_missing(g->e, "messages[%zu].content[0]", g->message);
    if (g->in_user) add_user(g, STR("\n"));
    if (json_kind(content) == JS_TEXT) add_user(g, json_str(content));
    for (size_t i = 0; i < json_count(content); i++)
        TRY(read_user_block(g, json_at(content, i), i));
    return ST_OK;
}

/* In the order of a message: reasoning, text, calls. */
static enum status read_assistant_texts(struct reader *g, const struct json *content) {
    bool has_thought = false;
    for (size_t i = 0; i < json_count(content) && !has_thought; i++) {
        const struct json *block = json_at(content, i);
        has_thought = is_type(block, "thinking") && json_str(json_get(block, "thinking")).len;
        if (has_thought)
            message_put_member(&g->list, "reasoning_content",
                               json_str(json_get(block, "thinking")));
    }
    message_begin_content(&g->list);
    message_add_content(&g->list, json_str(content));
    for (size_t i = 0; i < json_count(content); i++) {
        const struct json *block = json_at(content, i);
        if (!is_type(block, "text")) continue;
        TRY(require(g, block, i, "text", JS_TEXT));
        message_add_content(&g->list, json_str(json_get(block, "text")));
    }
    message_end_content(&g->list);
    return ST_OK;
}

static enum status read_assistant(struct reader *g, const struct json *content) {
    end_user(g);
    message_begin(&g->list, "assistant");
    TRY(read_assistant_texts(g, content));
    for (size_t i = 0; i < json_count(content); i++) {
        const struct json *block = json_at(content, i);
        bool is_read = is_type(block, "text") || is_type(block, "thinking") ||
                       is_type(block, "redacted_thinking");
        if (is_read) continue;
        if (!is_type(block, "tool_use")) return refuse_block(g, i);
        TRY(require(g, block, i, "id", JS_TEXT));
        TRY(require(g, block, i, "name", JS_TEXT));
        const struct call_place place = {.id = json_str(json_get(block, "id")),
                                         .name = json_str(json_get(block, "name")),
                                         .message = (uint32_t)g->message,
                                         .part = (uint32_t)i};
        TRY(call_ids_add(&g->ids, &place));
        message_put_call(&g->list, place.id, place.name, json_get(block, "input"));
    }
    message_end(&g->list);
    return ST_OK;
}

/* A text, or text blocks, joined by line breaks. */
static void read_system(struct reader *g, const struct json *system) {
    message_begin(&g->list, "system");
    message_begin_content(&g->list);
    message_add_content(&g->list, json_str(system));
    for (size_t i = 0; i < json_count(system); i++) {
        if (i) message_add_content(&g->list, STR("\n"));
        message_add_content(&g->list, json_str(json_get(json_at(system, i), "text")));
    }
    message_end_content(&g->list);
    message_end(&g->list);
}

static enum status read_message(struct reader *g, const struct json *message) {
    struct str role = json_str(json_get(message, "role"));
    const struct json *content = json_get(message, "content");
    const bool is_assistant = str_is(role, "assistant");
    if (is_assistant && g->was_user) {
        TRY(call_ids_check_results(&g->ids, g->e));
        call_ids_begin_turn(&g->ids);
    }
    if (is_assistant) g->was_user = false;
    if (is_assistant) return read_assistant(g, content);
    if (str_is(role, "user")) g->was_user = true;
    if (str_is(role, "user")) return read_user(g, content);
    end_user(g);
    read_system(g, content);
    return ST_OK;
}

static enum status read_messages(const struct json *body, struct api_request *r,
                                 struct api_error *e) {
    const struct json *system = json_get(body, "system"), *list = json_get(body, "messages");
    struct reader g = {.e = e};
    enum status st = ST_OK;
    message_list_init(&g.list);
    call_ids_init(&g.ids, &words);
    if (json_str(system).len || json_count(system)) read_system(&g, system);
    for (; g.message < json_count(list) && st == ST_OK; g.message++)
        st = read_message(&g, json_at(list, g.message));
    end_user(&g);
    if (st == ST_OK && g.was_user) st = call_ids_check_results(&g.ids, e);
    bool is_prefill =
        str_is(json_str(json_get(json_at(list, json_count(list) - 1), "role")), "assistant");
    r->continue_final = is_prefill && !g.list.calls;
    if (st == ST_OK) st = message_list_finish(&g.list, r);
    message_list_deinit(&g.list);
    call_ids_deinit(&g.ids);
    return st;
}

static enum status read_tools(const struct json *body, struct api_request *r, struct api_error *e) {
    const struct json *choice = json_get(body, "tool_choice");
    struct str type = json_str(json_get(choice, "type"));
    r->tool_choice = TOOLS_AUTO;
    r->many_tool_calls = !json_bool(json_get(choice, "disable_parallel_tool_use"), true);
    if (str_is(type, "none")) r->tool_choice = TOOLS_NONE;
    if (str_is(type, "any")) r->tool_choice = TOOLS_REQUIRED;
    if (str_is(type, "tool")) {
        r->tool_choice = TOOLS_NAMED;
        r->tool_name = json_str(json_get(choice, "name"));
        if (!r->tool_name.len) return api_refuse_missing(e, "tool_choice.name");
    }
    return tools_read_flat(json_get(body, "tools"), "input_schema", r, e);
}

/* Without `thinking` in the request, the answer must have no reasoning; that of a model which
 * reasons nevertheless is not shown. */
static enum status read_thinking(const struct json *body, struct api_request *r) {
    struct str type = json_str(json_get(json_get(body, "thinking"), "type"));
    bool thinks = type.len && !str_is(type, "disabled");
    r->thinking.is_hidden = !thinks;
    return api_request_set_kwarg(r, STR("enable_thinking"), json_bool_create(thinks));
}

static enum status read_endpoint(enum api_endpoint endpoint, struct json *body,
                                 struct api_request *r, struct api_error *e) {
    r->doc = body;
    TRY(api_fields_read(endpoint, body, r, e));
    TRY(read_tools(body, r, e));
    TRY(read_thinking(body, r));
    return read_messages(body, r, e);
}

enum status anthropic_read_body(struct json *body, struct api_request *r, struct api_error *e) {
    return read_endpoint(EP_MESSAGES, body, r, e);
}

enum status anthropic_count_read_body(struct json *body, struct api_request *r,
                                      struct api_error *e) {
    r->has_max_tokens = true;
    return read_endpoint(EP_COUNT_TOKENS, body, r, e);
}
