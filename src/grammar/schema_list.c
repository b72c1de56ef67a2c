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
    bool is_unique; /* uniqueItems, and there may be two */
    bool has_few;   /* the values of its items are listed, and scalars */
};

static const struct json *prefix_of(const struct schema *s, const struct json *schema) {
    const struct json *own = json_get(schema, "\x01prefix"), *skip = json_get(schema, "\x01skip");
    if (own || skip) return own ? own : skip;
    const struct json *items = json_get(schema, "items");
    if (json_kind(items) == JS_LIST) return items;
    return s->draft >= 2020 ? json_get(schema, "prefixItems") : NULL;
}

/* The schema of items behind the prefix; NULL: any. */
static const struct json *rest_of(const struct json *schema) {
    const struct json *items = json_get(schema, "items");
    if (json_get(schema, "\x01rest")) return json_get(schema, "\x01rest");
    return json_kind(items) == JS_LIST ? json_get(schema, "additionalItems") : items;
}

static enum status read_contains(struct schema *s, const struct json *schema, struct list_spec *l) {
    const struct json *contains = json_get(schema, "contains");
    if (!contains || s->draft <= 4) return ST_OK;
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
    uint32_t low = 0, high = EXPR_NO_MAX, prefix = (uint32_t)json_count(prefix_of(s, schema));
    if (json_get(schema, "\x01prefix")) low = high = prefix;
    TRY(count_keyword(s, schema, "minItems", &low));
    TRY(count_keyword(s, schema, "maxItems", &high));
    if (low > l->min) l->min = low;
    if (high < l->max) l->max = high;
    if (prefix > l->prefix) l->prefix = prefix;
    l->is_unique |= json_bool(json_get(schema, "uniqueItems"), false);
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
        const struct json *rest = t->kind == TERM_LOCAL ? rest_of(t->schema) : NULL;
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

/* The item at `place`, with one more term or none. */
static rule_id item_rule(struct schema *s, const struct list_spec *l, uint32_t place,
                         struct term more) {
    struct conjunction all = {.count = 0};
    for (uint32_t i = 0; i < l->what->count; i++) {
        const struct term *t = &l->what->terms[i];
        if (t->kind != TERM_LOCAL) continue;
        const struct json *prefix = prefix_of(s, t->schema);
        const struct json *own =
            place < json_count(prefix) ? json_at(prefix, place) : rest_of(t->schema);
        if (own && !conjunction_add(s, &all, (struct term){own, TERM_ALL, 0})) return RULE_FAIL;
    }
    if (more.schema && !conjunction_add(s, &all, more)) return RULE_FAIL;
    return value_rule(s, &all);
}

/* An item, then `next`. */
static rule_id then_rule(struct schema *s, const struct list_spec *l, rule_id item, rule_id next) {
    if (!l->is_unique) return rules_call(s->rules, item, next);
    return rules_unique(s->rules, l->has_few ? RULE_ITEM_FEW : RULE_ITEM, item, next);
}

/* The item at `place`, then the places behind it: `same` without a hit of contains, `hit` with. */
static rule_id item_then(struct schema *s, const struct list_spec *l, uint32_t place, uint32_t hits,
                         const rule_id next[2]) {
    const struct term none = {NULL, TERM_ALL, 0};
    if (!l->contains) return then_rule(s, l, item_rule(s, l, place, none), next[0]);
    const struct term is = {l->contains, TERM_ALL, 0}, is_not = {l->contains, TERM_NOT, 0};
    bool counts_all = l->contains_max != EXPR_NO_MAX;
    rule_id hit = RULE_FAIL, miss = RULE_FAIL;
    bool wants_hit = counts_all ? hits < l->contains_max : hits < l->contains_min;
    if (wants_hit) hit = then_rule(s, l, item_rule(s, l, place, is), next[1]);
    miss = then_rule(s, l, item_rule(s, l, place, counts_all ? is_not : none), next[0]);
    return rules_either(s->rules, hit, miss);
}

struct places {
    uint32_t count, hits; /* of items, of hits; the last of each stands for more */
    rule_id *rules;       /* count x hits */
};

/* Fill in the rule of one place: the end, or an item and the next place. */
static rule_id place_rule(struct schema *s, const struct list_spec *l, const struct places *p,
                          uint32_t place, uint32_t hits) {
    struct rules *r = s->rules;
    rule_id end = RULE_FAIL, item = RULE_FAIL;
    if (place >= l->min && hits >= l->contains_min)
        end = rules_read(r, mark_expr(s, ']'), RULE_END);
    if (place < l->max) {
        uint32_t next = place + 1 < p->count ? place + 1 : place;
        uint32_t hit = hits + 1 < p->hits ? hits + 1 : hits;
        const rule_id then[2] = {p->rules[next * p->hits + hits], p->rules[next * p->hits + hit]};
        item = item_then(s, l, place, hits, then);
        if (place) item = rules_read(r, mark_expr(s, ','), item);
    }
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
    if (count > PLACES_MAX || hits > PLACES_MAX || (count + 2) * (hits + 1) > PLACES_MAX)
        return schema_refuse(s, what->count ? what->terms[0].schema : s->doc,
                             "arrays of so many items are not supported; the limit is %d",
                             PLACES_MAX);
    struct places p = {.count = (uint32_t)(count < 1 ? 2 : count + 1), .hits = (uint32_t)hits + 1};
    p.rules = budget_zalloc(b, (size_t)p.count * p.hits, sizeof(*p.rules));
    if (!p.rules) return b->status;
    for (uint32_t i = 0; i < p.count * p.hits; i++) p.rules[i] = rules_open(s->rules);
    for (uint32_t i = 0; i < p.count * p.hits && b->status == ST_OK; i++)
        rules_close(s->rules, p.rules[i], place_rule(s, &l, &p, i / p.hits, i % p.hits));
    rule_id body = p.rules[0];
    if (l.is_unique)
        body = rules_unique(s->rules, l.has_few ? RULE_UNIQUE_FEW : RULE_UNIQUE, body, RULE_END);
    *out = rules_read(s->rules, mark_expr(s, '['), body);
    mem_free(p.rules);
    b->bytes -= (size_t)p.count * p.hits * sizeof(*p.rules);
    return b->status;
}
