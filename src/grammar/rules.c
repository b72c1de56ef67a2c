/* grammar/rules.c - building rules, and which of them can be satisfied. */
#include "grammar/rules.h"

#include "base/check.h"
#include "base/mem.h"
#include "grammar/budget.h"

static rule_id put(struct rules *r, struct rule rule) {
    if (!budget_tick(r->budget)) return RULE_FAIL;
    if (!budget_grow(r->budget, (void **)&r->list, &r->cap, r->count + 1, sizeof(rule)))
        return RULE_FAIL;
    r->list[r->count] = rule;
    return r->count++;
}

bool rules_init(struct rules *r, struct expr_pool *exprs, struct budget *budget) {
    *r = (struct rules){.budget = budget, .exprs = exprs};
    put(r, (struct rule){.kind = RULE_IS_END});
    put(r, (struct rule){.kind = RULE_CHOICE});
    return budget->status == ST_OK;
}

void rules_deinit(struct rules *r) {
    mem_free(r->list);
    mem_free(r->choices);
}

rule_id rules_read(struct rules *r, expr_id e, rule_id next) {
    if (e == EXPR_NONE || next == RULE_FAIL) return RULE_FAIL;
    if (e == EXPR_EMPTY) return next;
    return put(r, (struct rule){.kind = RULE_READS, .a = e, .b = next});
}

rule_id rules_call(struct rules *r, rule_id callee, rule_id next) {
    if (callee == RULE_FAIL || next == RULE_FAIL) return RULE_FAIL;
    if (callee == RULE_END) return next;
    if (next == RULE_END) return callee;
    const struct rule *c = &r->list[callee];
    if (c->kind == RULE_READS && c->b == RULE_END) return rules_read(r, c->a, next);
    return put(r, (struct rule){.kind = RULE_CALLS, .a = callee, .b = next});
}

rule_id rules_unique(struct rules *r, enum rule_kind kind, rule_id body, rule_id next) {
    if (body == RULE_FAIL || next == RULE_FAIL) return RULE_FAIL;
    return put(r, (struct rule){.kind = (uint8_t)kind, .a = body, .b = next});
}

rule_id rules_choice(struct rules *r, const rule_id *list, uint32_t count) {
    uint32_t start = r->choice_count;
    if (!budget_grow(r->budget, (void **)&r->choices, &r->choice_cap, start + count, sizeof(*list)))
        return RULE_FAIL;
    for (uint32_t i = 0; i < count; i++)
        if (list[i] != RULE_FAIL) r->choices[r->choice_count++] = list[i];
    uint32_t kept = r->choice_count - start;
    if (kept > 1) return put(r, (struct rule){.kind = RULE_CHOICE, .a = start, .b = kept});
    r->choice_count = start;
    return kept ? r->choices[start] : RULE_FAIL;
}

rule_id rules_either(struct rules *r, rule_id a, rule_id b) {
    if (a == b) return a;
    return rules_choice(r, (rule_id[]){a, b}, 2);
}

rule_id rules_open(struct rules *r) {
    if (!budget_grow(r->budget, (void **)&r->choices, &r->choice_cap, r->choice_count + 1,
                     sizeof(rule_id)))
        return RULE_FAIL;
    r->choices[r->choice_count] = RULE_FAIL;
    return put(r, (struct rule){.kind = RULE_CHOICE, .a = r->choice_count++, .b = 1});
}

void rules_close(struct rules *r, rule_id open, rule_id body) {
    if (r->budget->status != ST_OK) return;
    CHECK(r->list[open].kind == RULE_CHOICE && r->list[open].b == 1);
    r->choices[r->list[open].a] = body;
}

static bool is_alive(const struct rules *r, const struct rule *x) {
    switch ((enum rule_kind)x->kind) {
    case RULE_IS_END:
        return true;
    case RULE_READS:
        return r->list[x->b].alive && expr_is_alive(r->exprs, x->a);
    case RULE_CALLS:
    case RULE_UNIQUE:
    case RULE_ITEM:
    case RULE_UNIQUE_FEW:
    case RULE_ITEM_FEW:
        return r->list[x->b].alive && r->list[x->a].alive;
    case RULE_CHOICE:
        for (uint32_t i = 0; i < x->b; i++)
            if (r->list[r->choices[x->a + i]].alive) return true;
        return false;
    }
    return false;
}

void rules_finish(struct rules *r) {
    bool changed = true;
    while (changed && r->budget->status == ST_OK) {
        changed = false;
        for (uint32_t i = 0; i < r->count && budget_tick(r->budget); i++) {
            if (r->list[i].alive || !is_alive(r, &r->list[i])) continue;
            r->list[i].alive = true;
            changed = true;
        }
    }
}
