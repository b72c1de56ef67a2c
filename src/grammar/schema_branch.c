/* grammar/schema_branch.c - anyOf, oneOf, if and dependencies as lists of alternatives.
 *
 * oneOf is anyOf where no value satisfies two of its schemas; a schema that may overlap with this
 * one is added as its negation.
 */
#include "grammar/schema_int.h"

static enum status any_of(struct schema *s, const struct json *schema, alternative_fn each,
                          void *ctx) {
    const struct json *list = json_get(schema, "anyOf");
    if (json_kind(list) != JS_LIST || json_count(list) == 0)
        return schema_refuse(s, schema, "anyOf: expected a list of at least one schema");
    for (size_t i = 0; i < json_count(list); i++) {
        const struct term t = {json_at(list, i), TERM_ALL, 0};
        TRY(each(s, &t, 1, ctx));
    }
    return ST_OK;
}

/* Whether an object has only the properties that the schema names. */
static bool is_closed(const struct json *schema) {
    const struct json *more = json_get(schema, "additionalProperties");
    return json_kind(more) == JS_BOOL && !json_bool(more, true) &&
           !json_get(schema, "patternProperties");
}

/* `other` for a value that satisfies `own`, which is closed: it need not exclude all properties
 * but its own, only those of `own`, and this can be negated. */
static const struct json *other_beside(struct schema *s, const struct json *own,
                                       const struct json *other) {
    own = ref_follow(s, own);
    const struct json *target = ref_follow(s, other);
    if (!is_closed(own) || !is_closed(target) || json_get(target, "$id")) return other;
    const uintptr_t address = (uintptr_t)own;
    const struct str name = {(const char *)&address, sizeof(address)};
    struct json *made = made_find(s, target, "beside", name);
    if (made) return made;
    made = schema_make(s, "{\"properties\":{}}");
    struct json *properties = json_get(made, "properties");
    enum status st = made ? ST_OK : ST_NOMEM;
    for (struct json_iter i = json_iter_first(target); json_iter_ok(&i); json_iter_next(&i))
        if (st == ST_OK && !str_eq(i.key, STR("additionalProperties")) &&
            !str_eq(i.key, STR("properties")))
            st = json_set(made, i.key, json_pin(i.value));
    struct json_iter i = json_iter_first(json_get(own, "properties"));
    for (; json_iter_ok(&i) && st == ST_OK; json_iter_next(&i))
        st = json_set(properties, i.key, json_bool_create(false));
    for (i = json_iter_first(json_get(target, "properties")); json_iter_ok(&i) && st == ST_OK;
         json_iter_next(&i))
        st = json_set(properties, i.key, json_pin(i.value));
    made = made_keep(s, target, "beside", name, st == ST_OK ? made : NULL);
    return made ? made : other;
}

static enum status one_of(struct schema *s, const struct json *schema, alternative_fn each,
                          void *ctx) {
    const struct json *list = json_get(schema, "oneOf");
    if (json_kind(list) != JS_LIST || json_count(list) == 0)
        return schema_refuse(s, schema, "oneOf: expected a list of at least one schema");
    for (size_t i = 0; i < json_count(list); i++) {
        struct conjunction all = {.count = 0};
        const struct json *own = json_at(list, i);
        conjunction_add(s, &all, (struct term){own, TERM_ALL, 0});
        for (size_t k = 0; k < json_count(list); k++) {
            const struct json *other = json_at(list, k);
            if (k == i || schemas_apart(s, own, other)) continue;
            const struct term excluded = {other_beside(s, own, other), TERM_NOT, 1};
            if (!conjunction_add(s, &all, excluded)) return ST_BAD;
        }
        TRY(each(s, all.terms, all.count, ctx));
    }
    return ST_OK;
}

static enum status if_then_else(struct schema *s, const struct json *schema, alternative_fn each,
                                void *ctx) {
    const struct json *test = json_get(schema, "if");
    const struct json *yes = json_get(schema, "then"), *no = json_get(schema, "else");
    const struct term both[] = {{test, TERM_ALL, 0}, {yes, TERM_ALL, 0}};
    const struct term neither[] = {{test, TERM_NOT, 0}, {no, TERM_ALL, 0}};
    TRY(each(s, both, yes ? 2 : 1, ctx));
    return each(s, neither, no ? 2 : 1, ctx);
}

/* The i-th member of a map. */
static struct json_iter member(const struct json *map, uint32_t i) {
    struct json_iter it = json_iter_first(map);
    for (; i > 0; i--) json_iter_next(&it);
    return it;
}

static const struct json *without_property(struct schema *s, const struct json *from,
                                           struct str name) {
    struct json *made = made_find(s, from, "absent", name);
    if (made) return made;
    made = schema_make(s, "{\"properties\":{}}");
    struct json *properties = json_get(made, "properties");
    enum status st = made ? json_set(properties, name, json_bool_create(false)) : ST_NOMEM;
    return made_keep(s, from, "absent", name, st == ST_OK ? made : NULL);
}

/* The property is absent, or what depends on it holds. */
static enum status dependent(struct schema *s, struct term t, alternative_fn each, void *ctx) {
    static const char *const names[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    struct json_iter it = member(json_get(t.schema, names[t.arg % 4]), t.arg / 4);
    const struct json *absent = without_property(s, t.schema, it.key), *wanted = it.value;
    if (!absent) return ST_NOMEM;
    if (json_kind(wanted) == JS_LIST) wanted = schema_wrap(s, "required", wanted);
    if (!wanted) return ST_NOMEM;
    const struct term one = {absent, TERM_ALL, 0}, other = {wanted, TERM_ALL, 0};
    TRY(each(s, &one, 1, ctx));
    return each(s, &other, 1, ctx);
}

enum status alternatives_of(struct schema *s, struct term t, alternative_fn each, void *ctx) {
    switch (t.kind) {
    case TERM_ANY_OF:
        return any_of(s, t.schema, each, ctx);
    case TERM_ONE_OF:
        return one_of(s, t.schema, each, ctx);
    case TERM_IF:
        return if_then_else(s, t.schema, each, ctx);
    case TERM_DEPENDENT:
        return dependent(s, t, each, ctx);
    case TERM_UNEVALUATED:
        return uneval_alternatives(s, t, each, ctx);
    default:
        return negation_of(s, t, each, ctx);
    }
}
