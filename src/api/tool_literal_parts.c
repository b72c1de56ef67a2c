/* api/tool_literal_parts.c - arguments that are not JSON as parts of a grammar (grammar/grammar.h).
 *
 * The arguments are the properties of the tool's schema: required ones first, each in the order of
 * the schema; optional ones may be left out. In Python's notation a value is JSON, which
 * tool_literal.c reads. A property keeps its own schema; $defs and definitions of the tool's schema
 * go with it, so that $ref to them holds.
 *
 * A schema that says more than names and values of properties (anyOf, patternProperties ..), or has
 * names that the notation cannot write, cannot be kept; unless it must be, such names are left out
 * and the rest is not checked. */
#include "api/tool_literal_int.h"
#include "base/json.h"
#include "base/map.h"

/* What a part is written from. */
struct part_writer {
    struct buf *out;
    const struct json *root; /* the tool's schema */
    struct str at;           /* its place */
    bool strict;
    const struct tool_notation *notation;
    uint32_t depth;
};

enum { NESTING_MAX = 8, AT_BYTES_MAX = 4096 };

static void put_text_part(struct buf *out, const char *text) {
    buf_put_text(out, "{\"text\":");
    buf_put_json_string(out, str_of(text));
    buf_put_char(out, '}');
}

static void put_refusal(const struct part_writer *w) {
    buf_put_text(w->out, "{\"refuse\":\"the model writes arguments by name; only objects with "
                         "'properties' and 'required' can be kept\",\"at\":");
    buf_put_json_string(w->out, w->at);
    buf_put_char(w->out, '}');
}

static void put_member(struct buf *out, struct str key, const struct json *value, bool *has_any) {
    if (*has_any) buf_put_char(out, ',');
    *has_any = true;
    buf_put_json_string(out, key);
    buf_put_char(out, ':');
    json_put(value, out);
}

/* The property's schema with the definitions that it may refer to. */
static void put_schema(const struct part_writer *w, const struct json *schema, struct str name) {
    static const char *const shared[] = {"$defs", "definitions"};
    struct buf *out = w->out;
    bool has_any = false;
    buf_put_text(out, "{\"schema\":");
    if (json_kind(schema) == JS_MAP) {
        buf_put_char(out, '{');
        for (struct json_iter it = json_iter_first(schema); json_iter_ok(&it); json_iter_next(&it))
            put_member(out, it.key, it.value, &has_any);
        for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++) {
            const struct json *defs = json_get(w->root, shared[i]);
            if (defs && !json_get(schema, shared[i]))
                put_member(out, str_of(shared[i]), defs, &has_any);
        }
        buf_put_char(out, '}');
    } else {
        json_put(schema, out);
    }
    struct buf at;
    buf_init(&at, AT_BYTES_MAX);
    buf_put_str(&at, w->at);
    buf_put_text(&at, "/properties/");
    buf_put_str(&at, name);
    buf_put_text(out, ",\"at\":");
    buf_put_json_string(out, buf_str(&at));
    buf_deinit(&at);
    if (!w->strict) buf_put_text(out, ",\"relax\":\"value\"");
    buf_put_char(out, '}');
}

/* The mark around strings, as a special token or as text. */
static void put_escape(const struct part_writer *w) {
    buf_put_text(w->out, "{\"any\":[{\"token\":");
    buf_put_json_string(w->out, str_of(w->notation->escape));
    buf_put_text(w->out, "},");
    put_text_part(w->out, w->notation->escape);
    buf_put_text(w->out, "]}");
}

static void put_escaped_text(const struct part_writer *w, struct str text) {
    struct buf *out = w->out;
    buf_put_text(out, "{\"sequence\":[");
    put_escape(w);
    buf_put_text(out, ",{\"text\":");
    buf_put_json_string(out, text);
    buf_put_text(out, "},");
    put_escape(w);
    buf_put_text(out, "]}");
}

static void put_escaped_string(const struct part_writer *w, const struct json *schema) {
    static const char *const limits[] = {"pattern", "format", "minLength", "maxLength"};
    struct buf *out = w->out;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (!w->strict || !json_get(schema, limits[i])) continue;
        put_refusal(w);
        return;
    }
    buf_put_text(out, "{\"sequence\":[");
    put_escape(w);
    buf_put_text(out, ",{\"free\":[");
    buf_put_json_string(out, str_of(w->notation->escape));
    buf_put_char(out, ',');
    buf_put_json_string(out, str_of(w->notation->end));
    buf_put_text(out, "]},");
    put_escape(w);
    buf_put_text(out, "]}");
}

/* A value that the schema lists. */
static void put_escaped_constant(const struct part_writer *w, const struct json *value) {
    enum json_kind kind = json_kind(value);
    if (kind == JS_TEXT) {
        put_escaped_text(w, json_str(value));
    } else if (kind == JS_LIST || kind == JS_MAP) {
        put_refusal(w);
    } else {
        struct buf text;
        buf_init(&text, AT_BYTES_MAX);
        json_put(value, &text);
        put_text_part(w->out, buf_text(&text));
        buf_deinit(&text);
    }
}

static void put_properties(struct part_writer *w, const struct json *schema);
static void put_escaped_value(struct part_writer *w, const struct json *schema, struct str name);

static void put_escaped_list(struct part_writer *w, const struct json *schema, struct str name) {
    const struct json *items = json_get(schema, "items");
    bool is_plain = items && !json_get(schema, "prefixItems") && !json_get(schema, "uniqueItems") &&
                    !json_get(schema, "contains");
    if (w->strict && !is_plain) {
        put_refusal(w);
        return;
    }
    buf_put_text(w->out, "{\"sequence\":[{\"text\":\"[\"},{\"repeat\":");
    put_escaped_value(w, items, name);
    buf_printf(w->out, ",\"min\":%lld", (long long)json_int(json_get(schema, "minItems"), 0));
    if (json_get(schema, "maxItems"))
        buf_printf(w->out, ",\"max\":%lld", (long long)json_int(json_get(schema, "maxItems"), 0));
    buf_put_text(w->out, ",\"between\":{\"text\":\",\"}},{\"text\":\"]\"}]}");
}

static void put_escaped_enum(struct part_writer *w, const struct json *values) {
    buf_put_text(w->out, "{\"any\":[");
    for (size_t i = 0; i < json_count(values); i++) {
        if (i) buf_put_char(w->out, ',');
        put_escaped_constant(w, json_at(values, i));
    }
    buf_put_text(w->out, "]}");
}

static void put_escaped_value(struct part_writer *w, const struct json *schema, struct str name) {
    const struct json *type = json_get(schema, "type"), *values = json_get(schema, "enum");
    const struct json *constant = json_get(schema, "const");
    struct str kind = json_str(type);
    if (constant) {
        put_escaped_constant(w, constant);
    } else if (values) {
        put_escaped_enum(w, values);
    } else if (str_is(kind, "number") || str_is(kind, "integer") || str_is(kind, "boolean") ||
               str_is(kind, "null")) {
        put_schema(w, schema, name);
    } else if (w->depth == NESTING_MAX || (w->strict && !kind.len)) {
        put_refusal(w);
    } else if (str_is(kind, "array")) {
        w->depth++;
        put_escaped_list(w, schema, name);
        w->depth--;
    } else if (str_is(kind, "object")) {
        w->depth++;
        buf_put_text(w->out, "{\"sequence\":[{\"text\":\"{\"},");
        put_properties(w, schema);
        buf_put_text(w->out, ",{\"text\":\"}\"}]}");
        w->depth--;
    } else {
        put_escaped_string(w, schema);
    }
}

static bool can_write(const struct part_writer *w, struct str name) {
    return tool_literal_is_name(w->notation, name);
}

/* name=value or name:value, after a comma unless it is the first. */
static void put_property(struct part_writer *w, struct str name, const struct json *schema,
                         bool is_first) {
    struct buf text;
    buf_init(&text, AT_BYTES_MAX);
    if (!is_first) buf_put_text(&text, w->notation->escape ? "," : ", ");
    buf_put_str(&text, name);
    buf_put_char(&text, w->notation->escape ? ':' : '=');
    buf_put_text(w->out, "{\"sequence\":[");
    put_text_part(w->out, buf_text(&text));
    buf_put_char(w->out, ',');
    if (w->notation->escape)
        put_escaped_value(w, schema, name);
    else
        put_schema(w, schema, name);
    buf_put_text(w->out, "]}");
    buf_deinit(&text);
}

/* What is written of an object's properties. */
struct members {
    const struct json *properties;
    struct map *required; /* names */
};

static bool is_required(const struct members *m, struct str name) {
    uint32_t place;
    return map_find(m->required, name, &place);
}

/* The required properties, then the others, each behind a comma. */
static void put_required(struct part_writer *w, const struct members *m) {
    buf_put_text(w->out, "{\"sequence\":[{\"text\":\"\"}");
    bool is_first = true;
    for (int pass = 0; pass < 2; pass++)
        for (struct json_iter it = json_iter_first(m->properties); json_iter_ok(&it);
             json_iter_next(&it)) {
            const bool is_optional = pass == 1;
            if (is_required(m, it.key) == is_optional || !can_write(w, it.key)) continue;
            if (buf_status(w->out) != ST_OK) return; /* too large: no more work */
            buf_put_text(w->out, is_optional ? ",{\"repeat\":" : ",");
            put_property(w, it.key, it.value, is_first);
            if (is_optional) buf_put_text(w->out, ",\"max\":1}");
            is_first = false;
        }
    buf_put_text(w->out, "]}");
}

/* No property is required: any of them may be the first. */
static void put_optional(struct part_writer *w, const struct members *m) {
    bool has_any = false;
    for (struct json_iter it = json_iter_first(m->properties); json_iter_ok(&it);
         json_iter_next(&it)) {
        if (!can_write(w, it.key)) continue;
        if (buf_status(w->out) != ST_OK) return;
        buf_put_text(w->out, has_any ? "," : "{\"some\":[");
        put_property(w, it.key, it.value, true);
        has_any = true;
    }
    if (has_any) buf_put_text(w->out, "],\"between\":");
    put_text_part(w->out, !has_any ? "" : w->notation->escape ? "," : ", ");
    if (has_any) buf_put_char(w->out, '}');
}

static bool has_required(const struct part_writer *w, const struct members *m) {
    for (struct json_iter it = json_iter_first(m->properties); json_iter_ok(&it);
         json_iter_next(&it))
        if (is_required(m, it.key) && can_write(w, it.key)) return true;
    return false;
}

static bool has_other_names(const struct part_writer *w, const struct json *schema) {
    const struct json *properties = json_get(schema, "properties");
    for (struct json_iter it = json_iter_first(properties); json_iter_ok(&it); json_iter_next(&it))
        if (!can_write(w, it.key)) return true;
    return false;
}

/* Whether the schema says only which properties there are. */
static bool is_plain_object(const struct json *schema) {
    static const char *const known[] = {
        "type",    "properties",  "required", "title",    "description", "$defs",
        "$schema", "definitions", "default",  "examples", "$id",         "additionalProperties"};
    for (struct json_iter it = json_iter_first(schema); json_iter_ok(&it); json_iter_next(&it)) {
        bool is_known = false;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            is_known = is_known || str_is(it.key, known[i]);
        if (!is_known) return false;
    }
    return true;
}

static void put_properties(struct part_writer *w, const struct json *schema) {
    if (w->strict && (!is_plain_object(schema) || has_other_names(w, schema) ||
                      !tool_required_are_listed(schema))) {
        put_refusal(w);
        return;
    }
    const struct members m = {.properties = json_get(schema, "properties"),
                              .required = tool_names_of(json_get(schema, "required"))};
    if (!m.required)
        w->out->status = ST_NOMEM;
    else if (has_required(w, &m))
        put_required(w, &m);
    else
        put_optional(w, &m);
    map_destroy(m.required);
}

/* Arguments of any name; their values are JSON, or texts, numbers and words between marks. */
static void put_any(const struct part_writer *w) {
    struct buf *out = w->out;
    buf_printf(out, "{\"repeat\":{\"sequence\":[{\"pattern\":\"[A-Za-z_][A-Za-z0-9_]{0,63}%c\"},",
               w->notation->assign);
    if (w->notation->escape) {
        buf_put_text(out, "{\"any\":[{\"schema\":{\"type\":[\"number\",\"boolean\",\"null\"]}},");
        put_escaped_string(w, NULL);
        buf_put_text(out, "]}]},\"between\":{\"text\":\",\"}}");
    } else {
        buf_put_text(out, "{\"schema\":true,\"spaced\":true}]},\"between\":{\"text\":\", \"}}");
    }
}

static void put_parts(const struct json *function, struct part_writer *w) {
    if (!function) {
        put_any(w);
        return;
    }
    w->root = json_get(function, "parameters");
    put_properties(w, w->root);
}

void tool_python_put_args(const struct json *function, struct str at, bool strict,
                          struct buf *out) {
    struct part_writer w = {
        .out = out, .at = at, .strict = strict, .notation = &tool_notation_python};
    put_parts(function, &w);
}

void tool_escaped_put_args(const struct json *function, struct str at, bool strict,
                           struct buf *out) {
    struct part_writer w = {
        .out = out, .at = at, .strict = strict, .notation = &tool_notation_escaped};
    put_parts(function, &w);
}

void tool_quoted_put_args(const struct json *function, struct str at, bool strict,
                          struct buf *out) {
    struct part_writer w = {
        .out = out, .at = at, .strict = strict, .notation = &tool_notation_quoted};
    put_parts(function, &w);
}
