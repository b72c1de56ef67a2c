/* api/ollama_read.c - the bodies of Ollama's /api/chat and /api/generate.
 *
 * Ollama's calls need no ids, but some chat templates require them: calls without one are numbered,
 * and a result without one gets that of its call: the first one of its tool's name, or the first
 * one, that has no result yet. Ids that match no call are accepted. A request without messages and
 * prompt only checks that the model is there; its prompt_count is 0. */
#include <stdio.h>

#include "api/body_readers.h"
#include "api/call_ids.h"
#include "api/fields.h"
#include "api/messages.h"
#include "api/tools_read.h"
#include "base/json.h"
#include "base/mem.h"

enum { ID_BYTES = 16 };

struct reader {
    struct message_list list;
    struct call_ids ids;
    uint32_t extra;  /* results without a call */
    bool was_result; /* the message before was one */
};

/* Nine letters and digits, as the strictest templates require. */
static struct str number_call(uint32_t number, char out[ID_BYTES]) {
    int len = snprintf(out, ID_BYTES, "call%05u", number % 100000);
    return (struct str){out, (size_t)len};
}

static struct str id_of(const struct reader *g, const struct call_entry *call,
                        char made[ID_BYTES]) {
    if (call->place.id.len) return call->place.id;
    return number_call(call_ids_number(&g->ids, call), made);
}

static enum status put_calls(struct reader *g, const struct json *calls) {
    for (size_t i = 0; i < json_count(calls); i++) {
        const struct json *call = json_at(calls, i), *function = json_get(call, "function");
        const struct call_place place = {.id = json_str(json_get(call, "id")),
                                         .name = json_str(json_get(function, "name"))};
        char made[ID_BYTES];
        TRY(call_ids_add(&g->ids, &place));
        message_put_call(&g->list, id_of(g, &g->ids.entries[g->ids.count - 1], made), place.name,
                         json_get(function, "arguments"));
    }
    return ST_OK;
}

static void put_result_members(struct reader *g, const struct json *message) {
    struct str name = json_str(json_get(message, "tool_name"));
    struct str id = json_str(json_get(message, "tool_call_id"));
    const struct call_entry *call = call_ids_take(&g->ids, id, name);
    char made[ID_BYTES];
    if (!id.len && call) id = id_of(g, call, made);
    if (!id.len) id = number_call(g->ids.count + g->extra++, made);
    if (!name.len && call) name = call->place.name;
    if (name.len) message_put_member(&g->list, "name", name);
    message_put_member(&g->list, "tool_call_id", id);
}

static const char *role_of(struct str role) {
    if (str_is(role, "assistant")) return "assistant";
    if (str_is(role, "system")) return "system";
    return str_is(role, "tool") ? "tool" : "user";
}

static enum status read_message(struct reader *g, const struct json *message) {
    const char *role = role_of(json_str(json_get(message, "role")));
    struct str thinking = json_str(json_get(message, "thinking"));
    bool is_assistant = str_is(str_of(role), "assistant");
    const bool is_result = str_is(str_of(role), "tool");
    if (str_is(str_of(role), "user") || (is_assistant && g->was_result))
        call_ids_begin_turn(&g->ids);
    g->was_result = is_result;
    message_begin(&g->list, role);
    if (is_result) put_result_members(g, message);
    if (is_assistant && thinking.len) message_put_member(&g->list, "reasoning_content", thinking);
    message_put_content(&g->list, json_get(message, "content"));
    if (is_assistant) TRY(put_calls(g, json_get(message, "tool_calls")));
    message_end(&g->list);
    return ST_OK;
}

static enum status read_messages(const struct json *messages, struct api_request *r) {
    struct reader g = {.extra = 0};
    enum status st = ST_OK;
    message_list_init(&g.list);
    call_ids_init(&g.ids, NULL);
    for (size_t i = 0; i < json_count(messages) && st == ST_OK; i++)
        st = read_message(&g, json_at(messages, i));
    if (st == ST_OK) st = message_list_finish(&g.list, r);
    message_list_deinit(&g.list);
    call_ids_deinit(&g.ids);
    return st;
}

/* true, false, or an effort: "low", "medium", "high". Where it is false, Ollama looks for no
 * thoughts in the answer: those of a model that thinks nevertheless are text. */
static enum status read_think(const struct json *think, struct api_request *r) {
    if (json_kind(think) != JS_BOOL && json_kind(think) != JS_TEXT) return ST_OK;
    bool thinks = json_kind(think) == JS_TEXT || json_bool(think, false);
    r->thinking.in_text = !thinks;
    TRY(api_request_set_kwarg(r, STR("enable_thinking"), json_bool_create(thinks)));
    if (json_kind(think) != JS_TEXT) return ST_OK;
    return api_request_set_kwarg(r, STR("reasoning_effort"), json_pin(think));
}

/* Ollama's own defaults, then the fields of the body. */
static enum status read_fields(enum api_endpoint endpoint, struct json *body, struct api_request *r,
                               struct api_error *e) {
    r->doc = body;
    r->stream = true;
    r->sample.temperature = 0.8f;
    r->sample.top_k = 40;
    r->sample.top_p = 0.9f;
    r->sample.repetition_penalty = 1.1f;
    r->sample.penalty_window = 64;
    TRY(api_fields_read(endpoint, body, r, e));
    return read_think(json_get(body, "think"), r);
}

enum status ollama_chat_read_body(struct json *body, struct api_request *r, struct api_error *e) {
    TRY(read_fields(EP_OLLAMA_CHAT, body, r, e));
    TRY(tools_read_openai(json_get(body, "tools"), NULL, r, e));
    const struct json *messages = json_get(body, "messages");
    return json_count(messages) ? read_messages(messages, r) : ST_OK;
}

static enum status read_raw(struct str prompt, struct api_request *r) {
    r->prompts = mem_zalloc(sizeof(r->prompts[0]));
    if (!r->prompts) return ST_NOMEM;
    r->prompts[0].text = prompt;
    r->prompt_count = 1;
    return ST_OK;
}

enum status ollama_generate_read_body(struct json *body, struct api_request *r,
                                      struct api_error *e) {
    TRY(read_fields(EP_OLLAMA_GENERATE, body, r, e));
    const struct json *prompt = json_get(body, "prompt"), *system = json_get(body, "system");
    if (!json_str(prompt).len) return ST_OK;
    if (json_bool(json_get(body, "raw"), false)) return read_raw(json_str(prompt), r);

    struct message_list list;
    message_list_init(&list);
    if (json_str(system).len) {
        message_begin(&list, "system");
        message_put_content(&list, system);
        message_end(&list);
    }
    message_begin(&list, "user");
    message_put_content(&list, prompt);
    message_end(&list);
    enum status st = message_list_finish(&list, r);
    message_list_deinit(&list);
    return st;
}
