/* sched/plan.c - see sched/plan.h. */
#include "sched/plan.h"

#include "base/check.h"
#include "base/mem.h"

enum status plan_init(struct plan *p, uint32_t row_cap, uint32_t move_cap) {
    CHECK(row_cap > 0);
    CHECK(move_cap >= KV_CACHE_GROUPS_MAX);
    *p = (struct plan){.row_cap = row_cap,
                       .preempted_cap = row_cap,
                       .admitted_cap = PLAN_ADMITTED_PARTS * row_cap};
    p->rows = mem_zalloc_array(row_cap, sizeof(p->rows[0]));
    p->preempted = mem_zalloc_array(row_cap, sizeof(p->preempted[0]));
    p->admitted = mem_zalloc_array(p->admitted_cap, sizeof(p->admitted[0]));
    p->moves.cap = move_cap;
    p->moves.list = mem_zalloc_array(move_cap, sizeof(p->moves.list[0]));
    if (p->rows && p->preempted && p->admitted && p->moves.list) return ST_OK;
    plan_deinit(p);
    return ST_NOMEM;
}

void plan_deinit(struct plan *p) {
    mem_free(p->rows);
    mem_free(p->preempted);
    mem_free(p->admitted);
    mem_free(p->moves.list);
    *p = (struct plan){0};
}

void plan_clear(struct plan *p) {
    p->row_count = p->preempted_count = p->moves.count = 0;
    p->admitted_count = p->wait_count = 0;
    p->token_count = p->sample_count = p->batch_row_count = p->draft_count = 0;
    p->attended_tokens = 0;
    p->batch_us = 0;
    p->waiting_count = p->running_count = 0;
    p->batch_waiting_count = p->batch_running_count = 0;
    p->wants_drain = false;
}
