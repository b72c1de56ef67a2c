/* grammar/schema_apart.c - schemas that no value satisfies both: by type, by value, by a property
 * that tells them apart, or by a property that one requires and the other does not allow. */
#include "grammar/schema_int.h"

enum { REF_STEPS_MAX = 20, DEPTH_MAX = 6, PARTS_MAX = 20 };

const struct json *ref_follow(struct schema *s, const struct json *schema) {
    for (uint32_t i = 0; i < REF_STEPS_MAX && json_get(schema, "$ref"); i++) {
        const struct json *target = NULL;
        if (json_count(schema) > 1 && s->draft > 7) break;
        struct grammar_refusal kept = *s->c->why;
        enum status st = ref_resolve(s, schema, "$ref", &target);
        *s->c->why = kept; /* the place that needs the reference refuses it */
        if (st != ST_OK) break;
        schema = target;
    }
    return schema;
}

static uint32_t types_allowed(struct schema *s, const struct json *schema) {
    uint32_t bits = TYPE_EVERY, listed = 0;
    if (json_get(schema, "type")) bits &= types_named(json_get(schema, "type"));
    const struct json *values = schema_values(s, schema);
    for (size_t i = 0; i < json_count(values); i++) listed |= types_of(json_at(values, i));
    return values ? bits & listed : bits;
}

static bool values_apart(struct schema *s, const struct json *a, const struct json *b) {
    const struct json *x = schema_values(s, a), *y = schema_values(s, b);
    if (!x || !y) return false;
    if (json_count(x) * json_count(y) > 100000) return false;
    for (size_t i = 0; i < json_count(x); i++)
        for (size_t k = 0; k < json_count(y); k++)
            if (json_same(json_at(x, i), json_at(y, k))) return false;
    return true;
}

static bool requires(const struct json *schema, struct str name) {
    const struct json *list = json_get(schema, "required");
    for (size_t i = 0; i < json_count(list); i++)
        if (str_eq(json_str(json_at(list, i)), name)) return true;
    return false;
}

static struct json *property(const struct json *schema, struct str name) {
    struct json *properties = json_get(schema, "properties");
    for (struct json_iter i = json_iter_first(properties); json_iter_ok(&i); json_iter_next(&i))
        if (str_eq(i.key, name)) return i.value;
    return NULL;
}

/* `b` allows only its own properties, and `a` requires another one. */
static bool lacks_required(const struct json *a, const struct json *b) {
    const struct json *more = json_get(b, "additionalProperties");
    const struct json *required = json_get(a, "required");
    if (json_kind(more) != JS_BOOL || json_bool(more, true) || json_get(b, "patternProperties"))
        return false;
    for (size_t i = 0; i < json_count(required); i++)
        if (!property(b, json_str(json_at(required, i)))) return true;
    return false;
}

static bool apart(struct schema *s, const struct json *a, const struct json *b, uint32_t depth);

/* A property that both have to have, with schemas that are apart. */
static bool told_by_property(struct schema *s, const struct json *a, const struct json *b,
                             uint32_t depth) {
    const struct json *properties = json_get(a, "properties");
    for (struct json_iter i = json_iter_first(properties); json_iter_ok(&i); json_iter_next(&i)) {
        bool one = requires(a, i.key), other = requires(b, i.key);
        const struct json *theirs = property(b, i.key);
        if ((one || other) && theirs && json_kind(theirs) == JS_BOOL && !json_bool(theirs, true) &&
            one)
            return true;
        if (one && other && theirs && apart(s, i.value, theirs, depth + 1)) return true;
    }
    return false;
}

/* Each alternative of `a` is apart from `b`, or one of the schemas that all hold is. */
static bool parts_apart(struct schema *s, const struct json *a, const struct json *b,
                        uint32_t depth) {
    static const char *const keys[] = {"anyOf", "oneOf", "allOf"};
    for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++) {
        const struct json *list = json_get(a, keys[k]);
        size_t count = 0;
        for (size_t i = 0; i < json_count(list) && i < PARTS_MAX; i++)
            count += apart(s, json_at(list, i), b, depth + 1);
        if (count > 0 && (k == 2 || count == json_count(list))) return true;
    }
    return false;
}

/* Recursion is bounded by DEPTH_MAX. */
static bool apart(struct schema *s, const struct json *a, const struct json *b, uint32_t depth) {
    if (depth > DEPTH_MAX) return false;
    a = ref_follow(s, a);
    b = ref_follow(s, b);
    if (json_kind(a) == JS_BOOL || json_kind(b) == JS_BOOL)
        return (json_kind(a) == JS_BOOL && !json_bool(a, true)) ||
               (json_kind(b) == JS_BOOL && !json_bool(b, true));
    if ((json_get(a, "$ref") || json_get(b, "$ref")) && s->draft <= 7) return false;
    uint32_t common = types_allowed(s, a) & types_allowed(s, b);
    if (common == 0 || values_apart(s, a, b)) return true;
    if (parts_apart(s, a, b, depth) || parts_apart(s, b, a, depth)) return true;
    if (common != TYPE_MAP) return false;
    return lacks_required(a, b) || lacks_required(b, a) || told_by_property(s, a, b, depth) ||
           told_by_property(s, b, a, depth);
}

bool schemas_apart(struct schema *s, const struct json *a, const struct json *b) {
    return apart(s, a, b, 0);
}
