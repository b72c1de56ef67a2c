/* grammar/schema_scalar.c - numbers and strings: the texts that local terms allow. */
#include <string.h>

#include "base/buf.h"
#include "grammar/chars.h"
#include "grammar/decimal.h"
#include "grammar/regex.h"
#include "grammar/schema_int.h"

enum { LANGUAGE_DEPTH_MAX = 30 };

static enum status read_decimal(struct schema *s, const struct json *schema, const char *key,
                                struct decimal *out) {
    if (decimal_of(json_get(schema, key), out)) return ST_OK;
    return schema_refuse(s, schema, "%s: expected a number of at most %d digits", key,
                         DECIMAL_DIGITS_MAX);
}

/* One of minimum, maximum and their exclusive forms; draft 4 has these as booleans. Numbers next to
 * a limit of many digits have as many. */
static enum status apply_limit(struct schema *s, const struct json *schema, const char *key,
                               expr_id *e, uint32_t *digits) {
    struct decimal d;
    bool exclusive = key[0] == 'e';
    bool is_min = exclusive ? key[10] == 'i' : key[1] == 'i';
    const struct json *v = json_get(schema, key);
    if (!v || json_kind(v) == JS_BOOL) return ST_OK;
    TRY(read_decimal(s, schema, key, &d));
    const char *flag = is_min ? "exclusiveMinimum" : "exclusiveMaximum";
    if (!exclusive) exclusive = json_bool(json_get(schema, flag), false);
    expr_id within = is_min ? decimal_at_least(s->exprs, &d, exclusive)
                            : decimal_at_most(s->exprs, &d, exclusive);
    *e = expr_and(s->exprs, *e, within);
    if (strlen(d.whole) >= *digits || strlen(d.fraction) >= *digits) *digits = DECIMAL_DIGITS_MAX;
    return ST_OK;
}

static enum status multiple_of(struct schema *s, const struct json *schema, expr_id *out) {
    struct decimal d;
    TRY(read_decimal(s, schema, "multipleOf", &d));
    *out = decimal_multiple(s->exprs, &d);
    if (*out != EXPR_NONE) return ST_OK;
    return schema_refuse(s, schema,
                         "multipleOf: expected a positive number whose digits are at most 1000000");
}

static enum status apply_number(struct schema *s, const struct term *t, expr_id *e,
                                uint32_t *digits) {
    expr_id multiple = EXPR_ANY;
    if (t->kind == TERM_NOT_MULTIPLE) {
        TRY(multiple_of(s, t->schema, &multiple));
        *e = expr_and(s->exprs, *e, expr_not(s->exprs, multiple));
    }
    if (t->kind != TERM_LOCAL) return ST_OK;
    TRY(apply_limit(s, t->schema, "minimum", e, digits));
    TRY(apply_limit(s, t->schema, "maximum", e, digits));
    TRY(apply_limit(s, t->schema, "exclusiveMinimum", e, digits));
    TRY(apply_limit(s, t->schema, "exclusiveMaximum", e, digits));
    if (!json_get(t->schema, "multipleOf")) return ST_OK;
    TRY(multiple_of(s, t->schema, &multiple));
    *e = expr_and(s->exprs, *e, multiple);
    return ST_OK;
}

static void exclude_values(struct schema *s, const struct term *t, uint32_t types, expr_id *e) {
    const struct json *list = schema_values(s, t->schema);
    for (size_t i = 0; i < json_count(list); i++)
        if (types_of(json_at(list, i)) & types)
            *e = expr_and(s->exprs, *e, expr_not(s->exprs, value_expr(s, json_at(list, i))));
}

enum status number_expr(struct schema *s, const struct conjunction *what, uint32_t types,
                        expr_id *out) {
    uint32_t wanted = types & TYPE_NUMBER, digits = DECIMAL_DIGITS_USUAL;
    expr_id limits = EXPR_ANY;
    *out = EXPR_NONE;
    if (!wanted) return ST_OK;
    for (uint32_t i = 0; i < what->count; i++) {
        TRY(apply_number(s, &what->terms[i], &limits, &digits));
        if (what->terms[i].kind == TERM_NOT_VALUES)
            exclude_values(s, &what->terms[i], TYPE_NUMBER, &limits);
    }
    expr_id e = decimal_any(s->exprs, wanted & TYPE_INTEGER, wanted & TYPE_FRACTION, digits);
    *out = expr_and(s->exprs, e, limits);
    return ST_OK;
}

static enum status search(struct schema *s, const struct json *schema, struct str pattern,
                          expr_id *out) {
    struct err err = {0};
    enum status st = regex_search_json(s->exprs, pattern, out, &err);
    return st == ST_OK ? ST_OK : schema_refuse(s, schema, "%s", err.text);
}

static enum status format_expr(struct schema *s, const struct json *schema, expr_id *out) {
    struct str name = json_str(json_get(schema, "format"));
    const char *const *patterns = format_patterns(name);
    expr_id other = EXPR_NONE;
    *out = EXPR_ANY;
    if (!patterns) return ST_OK;
    if (!patterns[0])
        return schema_refuse(s, schema, "format \"%.*s\" is not supported", STR_ARG(name));
    TRY(search(s, schema, str_of(patterns[0]), out));
    if (patterns[1]) TRY(search(s, schema, str_of(patterns[1]), &other));
    *out = expr_or_all(s->exprs, (expr_id[]){*out, other, format_leap_seconds(s->exprs, name)}, 3);
    return ST_OK;
}

/* pattern and format of one schema. */
static enum status apply_patterns(struct schema *s, const struct term *t, expr_id *e) {
    expr_id found = EXPR_ANY;
    const struct json *pattern = json_get(t->schema, "pattern");
    if (pattern && json_kind(pattern) != JS_TEXT)
        return schema_refuse(s, t->schema, "pattern: expected a text");
    if (pattern && (t->kind == TERM_LOCAL || t->kind == TERM_NOT_PATTERN)) {
        TRY(search(s, t->schema, json_str(pattern), &found));
        if (t->kind == TERM_NOT_PATTERN) found = expr_not(s->exprs, found);
        *e = expr_and(s->exprs, *e, found);
    }
    if (!json_get(t->schema, "format")) return ST_OK;
    if (t->kind != TERM_LOCAL && t->kind != TERM_NOT_FORMAT) return ST_OK;
    if (t->kind == TERM_NOT_FORMAT && str_is(json_str(json_get(t->schema, "format")), "idn-email"))
        return schema_refuse(s, t->schema, "not: format \"idn-email\" cannot be negated exactly");
    TRY(format_expr(s, t->schema, &found));
    if (t->kind == TERM_NOT_FORMAT) found = expr_not(s->exprs, found);
    *e = expr_and(s->exprs, *e, found);
    return ST_OK;
}

/* Whether a pattern or format restricts the value to some strings. */
static bool is_searched(const struct conjunction *what) {
    for (uint32_t i = 0; i < what->count; i++) {
        const struct term *t = &what->terms[i];
        if (t->kind != TERM_LOCAL) continue;
        if (json_get(t->schema, "pattern")) return true;
        if (format_patterns(json_str(json_get(t->schema, "format")))) return true;
    }
    return false;
}

enum status text_expr(struct schema *s, const struct conjunction *what, expr_id *out) {
    struct expr_pool *p = s->exprs;
    expr_id e = EXPR_ANY, quote = expr_range(p, '"', '"');
    uint32_t min = 0, max = EXPR_NO_MAX;
    for (uint32_t i = 0; i < what->count; i++) {
        const struct term *t = &what->terms[i];
        uint32_t low = 0, high = EXPR_NO_MAX;
        TRY(apply_patterns(s, t, &e));
        if (t->kind == TERM_NOT_VALUES) exclude_values(s, t, TYPE_TEXT, &e);
        if (t->kind != TERM_LOCAL) continue;
        TRY(count_keyword(s, t->schema, "minLength", &low));
        TRY(count_keyword(s, t->schema, "maxLength", &high));
        if (low > min) min = low;
        if (high < max) max = high;
    }
    *out = EXPR_NONE;
    if (min > max) return ST_OK;
    if (min == 0 && max == EXPR_NO_MAX && is_searched(what)) { /* only strings are left */
        *out = e;
        return ST_OK;
    }
    expr_id one = e == EXPR_ANY ? s->char_any : chars_any(p, SPELL_JSON);
    expr_id sized = expr_concat(p, quote, expr_concat(p, expr_repeat(p, one, min, max), quote));
    *out = expr_and(p, e, sized);
    return ST_OK;
}

/* The union over the alternatives of a branch. */
struct language {
    const struct conjunction *rest;
    uint32_t depth;
    expr_id all;
};

static enum status add_language(struct schema *s, const struct term *terms, uint32_t count,
                                void *ctx) {
    struct language *l = ctx;
    struct conjunction all = *l->rest;
    expr_id e = EXPR_NONE;
    for (uint32_t i = 0; i < count; i++)
        if (!conjunction_add(s, &all, terms[i])) return ST_BAD;
    TRY(text_language(s, &all, l->depth + 1, &e));
    l->all = expr_or(s->exprs, l->all, e);
    return ST_OK;
}

static enum status listed_texts(struct schema *s, const struct conjunction *what, expr_id *e) {
    for (uint32_t i = 0; i < what->count; i++) {
        const struct term *t = &what->terms[i];
        const struct json *list = t->kind == TERM_LOCAL ? schema_values(s, t->schema) : NULL;
        expr_id listed = EXPR_NONE;
        if (!list) continue;
        for (size_t k = 0; k < json_count(list); k++)
            if (json_kind(json_at(list, k)) == JS_TEXT)
                listed = expr_or(s->exprs, listed, value_expr(s, json_at(list, k)));
        *e = expr_and(s->exprs, *e, listed);
    }
    return s->c->g->budget.status;
}

/* Recursion is bounded by LANGUAGE_DEPTH_MAX. */
enum status text_language(struct schema *s, const struct conjunction *what, uint32_t depth,
                          expr_id *out) {
    struct conjunction all;
    *out = EXPR_NONE;
    if (depth > LANGUAGE_DEPTH_MAX)
        return schema_refuse(s, what->terms[0].schema, "propertyNames nests too deeply");
    TRY(expand(s, what, &all));
    if (all.is_false) return ST_OK;
    uint32_t at = 0;
    while (at < all.count && all.terms[at].kind < TERM_BRANCHES) at++;
    if (at == all.count) {
        if (!(conjunction_types(&all) & TYPE_TEXT)) return ST_OK;
        TRY(text_expr(s, &all, out));
        return listed_texts(s, &all, out);
    }
    const struct term branch = all.terms[at];
    all.terms[at] = all.terms[--all.count];
    struct language l = {.rest = &all, .depth = depth, .all = EXPR_NONE};
    TRY(alternatives_of(s, branch, add_language, &l));
    *out = l.all;
    return ST_OK;
}
