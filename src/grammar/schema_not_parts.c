/* grammar/schema_not_parts.c - negation of keywords about the parts of arrays and objects.
 *
 * Such a keyword fails where a part exists for which a schema does not hold. A property that is not
 * described can be repeated, and readers take the last one; so where such a property has to exist,
 * it is the last of the object.
 */
#include <stdio.h>

#include "base/buf.h"
#include "grammar/schema_int.h"

static enum status no_memory(const struct negation *n) {
    struct budget *b = &n->s->c->g->budget;
    if (b->status == ST_OK) b->status = ST_NOMEM;
    return b->status;
}

/* An object with the property `key` and a value for which `schema` holds; NULL: without it. */
static const struct json *property_schema(const struct negation *n, struct str key,
                                          const struct json *schema, const char *tag) {
    struct json *made = made_find(n->s, n->schema, tag, key);
    if (made) return made;
    made = schema_make(n->s, schema ? "{\"type\":\"object\",\"properties\":{},\"required\":[]}"
                                    : "{\"type\":\"object\",\"properties\":{}}");
    struct json *properties = json_get(made, "properties"), *required = json_get(made, "required");
    enum status st = made ? ST_OK : ST_NOMEM;
    if (st == ST_OK)
        st = json_set(properties, key, schema ? json_pin(schema) : json_bool_create(false));
    if (st == ST_OK && schema) st = json_push(required, json_text_create(key));
    return made_keep(n->s, n->schema, tag, key, st == ST_OK ? made : NULL);
}

static const struct json *absent(const struct negation *n, struct str key) {
    return property_schema(n, key, NULL, "lacks");
}

static const struct json *present(const struct negation *n, struct str key) {
    struct json *any = made_find(n->s, NULL, "any", STR(""));
    if (!any) any = made_keep(n->s, NULL, "any", STR(""), schema_make(n->s, "{}"));
    return any ? property_schema(n, key, any, "present") : NULL;
}

/* A made schema is known by the schema that is negated, by what it is for and by a name. */
static const char *tag_of(const struct negation *n, const char *explicit_tag, const char *implied) {
    return n->is_implied ? implied : explicit_tag;
}

/* An object with a property that `kind` says more about, and for which `value` holds. */
static enum status give_property(const struct negation *n, const char *kind, struct str pattern,
                                 const struct json *value) {
    struct buf name;
    buf_init(&name, 1 << 20);
    buf_printf(&name, "%s %.*s", kind, STR_ARG(pattern));
    const char *tag = tag_of(n, "has", "has implied");
    struct json *made = NULL;
    enum status st = value ? buf_status(&name) : ST_NOMEM;
    if (st == ST_OK) made = made_find(n->s, n->schema, tag, buf_str(&name));
    if (st == ST_OK && !made) {
        made = schema_make(n->s, "{\"type\":\"object\",\"\\u0001has\":{}}");
        struct json *has = json_get(made, "\x01has");
        st = made ? json_set(has, STR("kind"), json_text_create(str_of(kind))) : ST_NOMEM;
        if (st == ST_OK) st = json_set(has, STR("pattern"), json_text_create(pattern));
        if (st == ST_OK) st = json_set(has, STR("value"), json_pin(value));
        if (st == ST_OK) st = json_set(has, STR("base"), json_pin(n->schema));
        made = made_keep(n->s, n->schema, tag, buf_str(&name), st == ST_OK ? made : NULL);
    }
    buf_deinit(&name);
    return made ? negation_give(n, made, TERM_ALL, 0) : no_memory(n);
}

/* An array with an item from place `from` on for which `value` holds. */
static enum status give_item(const struct negation *n, size_t from, const struct json *value) {
    char text[80];
    const char *tag = tag_of(n, "has", "has implied");
    struct json *made = made_find(n->s, n->schema, tag, STR(""));
    if (made) return negation_give(n, made, TERM_ALL, 0);
    snprintf(text, sizeof(text), "{\"type\":\"array\",\"\\u0001has\":{\"from\":%zu}}", from);
    made = value ? schema_make(n->s, text) : NULL;
    enum status st = json_set(json_get(made, "\x01has"), STR("value"), json_pin(value));
    made = made_keep(n->s, n->schema, tag, STR(""), st == ST_OK ? made : NULL);
    return made ? negation_give(n, made, TERM_ALL, 0) : no_memory(n);
}

static enum status negate_required(const struct negation *n) {
    const struct json *required = json_get(n->schema, "required");
    for (size_t i = 0; json_kind(required) == JS_LIST && i < json_count(required); i++)
        TRY(negation_give(n, absent(n, json_str(json_at(required, i))), TERM_ALL, 0));
    const struct json *properties = json_get(n->schema, "properties");
    const char *tag = tag_of(n, "fails", "fails implied");
    for (struct json_iter i = json_iter_first(properties); json_iter_ok(&i); json_iter_next(&i)) {
        const struct json *value = negation_wrap(n, i.value);
        if (!value) return no_memory(n);
        TRY(negation_give(n, property_schema(n, i.key, value, tag), TERM_ALL, 0));
    }
    return ST_OK;
}

static bool is_true(const struct json *v) { return json_kind(v) == JS_BOOL && json_bool(v, false); }

static enum status negate_others(const struct negation *n) {
    const struct json *more = json_get(n->schema, "additionalProperties");
    const struct json *names = n->s->draft > 4 ? json_get(n->schema, "propertyNames") : NULL;
    const struct json *patterns = json_get(n->schema, "patternProperties");
    if (more && !is_true(more)) TRY(give_property(n, "other", STR(""), negation_wrap(n, more)));
    if (names && !is_true(names)) TRY(give_property(n, "named", STR(""), names));
    for (struct json_iter i = json_iter_first(patterns); json_iter_ok(&i); json_iter_next(&i))
        TRY(give_property(n, "matching", i.key, negation_wrap(n, i.value)));
    return ST_OK;
}

/* The property `key` is there, and what depends on it (a schema, or names) does not hold. */
static enum status negate_dependent(const struct negation *n, struct str key,
                                    const struct json *wanted) {
    struct term both[2] = {{present(n, key), TERM_ALL, 0}, {wanted, TERM_NOT, n->is_implied}};
    if (!both[0].schema) return no_memory(n);
    if (json_kind(wanted) != JS_LIST) return n->each(n->s, both, 2, n->ctx);
    for (size_t i = 0; i < json_count(wanted); i++) {
        both[1] = (struct term){absent(n, json_str(json_at(wanted, i))), TERM_ALL, 0};
        if (!both[1].schema) return no_memory(n);
        TRY(n->each(n->s, both, 2, n->ctx));
    }
    return ST_OK;
}

static enum status negate_dependents(const struct negation *n) {
    static const char *const keys[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    for (size_t k = 0; k < 3; k++) {
        if ((k == 2) != (n->s->draft <= 7)) continue;
        struct json_iter i = json_iter_first(json_get(n->schema, keys[k]));
        for (; json_iter_ok(&i); json_iter_next(&i)) TRY(negate_dependent(n, i.key, i.value));
    }
    return ST_OK;
}

/* An array whose item number `at` fails. */
static enum status give_item_at(const struct negation *n, const struct json *item, size_t at) {
    char text[80];
    const char *tag = tag_of(n, "item", "item implied");
    const struct str name = {(const char *)&at, sizeof(at)};
    struct json *made = made_find(n->s, n->schema, tag, name);
    if (made) return negation_give(n, made, TERM_ALL, 0);
    const struct json *fails = negation_wrap(n, item);
    snprintf(text, sizeof(text), "{\"type\":\"array\",\"items\":[],\"minItems\":%zu}", at + 1);
    made = fails ? schema_make(n->s, text) : NULL;
    struct json *items = json_get(made, "items");
    enum status st = made ? ST_OK : ST_NOMEM;
    for (size_t i = 0; i < at && st == ST_OK; i++) st = json_push(items, json_bool_create(true));
    if (st == ST_OK) st = json_push(items, json_pin(fails));
    made = made_keep(n->s, n->schema, tag, name, st == ST_OK ? made : NULL);
    return made ? negation_give(n, made, TERM_ALL, 0) : no_memory(n);
}

static enum status negate_items(const struct negation *n) {
    const struct json *prefix = list_prefix(n->s, n->schema), *rest = list_rest(n->schema);
    const size_t count = json_count(prefix);
    for (size_t i = 0; i < count; i++) TRY(give_item_at(n, json_at(prefix, i), i));
    if (!rest || is_true(rest)) return ST_OK;
    return give_item(n, count, negation_wrap(n, rest));
}

/* {"type": "array", "contains": .., "minContains": low, "maxContains": high} */
static enum status give_contains(const struct negation *n, const char *tag, uint32_t low,
                                 uint32_t high) {
    char text[128];
    const struct json *contains = json_get(n->schema, "contains");
    struct json *made = made_find(n->s, n->schema, tag, STR(""));
    if (made) return negation_give(n, made, TERM_ALL, 0);
    snprintf(text, sizeof(text), "{\"type\":\"array\",\"minContains\":%u,\"maxContains\":%u}", low,
             high);
    made = schema_make(n->s, text);
    enum status st = made ? json_set(made, STR("contains"), json_pin(contains)) : ST_NOMEM;
    return negation_give(n, made_keep(n->s, n->schema, tag, STR(""), st == ST_OK ? made : NULL),
                         TERM_ALL, 0);
}

static enum status negate_contains(const struct negation *n) {
    const struct json *contains = json_get(n->schema, "contains");
    uint32_t low = 1, high = EXPR_NO_MAX;
    if (!contains || n->s->draft <= 4) return ST_OK;
    if (n->s->draft >= 2019) {
        TRY(count_keyword(n->s, n->schema, "minContains", &low));
        TRY(count_keyword(n->s, n->schema, "maxContains", &high));
    }
    if (low > 1) TRY(give_contains(n, "fewer", 0, low - 1));
    if (high != EXPR_NO_MAX) TRY(give_contains(n, "more", high + 1, EXPR_NO_MAX));
    if (low != 1) return ST_OK;
    const struct json *fails = negation_wrap(n, contains);
    struct json *made = fails ? schema_wrap(n->s, "items", fails) : NULL;
    if (!made || json_set(made, STR("type"), json_text_create(STR("array"))) != ST_OK)
        return no_memory(n);
    return negation_give(n, made, TERM_ALL, 0);
}

enum status negate_parts(const struct negation *n) {
    TRY(negate_required(n));
    TRY(negate_others(n));
    TRY(negate_dependents(n));
    TRY(negate_items(n));
    return negate_contains(n);
}
