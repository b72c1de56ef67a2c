/* sched/policy_fcfs.h - first come, first served; the youngest is preempted. Shared by policies
 * that differ only in how they fill a step. */
#ifndef SCHED_POLICY_FCFS_H
#define SCHED_POLICY_FCFS_H

#include "sched/policy.h"

int64_t fcfs_key(const void *state, const struct sched_seq *seq, const struct sched_view *view);
uint32_t fcfs_pick_victim(const void *state, const struct sched_seq *const *running, uint32_t count,
                          const struct sched_view *view);

#endif
