/* api/tool_values.c - which kinds of JSON a value in tags may be, and which it is. */
#include <string.h>

#include "api/tool_tags_int.h"
#include "base/json.h"
#include "base/map.h"

enum { SCHEMA_DEPTH_MAX = 8, POINTER_PART_BYTES = 256, SEARCH_STEPS_MAX = 1000 };

static const struct {
    const char *name;
    uint32_t kinds;
} type_list[] = {
    {"string", KIND_TEXT},  {"integer", KIND_INT}, {"number", KIND_INT | KIND_REAL},
    {"boolean", KIND_BOOL}, {"null", KIND_NULL},   {"object", KIND_MAP},
    {"array", KIND_LIST},
};

static uint32_t kinds_named(const struct json *type) {
    for (size_t i = 0; i < sizeof(type_list) / sizeof(type_list[0]); i++)
        if (str_is(json_str(type), type_list[i].name)) return type_list[i].kinds;
    uint32_t kinds = 0;
    for (size_t i = 0; i < json_count(type) && json_kind(type) == JS_LIST; i++)
        kinds |= json_kind(json_at(type, i)) == JS_TEXT ? kinds_named(json_at(type, i)) : 0;
    return kinds;
}

static uint32_t kind_of_value(const struct json *v) {
    static const uint32_t kinds[] = {
        [JS_NONE] = 0,         [JS_NULL] = KIND_NULL, [JS_BOOL] = KIND_BOOL, [JS_INT] = KIND_INT,
        [JS_REAL] = KIND_REAL, [JS_TEXT] = KIND_TEXT, [JS_LIST] = KIND_LIST, [JS_MAP] = KIND_MAP,
    };
    return kinds[json_kind(v)];
}

/* One step of a JSON pointer, which ends at a slash. */
static const struct json *pointer_step(const struct json *v, struct str *path) {
    char key[POINTER_PART_BYTES];
    size_t len = 0, at = 0;
    for (; at < path->len && path->ptr[at] != '/'; at++) {
        const bool is_escape = path->ptr[at] == '~' && at + 1 < path->len;
        if (len + 1 == sizeof(key)) return NULL;
        if (is_escape) at++;
        key[len++] = !is_escape ? path->ptr[at] : path->ptr[at] == '1' ? '/' : '~';
    }
    key[len] = 0;
    *path = str_skip(*path, at + 1 < path->len ? at + 1 : path->len);
    return json_get(v, key);
}

const struct json *tool_resolve(const struct json *root, const struct json *schema) {
    for (int i = 0; i < SCHEMA_DEPTH_MAX; i++) {
        struct str ref = json_str(json_get(schema, "$ref"));
        if (!str_starts(ref, STR("#/"))) return schema;
        ref = str_skip(ref, 2);
        schema = root;
        while (ref.len && schema) schema = pointer_step(schema, &ref);
    }
    return NULL;
}

/* References may lead to the same schemas again and again: past the last step any kind may be. */
struct kinds_search {
    const struct json *root;
    uint32_t steps_left;
};

static uint32_t kinds_at_depth(struct kinds_search *s, const struct json *schema, int depth);

/* The kinds of each schema of a list: of any or of all of them. */
static uint32_t kinds_of_list(struct kinds_search *s, const struct json *list, bool all,
                              int depth) {
    uint32_t kinds = all ? KIND_ANY : 0;
    for (size_t i = 0; i < json_count(list) && s->steps_left > 0; i++) {
        const uint32_t own = kinds_at_depth(s, json_at(list, i), depth);
        kinds = all ? kinds & own : kinds | own;
    }
    return s->steps_left > 0 ? kinds : KIND_ANY;
}

static uint32_t kinds_at_depth(struct kinds_search *s, const struct json *schema, int depth) {
    s->steps_left--;
    schema = tool_resolve(s->root, schema);
    uint32_t kinds = kinds_named(json_get(schema, "type"));
    if (kinds || depth == SCHEMA_DEPTH_MAX) return kinds ? kinds : KIND_ANY;
    kinds = kind_of_value(json_get(schema, "const"));
    const struct json *values = json_get(schema, "enum");
    for (size_t i = 0; i < json_count(values); i++) kinds |= kind_of_value(json_at(values, i));
    if (kinds) return kinds;
    static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
    for (size_t i = 0; i < 3 && !kinds; i++) {
        const struct json *list = json_get(schema, lists[i]);
        if (list) kinds = kinds_of_list(s, list, i == 2, depth + 1);
    }
    return kinds ? kinds : KIND_ANY;
}

uint32_t tool_kinds_of(const struct json *root, const struct json *schema) {
    struct kinds_search search = {.root = root, .steps_left = SEARCH_STEPS_MAX};
    return kinds_at_depth(&search, schema, 0);
}

uint32_t tool_kinds_at(char first) {
    if (first == '-' || (first >= '0' && first <= '9')) return KIND_INT | KIND_REAL;
    if (first == '{') return KIND_MAP;
    if (first == '[') return KIND_LIST;
    if (first == 't' || first == 'f' || first == 'T' || first == 'F') return KIND_BOOL;
    return first == 'n' || first == 'N' ? KIND_NULL : 0;
}

bool tool_is_json_of(struct str text, uint32_t kinds) {
    static const struct json_limits limits = {
        .bytes_max = TOOL_VALUE_BYTES_MAX, .depth_max = 64, .values_max = 1 << 20};
    struct json *v = NULL;
    if (json_parse(text, &limits, &v, NULL) != ST_OK) return false;
    uint32_t kind = kind_of_value(v);
    /* 5.0 and numbers past int64_t are whole numbers too. */
    if (kind == KIND_REAL) {
        const double x = json_num(v, 0);
        const bool is_whole = x - __builtin_floor(x) <= 0;
        if (is_whole) kind |= KIND_INT;
    }
    json_destroy(v);
    return (kind & kinds) != 0;
}

bool tool_required_are_listed(const struct json *schema) {
    const struct json *properties = json_get(schema, "properties");
    struct map *names = tool_names_of(json_get(schema, "required"));
    size_t listed = 0;
    uint32_t place;
    if (!names) return false;
    for (struct json_iter it = json_iter_first(properties); json_iter_ok(&it); json_iter_next(&it))
        listed += map_find(names, it.key, &place);
    const bool are_listed = listed == map_count(names);
    map_destroy(names);
    return are_listed;
}

struct map *tool_names_of(const struct json *list) {
    struct map *names = map_create(json_count(list));
    for (size_t i = 0; i < json_count(list) && names; i++) {
        if (map_put(names, json_str(json_at(list, i)), (uint32_t)i) == ST_OK) continue;
        map_destroy(names);
        names = NULL;
    }
    return names;
}
