/* sched/policy_batch.h - what the policies static and dynamic share: a batch is filled, runs to its
 * end, and only then the next one starts.
 *
 * A batch starts when `size_max` sequences wait or the oldest has waited `wait_us`. It admits
 * waiting sequences, over as many consecutive steps as their prompts need, until it is full or a
 * step admits none. From then on it admits no more: batch slots of sequences that end stay unused
 * until the last sequence has ended.
 */
#ifndef SCHED_POLICY_BATCH_H
#define SCHED_POLICY_BATCH_H

#include "sched/policy.h"

struct batch_state {
    uint32_t size_max;
    int64_t wait_us;
    uint32_t size, admitted; /* of the running batch */
    uint64_t admitted_step;  /* the step that admitted its last sequence */
};

bool batch_may_admit(const void *state, const struct sched_view *view);
bool batch_frees_batch_slot(const void *state, const struct sched_view *view);
void batch_on_admit(void *state, struct sched_seq *seq, const struct sched_view *view);
int64_t batch_next_timer(const void *state, const struct sched_seq *seq,
                         const struct sched_view *view);
void batch_verify(const void *state);

#endif
