/* Rule broken: a preempted sequence is computed again from its first token that is not cached.
 * Here the rows of one that already has an answer begin a token later, and the first one's keys
 * and values stay what they were.
 * wrap: sched_plan sched_apply */
#include "sched/sched.h"

void __real_sched_plan(struct sched *s, int64_t now_us, struct plan *plan);
void __wrap_sched_plan(struct sched *s, int64_t now_us, struct plan *plan);
void __real_sched_apply(struct sched *s, const struct plan *plan, const struct step_result *result,
                        int64_t now_us);
void __wrap_sched_apply(struct sched *s, const struct plan *plan, const struct step_result *result,
                        int64_t now_us);

static bool is_recomputed(const struct sched *s, const struct plan_row *row) {
    const struct sched_seq *seq = sched_seq_at(s, row->seq);
    return row->count > 1 && seq->preempt_count > 0 && seq->run_steps == 0;
}

static void shift(const struct sched *s, const struct plan *plan, int by) {
    for (uint32_t i = 0; i < plan->row_count; i++) {
        struct plan_row *row = &plan->rows[i];
        if (!is_recomputed(s, row) && by > 0) continue;
        if (by < 0 && sched_seq_at(s, row->seq)->computed == row->first) continue;
        row->first += (uint32_t)by;
        row->count -= (uint32_t)by;
    }
}

void __wrap_sched_plan(struct sched *s, int64_t now_us, struct plan *plan) {
    __real_sched_plan(s, now_us, plan);
    shift(s, plan, 1);
}

/* The scheduler is not to know. */
void __wrap_sched_apply(struct sched *s, const struct plan *plan, const struct step_result *result,
                        int64_t now_us) {
    shift(s, plan, -1);
    __real_sched_apply(s, plan, result, now_us);
}
