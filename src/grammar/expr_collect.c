/* grammar/expr_collect.c - forgetting expressions that matching made and nothing needs any more. */
#include <string.h>

#include "base/mem.h"
#include "grammar/budget.h"
#include "grammar/expr.h"
#include "grammar/expr_int.h"

enum { ROW_EXPRS = 256 };

static bool has_list(const struct expr *e) { return e->kind == EX_OR || e->kind == EX_AND; }

static void note_parts(const struct expr_pool *p, const struct expr *e, uint32_t *map) {
    for (uint32_t i = 0; has_list(e) && i < e->b; i++) map[p->lists[e->a + i]] = 1;
    if (e->kind == EX_CONCAT || e->kind == EX_NOT || e->kind == EX_REPEAT) map[e->a] = 1;
    if (e->kind == EX_CONCAT) map[e->b] = 1;
}

/* Lists move to the front, too: one that was interned later lies behind. */
static void move_expr(struct expr_pool *p, struct expr *e, const uint32_t *map) {
    if (has_list(e)) {
        const uint32_t from = e->a;
        e->a = p->list_count;
        for (uint32_t i = 0; i < e->b; i++) p->lists[p->list_count++] = map[p->lists[from + i]];
    }
    if (e->kind == EX_CONCAT || e->kind == EX_NOT || e->kind == EX_REPEAT) e->a = map[e->a];
    if (e->kind == EX_CONCAT) e->b = map[e->b];
}

static void forget_row(struct expr_pool *p, struct expr *e) {
    if (e->row) p->budget->bytes -= ROW_EXPRS * sizeof(*e->row);
    mem_free(e->row);
    e->row = NULL;
}

/* The texts of literals that matching made move to the front of their part. Literals that overlap
 * end at the same byte: one is what is left of the other. Without memory they stay. */
static void move_literals(struct expr_pool *p, uint32_t first) {
    uint32_t base = 0, end;
    for (uint32_t i = 0; i < first; i++) {
        const struct expr *e = &p->exprs[i];
        if (e->kind == EX_LITERAL && e->a + e->b > base) base = e->a + e->b;
    }
    uint32_t *places = mem_zalloc_array((size_t)p->byte_count - base + 1, sizeof(*places));
    if (!places) return;
    for (uint32_t i = first; i < p->count; i++) {
        const struct expr *e = &p->exprs[i];
        if (e->kind != EX_LITERAL || e->a < base) continue;
        for (uint32_t k = e->a; k < e->a + e->b && !places[k - base]; k++) places[k - base] = 1;
    }
    end = base;
    for (uint32_t k = base; k < p->byte_count; k++) {
        if (!places[k - base]) continue;
        p->bytes[end] = p->bytes[k];
        places[k - base] = end++;
    }
    for (uint32_t i = first; i < p->count; i++) {
        struct expr *e = &p->exprs[i];
        if (e->kind == EX_LITERAL && e->a >= base) e->a = places[e->a - base];
    }
    p->byte_count = end;
    mem_free(places);
}

void expr_pool_collect(struct expr_pool *p, uint32_t first, uint32_t *map) {
    for (uint32_t i = 0; i < p->count; i++) forget_row(p, &p->exprs[i]);
    for (uint32_t i = p->count; i-- > first;)
        if (map[i]) note_parts(p, &p->exprs[i], map);
    p->list_count = 0;
    for (uint32_t i = 0; i < first; i++) {
        const struct expr *e = &p->exprs[i];
        map[i] = i;
        if (has_list(e) && e->a + e->b > p->list_count) p->list_count = e->a + e->b;
    }
    uint32_t kept = first;
    for (uint32_t i = first; i < p->count; i++) {
        if (!map[i]) continue;
        struct expr e = p->exprs[i];
        move_expr(p, &e, map);
        p->exprs[kept] = e;
        map[i] = kept++;
    }
    memset(p->exprs + kept, 0, (p->count - kept) * sizeof(*p->exprs));
    p->count = kept;
    move_literals(p, first);
    budget_shrink(p->budget, (void **)&p->exprs, &p->cap, p->count, sizeof(*p->exprs));
    budget_shrink(p->budget, (void **)&p->lists, &p->list_cap, p->list_count, sizeof(*p->lists));
    budget_shrink(p->budget, (void **)&p->bytes, &p->byte_cap, p->byte_count, sizeof(*p->bytes));
    budget_shrink(p->budget, (void **)&p->scratch, &p->scratch_cap, 0, sizeof(*p->scratch));
    budget_shrink_slots(p->budget, &p->slots, &p->slot_count, p->count);
    expr_index(p);
}
