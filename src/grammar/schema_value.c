/* grammar/schema_value.c - enum and const: single values, and which of them are allowed. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "grammar/chars.h"
#include "grammar/decimal.h"
#include "grammar/schema_int.h"

enum { TEXT_BYTES_MAX = 1 << 26 };

/* Recursion is bounded by the depth of the document. */
bool json_same(const struct json *a, const struct json *b) {
    uint32_t x = types_of(a), y = types_of(b);
    struct decimal p, q;
    if (x != y) return false;
    if (x & TYPE_NUMBER) return decimal_of(a, &p) && decimal_of(b, &q) && !decimal_cmp(&p, &q);
    if (x == TYPE_BOOL) return json_bool(a, false) == json_bool(b, false);
    if (x == TYPE_TEXT) return str_eq(json_str(a), json_str(b));
    if (json_count(a) != json_count(b)) return false;
    for (size_t i = 0; x == TYPE_LIST && i < json_count(a); i++)
        if (!json_same(json_at(a, i), json_at(b, i))) return false;
    if (x != TYPE_MAP) return true;
    for (struct json_iter i = json_iter_first(a); json_iter_ok(&i); json_iter_next(&i)) {
        bool found = false;
        for (struct json_iter k = json_iter_first(b); json_iter_ok(&k); json_iter_next(&k))
            if (str_eq(i.key, k.key)) found = json_same(i.value, k.value);
        if (!found) return false;
    }
    return true;
}

const struct json *schema_values(struct schema *s, const struct json *schema) {
    const struct json *list = json_get(schema, "enum"), *value = json_get(schema, "const");
    if (!value) return list;
    struct json *known = made_find(s, schema, "values", STR(""));
    if (known) return known;
    struct json *one = schema_make(s, "[]");
    bool is_listed = !list;
    for (size_t i = 0; i < json_count(list); i++) is_listed |= json_same(json_at(list, i), value);
    enum status st = one ? ST_OK : ST_NOMEM;
    if (st == ST_OK && is_listed) st = json_push(one, json_pin(value));
    return made_keep(s, schema, "values", STR(""), st == ST_OK ? one : NULL);
}

expr_id key_expr(struct schema *s, struct str name) {
    struct buf b;
    buf_init(&b, TEXT_BYTES_MAX);
    buf_put_char(&b, '"');
    chars_spell_json(&b, name);
    buf_put_char(&b, '"');
    expr_id e = buf_status(&b) == ST_OK ? expr_literal(s->exprs, buf_str(&b)) : EXPR_NONE;
    if (buf_status(&b) != ST_OK) s->c->g->budget.status = ST_NOMEM;
    buf_deinit(&b);
    return e;
}

static expr_id list_value(struct schema *s, const struct json *v) {
    struct expr_pool *p = s->exprs;
    expr_id e = mark_expr(s, ']');
    for (size_t i = json_count(v); i > 0; i--) {
        e = expr_concat(p, value_expr(s, json_at(v, i - 1)), e);
        if (i > 1) e = expr_concat(p, mark_expr(s, ','), e);
    }
    return expr_concat(p, mark_expr(s, '['), e);
}

static expr_id map_value(struct schema *s, const struct json *v) {
    struct expr_pool *p = s->exprs;
    expr_id e = mark_expr(s, '{');
    bool first = true;
    for (struct json_iter i = json_iter_first(v); json_iter_ok(&i); json_iter_next(&i)) {
        if (!first) e = expr_concat(p, e, mark_expr(s, ','));
        e = expr_concat(p, e, expr_concat(p, key_expr(s, i.key), s->key_end));
        e = expr_concat(p, e, value_expr(s, i.value));
        first = false;
    }
    return expr_concat(p, e, mark_expr(s, '}'));
}

/* Recursion is bounded by the depth of the document. */
expr_id value_expr(struct schema *s, const struct json *v) {
    struct decimal d;
    switch (json_kind(v)) {
    case JS_INT:
    case JS_REAL:
        return decimal_of(v, &d) ? decimal_expr(s->exprs, &d) : EXPR_NONE;
    case JS_TEXT:
        return key_expr(s, json_str(v));
    case JS_LIST:
        return list_value(s, v);
    case JS_MAP:
        return map_value(s, v);
    case JS_BOOL:
        return expr_literal(s->exprs, json_bool(v, false) ? STR("true") : STR("false"));
    case JS_NULL:
    case JS_NONE:
        break;
    }
    return expr_literal(s->exprs, STR("null"));
}

static bool is_listed(const struct json *list, const struct json *v) {
    for (size_t i = 0; i < json_count(list); i++)
        if (json_same(json_at(list, i), v)) return true;
    return false;
}

/* What the other terms say about single values. */
struct value_filter {
    const struct conjunction *what;
    uint32_t at, types;
    expr_id number, text; /* that the other terms allow */
    bool has_more;        /* terms besides the list have enum or const, or exclude values */
    bool plain_compounds; /* no term speaks of the parts of arrays and objects */
};

static bool speaks_of_parts(const struct json *schema) {
    static const char *const keys[] = {"items",
                                       "prefixItems",
                                       "additionalItems",
                                       "contains",
                                       "minItems",
                                       "maxItems",
                                       "uniqueItems",
                                       "properties",
                                       "required",
                                       "minProperties",
                                       "additionalProperties",
                                       "patternProperties",
                                       "propertyNames",
                                       "maxProperties",
                                       "\x01has"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (json_get(schema, keys[i])) return true;
    return false;
}

static enum status filter_init(struct schema *s, struct value_filter *f) {
    struct conjunction rest = *f->what;
    f->plain_compounds = true;
    for (uint32_t i = 0; i < rest.count; i++) {
        struct term *t = &rest.terms[i];
        if (i != f->at && (t->kind == TERM_LOCAL || t->kind == TERM_NOT_VALUES))
            f->has_more |= schema_values(s, t->schema) != NULL;
        if (t->kind == TERM_LOCAL && speaks_of_parts(t->schema)) f->plain_compounds = false;
    }
    f->types = conjunction_types(&rest);
    TRY(number_expr(s, &rest, f->types, &f->number));
    return text_expr(s, &rest, &f->text);
}

static bool passes_others(struct schema *s, const struct value_filter *f, const struct json *v) {
    for (uint32_t i = 0; i < f->what->count && f->has_more; i++) {
        const struct term *t = &f->what->terms[i];
        if (i == f->at || (t->kind != TERM_LOCAL && t->kind != TERM_NOT_VALUES)) continue;
        if (t->kind == TERM_LOCAL && t->arg) continue;
        const struct json *list = schema_values(s, t->schema);
        if (list && is_listed(list, v) != (t->kind == TERM_LOCAL)) return false;
    }
    return true;
}

static bool matches_json(struct schema *s, expr_id e, const struct json *v) {
    struct buf b;
    buf_init(&b, TEXT_BYTES_MAX);
    struct decimal d;
    if (json_kind(v) == JS_TEXT) {
        buf_put_char(&b, '"');
        chars_spell_json(&b, json_str(v));
        buf_put_char(&b, '"');
    } else if (decimal_of(v, &d)) {
        buf_printf(&b, "%s%s%s%s", d.negative ? "-" : "", d.whole, d.fraction[0] ? "." : "",
                   d.fraction);
    }
    bool found = buf_status(&b) == ST_OK && expr_matches(s->exprs, e, buf_str(&b));
    buf_deinit(&b);
    return found;
}

/* The schema of exactly this array or object. "\1prefix" is read by list_rule: these items and no
 * more; "\1any order" by map_rule. */
static struct json *compound_schema(struct schema *s, const struct json *v) {
    bool is_list = json_kind(v) == JS_LIST;
    struct json *known = made_find(s, v, "exactly", STR(""));
    if (known) return known;
    struct json *made = schema_make(
        s, is_list ? "{\"type\":\"array\",\"\\u0001prefix\":[]}"
                   : "{\"type\":\"object\",\"properties\":{},"
                     "\"\\u0001any order\":true,\"required\":[],\"additionalProperties\":false}");
    struct json *prefix = json_get(made, "\x01prefix"), *names = json_get(made, "required");
    struct json *properties = json_get(made, "properties");
    enum status st = made ? ST_OK : ST_NOMEM;
    for (size_t i = 0; is_list && i < json_count(v) && st == ST_OK; i++)
        st = json_push(prefix, json_pin(schema_wrap(s, "const", json_at(v, i))));
    for (struct json_iter i = json_iter_first(v); !is_list && json_iter_ok(&i) && st == ST_OK;
         json_iter_next(&i)) {
        st = json_set(properties, i.key, json_pin(schema_wrap(s, "const", i.value)));
        if (st == ST_OK) st = json_push(names, json_text_create(i.key));
    }
    return made_keep(s, v, "exactly", STR(""), st == ST_OK ? made : NULL);
}

/* Whether an object with several properties is in it; these may come in any order. */
static bool has_order(const struct json *v) {
    if (json_kind(v) == JS_MAP && json_count(v) > 1) return true;
    for (size_t i = 0; json_kind(v) == JS_LIST && i < json_count(v); i++)
        if (has_order(json_at(v, i))) return true;
    for (struct json_iter i = json_iter_first(v); json_kind(v) == JS_MAP && json_iter_ok(&i);
         json_iter_next(&i))
        if (has_order(i.value)) return true;
    return false;
}

static rule_id compound_rule(struct schema *s, const struct value_filter *f, const struct json *v) {
    if (f->plain_compounds && !has_order(v))
        return rules_read(s->rules, value_expr(s, v), RULE_END);
    struct conjunction all = *f->what;
    for (uint32_t i = 0; i < all.count; i++)
        if (all.terms[i].kind == TERM_LOCAL) all.terms[i].arg = 1;
    struct json *made = compound_schema(s, v);
    if (!made || !conjunction_add(s, &all, (struct term){made, TERM_LOCAL, 0})) return RULE_FAIL;
    return value_rule(s, &all);
}

struct value_lists {
    struct str *texts; /* heap, as all lists */
    char **owned;
    uint32_t text_count;
    expr_id *exprs;
    uint32_t expr_count;
    rule_id *rules;
    uint32_t rule_count;
};

static enum status put_text(struct schema *s, struct value_lists *l, struct str text) {
    struct buf b;
    buf_init(&b, TEXT_BYTES_MAX);
    buf_put_char(&b, '"');
    chars_spell_json(&b, text);
    buf_put_char(&b, '"');
    size_t len = 0;
    char *bytes = buf_take(&b, &len);
    buf_deinit(&b);
    if (!bytes) return s->c->g->budget.status = ST_NOMEM;
    l->owned[l->text_count] = bytes;
    l->texts[l->text_count++] = (struct str){bytes, len};
    return ST_OK;
}

static enum status put_value(struct schema *s, const struct value_filter *f, const struct json *v,
                             struct value_lists *l) {
    uint32_t type = types_of(v);
    if (!(type & f->types) || !passes_others(s, f, v)) return ST_OK;
    if (type == TYPE_TEXT) return matches_json(s, f->text, v) ? put_text(s, l, json_str(v)) : ST_OK;
    if (type & TYPE_NUMBER) {
        if (matches_json(s, f->number, v)) l->exprs[l->expr_count++] = value_expr(s, v);
        return ST_OK;
    }
    if (type & (TYPE_LIST | TYPE_MAP))
        l->rules[l->rule_count++] = compound_rule(s, f, v);
    else
        l->exprs[l->expr_count++] = value_expr(s, v);
    return ST_OK;
}

enum status values_rule(struct schema *s, const struct conjunction *what, uint32_t at,
                        rule_id *out) {
    struct budget *b = &s->c->g->budget;
    struct value_filter f = {.what = what, .at = at};
    const struct json *list = schema_values(s, what->terms[at].schema);
    if (json_kind(list) != JS_LIST)
        return schema_refuse(s, what->terms[at].schema, "enum: expected a list of values");
    TRY(filter_init(s, &f));
    size_t count = json_count(list) + 2;
    size_t before = b->bytes;
    struct value_lists l = {.texts = budget_zalloc(b, count, sizeof(*l.texts)),
                            .owned = budget_zalloc(b, count, sizeof(*l.owned)),
                            .exprs = budget_zalloc(b, count, sizeof(*l.exprs)),
                            .rules = budget_zalloc(b, count, sizeof(*l.rules))};
    size_t scratch = b->bytes - before;
    enum status st = b->status;
    for (size_t i = 0; i < count - 2 && st == ST_OK; i++) {
        st = put_value(s, &f, json_at(list, i), &l);
        if (st == ST_OK && !budget_tick(b)) st = b->status;
    }
    if (st == ST_OK) {
        l.exprs[l.expr_count++] = expr_choice(s->exprs, l.texts, l.text_count);
        expr_id e = expr_or_all(s->exprs, l.exprs, l.expr_count);
        l.rules[l.rule_count++] = rules_read(s->rules, e, RULE_END);
        *out = rules_choice(s->rules, l.rules, l.rule_count);
    }
    for (uint32_t i = 0; i < l.text_count; i++) mem_free(l.owned[i]);
    mem_free(l.texts);
    mem_free(l.owned);
    mem_free(l.exprs);
    mem_free(l.rules);
    b->bytes -= scratch;
    return st;
}
