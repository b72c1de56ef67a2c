/* grammar/schema_not.c - negation: the alternatives in which a schema does not hold.
 *
 * A schema fails if one of its keywords fails, so each keyword gives alternatives of its own. A
 * keyword speaks of one type of value only; for it to fail the value has that type.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/buf.h"
#include "grammar/schema_int.h"

enum status negation_give(const struct negation *n, const struct json *schema, enum term_kind kind,
                          uint32_t arg) {
    const struct term t = {schema, kind, arg};
    if (!schema && kind != TERM_TYPES) return ST_NOMEM;
    return n->each(n->s, &t, 1, n->ctx);
}

const struct json *negation_wrap(const struct negation *n, const struct json *schema) {
    return schema_wrap(n->s, n->is_implied ? "\x01not" : "not", schema);
}

/* {"type": type, key: value} */
static enum status give_limit(const struct negation *n, const char *type, const char *key,
                              const struct json *value) {
    struct json *made = schema_wrap(n->s, key, value);
    struct json *name = json_text_create(str_of(type));
    if (!made || json_set(made, STR("type"), name) != ST_OK) {
        n->s->c->g->budget.status = ST_NOMEM;
        return ST_NOMEM;
    }
    return negation_give(n, made, TERM_ALL, 0);
}

/* The limit `key` fails where `other` holds. In draft 4 exclusive ones are booleans beside it. */
static enum status give_number_limit(const struct negation *n, const char *key, const char *other) {
    const struct json *v = json_get(n->schema, key);
    if (!v || json_kind(v) == JS_BOOL) return ST_OK;
    if (key[0] == 'm') {
        const bool is_min = key[1] == 'i';
        const char *flag = is_min ? "exclusiveMinimum" : "exclusiveMaximum";
        if (json_bool(json_get(n->schema, flag), false)) other = is_min ? "maximum" : "minimum";
    }
    return give_limit(n, "number", other, v);
}

/* minX 5 fails where maxX 4 holds, and the other way round. */
static enum status give_count_limit(const struct negation *n, const char *type, const char *key,
                                    const char *other, int step) {
    uint32_t count = 0;
    char text[128];
    if (!json_get(n->schema, key)) return ST_OK;
    TRY(count_keyword(n->s, n->schema, key, &count));
    int64_t limit = (int64_t)count + step;
    if (limit < 0) return ST_OK;
    /* A number of properties can often not be counted: as for check_keys. */
    if (n->is_implied && limit > 1 && str_is(str_of(other), "minProperties")) return ST_OK;
    struct json *made = made_find(n->s, n->schema, key, STR("count"));
    if (made) return negation_give(n, made, TERM_ALL, 0);
    snprintf(text, sizeof(text), "{\"type\":\"%s\",\"%s\":%" PRId64 "}", type, other, limit);
    made = made_keep(n->s, n->schema, key, STR("count"), schema_make(n->s, text));
    return negation_give(n, made, TERM_ALL, 0);
}

static enum status give_scalars(const struct negation *n) {
    const struct json *s = n->schema;
    if (json_get(s, "type"))
        TRY(negation_give(n, NULL, TERM_TYPES, TYPE_EVERY & ~types_named(json_get(s, "type"))));
    if (json_get(s, "enum") || json_get(s, "const")) TRY(negation_give(n, s, TERM_NOT_VALUES, 0));
    if (json_get(s, "pattern")) TRY(negation_give(n, s, TERM_NOT_PATTERN, 0));
    if (json_get(s, "format")) TRY(negation_give(n, s, TERM_NOT_FORMAT, 0));
    if (json_get(s, "multipleOf")) TRY(negation_give(n, s, TERM_NOT_MULTIPLE, 0));
    TRY(give_number_limit(n, "minimum", "exclusiveMaximum"));
    TRY(give_number_limit(n, "maximum", "exclusiveMinimum"));
    TRY(give_number_limit(n, "exclusiveMinimum", "maximum"));
    TRY(give_number_limit(n, "exclusiveMaximum", "minimum"));
    TRY(give_count_limit(n, "string", "minLength", "maxLength", -1));
    TRY(give_count_limit(n, "string", "maxLength", "minLength", 1));
    TRY(give_count_limit(n, "array", "minItems", "maxItems", -1));
    TRY(give_count_limit(n, "array", "maxItems", "minItems", 1));
    TRY(give_count_limit(n, "object", "minProperties", "maxProperties", -1));
    return give_count_limit(n, "object", "maxProperties", "minProperties", 1);
}

static enum status give_one_of(const struct negation *n, const struct json *list) {
    struct conjunction none = {.count = 0};
    for (size_t i = 0; i < json_count(list); i++) {
        if (!conjunction_add(n->s, &none, (struct term){json_at(list, i), TERM_NOT, n->is_implied}))
            return ST_BAD;
        for (size_t k = i + 1; k < json_count(list); k++) {
            if (schemas_apart(n->s, json_at(list, i), json_at(list, k))) continue;
            const struct term two[] = {{json_at(list, i), TERM_ALL, 0},
                                       {json_at(list, k), TERM_ALL, 0}};
            TRY(n->each(n->s, two, 2, n->ctx));
        }
    }
    return n->each(n->s, none.terms, none.count, n->ctx);
}

static enum status give_applicators(const struct negation *n) {
    const struct json *list = json_get(n->schema, "allOf"), *target = NULL;
    for (size_t i = 0; i < json_count(list); i++)
        TRY(negation_give(n, json_at(list, i), TERM_NOT, n->is_implied));
    list = json_get(n->schema, "anyOf");
    struct conjunction none = {.count = 0};
    for (size_t i = 0; i < json_count(list); i++)
        if (!conjunction_add(n->s, &none, (struct term){json_at(list, i), TERM_NOT, n->is_implied}))
            return ST_BAD;
    if (list) TRY(n->each(n->s, none.terms, none.count, n->ctx));
    if (json_get(n->schema, "oneOf")) TRY(give_one_of(n, json_get(n->schema, "oneOf")));
    for (uint32_t i = 0; i < 2; i++) {
        const struct json *inner = json_get(n->schema, i ? "\x01not" : "not");
        if (inner) TRY(negation_give(n, inner, TERM_ALL, 0));
    }
    if (json_get(n->schema, "$ref")) {
        TRY(ref_resolve(n->s, n->schema, "$ref", &target));
        TRY(negation_give(n, target, TERM_NOT, n->is_implied));
    }
    const struct json *test = json_get(n->schema, "if");
    const struct json *yes = json_get(n->schema, "then"), *no = json_get(n->schema, "else");
    const struct term then[] = {{test, TERM_ALL, 0}, {yes, TERM_NOT, n->is_implied}};
    const struct term otherwise[] = {{test, TERM_NOT, 0}, {no, TERM_NOT, n->is_implied}};
    if (test && yes) TRY(n->each(n->s, then, 2, n->ctx));
    if (test && no) TRY(n->each(n->s, otherwise, 2, n->ctx));
    return ST_OK;
}

/* What cannot be negated. Of a schema that oneOf excludes this gives no alternative: values that
 * only such a keyword tells apart are left out. */
static enum status check_keys(const struct negation *n) {
    static const char *const keys[] = {"uniqueItems", "unevaluatedItems", "unevaluatedProperties",
                                       "$dynamicRef", "$recursiveRef"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && !n->is_implied; i++) {
        const struct json *v = json_get(n->schema, keys[i]);
        bool is_nothing = json_kind(v) == JS_BOOL && json_bool(v, false) == (i > 0);
        if (v && !is_nothing)
            return schema_refuse(n->s, n->schema, "not: %s cannot be negated exactly", keys[i]);
    }
    return ST_OK;
}

enum status negation_of(struct schema *s, struct term t, alternative_fn each, void *ctx) {
    const struct json *schema = t.schema;
    const struct negation n = {s, schema, t.arg, each, ctx};
    if (json_kind(schema) == JS_BOOL)
        return json_bool(schema, true) ? ST_OK : each(s, NULL, 0, ctx);
    if (json_kind(schema) != JS_MAP)
        return schema_refuse(s, schema, "a schema is an object or a boolean");
    if (json_get(schema, "$ref") && s->draft <= 7) return give_applicators(&n);
    TRY(check_keys(&n));
    TRY(give_scalars(&n));
    TRY(negate_parts(&n));
    return give_applicators(&n);
}
