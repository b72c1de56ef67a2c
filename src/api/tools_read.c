/* api/tools_read.c - see api/tools_read.h for the contract. */
#include "api/tools_read.h"

#include "base/json.h"
#include "base/mem.h"

/* `schema_key`, in all of these: NULL if the tools have the form that chat templates read. */

static struct str tool_name(const char *schema_key, const struct json *tool) {
    return json_str(json_get(schema_key ? tool : json_get(tool, "function"), "name"));
}

static bool has_tool(const char *schema_key, const struct json *tools, struct str name) {
    for (size_t i = 0; i < json_count(tools); i++)
        if (str_eq(tool_name(schema_key, json_at(tools, i)), name)) return true;
    return false;
}

static enum status check_choice(const char *schema_key, const struct json *tools,
                                const struct api_request *r, struct api_error *e) {
    if (r->tool_choice == TOOLS_NAMED && !has_tool(schema_key, tools, r->tool_name))
        return api_refuse(
            e, 400, "tool_choice", "invalid_value",
            "Invalid 'tool_choice': there is no tool '%.*s' in 'tools'; name one of them.",
            STR_ARG(r->tool_name));
    if (r->tool_choice == TOOLS_REQUIRED && !json_count(tools))
        return api_refuse(e, 400, "tool_choice", NULL,
                          "'tool_choice' needs 'tools', and none are given.");
    return ST_OK;
}

/* --- the tools that the template shows -------------------------------------------------- */

/* {"type": "object", "properties": {}} */
static struct json *empty_schema(void) {
    struct json *schema = json_map_create();
    enum status st = json_set(schema, STR("type"), json_text_create(STR("object")));
    if (st == ST_OK) st = json_set(schema, STR("properties"), json_map_create());
    if (st == ST_OK) return schema;
    json_destroy(schema);
    return NULL;
}

static enum status fill_tool(struct json *out, const char *schema_key, const struct json *tool) {
    const struct json *description = json_get(tool, "description");
    const struct json *schema = json_get(tool, schema_key);
    bool has_schema = json_kind(schema) == JS_MAP;
    TRY(json_set(out, STR("type"), json_text_create(STR("function"))));
    struct json *function = json_map_create();
    TRY(json_set(out, STR("function"), function));
    TRY(json_set(function, STR("name"), json_pin(json_get(tool, "name"))));
    if (json_kind(description) == JS_TEXT)
        TRY(json_set(function, STR("description"), json_pin(description)));
    return json_set(function, STR("parameters"), has_schema ? json_pin(schema) : empty_schema());
}

static struct json *make_tool(const char *schema_key, const struct json *tool) {
    if (!schema_key) return json_pin(tool);
    struct json *made = json_map_create();
    if (fill_tool(made, schema_key, tool) == ST_OK) return made;
    json_destroy(made);
    return NULL;
}

static bool tool_is_strict(const char *schema_key, const struct json *tool) {
    return json_bool(json_get(schema_key ? tool : json_get(tool, "function"), "strict"), false);
}

static enum status add_tools(const char *schema_key, const struct json *tools,
                             struct api_request *r) {
    r->tools = json_list_create();
    r->tool_facts = mem_zalloc_array(json_count(tools) + 1, sizeof(r->tool_facts[0]));
    r->schema_key = schema_key ? schema_key : "function.parameters";
    if (!r->tools || !r->tool_facts) return ST_NOMEM;
    for (size_t i = 0; i < json_count(tools); i++) {
        const struct json *tool = json_at(tools, i);
        if (r->tool_choice == TOOLS_NAMED && !str_eq(tool_name(schema_key, tool), r->tool_name))
            continue;
        r->tool_facts[json_count(r->tools)] =
            (struct api_tool){(uint32_t)i, tool_is_strict(schema_key, tool)};
        TRY(json_push(r->tools, make_tool(schema_key, tool)));
    }
    return ST_OK;
}

static enum status keep_tools(const char *schema_key, const struct json *tools,
                              struct api_request *r, struct api_error *e) {
    if (r->tool_choice == TOOLS_NONE) return ST_OK;
    if (r->tool_choice == TOOLS_REQUIRED && json_count(tools) == 1) {
        r->tool_choice = TOOLS_NAMED;
        r->tool_name = tool_name(schema_key, json_at(tools, 0));
    }
    TRY(add_tools(schema_key, tools, r));
    if (json_weight(r->tools) <= API_TOOLS_BYTES_MAX) return ST_OK;
    return api_refuse(e, 400, "tools", "string_above_max_length",
                      "Invalid 'tools': together they have more than the maximum of %d bytes.",
                      API_TOOLS_BYTES_MAX);
}

/* --- entry points ----------------------------------------------------------------------- */

enum status tools_refuse_choice(struct str word, const char *named, struct api_error *e) {
    return api_refuse(e, 400, "tool_choice", "invalid_value",
                      "Invalid 'tool_choice': '%.*s' is not supported; supported: none, auto, "
                      "required, or %s to demand one function.",
                      (int)(word.len > 100 ? 100 : word.len), word.ptr, named);
}

static enum status read_choice_word(const struct json *tools, struct str word,
                                    struct api_request *r, struct api_error *e) {
    static const char *const words[] = {
        [TOOLS_NONE] = "none", [TOOLS_AUTO] = "auto", [TOOLS_REQUIRED] = "required"};
    for (uint32_t i = TOOLS_NONE; i <= TOOLS_REQUIRED; i++) {
        if (!str_is(word, words[i])) continue;
        r->tool_choice = (enum tool_choice)i;
        if (i == TOOLS_NONE || json_count(tools)) return ST_OK;
        return api_refuse(e, 400, "tool_choice", NULL,
                          "'tool_choice' needs 'tools', and none are given.");
    }
    return tools_refuse_choice(word, "{\"type\": \"function\", \"function\": {\"name\": ..}}", e);
}

enum status tools_read_openai(const struct json *tools, const struct json *choice,
                              struct api_request *r, struct api_error *e) {
    r->tool_choice = json_count(tools) ? TOOLS_AUTO : TOOLS_NONE;
    if (json_kind(choice) == JS_TEXT) TRY(read_choice_word(tools, json_str(choice), r, e));
    if (json_kind(choice) == JS_MAP) {
        r->tool_choice = TOOLS_NAMED;
        r->tool_name = json_str(json_get(json_get(choice, "function"), "name"));
        TRY(check_choice(NULL, tools, r, e));
    }
    return keep_tools(NULL, tools, r, e);
}

enum status tools_read_flat(const struct json *tools, const char *schema_key, struct api_request *r,
                            struct api_error *e) {
    TRY(check_choice(schema_key, tools, r, e));
    if (!json_count(tools)) r->tool_choice = TOOLS_NONE;
    return keep_tools(schema_key, tools, r, e);
}
