/* api/tools_flat.c - see api/tools_flat.h for the contract. */
#include "api/tools_flat.h"

#include "api/api_int.h"
#include "base/buf.h"
#include "base/json.h"

static void put_tool(const struct json *tool, const char *schema, struct buf *out) {
    const struct json *description = json_get(tool, "description");
    const struct json *parameters = json_get(tool, schema);
    buf_put_text(out, "{\"type\":\"function\",\"function\":{\"name\":");
    json_put(json_get(tool, "name"), out);
    if (json_kind(description) == JS_TEXT) {
        buf_put_text(out, ",\"description\":");
        json_put(description, out);
    }
    buf_put_text(out, ",\"parameters\":");
    if (json_kind(parameters) == JS_MAP)
        json_put(parameters, out);
    else
        buf_put_text(out, "{\"type\":\"object\",\"properties\":{}}");
    buf_put_text(out, "}}");
}

static bool has_tool(const struct json *tools, struct str name) {
    for (size_t i = 0; i < json_count(tools); i++)
        if (str_eq(json_str(json_get(json_at(tools, i), "name")), name)) return true;
    return false;
}

static enum status check_choice(const struct json *tools, const struct api_request *r,
                                struct api_error *e) {
    if (r->tool_choice == TOOLS_NAMED && !has_tool(tools, r->tool_name))
        return api_refuse(e, 400, "tool_choice", "invalid_value",
                          "Invalid 'tool_choice': there is no tool '%.*s' in 'tools'.",
                          STR_ARG(r->tool_name));
    if (r->tool_choice == TOOLS_REQUIRED && !json_count(tools))
        return api_refuse(e, 400, "tool_choice", NULL,
                          "'tool_choice' is only possible where 'tools' are given.");
    return ST_OK;
}

enum status tools_read_flat(const struct json *tools, const char *schema, struct api_request *r,
                            struct api_error *e) {
    TRY(check_choice(tools, r, e));
    if (!json_count(tools)) r->tool_choice = TOOLS_NONE;
    if (r->tool_choice == TOOLS_NONE) return ST_OK;
    if (r->tool_choice == TOOLS_REQUIRED && json_count(tools) == 1) {
        r->tool_choice = TOOLS_NAMED;
        r->tool_name = json_str(json_get(json_at(tools, 0), "name"));
    }

    struct buf text;
    buf_init(&text, API_TOOLS_BYTES_MAX);
    for (size_t i = 0; i < json_count(tools); i++) {
        const struct json *tool = json_at(tools, i);
        bool is_open =
            r->tool_choice != TOOLS_NAMED || str_eq(json_str(json_get(tool, "name")), r->tool_name);
        if (is_open) buf_put_char(&text, text.len ? ',' : '[');
        if (is_open) put_tool(tool, schema, &text);
    }
    buf_put_char(&text, ']');
    return tools_keep(&text, r, e);
}
