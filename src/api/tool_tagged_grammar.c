/* api/tool_tagged_grammar.c - the grammar of arguments in tags; see struct tool_shape.
 *
 * Each property in the order of the schema, those that are not required at most once. A string is
 * text without the closing tag, or one of the choices of its enum; other values are JSON of their
 * schema. What a schema says beyond that (properties that are not listed, limits of a string other
 * than its length and a pattern of the whole) cannot be kept between tags: it is refused if the
 * tool is strict and left out otherwise. */
#include <stdio.h>
#include <string.h>

#include "api/tool_tags_int.h"
#include "base/json.h"
#include "base/map.h"

#define REASON_TEXT                                                                                \
    "the model writes the text between tags; a format, an open pattern and alternatives cannot "   \
    "be kept there"
#define REASON_OBJECT                                                                              \
    "the model writes arguments between tags; only objects with 'properties' and 'required' can "  \
    "be kept"

struct writer {
    const struct tool_schema *tool;
    const struct tool_tags *tags;
    const struct json *parameters; /* the whole schema: $ref refers to places of it */
    struct str key;                /* of the property; empty: the object itself */
    struct buf *out;
};

static void put_part(struct writer *w, const char *kind, struct str text) {
    buf_printf(w->out, "{\"%s\":", kind);
    buf_put_json_string(w->out, text);
    buf_put_char(w->out, '}');
}

static void put_place(struct writer *w) {
    buf_put_text(w->out, ",\"at\":\"");
    buf_put_json_inner(w->out, w->tool->at);
    if (w->key.len) {
        buf_put_text(w->out, "/properties/");
        buf_put_json_inner(w->out, w->key);
    }
    buf_put_char(w->out, '"');
}

static void put_free(struct writer *w) {
    buf_put_text(w->out, "{\"free\":[");
    buf_put_json_string(w->out, str_of(w->tags->value_end[0]));
    buf_put_text(w->out, "]}");
}

static void put_refusal(struct writer *w, const char *reason) {
    buf_put_text(w->out, "{\"refuse\":");
    buf_put_json_string(w->out, str_of(reason));
    put_place(w);
    buf_put_char(w->out, '}');
}

/* Text that a regular expression matches as a whole, without the closing tag. */
static void put_pattern(struct writer *w, struct str pattern) {
    put_free(w);
    w->out->len--; /* its brace */
    buf_put_text(w->out, ",\"pattern\":");
    buf_put_json_string(w->out, pattern);
    put_place(w);
    buf_put_text(w->out, w->tool->strict ? "}" : ",\"relax\":true}");
}

/* Text that the schema limits in a way that cannot be kept. */
static void put_limited_text(struct writer *w) {
    if (w->tool->strict)
        put_refusal(w, REASON_TEXT);
    else
        put_free(w);
}

/* Whether a text between tags is read as this text. */
static bool is_read_as_text(const struct writer *w, struct str text, uint32_t kinds) {
    return !tool_template_has(text, str_of(w->tags->value_end[0])) &&
           !tool_is_json_of(str_trim(text), kinds & ~(uint32_t)KIND_TEXT);
}

/* One of the values; `list` may be a single text. */
static bool are_read_as_text(const struct writer *w, const struct json *list, uint32_t kinds) {
    bool all = json_kind(list) != JS_TEXT || is_read_as_text(w, json_str(list), kinds);
    for (size_t i = 0; i < json_count(list) && json_kind(list) == JS_LIST; i++) {
        const struct json *v = json_at(list, i);
        all = all && (json_kind(v) != JS_TEXT || is_read_as_text(w, json_str(v), kinds));
    }
    return all;
}

static void put_choices(struct writer *w, const struct json *list) {
    struct buf *out = w->out;
    buf_put_text(out, "{\"any\":[");
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *v = json_at(list, i);
        if (i) buf_put_char(out, ',');
        if (json_kind(v) == JS_TEXT) {
            put_part(w, "text", json_str(v));
            continue;
        }
        buf_put_text(out, "{\"schema\":{\"const\":");
        json_put(v, out);
        buf_put_text(out, "},\"spaced\":true}");
    }
    buf_put_text(out, "]}");
}

static bool is_one_of(struct str key, const char *const *list) {
    for (; *list; list++)
        if (str_is(key, *list)) return true;
    return false;
}

/* Whether a schema says nothing that limits a text, apart from the keys of `known`. */
static bool has_only(const struct json *schema, const char *const *known) {
    static const char *const notes[] = {"type",     "title",    "description", "default",
                                        "examples", "$comment", "deprecated",  NULL};
    for (struct json_iter it = json_iter_first(schema); json_iter_ok(&it); json_iter_next(&it))
        if (!is_one_of(it.key, notes) && !is_one_of(it.key, known)) return false;
    return true;
}

/* ^..$ without alternatives outside it: a match of the whole text. */
static bool is_anchored(struct str pattern) {
    const bool has_ends = pattern.len >= 2 && pattern.ptr[0] == '^' && str_ends(pattern, STR("$"));
    const bool is_escaped = pattern.len >= 2 && pattern.ptr[pattern.len - 2] == '\\';
    return has_ends && !is_escaped && !memchr(pattern.ptr, '|', pattern.len);
}

static void put_length(struct writer *w, const struct json *schema) {
    const int64_t min = json_int(json_get(schema, "minLength"), 0);
    const int64_t max = json_int(json_get(schema, "maxLength"), -1);
    char pattern[64];
    int len = max < 0 ? snprintf(pattern, sizeof(pattern), "[\\s\\S]{%lld,}", (long long)min)
                      : snprintf(pattern, sizeof(pattern), "[\\s\\S]{%lld,%lld}", (long long)min,
                                 (long long)max);
    put_pattern(w, (struct str){pattern, (size_t)len});
}

static void put_string(struct writer *w, const struct json *schema) {
    static const char *const none[] = {NULL};
    static const char *const lengths[] = {"minLength", "maxLength", NULL};
    static const char *const patterns[] = {"pattern", NULL};
    const struct str pattern = json_str(json_get(schema, "pattern"));
    if (has_only(schema, none))
        put_free(w);
    else if (has_only(schema, lengths))
        put_length(w, schema);
    else if (has_only(schema, patterns) && is_anchored(pattern))
        put_pattern(w, pattern);
    else
        put_limited_text(w);
}

/* A string or something else: any text, if each of them is of any value. */
static void put_mixed(struct writer *w, const struct json *schema) {
    static const char *const none[] = {NULL};
    static const char *const lists[] = {"anyOf", "oneOf", NULL};
    bool is_plain = has_only(schema, lists);
    for (size_t n = 0; n < 2; n++) {
        const struct json *list = json_get(schema, lists[n]);
        for (size_t i = 0; i < json_count(list); i++)
            is_plain = is_plain && has_only(json_at(list, i), none);
    }
    if (is_plain)
        put_free(w);
    else
        put_limited_text(w);
}

/* The schema of the property with what its references need. */
static void put_schema(struct writer *w, const struct json *schema) {
    static const char *const shared[] = {"$defs", "definitions", "$schema", NULL};
    struct buf *out = w->out;
    buf_put_text(out, "{\"schema\":{");
    for (struct json_iter it = json_iter_first(schema); json_iter_ok(&it); json_iter_next(&it)) {
        if (is_one_of(it.key, shared)) continue;
        buf_put_json_string(out, it.key);
        buf_put_char(out, ':');
        json_put(it.value, out);
        buf_put_char(out, ',');
    }
    for (const char *const *key = shared; *key; key++) {
        const struct json *root = json_get(w->parameters, *key);
        const struct json *own = json_get(schema, *key);
        if (!root && !own) continue;
        buf_printf(out, "\"%s\":", *key);
        json_put(own ? own : root, out);
        buf_put_char(out, ',');
    }
    if (out->len && out->ptr[out->len - 1] == ',') out->len--;
    buf_put_text(out, "},\"spaced\":true");
    put_place(w);
    buf_put_text(out, w->tool->strict ? "}" : ",\"relax\":\"value\"}");
}

static void put_value(struct writer *w, const struct json *schema) {
    const uint32_t kinds = tool_kinds_of(w->parameters, schema);
    const struct json *own = tool_resolve(w->parameters, schema);
    const bool is_exact = are_read_as_text(w, json_get(own, "enum"), kinds) &&
                          are_read_as_text(w, json_get(own, "const"), kinds);
    if (!(kinds & KIND_TEXT))
        put_schema(w, schema);
    else if (w->tool->strict && !is_exact)
        put_refusal(w, REASON_TEXT);
    else if (json_kind(json_get(own, "enum")) == JS_LIST)
        put_choices(w, json_get(own, "enum"));
    else if (json_kind(json_get(own, "const")) == JS_TEXT)
        put_part(w, "text", json_str(json_get(own, "const")));
    else if (kinds == KIND_TEXT)
        put_string(w, own);
    else
        put_mixed(w, own);
}

static void put_member(struct writer *w, const struct json *schema, bool is_required) {
    struct buf *out = w->out;
    if (!is_required) buf_put_text(out, "{\"repeat\":");
    buf_put_text(out, "{\"sequence\":[{\"text\":\"");
    buf_put_json_inner(out, str_of(w->tags->before_key));
    buf_put_json_inner(out, w->key);
    buf_put_json_inner(out, str_of(w->tags->after_key));
    buf_put_text(out, "\"},");
    put_value(w, schema);
    buf_put_char(out, ',');
    put_part(w, "text", str_of(w->tags->after_value));
    buf_put_text(out, is_required ? "]}" : "]},\"max\":1}");
}

/* Members of any name and value, for an object whose properties are not listed. */
static void put_any_members(struct writer *w) {
    struct buf *out = w->out;
    buf_put_text(out, "{\"repeat\":{\"sequence\":[");
    put_part(w, "text", str_of(w->tags->before_key));
    buf_put_text(out, ",{\"pattern\":\"[A-Za-z0-9_.-]{1,64}\"},");
    put_part(w, "text", str_of(w->tags->after_key));
    buf_put_char(out, ',');
    put_free(w);
    buf_put_char(out, ',');
    put_part(w, "text", str_of(w->tags->after_value));
    buf_put_text(out, "]}}");
}

/* A key between tags ends at the first byte of what follows it. */
static bool can_write(struct str key) {
    bool is_fit = key.len > 0 && key.len < TOOL_TAIL_BYTES_MAX;
    for (size_t i = 0; i < key.len && is_fit; i++)
        is_fit = key.ptr[i] && !strchr("<>\n", key.ptr[i]);
    return is_fit;
}

/* Whether members in tags can be all that the object's schema says. */
static bool is_exact(const struct json *root) {
    const struct json *others = json_get(root, "additionalProperties");
    const struct json *properties = json_get(root, "properties");
    bool all = properties || json_kind(others) != JS_MAP;
    for (struct json_iter it = json_iter_first(properties); json_iter_ok(&it); json_iter_next(&it))
        all = all && can_write(it.key);
    return all && tool_required_are_listed(root);
}

static void put_members(struct writer *w, const struct json *properties,
                        const struct json *required) {
    bool is_first = true;
    uint32_t place;
    struct map *names = tool_names_of(required);
    if (!names) {
        w->out->status = ST_NOMEM;
        return;
    }
    buf_put_text(w->out, "{\"sequence\":[");
    for (struct json_iter it = json_iter_first(properties);
         json_iter_ok(&it) && buf_status(w->out) == ST_OK; json_iter_next(&it)) {
        if (!can_write(it.key)) continue;
        if (!is_first) buf_put_char(w->out, ',');
        is_first = false;
        w->key = it.key;
        put_member(w, it.value, map_find(names, it.key, &place));
    }
    if (is_first) put_part(w, "text", (struct str){"", 0});
    buf_put_text(w->out, "]}");
    map_destroy(names);
}

void tool_tagged_put_args(const struct tool_schema *s, const struct tool_tags *t, struct buf *out) {
    static const char *const known[] = {"properties", "required", "additionalProperties",
                                        "$defs",      "$schema",  "definitions",
                                        "strict",     "$id",      NULL};
    const struct json *parameters = json_get(s->function, "parameters");
    const struct json *root = tool_resolve(parameters, parameters);
    struct writer w = {.tool = s, .tags = t, .parameters = parameters, .out = out};
    const struct json *properties = json_get(root, "properties");
    const bool is_open =
        root && !properties && json_bool(json_get(root, "additionalProperties"), true);
    if (!s->function)
        put_any_members(&w);
    else if (s->strict && (!has_only(root, known) || !is_exact(root)))
        put_refusal(&w, REASON_OBJECT);
    else if (is_open && json_count(root) > 0)
        put_any_members(&w);
    else
        put_members(&w, properties, json_get(root, "required"));
}
