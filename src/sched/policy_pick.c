/* sched/policy_pick.c - see sched/policy_pick.h. */
#include "sched/policy_pick.h"

#include "base/check.h"

uint32_t pick_last_in_order(const void *state, const struct sched_seq *const *running,
                            uint32_t count, const struct sched_view *view) {
    (void)state;
    (void)view;
    CHECK(count > 0);
    uint32_t last = 0;
    for (uint32_t i = 1; i < count; i++)
        if (running[i]->key > running[last]->key) last = i;
    return last;
}
