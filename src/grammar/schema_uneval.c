/* grammar/schema_uneval.c - unevaluatedProperties and unevaluatedItems.
 *
 * Which properties are evaluated is known without a value where only allOf and $ref stand beside
 * the keyword. It then is additionalProperties of a schema that names all of them.
 *
 * Beside alternatives it depends on those that hold. Each choice of them is an alternative of its
 * own: the chosen ones hold, and what they evaluate is named. If others hold too, more would be
 * evaluated, so nothing is allowed that should not be; and some choice names all that hold.
 */
#include <string.h>

#include "grammar/schema_int.h"

enum { DEPTH_MAX = 20, CHOICES_MAX = 12, COMBINATIONS_MAX = 500, SUBSETS_OF_MAX = 6 };

struct evaluated {
    struct json *made; /* {"properties": .., "patternProperties": ..}, or with "prefixItems" */
    bool everything;   /* additionalProperties or items of any of them */
    size_t prefix;     /* items that are evaluated by position */
    bool is_items;
    struct conjunction claims; /* that the chosen alternatives hold */
    uint32_t count;            /* of choices that were met */
    uint8_t taken[CHOICES_MAX], of[CHOICES_MAX];
};

static enum status gather(struct schema *s, struct evaluated *e, const struct json *schema,
                          uint32_t depth);

/* The next choice, one of `count`. */
static enum status choose(struct schema *s, struct evaluated *e, const struct json *schema,
                          size_t count, uint32_t *out) {
    if (e->count == CHOICES_MAX || count > (1 << SUBSETS_OF_MAX))
        return schema_refuse(s, schema,
                             "unevaluated keywords beside so many alternatives are not "
                             "supported");
    e->of[e->count] = (uint8_t)count;
    *out = e->taken[e->count++];
    return ST_OK;
}

static bool is_true(const struct json *v) { return json_kind(v) == JS_BOOL && json_bool(v, false); }

static enum status note_names(const struct evaluated *e, const struct json *schema,
                              const char *key) {
    struct json *to = json_get(e->made, key);
    const struct json *from = json_get(schema, key);
    for (struct json_iter i = json_iter_first(from); json_iter_ok(&i); json_iter_next(&i))
        TRY(json_set(to, i.key, json_bool_create(true)));
    return ST_OK;
}

static enum status note_items(struct schema *s, struct evaluated *e, const struct json *schema) {
    const struct json *items = json_get(schema, "items");
    const struct json *prefix = s->draft >= 2020 ? json_get(schema, "prefixItems") : items;
    if (json_kind(prefix) == JS_LIST && json_count(prefix) > e->prefix)
        e->prefix = json_count(prefix);
    if (items && json_kind(items) != JS_LIST) e->everything = true;
    if (json_kind(items) == JS_LIST && json_get(schema, "additionalItems")) e->everything = true;
    if (json_get(schema, "contains") && s->draft >= 2020)
        return schema_refuse(s, schema, "unevaluatedItems beside contains is not supported");
    return ST_OK;
}

/* The chosen alternative holds. Of one that is a reference it is not clear where in the order of
 * properties its own ones stand. */
static enum status claim(struct schema *s, struct evaluated *e, const struct json *schema,
                         uint32_t depth) {
    if (json_get(schema, "$ref"))
        return schema_refuse(s, schema,
                             "unevaluated keywords beside an alternative that is a "
                             "reference are not supported");
    if (!conjunction_add(s, &e->claims, (struct term){schema, TERM_ALL, 0})) return ST_BAD;
    return gather(s, e, schema, depth + 1);
}

static enum status gather_lists(struct schema *s, struct evaluated *e, const struct json *schema,
                                uint32_t depth) {
    const struct json *any = json_get(schema, "anyOf"), *one = json_get(schema, "oneOf");
    uint32_t taken = 0;
    if (json_count(any) > SUBSETS_OF_MAX)
        return schema_refuse(s, schema,
                             "unevaluated keywords beside an anyOf of more than %d "
                             "schemas are not supported",
                             SUBSETS_OF_MAX);
    if (json_count(any)) TRY(choose(s, e, schema, (UINT32_C(1) << json_count(any)) - 1, &taken));
    for (size_t i = 0; i < json_count(any); i++)
        if ((taken + 1) >> i & 1) TRY(claim(s, e, json_at(any, i), depth));
    if (json_count(one) == 0) return ST_OK;
    TRY(choose(s, e, schema, json_count(one), &taken));
    return claim(s, e, json_at(one, taken), depth);
}

static enum status gather_conditions(struct schema *s, struct evaluated *e,
                                     const struct json *schema, uint32_t depth) {
    const struct json *test = json_get(schema, "if"), *yes = json_get(schema, "then");
    const struct json *no = json_get(schema, "else"), *map = json_get(schema, "dependentSchemas");
    uint32_t taken = 0;
    if (test) TRY(choose(s, e, schema, 2, &taken));
    if (test && taken == 0) TRY(claim(s, e, test, depth));
    if (test && taken == 0 && yes) TRY(claim(s, e, yes, depth));
    if (test && taken == 1 && no) {
        if (!conjunction_add(s, &e->claims, (struct term){test, TERM_NOT, 0})) return ST_BAD;
        TRY(claim(s, e, no, depth));
    }
    for (struct json_iter i = json_iter_first(map); json_iter_ok(&i); json_iter_next(&i)) {
        TRY(choose(s, e, schema, 2, &taken));
        if (taken == 0) continue;
        struct json *made = made_find(s, schema, "requires", i.key);
        if (!made) {
            made = schema_make(s, "{\"type\":\"object\",\"required\":[]}");
            enum status st = json_push(json_get(made, "required"), json_text_create(i.key));
            made = made_keep(s, schema, "requires", i.key, st == ST_OK ? made : NULL);
        }
        if (!made) return ST_NOMEM;
        if (!conjunction_add(s, &e->claims, (struct term){made, TERM_ALL, 0})) return ST_BAD;
        TRY(claim(s, e, i.value, depth));
    }
    return ST_OK;
}

/* Recursion is bounded by DEPTH_MAX. */
static enum status gather(struct schema *s, struct evaluated *e, const struct json *schema,
                          uint32_t depth) {
    if (json_kind(schema) != JS_MAP) return ST_OK;
    if (depth > DEPTH_MAX)
        return schema_refuse(s, schema,
                             "unevaluated keywords over so many schemas are not supported");
    if (json_get(schema, "$dynamicRef"))
        return schema_refuse(s, schema, "$dynamicRef is not supported");
    if (e->is_items) {
        TRY(note_items(s, e, schema));
    } else {
        TRY(note_names(e, schema, "properties"));
        TRY(note_names(e, schema, "patternProperties"));
        if (json_get(schema, "additionalProperties")) e->everything = true;
    }
    if (depth && json_get(schema, e->is_items ? "unevaluatedItems" : "unevaluatedProperties"))
        e->everything = true;
    const struct json *all = json_get(schema, "allOf"), *target = NULL;
    if (json_get(schema, "$ref")) {
        TRY(ref_resolve(s, schema, "$ref", &target));
        TRY(gather(s, e, target, depth + 1));
    }
    for (size_t i = 0; i < json_count(all); i++) TRY(gather(s, e, json_at(all, i), depth + 1));
    TRY(gather_lists(s, e, schema, depth));
    return gather_conditions(s, e, schema, depth);
}

static const char *key_of(bool is_items) {
    return is_items ? "unevaluatedItems" : "unevaluatedProperties";
}

/* The schema for the choices in e->taken; e->claims are those under which it holds. */
static enum status make_schema(struct schema *s, const struct json *schema, struct evaluated *e,
                               const struct json **out) {
    const char *key = key_of(e->is_items);
    e->made = schema_make(s, "{\"properties\":{},\"patternProperties\":{},\"\\u0001skip\":[]}");
    e->everything = false;
    e->prefix = 0;
    e->count = 0;
    e->claims.count = 0;
    if (!e->made) return ST_NOMEM;
    TRY(gather(s, e, schema, 0));
    const struct str name = {(const char *)e->taken, e->count};
    *out = made_find(s, schema, key, name);
    if (*out) return ST_OK;
    for (size_t i = 0; i < e->prefix && !e->everything; i++)
        TRY(json_push(json_get(e->made, "\x01skip"), json_bool_create(true)));
    if (!e->everything)
        TRY(json_set(e->made, str_of(e->is_items ? "\x01rest" : "additionalProperties"),
                     json_pin(json_get(schema, key))));
    *out = made_keep(s, schema, key, name, e->made);
    return *out ? ST_OK : ST_NOMEM;
}

/* The next choices, the last one first; false: these were the last. */
static bool choose_next(struct evaluated *e) {
    for (uint32_t i = e->count; i-- > 0;) {
        if (++e->taken[i] < e->of[i]) return true;
        e->taken[i] = 0;
    }
    return false;
}

enum status uneval_alternatives(struct schema *s, struct term t, alternative_fn each, void *ctx) {
    struct evaluated e = {.is_items = t.arg};
    uint32_t count = 0;
    do {
        const struct json *made = NULL;
        if (count++ == COMBINATIONS_MAX)
            return schema_refuse(s, t.schema, "%s beside so many alternatives is not supported",
                                 key_of(t.arg));
        TRY(make_schema(s, t.schema, &e, &made));
        if (!conjunction_add(s, &e.claims, (struct term){made, TERM_LOCAL, 0})) return ST_BAD;
        TRY(each(s, e.claims.terms, e.claims.count, ctx));
    } while (choose_next(&e));
    return ST_OK;
}

static enum status add_made(struct schema *s, const struct json *schema, bool is_items,
                            struct conjunction *out) {
    const char *key = key_of(is_items);
    const struct json *rest = json_get(schema, key);
    if (!rest || is_true(rest) || s->draft < 2019) return ST_OK;
    const struct json *made = made_find(s, schema, key, STR(""));
    struct term t = {schema, TERM_UNEVALUATED, is_items};
    if (!made && !made_find(s, schema, key, STR("has choices"))) {
        struct evaluated e = {.is_items = is_items};
        TRY(make_schema(s, schema, &e, &made));
        if (e.count && !made_keep(s, schema, key, STR("has choices"), e.made)) return ST_NOMEM;
        if (e.count) made = NULL;
    }
    if (made) t = (struct term){made, TERM_LOCAL, 0};
    return conjunction_add(s, out, t) ? ST_OK : ST_BAD;
}

enum status uneval_terms(struct schema *s, const struct json *schema, struct conjunction *out) {
    TRY(add_made(s, schema, false, out));
    return add_made(s, schema, true, out);
}
