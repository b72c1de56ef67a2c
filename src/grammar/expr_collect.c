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
    expr_index(p);
}
