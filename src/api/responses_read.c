/* api/responses_read.c - the body of /v1/responses.
 *
 * Items become messages in the form that chat templates read: consecutive function_calls belong to
 * the assistant's message before them; a function_call_output becomes a message of the role
 * "tool". The reasoning of earlier answers is ignored, as by OpenAI's models. */
#include "api/body_readers.h"
#include "api/fields.h"
#include "api/messages.h"
#include "api/openai.h"
#include "api/tools_read.h"
#include "base/json.h"

struct reader {
    struct message_list list;
    struct api_error *e;
    size_t item;
    bool in_assistant; /* an assistant's message is open for calls */
};

static void end_assistant(struct reader *g) {
    if (g->in_assistant) message_end(&g->list);
    g->in_assistant = false;
}

static enum status put_part(struct reader *g, const struct json *part, const char *key,
                            size_t number) {
    struct str type = json_str(json_get(part, "type"));
    bool is_refusal = str_is(type, "refusal");
    bool is_text =
        str_is(type, "input_text") || str_is(type, "output_text") || str_is(type, "text");
    if (!is_text && !is_refusal)
        return api_refuse_unsupported(g->e,
                                      "The models served here read text only, no images or files",
                                      "input[%zu].%s[%zu].type", g->item, key, number);
    const struct json *text = json_get(part, is_refusal ? "refusal" : "text");
    if (json_kind(text) != JS_TEXT)
        return api_refuse_missing(g->e, "input[%zu].%s[%zu].%s", g->item, key, number,
                                  is_refusal ? "refusal" : "text");
    message_add_content(&g->list, json_str(text));
    return ST_OK;
}

/* Put the text under `key`, a string or parts, as the message's content. */
static enum status put_content(struct reader *g, const struct json *item, const char *key) {
    const struct json *content = json_get(item, key);
    if (json_kind(content) != JS_TEXT && json_kind(content) != JS_LIST)
        return api_refuse_missing(g->e, "input[%zu].%s", g->item, key);
    message_begin_content(&g->list);
    if (json_kind(content) == JS_TEXT) message_add_content(&g->list, json_str(content));
    for (size_t i = 0; i < json_count(content); i++) TRY(put_part(g, json_at(content, i), key, i));
    message_end_content(&g->list);
    return ST_OK;
}

static enum status read_message(struct reader *g, const struct json *item) {
    struct str role = json_str(json_get(item, "role"));
    if (!role.len) return api_refuse_missing(g->e, "input[%zu].role", g->item);
    bool is_assistant = str_is(role, "assistant");
    const char *shown = str_is(role, "user") ? "user" : is_assistant ? "assistant" : "system";
    end_assistant(g);
    message_begin(&g->list, shown);
    TRY(put_content(g, item, "content"));
    if (is_assistant)
        g->in_assistant = true;
    else
        message_end(&g->list);
    return ST_OK;
}

static enum status read_call(struct reader *g, const struct json *item) {
    struct str id = json_str(json_get(item, "call_id")), name = json_str(json_get(item, "name"));
    if (!id.len) return api_refuse_missing(g->e, "input[%zu].call_id", g->item);
    if (!name.len) return api_refuse_missing(g->e, "input[%zu].name", g->item);
    if (!g->in_assistant) message_begin(&g->list, "assistant");
    g->in_assistant = true;
    message_put_call(&g->list, id, name, json_get(item, "arguments"));
    return ST_OK;
}

static enum status read_output(struct reader *g, const struct json *item) {
    struct str id = json_str(json_get(item, "call_id"));
    if (!id.len) return api_refuse_missing(g->e, "input[%zu].call_id", g->item);
    end_assistant(g);
    message_begin(&g->list, "tool");
    message_put_member(&g->list, "tool_call_id", id);
    TRY(put_content(g, item, "output"));
    message_end(&g->list);
    return ST_OK;
}

static enum status read_item(struct reader *g, const struct json *item) {
    struct str type = json_str(json_get(item, "type"));
    if (!type.len || str_is(type, "message")) return read_message(g, item);
    if (str_is(type, "function_call")) return read_call(g, item);
    if (str_is(type, "function_call_output")) return read_output(g, item);
    if (str_is(type, "reasoning")) return ST_OK;
    if (str_is(type, "item_reference"))
        return api_refuse_unsupported(g->e,
                                      "Items are not stored by this server; send the item itself",
                                      "input[%zu].type", g->item);
    return api_refuse_unsupported(g->e, "Items of this type are not supported by this server",
                                  "input[%zu].type", g->item);
}

static enum status read_items(struct reader *g, const struct json *body) {
    const struct json *input = json_get(body, "input");
    const struct json *instructions = json_get(body, "instructions");
    if (json_str(instructions).len) {
        message_begin(&g->list, "system");
        message_put_content(&g->list, instructions);
        message_end(&g->list);
    }
    if (json_kind(input) == JS_TEXT) {
        message_begin(&g->list, "user");
        message_put_content(&g->list, input);
        message_end(&g->list);
    }
    for (; g->item < json_count(input); g->item++) TRY(read_item(g, json_at(input, g->item)));
    end_assistant(g);
    return ST_OK;
}

static enum status read_input(const struct json *body, struct api_request *r, struct api_error *e) {
    struct reader g = {.e = e};
    message_list_init(&g.list);
    enum status st = read_items(&g, body);
    if (st == ST_OK) st = message_list_finish(&g.list, r);
    message_list_deinit(&g.list);
    return st;
}

static enum status read_choice(const struct json *choice, struct api_request *r,
                               struct api_error *e) {
    struct str word = json_str(choice);
    r->tool_choice = TOOLS_AUTO;
    if (json_kind(choice) == JS_MAP) {
        r->tool_choice = TOOLS_NAMED;
        r->tool_name = json_str(json_get(choice, "name"));
    }
    if (json_kind(choice) != JS_TEXT || str_is(word, "auto")) return ST_OK;
    r->tool_choice = str_is(word, "none") ? TOOLS_NONE : TOOLS_REQUIRED;
    if (str_is(word, "none") || str_is(word, "required")) return ST_OK;
    return api_refuse(e, 400, "tool_choice", "invalid_value",
                      "Invalid 'tool_choice': supported: none, auto, required, or a function.");
}

static enum status read_effort(const struct json *effort, struct api_request *r) {
    if (json_kind(effort) != JS_TEXT) return ST_OK;
    return api_request_set_kwarg(r, STR("reasoning_effort"), json_pin(effort));
}

enum status responses_read_body(struct json *body, struct api_request *r, struct api_error *e) {
    r->doc = body;
    TRY(api_fields_read(EP_RESPONSES, body, r, e));
    TRY(read_choice(json_get(body, "tool_choice"), r, e));
    TRY(tools_read_flat(json_get(body, "tools"), "parameters", r, e));
    TRY(read_effort(json_get(json_get(body, "reasoning"), "effort"), r));
    const struct json *include = json_get(body, "include");
    for (size_t i = 0; i < json_count(include); i++)
        if (str_is(json_str(json_at(include, i)), "message.output_text.logprobs"))
            r->logprobs = true;
    if (r->top_logprobs) r->logprobs = true;
    TRY(openai_check(body, r, e));
    return read_input(body, r, e);
}
