/* grammar/schema_map.c - objects: named properties in the order of the schema, then others.
 *
 * The rule of a place in an object is the next named property and the number of properties so far.
 * Behind the named ones come others in any order; names that are required without being described
 * are among these, and which of them have come is part of the place.
 *
 * The names of others fall into classes by the patterns that match them; each class has its own
 * schema for the value. A name that occurs twice is one property to a reader, so a number of others
 * is never relied on where it has to reach a minimum above one, and an other one that has to be
 * there ("\1has") is the last of the object.
 */
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "grammar/chars.h"
#include "grammar/regex.h"
#include "grammar/schema_int.h"

enum { PATTERNS_MAX = 6, TRACKED_MAX = 5, PLACES_MAX = 200000, NAMES_BYTES_MAX = 1 << 26 };

struct property {
    struct str name; /* borrowed from a schema; NUL-terminated */
    bool required;
};

struct pattern {
    uint32_t term; /* that it belongs to */
    expr_id expr;  /* names that it matches, with their quotes */
    const struct json *schema;
};

/* Names that one subset of the patterns matches. */
struct other_class {
    expr_id key;
    rule_id value;
    uint32_t hits; /* of `has` */
};

/* A property that has to be there; see schema_int.h. */
struct has_property {
    expr_id names;
    const struct json *value; /* NULL: any */
};

struct map_spec {
    const struct conjunction *what;
    struct map *by_name; /* name to its index */
    struct property *list;
    uint32_t count, cap;
    uint32_t described; /* the first ones; those behind are only required */
    uint32_t tracked;   /* of these, how many may come in any order */
    struct pattern patterns[PATTERNS_MAX];
    uint32_t pattern_count;
    expr_id names; /* that propertyNames allows; EXPR_ANY */
    uint32_t min, max;
    struct has_property has[HAS_MAX];
    uint32_t has_count;
    struct other_class others[1 << PATTERNS_MAX];
    uint32_t other_count;
    struct other_class last[1 << PATTERNS_MAX << HAS_MAX]; /* that satisfy some of `has` */
    uint32_t last_count;
};

static enum status add_name(struct schema *s, struct map_spec *m, struct str name, bool required) {
    struct budget *b = &s->c->g->budget;
    uint32_t at = 0;
    if (map_find(m->by_name, name, &at)) {
        m->list[at].required |= required;
        return ST_OK;
    }
    if (m->count >= PROPERTIES_MAX)
        return schema_refuse(s, m->what->terms[0].schema, "more than %d properties",
                             PROPERTIES_MAX);
    if (!budget_grow(b, (void **)&m->list, &m->cap, m->count + 1, sizeof(*m->list)))
        return b->status;
    m->list[m->count] = (struct property){name, required};
    if (map_put(m->by_name, name, m->count++) != ST_OK) b->status = ST_NOMEM;
    return b->status;
}

static enum status search_pattern(struct schema *s, const struct json *at, struct str source,
                                  expr_id *out) {
    struct err err = {0};
    enum status st = regex_search_json(s->exprs, source, out, &err);
    return st == ST_OK ? ST_OK : schema_refuse(s, at, "%s", err.text);
}

static enum status read_patterns(struct schema *s, struct map_spec *m, uint32_t term) {
    const struct json *schema = m->what->terms[term].schema;
    const struct json *map = json_get(schema, "patternProperties");
    for (struct json_iter i = json_iter_first(map); json_iter_ok(&i); json_iter_next(&i)) {
        if (m->pattern_count == PATTERNS_MAX)
            return schema_refuse(s, schema, "more than %d patternProperties for one object",
                                 PATTERNS_MAX);
        struct pattern *p = &m->patterns[m->pattern_count++];
        *p = (struct pattern){.term = term, .schema = i.value};
        TRY(search_pattern(s, schema, i.key, &p->expr));
    }
    return ST_OK;
}

/* The names that `propertyNames` allows, with their quotes. */
static enum status names_expr(struct schema *s, const struct json *names, expr_id *out) {
    struct conjunction one = {.count = 1, .terms = {{names, TERM_ALL, 0}}};
    expr_id e = EXPR_NONE;
    TRY(text_language(s, &one, 0, &e));
    *out = expr_and(s->exprs, e, s->text_canonical);
    return ST_OK;
}

/* The names that neither properties nor patternProperties of a schema are about. */
static enum status other_names(struct schema *s, const struct json *base, expr_id *out) {
    expr_id taken = EXPR_NONE, e = EXPR_NONE;
    const struct json *properties = json_get(base, "properties");
    const struct json *patterns = json_get(base, "patternProperties");
    for (struct json_iter i = json_iter_first(properties); json_iter_ok(&i); json_iter_next(&i))
        taken = expr_or(s->exprs, taken, key_expr(s, i.key));
    for (struct json_iter i = json_iter_first(patterns); json_iter_ok(&i); json_iter_next(&i)) {
        TRY(search_pattern(s, base, i.key, &e));
        taken = expr_or(s->exprs, taken, e);
    }
    *out = expr_and(s->exprs, s->text_canonical, expr_not(s->exprs, taken));
    return ST_OK;
}

static enum status read_has(struct schema *s, struct map_spec *m, const struct json *schema) {
    const struct json *has = json_get(schema, "\x01has");
    const struct str kind = json_str(json_get(has, "kind"));
    if (kind.len == 0) return ST_OK;
    if (m->has_count == HAS_MAX)
        return schema_refuse(s, schema, "more than %d properties that one object has to have",
                             HAS_MAX);
    struct has_property *x = &m->has[m->has_count++];
    *x = (struct has_property){EXPR_NONE, json_get(has, "value")};
    if (str_is(kind, "other")) return other_names(s, json_get(has, "base"), &x->names);
    if (str_is(kind, "matching"))
        return search_pattern(s, json_get(has, "base"), json_str(json_get(has, "pattern")),
                              &x->names);
    TRY(names_expr(s, x->value, &x->names));
    x->names = expr_and(s->exprs, s->text_canonical, expr_not(s->exprs, x->names));
    x->value = NULL;
    return ST_OK;
}

static enum status read_term(struct schema *s, struct map_spec *m, uint32_t term) {
    const struct json *schema = m->what->terms[term].schema, *names;
    const struct json *properties = json_get(schema, "properties");
    uint32_t low = 0, high = EXPR_NO_MAX;
    if (properties && json_kind(properties) != JS_MAP)
        return schema_refuse(s, schema, "properties: expected an object");
    /* The names of a const object are required, so they are added behind the others. */
    bool is_described = !json_get(schema, "\x01"
                                          "any order");
    for (struct json_iter i = json_iter_first(properties); is_described && json_iter_ok(&i);
         json_iter_next(&i))
        TRY(add_name(s, m, i.key, false));
    TRY(read_patterns(s, m, term));
    TRY(read_has(s, m, schema));
    TRY(count_keyword(s, schema, "minProperties", &low));
    TRY(count_keyword(s, schema, "maxProperties", &high));
    if (low > m->min) m->min = low;
    if (high < m->max) m->max = high;
    names = json_get(schema, "propertyNames");
    if (!names || s->draft <= 4) return ST_OK;
    expr_id e = EXPR_NONE;
    TRY(names_expr(s, names, &e));
    m->names = expr_and(s->exprs, m->names, e);
    return ST_OK;
}

static enum status read_required(struct schema *s, struct map_spec *m, const struct json *schema) {
    const struct json *required = json_get(schema, "required");
    if (required && json_kind(required) == JS_BOOL && s->draft <= 4) return ST_OK; /* draft 3 */
    if (required && json_kind(required) != JS_LIST)
        return schema_refuse(s, schema, "required: expected a list of names");
    for (size_t i = 0; i < json_count(required); i++) {
        if (json_kind(json_at(required, i)) != JS_TEXT)
            return schema_refuse(s, schema, "required: expected a list of names");
        TRY(add_name(s, m, json_str(json_at(required, i)), true));
    }
    return ST_OK;
}

static enum status read_spec(struct schema *s, struct map_spec *m) {
    for (uint32_t i = 0; i < m->what->count; i++)
        if (m->what->terms[i].kind == TERM_LOCAL) TRY(read_term(s, m, i));
    m->described = m->count;
    for (uint32_t i = 0; i < m->what->count; i++)
        if (m->what->terms[i].kind == TERM_LOCAL)
            TRY(read_required(s, m, m->what->terms[i].schema));
    m->tracked = m->count - m->described;
    if (m->tracked > TRACKED_MAX) m->tracked = 0; /* they come in the order of `required` */
    return ST_OK;
}

static bool matches_name(struct schema *s, expr_id e, struct str name) {
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_put_char(&b, '"');
    chars_spell_json(&b, name);
    buf_put_char(&b, '"');
    bool found = buf_status(&b) == ST_OK && expr_matches(s->exprs, e, buf_str(&b));
    buf_deinit(&b);
    return found;
}

/* The value of a property. `name` NULL: of others that the patterns in `subset` match. `hits`: it
 * also satisfies these of m->has. */
static rule_id value_of(struct schema *s, const struct map_spec *m, const struct str *name,
                        uint32_t subset, uint32_t hits) {
    struct conjunction all = {.count = 0};
    for (uint32_t i = 0; i < m->has_count; i++)
        if (hits >> i & 1 && m->has[i].value &&
            !conjunction_add(s, &all, (struct term){m->has[i].value, TERM_ALL, 0}))
            return RULE_FAIL;
    for (uint32_t i = 0; i < m->what->count; i++) {
        const struct term *t = &m->what->terms[i];
        if (t->kind != TERM_LOCAL) continue;
        const struct json *own =
            name ? json_get(json_get(t->schema, "properties"), name->ptr) : NULL;
        const struct json *more = json_get(t->schema, "additionalProperties");
        bool is_covered = own != NULL;
        if (own && !conjunction_add(s, &all, (struct term){own, TERM_ALL, 0})) return RULE_FAIL;
        for (uint32_t k = 0; k < m->pattern_count; k++) {
            const struct pattern *p = &m->patterns[k];
            if (p->term != i || !(subset >> k & 1)) continue;
            is_covered = true;
            if (!conjunction_add(s, &all, (struct term){p->schema, TERM_ALL, 0})) return RULE_FAIL;
        }
        if (!is_covered && more && !conjunction_add(s, &all, (struct term){more, TERM_ALL, 0}))
            return RULE_FAIL;
    }
    return value_rule(s, &all);
}

static rule_id named_value(struct schema *s, const struct map_spec *m, struct str name,
                           uint32_t hits) {
    uint32_t subset = 0;
    for (uint32_t k = 0; k < m->has_count; k++)
        if (hits >> k & 1 && !matches_name(s, m->has[k].names, name)) return RULE_FAIL;
    if (m->names != EXPR_ANY && !matches_name(s, m->names, name)) return RULE_FAIL;
    for (uint32_t k = 0; k < m->pattern_count; k++)
        if (matches_name(s, m->patterns[k].expr, name)) subset |= UINT32_C(1) << k;
    return value_of(s, m, &name, subset, hits);
}

static bool allows_others(const struct map_spec *m) {
    for (uint32_t i = 0; i < m->what->count; i++) {
        const struct term *t = &m->what->terms[i];
        if (t->kind != TERM_LOCAL) continue;
        const struct json *more = json_get(t->schema, "additionalProperties");
        const struct json *patterns = json_get(t->schema, "patternProperties");
        if (json_kind(more) == JS_BOOL && !json_bool(more, true) && json_count(patterns) == 0)
            return false;
    }
    return true;
}

/* The names of all listed properties, with their quotes. */
static enum status listed_names(struct schema *s, const struct map_spec *m, expr_id *out) {
    struct budget *b = &s->c->g->budget;
    struct buf spelled;
    buf_init(&spelled, NAMES_BYTES_MAX);
    struct str *names = budget_zalloc(b, m->count + 1, sizeof(*names));
    size_t *ends = budget_zalloc(b, m->count + 1, sizeof(*ends));
    for (uint32_t i = 0; i < m->count && names && ends; i++) {
        buf_put_char(&spelled, '"');
        chars_spell_json(&spelled, m->list[i].name);
        buf_put_char(&spelled, '"');
        ends[i] = spelled.len;
    }
    enum status st = b->status != ST_OK ? b->status : buf_status(&spelled);
    for (uint32_t i = 0; i < m->count && st == ST_OK && names && ends; i++) {
        size_t start = i ? ends[i - 1] : 0;
        names[i] = (struct str){spelled.ptr + start, ends[i] - start};
    }
    if (st == ST_OK) *out = expr_choice(s->exprs, names, m->count);
    b->bytes -=
        (names ? (m->count + 1) * sizeof(*names) : 0) + (ends ? (m->count + 1) * sizeof(*ends) : 0);
    mem_free(names);
    mem_free(ends);
    buf_deinit(&spelled);
    return st;
}

/* Others of one class that satisfy some of m->has. */
static void make_last(struct schema *s, struct map_spec *m, expr_id key, uint32_t subset) {
    for (uint32_t hits = 1; hits < UINT32_C(1) << m->has_count; hits++) {
        expr_id names = key;
        for (uint32_t i = 0; i < m->has_count; i++)
            if (hits >> i & 1) names = expr_and(s->exprs, names, m->has[i].names);
        if (!expr_is_alive(s->exprs, names)) continue;
        rule_id value = value_of(s, m, NULL, subset, hits);
        if (value != RULE_FAIL) m->last[m->last_count++] = (struct other_class){names, value, hits};
    }
}

static enum status make_others(struct schema *s, struct map_spec *m) {
    struct expr_pool *p = s->exprs;
    struct budget *b = &s->c->g->budget;
    if (!allows_others(m)) return ST_OK;
    expr_id taken = EXPR_NONE;
    TRY(listed_names(s, m, &taken));
    expr_id rest = expr_and(p, s->text_canonical, expr_not(p, taken));
    rest = expr_and(p, rest, m->names);
    for (uint32_t subset = 0; subset < UINT32_C(1) << m->pattern_count; subset++) {
        expr_id key = rest;
        for (uint32_t k = 0; k < m->pattern_count; k++) {
            expr_id e = m->patterns[k].expr;
            key = expr_and(p, key, subset >> k & 1 ? e : expr_not(p, e));
        }
        if (!expr_is_alive(p, key)) continue;
        rule_id value = value_of(s, m, NULL, subset, 0);
        if (value != RULE_FAIL) m->others[m->other_count++] = (struct other_class){key, value, 0};
        if (value != RULE_FAIL) make_last(s, m, key, subset);
    }
    return b->status;
}

/* The places of an object. */
struct map_places {
    uint32_t ordered, count; /* properties in order; values of `at` */
    uint32_t counted;        /* counted + 1 numbers of properties */
    uint32_t met;            /* sets of m->has */
    rule_id *rules;          /* count x (counted + 1) x met */
};

/* `at` is the next property in order, or p->ordered + the set of tracked names that came; `had` of
 * them came, and those of m->has that are in `met`. */
struct map_place {
    uint32_t at, had, met;
};

static rule_id place_at(const struct map_places *p, struct map_place x) {
    if (x.had > p->counted) x.had = p->counted;
    return p->rules[(x.at * (p->counted + 1) + x.had) * p->met + x.met];
}

/* A key, its value, and what follows. */
static rule_id member_rule(struct schema *s, expr_id key, rule_id value, uint32_t had,
                           rule_id next) {
    expr_id e = expr_concat(s->exprs, key, s->key_end);
    if (had) e = expr_concat(s->exprs, mark_expr(s, ','), e);
    return rules_read(s->rules, e, rules_call(s->rules, value, next));
}

/* The property `name` and the place behind it, which is at `next`. */
static rule_id take_named(struct schema *s, const struct map_spec *m, const struct map_places *p,
                          struct str name, struct map_place x, uint32_t next) {
    rule_id all = RULE_FAIL;
    if (x.had >= m->max) return RULE_FAIL;
    for (uint32_t hits = 0; hits < p->met; hits++) {
        if (hits & x.met) continue;
        const struct map_place then = {next, x.had + 1, x.met | hits};
        all = rules_either(s->rules, all,
                           member_rule(s, key_expr(s, name), named_value(s, m, name, hits), x.had,
                                       place_at(p, then)));
    }
    return all;
}

static rule_id named_place(struct schema *s, const struct map_spec *m, const struct map_places *p,
                           struct map_place x) {
    const struct property *own = &m->list[x.at];
    rule_id skip = RULE_FAIL, take = take_named(s, m, p, own->name, x, x.at + 1);
    if (!own->required) skip = place_at(p, (struct map_place){x.at + 1, x.had, x.met});
    return rules_either(s->rules, take, skip);
}

static rule_id other_place(struct schema *s, const struct map_spec *m, const struct map_places *p,
                           struct map_place x) {
    rule_id list[2 + TRACKED_MAX + (1 << PATTERNS_MAX) + (1 << PATTERNS_MAX << HAS_MAX)];
    const rule_id end = rules_read(s->rules, mark_expr(s, '}'), RULE_END);
    uint32_t count = 0, came = x.at - p->ordered;
    const bool is_last = came + 1 == UINT32_C(1) << m->tracked;
    if (is_last && x.had >= m->min && x.met + 1 == p->met) list[count++] = end;
    for (uint32_t i = 0; i < m->other_count && x.had < m->max; i++)
        list[count++] = member_rule(s, m->others[i].key, m->others[i].value, x.had,
                                    place_at(p, (struct map_place){x.at, x.had + 1, x.met}));
    for (uint32_t i = 0; i < m->last_count && x.had < m->max && is_last; i++)
        if ((m->last[i].hits | x.met) + 1 == p->met && x.had + 1 >= m->min)
            list[count++] = member_rule(s, m->last[i].key, m->last[i].value, x.had, end);
    for (uint32_t i = 0; i < m->tracked; i++)
        if (!(came >> i & 1))
            list[count++] =
                take_named(s, m, p, m->list[p->ordered + i].name, x, x.at + (UINT32_C(1) << i));
    return rules_choice(s->rules, list, count);
}

static enum status check_minimum(struct schema *s, const struct map_spec *m) {
    uint32_t required = 0;
    for (uint32_t i = 0; i < m->count; i++) required += m->list[i].required;
    if (m->min < 2 || m->other_count == 0 || required + 1 >= m->min) return ST_OK;
    return schema_refuse(s, m->what->terms[0].schema,
                         "minProperties %u with names that are not listed cannot be kept exactly: "
                         "a repeated name would count twice",
                         m->min);
}

static enum status build(struct schema *s, struct map_spec *m, rule_id *out) {
    struct budget *b = &s->c->g->budget;
    struct map_places p = {.ordered = m->count - m->tracked};
    p.count = p.ordered + (UINT32_C(1) << m->tracked);
    p.counted = m->max != EXPR_NO_MAX ? m->max : m->min;
    if (p.counted == 0) p.counted = 1;
    /* More properties than there are names cannot be counted. */
    if (m->other_count == 0 && p.counted > m->count + 1) p.counted = m->count + 1;
    p.met = UINT32_C(1) << m->has_count;
    uint64_t total = (uint64_t)p.count * (p.counted + 1) * p.met;
    if (total > PLACES_MAX)
        return schema_refuse(s, m->what->terms[0].schema,
                             "%u properties counted up to %u are too many", m->count, p.counted);
    p.rules = budget_zalloc(b, total, sizeof(*p.rules));
    if (!p.rules) return b->status;
    for (uint64_t i = 0; i < total; i++) p.rules[i] = rules_open(s->rules);
    for (uint64_t i = 0; i < total && b->status == ST_OK; i++) {
        const uint64_t place = i / p.met;
        const struct map_place x = {(uint32_t)(place / (p.counted + 1)),
                                    (uint32_t)(place % (p.counted + 1)), (uint32_t)(i % p.met)};
        if (x.at < p.ordered && x.had > x.at) continue; /* never reached */
        rule_id rule = x.at < p.ordered ? named_place(s, m, &p, x) : other_place(s, m, &p, x);
        rules_close(s->rules, p.rules[i], rule);
    }
    *out = rules_read(s->rules, mark_expr(s, '{'), p.rules[0]);
    mem_free(p.rules);
    b->bytes -= total * sizeof(*p.rules);
    return b->status;
}

enum status map_rule(struct schema *s, const struct conjunction *what, rule_id *out) {
    struct budget *b = &s->c->g->budget;
    struct map_spec *m = budget_zalloc(b, 1, sizeof(*m));
    if (!m) return b->status;
    m->what = what;
    m->names = EXPR_ANY;
    m->max = EXPR_NO_MAX;
    m->by_name = map_create(16);
    enum status st = m->by_name ? read_spec(s, m) : ST_NOMEM;
    if (!m->by_name) b->status = ST_NOMEM;
    if (st == ST_OK) st = make_others(s, m);
    if (st == ST_OK) st = check_minimum(s, m);
    *out = RULE_FAIL;
    if (st == ST_OK && m->min <= m->max) st = build(s, m, out);
    map_destroy(m->by_name);
    b->bytes -= m->cap * sizeof(*m->list) + sizeof(*m);
    mem_free(m->list);
    mem_free(m);
    return st;
}
