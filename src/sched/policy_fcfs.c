/* sched/policy_fcfs.c - see sched/policy_fcfs.h. */
#include "sched/policy_fcfs.h"

#include "base/check.h"

int64_t fcfs_key(const void *state, const struct sched_seq *seq, const struct sched_view *view) {
    (void)state;
    (void)view;
    return seq->order;
}

/* The one that arrived last; of equals the last in the array. */
uint32_t fcfs_pick_victim(const void *state, const struct sched_seq *const *running, uint32_t count,
                          const struct sched_view *view) {
    (void)state;
    (void)view;
    CHECK(count > 0);
    uint32_t youngest = 0;
    for (uint32_t i = 1; i < count; i++)
        if (running[i]->arrived_us >= running[youngest]->arrived_us) youngest = i;
    return youngest;
}
