/* sched/policy_batch.h - batches that form, run to their end, and only then make room for the
 * next: what static and dynamic share.
 *
 * A batch starts when `size_max` sequences wait or the oldest has waited `wait_us`. It takes those
 * that wait, over as many steps in a row as their prompts need, until it is full or a step lets
 * nobody in. From then on it is closed: seats of sequences that end stay taken until the last one
 * has ended. Rows that have ended are not computed.
 */
#ifndef SCHED_POLICY_BATCH_H
#define SCHED_POLICY_BATCH_H

#include "sched/policy.h"

struct batch_state {
    uint32_t size_max;
    int64_t wait_us;
    uint32_t size, admitted; /* of the batch that runs */
    uint64_t admitted_step;  /* when the last of them came in */
};

bool batch_may_admit(const void *state, const struct sched_view *view);
bool batch_frees_slot(const void *state, const struct sched_view *view);
void batch_on_admit(void *state, struct sched_seq *seq, const struct sched_view *view);
int64_t batch_next_timer(const void *state, const struct sched_seq *seq,
                         const struct sched_view *view);
void batch_verify(const void *state);

#endif
