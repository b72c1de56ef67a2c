/* sched/policy_dynamic.c - a batch of a given size, or of what arrived within a window.
 *
 * The dynamic batcher of general model servers: `dynamic_batch` requests start at once, fewer start
 * when the first has waited `dynamic_window_ms`. The batch runs to its end; memory is reserved.
 */
#include "sched/policy_batch.h"
#include "sched/policy_fcfs.h"

static void init(void *state, const struct knobs *knobs) {
    struct batch_state *b = state;
    bool fits = knobs->dynamic_batch < knobs->max_seqs;
    b->size_max = fits ? knobs->dynamic_batch : knobs->max_seqs;
    b->wait_us = (int64_t)(knobs->dynamic_window_ms * 1000);
}

const struct sched_policy sched_policy_dynamic = {
    .name = "dynamic",
    .summary = "a batch of dynamic_batch, or of what arrived in dynamic_window_ms, run to its end",
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
