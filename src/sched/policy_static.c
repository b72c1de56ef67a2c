/* sched/policy_static.c - fill the batch, run it to its end.
 *
 * Serving before continuous batching; the baseline for the other policies. A batch starts when
 * max_seqs requests wait or the oldest has waited `static_wait_ms`; memory is reserved to the end.
 */
#include "sched/policy_batch.h"
#include "sched/policy_fcfs.h"

static void init(void *state, const struct knobs *knobs) {
    struct batch_state *b = state;
    b->size_max = knobs->max_seqs;
    b->wait_us = (int64_t)(knobs->static_wait_ms * 1000);
}

const struct sched_policy sched_policy_static = {
    .name = "static",
    .summary = "fill a batch of max_seqs, run it to its end, start the next",
    .state_bytes = sizeof(struct batch_state),
    .whole_prompts = true,
    .reserves_all = true,
    .init = init,
    .key = fcfs_key,
    .may_admit = batch_may_admit,
    .pick_victim = fcfs_pick_victim,
    .frees_batch_slot = batch_frees_batch_slot,
    .on_admit = batch_on_admit,
    .next_timer = batch_next_timer,
    .verify = batch_verify,
};
