/* sched/policy_pick.h - the victim of most policies: the last in policy order. */
#ifndef SCHED_POLICY_PICK_H
#define SCHED_POLICY_PICK_H

#include "sched/policy.h"

/* The sequence with the largest key; of equals the first. */
uint32_t pick_last_in_order(const void *state, const struct sched_seq *const *running,
                            uint32_t count, const struct sched_view *view);

#endif
