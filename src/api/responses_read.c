/* api/responses_read.c - the body of /v1/responses.
 *
 * Items become messages in the form that chat templates read: consecutive function_calls belong to
 * the assistant's message before them; a function_call_output becomes a message of the role
 * "tool". Reasoning belongs to the assistant's message that it precedes; the chat template decides
 * whether the model sees it. */
#include <stdio.h>

#include "api/body_readers.h"
#include "api/call_ids.h"
#include "api/fields.h"
#include "api/messages.h"
#include "api/openai.h"
#include "api/tools_read.h"
#include "base/json.h"

enum { CONVERSATION_ID_MAX = 512 }; /* as of the row conversation.id */

/* Calls and their outputs may be apart: all items are one turn. */
static const struct call_words words = {
    .call_param = "input[%u].call_id",
    .call = "the function_call item",
    .result = "a function_call_output item with this call_id",
};

struct reader {
    struct message_list list;
    struct call_ids ids;
    struct api_error *e;
    size_t item;
    bool in_assistant;  /* an assistant's message is open for calls */
    struct buf thought; /* reasoning before the next message */
};

static void end_assistant(struct reader *g) {
    if (g->in_assistant) message_end(&g->list);
    g->in_assistant = false;
}

static void begin_assistant(struct reader *g) {
    message_begin(&g->list, "assistant");
    if (g->thought.len) message_put_member(&g->list, "reasoning_content", buf_str(&g->thought));
    g->thought.len = 0;
    g->in_assistant = true;
}

/* The parts of `list` that have a text, joined. */
static void read_thought(struct reader *g, const struct json *item) {
    const struct json *list = json_get(item, "content");
    if (json_count(list) == 0) list = json_get(item, "summary");
    for (size_t i = 0; i < json_count(list); i++) {
        struct str text = json_str(json_get(json_at(list, i), "text"));
        if (text.len && g->thought.len) buf_put_char(&g->thought, '\n');
        buf_put_str(&g->thought, text);
    }
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
    if (is_assistant)
        begin_assistant(g);
    else
        message_begin(&g->list, shown);
    TRY(put_content(g, item, "content"));
    if (is_assistant) return ST_OK;
    message_end(&g->list);
    g->thought.len = 0;
    return ST_OK;
}

static enum status read_call(struct reader *g, const struct json *item) {
    struct str id = json_str(json_get(item, "call_id")), name = json_str(json_get(item, "name"));
    if (!id.len) return api_refuse_missing(g->e, "input[%zu].call_id", g->item);
    if (!name.len) return api_refuse_missing(g->e, "input[%zu].name", g->item);
    if (!g->in_assistant) begin_assistant(g);
    g->thought.len = 0; /* a message has one thought, before its text */
    message_put_call(&g->list, id, name, json_get(item, "arguments"));
    return call_ids_add(&g->ids,
                        &(struct call_place){.id = id, .name = name, .message = (uint32_t)g->item});
}

static enum status read_output(struct reader *g, const struct json *item) {
    struct str id = json_str(json_get(item, "call_id"));
    if (!id.len) return api_refuse_missing(g->e, "input[%zu].call_id", g->item);
    const struct call_entry *call = call_ids_take(&g->ids, id, STR(""));
    if (!call) {
        char param[API_PARAM_BYTES];
        snprintf(param, sizeof(param), "input[%zu].call_id", g->item);
        return call_ids_refuse(&g->ids, id, param, g->e);
    }
    end_assistant(g);
    message_begin(&g->list, "tool");
    message_put_member(&g->list, "name", call->place.name);
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
    if (str_is(type, "reasoning")) {
        read_thought(g, item);
        return ST_OK;
    }
    if (str_is(type, "item_reference"))
        return api_refuse_unsupported(g->e,
                                      "References to stored items are not supported; send the "
                                      "item itself",
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
    TRY(buf_status(&g->thought));
    return call_ids_check_results(&g->ids, g->e);
}

static enum status read_input(const struct json *body, struct api_request *r, struct api_error *e) {
    struct reader g = {.e = e};
    message_list_init(&g.list);
    call_ids_init(&g.ids, &words);
    buf_init(&g.thought, API_MADE_BYTES_MAX);
    enum status st = read_items(&g, body);
    if (st == ST_OK) st = message_list_finish(&g.list, r);
    message_list_deinit(&g.list);
    buf_deinit(&g.thought);
    call_ids_deinit(&g.ids);
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
    return tools_refuse_choice(word, "{\"type\": \"function\", \"name\": ..}", e);
}

static enum status check_keeping(struct api_request *r, struct api_error *e) {
    struct api_keeping *k = &r->keeping;
    if (k->background && !json_bool(json_get(r->doc, "store"), true))
        return api_refuse(e, 400, "store", NULL,
                          "a response in the background is stored, so that it can be read later; "
                          "leave store out, or set background to false");
    if (k->background) k->store = true;
    if (k->conversation.len > CONVERSATION_ID_MAX)
        return api_refuse(e, 400, "conversation", "string_above_max_length",
                          "Invalid 'conversation': the string is %zu long, longer than the maximum "
                          "of %d.",
                          k->conversation.len, CONVERSATION_ID_MAX);
    if (k->previous.len && k->conversation.len)
        return api_refuse(e, 400, "previous_response_id", "mutually_exclusive_parameters",
                          "Only one of 'previous_response_id' and 'conversation' may be given.");
    return ST_OK;
}

enum status responses_read_body(struct json *body, struct api_request *r, struct api_error *e) {
    r->doc = body;
    TRY(api_fields_read(EP_RESPONSES, body, r, e));
    TRY(check_keeping(r, e));
    TRY(read_choice(json_get(body, "tool_choice"), r, e));
    TRY(tools_read_flat(json_get(body, "tools"), "parameters", r, e));
    TRY(openai_read_effort(json_path(body, "reasoning.effort"), r));
    const struct json *include = json_get(body, "include");
    for (size_t i = 0; i < json_count(include); i++)
        if (str_is(json_str(json_at(include, i)), "message.output_text.logprobs"))
            r->logprobs = true;
    if (r->top_logprobs) r->logprobs = true;
    TRY(openai_check(body, r, e));
    return read_input(body, r, e);
}
