/* grammar/schema_list.c - arrays: items by position, counts, and `contains`.
 *
 * The rule of a place in an array is its number of items so far and of those that satisfied
 * `contains`; both stop counting where more makes no difference.
 */
#include "base/mem.h"
#include "grammar/schema_int.h"

enum { PLACES_MAX = 100000 };

struct list_spec {
    const struct conjunction *what;
    uint32_t min, max;
    uint32_t prefix; /* places with schemas of their own */
    const struct json *contains;
    uint32_t contains_min, contains_max;
    const struct json *has[HAS_MAX]; /* schemas of which each holds for some item */
    uint32_t has_from[HAS_MAX];      /* at this place or a later one */
    uint32_t has_count;
    bool is_unique; /* uniqueItems, and there may be two */
    bool has_few;   /* the values of its items are listed, and scalars */
};

const struct json *list_prefix(const struct schema *s, const struct json *schema) {
    const struct json *own = json_get(schema, "\x01prefix"), *skip = json_get(schema, "\x01skip");
    if (own || skip) return own ? own : skip;
    const struct json *items = json_get(schema, "items");
    if (json_kind(items) == JS_LIST) return items;
    return s->draft >= 2020 ? json_get(schema, "prefixItems") : NULL;
}

const struct json *list_rest(const struct json *schema) {
    const struct json *items = json_get(schema, "items");
    if (json_get(schema, "\x01rest")) return json_get(schema, "\x01rest");
    return json_kind(items) == JS_LIST ? json_get(schema, "additionalItems") : items;
}

static enum status put_has(struct schema *s, struct list_spec *l, const struct json *schema,
                           const struct json *value, uint32_t from) {
    if (l->has_count == HAS_MAX)
        return schema_refuse(
            s, schema, "more than %d schemas that items of one array have to satisfy", HAS_MAX);
    l->has[l->has_count] = value;
    l->has_from[l->has_count++] = from;
    return ST_OK;
}

static enum status read_contains(struct schema *s, const struct json *schema, struct list_spec *l) {
    const struct json *contains = json_get(schema, "contains");
    if (!contains || s->draft <= 4) return ST_OK;
    const bool has_counts = json_get(schema, "minContains") || json_get(schema, "maxContains");
    if (l->contains && (!has_counts || s->draft < 2019)) return put_has(s, l, schema, contains, 0);
    if (l->contains)
        return schema_refuse(s, schema, "two contains for one array cannot be kept exactly");
    l->contains = contains;
    l->contains_min = 1;
    l->contains_max = EXPR_NO_MAX;
    if (s->draft < 2019) return ST_OK;
    TRY(count_keyword(s, schema, "minContains", &l->contains_min));
    return count_keyword(s, schema, "maxContains", &l->contains_max);
}

static enum status read_term(struct schema *s, const struct json *schema, struct list_spec *l) {
    uint32_t low = 0, high = EXPR_NO_MAX, prefix = (uint32_t)json_count(list_prefix(s, schema));
    if (json_get(schema, "\x01prefix")) low = high = prefix;
    TRY(count_keyword(s, schema, "minItems", &low));
    TRY(count_keyword(s, schema, "maxItems", &high));
    if (low > l->min) l->min = low;
    if (high < l->max) l->max = high;
    if (prefix > l->prefix) l->prefix = prefix;
    l->is_unique |= json_bool(json_get(schema, "uniqueItems"), false);
    const struct json *has = json_get(schema, "\x01has");
    if (json_get(has, "from")) {
        const uint32_t from = (uint32_t)json_int(json_get(has, "from"), 0);
        TRY(put_has(s, l, schema, json_get(has, "value"), from));
        if (from > l->prefix) l->prefix = from;
    }
    return read_contains(s, schema, l);
}

static bool is_scalar_list(const struct json *values) {
    for (size_t i = 0; i < json_count(values); i++) {
        enum json_kind kind = json_kind(json_at(values, i));
        if (kind == JS_LIST || kind == JS_MAP) return false;
    }
    return values != NULL;
}

/* Whether some term says by itself that each item is one of a list of scalars. */
static bool lists_scalars(struct schema *s, const struct list_spec *l) {
    for (uint32_t i = 0; i < l->what->count; i++) {
        const struct term *t = &l->what->terms[i];
        const struct json *rest = t->kind == TERM_LOCAL ? list_rest(t->schema) : NULL;
        const struct json *target = rest;
        for (int depth = 0; depth < 5 && json_get(target, "$ref"); depth++) {
            const struct json *ref = NULL;
            if (ref_resolve(s, target, "$ref", &ref) != ST_OK) return false;
            target = ref;
        }
        if (json_kind(target) != JS_MAP) continue;
        const uint32_t types = types_named(json_get(target, "type"));
        if (types && !(types & ~(uint32_t)(TYPE_BOOL | TYPE_NULL))) return true;
        if (is_scalar_list(schema_values(s, target))) return true;
    }
    return false;
}

/* The item at `place`, with one more term or none, and the schemas of `has` that are in `hits`. */
static rule_id item_rule(struct schema *s, const struct list_spec *l, uint32_t place,
                         struct term more, uint32_t hits) {
    struct conjunction all = {.count = 0};
    for (uint32_t i = 0; i < l->what->count; i++) {
        const struct term *t = &l->what->terms[i];
        if (t->kind != TERM_LOCAL) continue;
        const struct json *prefix = list_prefix(s, t->schema);
        const struct json *own =
            place < json_count(prefix) ? json_at(prefix, place) : list_rest(t->schema);
        if (own && !conjunction_add(s, &all, (struct term){own, TERM_ALL, 0})) return RULE_FAIL;
    }
    for (uint32_t i = 0; i < l->has_count; i++)
        if (hits >> i & 1 && !conjunction_add(s, &all, (struct term){l->has[i], TERM_ALL, 0}))
            return RULE_FAIL;
    if (more.schema && !conjunction_add(s, &all, more)) return RULE_FAIL;
    return value_rule(s, &all);
}

/* An item, then `next`. */
static rule_id then_rule(struct schema *s, const struct list_spec *l, rule_id item, rule_id next) {
    if (!l->is_unique) return rules_call(s->rules, item, next);
    return rules_unique(s->rules, l->has_few ? RULE_ITEM_FEW : RULE_ITEM, item, next);
}

struct places {
    uint32_t count, hits; /* of items, of hits of contains; the last of each stands for more */
    uint32_t met;         /* sets of schemas that an item has satisfied */
    rule_id *rules;       /* count x hits x met */
};

/* Where an array is. */
struct place {
    uint32_t items, hits, met;
};

static rule_id rule_at(const struct places *p, struct place at) {
    if (at.items >= p->count) at.items = p->count - 1;
    if (at.hits >= p->hits) at.hits = p->hits - 1;
    return p->rules[(at.items * p->hits + at.hits) * p->met + at.met];
}

/* The item at a place, which satisfies `more` of l->has, then the place behind it: with a hit of
 * contains or without. */
static rule_id item_then(struct schema *s, const struct list_spec *l, const struct places *p,
                         struct place at, uint32_t more) {
    const struct term none = {NULL, TERM_ALL, 0};
    const uint32_t place = at.items;
    const struct place next = {at.items + 1, at.hits, at.met | more};
    const struct place next_hit = {at.items + 1, at.hits + 1, at.met | more};
    if (!l->contains) return then_rule(s, l, item_rule(s, l, place, none, more), rule_at(p, next));
    const struct term is = {l->contains, TERM_ALL, 0}, is_not = {l->contains, TERM_NOT, 0};
    bool counts_all = l->contains_max != EXPR_NO_MAX;
    rule_id hit = RULE_FAIL, miss = RULE_FAIL;
    bool wants_hit = counts_all ? at.hits < l->contains_max : at.hits < l->contains_min;
    if (wants_hit) hit = then_rule(s, l, item_rule(s, l, place, is, more), rule_at(p, next_hit));
    miss =
        then_rule(s, l, item_rule(s, l, place, counts_all ? is_not : none, more), rule_at(p, next));
    return rules_either(s->rules, hit, miss);
}

/* Fill in the rule of one place: the end, or an item and the next place. */
static rule_id place_rule(struct schema *s, const struct list_spec *l, const struct places *p,
                          struct place at) {
    struct rules *r = s->rules;
    rule_id end = RULE_FAIL, item = RULE_FAIL;
    if (at.items >= l->min && at.hits >= l->contains_min && at.met + 1 == p->met)
        end = rules_read(r, mark_expr(s, ']'), RULE_END);
    if (at.items >= l->max) return end;
    for (uint32_t more = 0; more < p->met; more++) {
        bool is_early = false;
        for (uint32_t i = 0; i < l->has_count; i++)
            is_early |= more >> i & 1 && at.items < l->has_from[i];
        if (more & at.met || is_early) continue;
        item = rules_either(r, item, item_then(s, l, p, at, more));
    }
    if (at.items) item = rules_read(r, mark_expr(s, ','), item);
    return rules_either(r, end, item);
}

enum status list_rule(struct schema *s, const struct conjunction *what, rule_id *out) {
    struct budget *b = &s->c->g->budget;
    struct list_spec l = {.what = what, .max = EXPR_NO_MAX, .contains_max = EXPR_NO_MAX};
    for (uint32_t i = 0; i < what->count; i++)
        if (what->terms[i].kind == TERM_LOCAL) TRY(read_term(s, what->terms[i].schema, &l));
    l.is_unique &= l.max > 1;
    l.has_few = l.is_unique && l.prefix == 0 && lists_scalars(s, &l);
    *out = RULE_FAIL;
    if (l.min > l.max || l.contains_min > l.contains_max) return ST_OK;
    uint64_t count = l.prefix > l.min ? l.prefix : l.min;
    if (l.max != EXPR_NO_MAX) count = l.max;
    uint64_t hits = l.contains_max != EXPR_NO_MAX ? l.contains_max : l.contains_min;
    const uint32_t met = UINT32_C(1) << l.has_count;
    if (count > PLACES_MAX || hits > PLACES_MAX || (count + 2) * (hits + 1) * met > PLACES_MAX)
        return schema_refuse(s, what->count ? what->terms[0].schema : s->doc,
                             "arrays of so many items are not supported; the limit is %d",
                             PLACES_MAX);
    struct places p = {.count = (uint32_t)(count < 1 ? 2 : count + 1), .hits = (uint32_t)hits + 1};
    p.met = met;
    const uint32_t total = p.count * p.hits * met;
    p.rules = budget_zalloc(b, total, sizeof(*p.rules));
    if (!p.rules) return b->status;
    for (uint32_t i = 0; i < total; i++) p.rules[i] = rules_open(s->rules);
    for (uint32_t i = 0; i < total && b->status == ST_OK; i++) {
        const struct place at = {i / met / p.hits, i / met % p.hits, i % met};
        rules_close(s->rules, p.rules[i], place_rule(s, &l, &p, at));
    }
    rule_id body = p.rules[0];
    if (l.is_unique)
        body = rules_unique(s->rules, l.has_few ? RULE_UNIQUE_FEW : RULE_UNIQUE, body, RULE_END);
    *out = rules_read(s->rules, mark_expr(s, '['), body);
    mem_free(p.rules);
    b->bytes -= (size_t)total * sizeof(*p.rules);
    return b->status;
}
