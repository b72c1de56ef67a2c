/* api/tool_close.c - see api/tool_close.h for the contract. Recursion is bounded by the depth of a
 * request's JSON. */
#include "api/tool_close.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"

static bool is_one_of(struct str key, const char *const *names) {
    for (; *names; names++)
        if (str_is(key, *names)) return true;
    return false;
}

/* Members whose values are schemas by name. */
static bool holds_named(struct str key) {
    static const char *const names[] = {"properties", "$defs", "definitions", NULL};
    return is_one_of(key, names);
}

/* Members whose value is a schema. */
static bool holds_schema(struct str key) {
    static const char *const names[] = {"items", "additionalProperties", NULL};
    return is_one_of(key, names);
}

/* Members that do not contain schemas, and that closed objects satisfy as open ones do. */
static bool holds_none(struct str key) {
    static const char *const names[] = {
        "type",     "required", "title",    "description", "default",          "examples",
        "enum",     "const",    "format",   "pattern",     "minLength",        "maxLength",
        "minimum",  "maximum",  "minItems", "maxItems",    "exclusiveMinimum", "exclusiveMaximum",
        "$ref",     "$schema",  "nullable", "deprecated",  "multipleOf",       "maxProperties",
        "$comment", NULL};
    return is_one_of(key, names);
}

static bool is_simple(const struct json *schema);

/* Of a list or a map. */
static bool are_simple(const struct json *schemas) {
    for (size_t i = 0; json_kind(schemas) == JS_LIST && i < json_count(schemas); i++)
        if (!is_simple(json_at(schemas, i))) return false;
    for (struct json_iter it = json_iter_first(schemas); json_iter_ok(&it); json_iter_next(&it))
        if (!is_simple(it.value)) return false;
    return true;
}

static bool is_simple_member(struct str key, const struct json *value) {
    if (holds_named(key)) return json_kind(value) == JS_MAP && are_simple(value);
    if (str_is(key, "anyOf")) return json_kind(value) == JS_LIST && are_simple(value);
    return holds_schema(key) ? is_simple(value) : holds_none(key);
}

/* How many members say which objects there are. Of two, one may need what the other, if it were
 * closed, forbids. */
static int count_parts(const struct json *schema) {
    static const char *const names[] = {"$ref", "anyOf", "enum", "const", NULL};
    int parts = json_get(schema, "properties") || json_get(schema, "required");
    for (const char *const *name = names; *name; name++) parts += json_get(schema, *name) != NULL;
    return parts;
}

/* Whether every object in it may be closed. */
static bool is_simple(const struct json *schema) {
    if (json_kind(schema) == JS_BOOL) return true;
    if (json_kind(schema) != JS_MAP || count_parts(schema) > 1) return false;
    for (struct json_iter it = json_iter_first(schema); json_iter_ok(&it); json_iter_next(&it))
        if (!is_simple_member(it.key, it.value)) return false;
    return true;
}

static bool has_member(const struct json *map, struct str key) {
    for (struct json_iter it = json_iter_first(map); json_iter_ok(&it); json_iter_next(&it))
        if (str_eq(it.key, key)) return true;
    return false;
}

enum { COMPARED_MAX = 1 << 20 }; /* pairs of names; larger objects stay open */

/* An object that requires a name that it does not list stays open. */
static bool is_closed_here(const struct json *schema) {
    const struct json *properties = json_get(schema, "properties");
    const struct json *required = json_get(schema, "required");
    if (json_count(properties) == 0 || json_get(schema, "additionalProperties")) return false;
    if (json_count(properties) > COMPARED_MAX / (json_count(required) + 1)) return false;
    for (size_t i = 0; i < json_count(required); i++)
        if (!has_member(properties, json_str(json_at(required, i)))) return false;
    return true;
}

static void put_closed(const struct json *schema, struct buf *out);

static void put_list(const struct json *schemas, struct buf *out) {
    buf_put_char(out, '[');
    for (size_t i = 0; i < json_count(schemas); i++) {
        if (i > 0) buf_put_char(out, ',');
        put_closed(json_at(schemas, i), out);
    }
    buf_put_char(out, ']');
}

static void put_named(const struct json *schemas, struct buf *out) {
    const char *between = "";
    buf_put_char(out, '{');
    for (struct json_iter it = json_iter_first(schemas); json_iter_ok(&it); json_iter_next(&it)) {
        buf_put_text(out, between);
        between = ",";
        buf_put_json_string(out, it.key);
        buf_put_char(out, ':');
        put_closed(it.value, out);
    }
    buf_put_char(out, '}');
}

static void put_member(struct str key, const struct json *value, struct buf *out) {
    if (holds_named(key))
        put_named(value, out);
    else if (str_is(key, "anyOf"))
        put_list(value, out);
    else if (holds_schema(key))
        put_closed(value, out);
    else
        json_put(value, out);
}

static void put_closed(const struct json *schema, struct buf *out) {
    if (json_kind(schema) != JS_MAP) {
        json_put(schema, out);
        return;
    }
    const char *between = "";
    buf_put_char(out, '{');
    for (struct json_iter it = json_iter_first(schema); json_iter_ok(&it); json_iter_next(&it)) {
        buf_put_text(out, between);
        between = ",";
        buf_put_json_string(out, it.key);
        buf_put_char(out, ':');
        put_member(it.key, it.value, out);
    }
    if (is_closed_here(schema)) buf_printf(out, "%s\"additionalProperties\":false", between);
    buf_put_char(out, '}');
}

void tool_put_closed_schema(const struct json *schema, struct buf *out) {
    if (is_simple(schema))
        put_closed(schema, out);
    else
        json_put(schema, out);
}
