/* Rule broken: a draft counts only if it equals the token that was sampled at its place. Here one
 * refused draft counts.
 * wrap: sched_drafts_learn */
#include "sched/sched_int.h"

void __real_sched_drafts_learn(struct sched *s, const struct plan_row *row,
                               const struct row_result *result);
void __wrap_sched_drafts_learn(struct sched *s, const struct plan_row *row,
                               const struct row_result *result);

void __wrap_sched_drafts_learn(struct sched *s, const struct plan_row *row,
                               const struct row_result *result) {
    struct plan_row *changed = (struct plan_row *)row;
    __real_sched_drafts_learn(s, row, result);
    if (changed->accepted < changed->draft_count) changed->accepted++;
}
