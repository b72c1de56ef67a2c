/* grammar/schema_apart.c - schemas that no value satisfies both: by type, by value, by a property
 * that tells them apart, or by a property that one requires and the other does not allow. */
#include "grammar/schema_int.h"

enum { REF_STEPS_MAX = 20, DEPTH_MAX = 6, PARTS_MAX = 20, STEPS_MAX = 5000 };

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

/* Schemas that hold for the value besides the two that are compared. */
struct context {
    const struct json *schema;
    const struct context *more;
};

static bool requires(const struct json *schema, struct str name) {
    const struct json *list = json_get(schema, "required");
    for (size_t i = 0; json_kind(list) == JS_LIST && i < json_count(list); i++)
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

static bool is_required(const struct context *all, struct str name) {
    for (const struct context *c = all; c; c = c->more)
        if (requires(c->schema, name)) return true;
    return false;
}

/* Whether the value is an object by one of them. */
static bool is_object(const struct context *all) {
    for (const struct context *c = all; c; c = c->more)
        if (json_get(c->schema, "type") && types_named(json_get(c->schema, "type")) == TYPE_MAP)
            return true;
    return false;
}

static bool apart(struct schema *s, const struct json *a, const struct json *b,
                  const struct context *besides, uint32_t depth);

/* A property that a value of both has to have, with schemas that are apart. */
static bool told_by_property(struct schema *s, const struct json *a, const struct json *b,
                             const struct context *besides, uint32_t depth) {
    const struct json *properties = json_get(a, "properties");
    for (struct json_iter i = json_iter_first(properties); json_iter_ok(&i); json_iter_next(&i)) {
        const struct json *theirs = property(b, i.key);
        if (!theirs || !(requires(a, i.key) || requires(b, i.key) || is_required(besides, i.key)))
            continue;
        if (apart(s, i.value, theirs, NULL, depth + 1)) return true;
    }
    return false;
}

/* Each alternative of `a` is apart from `b`, or one of the schemas that all hold is. */
static bool parts_apart(struct schema *s, const struct json *a, const struct json *b,
                        const struct context *besides, uint32_t depth) {
    const struct context own = {a, besides};
    static const char *const keys[] = {"anyOf", "oneOf", "allOf"};
    for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++) {
        const struct json *list = json_get(a, keys[k]);
        size_t count = 0;
        for (size_t i = 0; i < json_count(list) && i < PARTS_MAX; i++)
            count += apart(s, json_at(list, i), b, &own, depth + 1);
        if (count > 0 && (k == 2 || count == json_count(list))) return true;
    }
    return false;
}

/* Recursion is bounded by DEPTH_MAX, the work by STEPS_MAX. */
static bool apart(struct schema *s, const struct json *a, const struct json *b,
                  const struct context *besides, uint32_t depth) {
    if (depth > DEPTH_MAX || s->apart_steps == 0) return false;
    s->apart_steps--;
    a = ref_follow(s, a);
    b = ref_follow(s, b);
    if (json_kind(a) == JS_BOOL || json_kind(b) == JS_BOOL)
        return (json_kind(a) == JS_BOOL && !json_bool(a, true)) ||
               (json_kind(b) == JS_BOOL && !json_bool(b, true));
    if ((json_get(a, "$ref") || json_get(b, "$ref")) && s->draft <= 7) return false;
    uint32_t common = types_allowed(s, a) & types_allowed(s, b);
    if (common == 0 || values_apart(s, a, b)) return true;
    if (parts_apart(s, a, b, besides, depth) || parts_apart(s, b, a, besides, depth)) return true;
    if (common & ~(uint32_t)TYPE_MAP && !is_object(besides)) return false;
    return lacks_required(a, b) || lacks_required(b, a) ||
           told_by_property(s, a, b, besides, depth);
}

bool schemas_apart(struct schema *s, const struct json *a, const struct json *b) {
    struct context around[CONJUNCTION_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; s->around && i < s->around->count; i++) {
        if (s->around->terms[i].kind != TERM_LOCAL) continue;
        around[count] =
            (struct context){s->around->terms[i].schema, count ? around + count - 1 : NULL};
        count++;
    }
    s->apart_steps = STEPS_MAX;
    return apart(s, a, b, count ? around + count - 1 : NULL, 0);
}
