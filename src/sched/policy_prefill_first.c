/* sched/policy_prefill_first.c - prompts interrupt decoding if enough requests wait.
 *
 * As vLLM's first engine and TGI without chunking: a step computes whole prompts or decodes, not
 * both. Prompts are admitted when waiting / running reaches `waiting_served_ratio` (checked every
 * `prefill_every` steps), or after `max_waiting_tokens` steps of decoding only. First tokens are
 * early; meanwhile decoding sequences get no tokens.
 */
#include "sched/policy_fcfs.h"

struct prefill_state {
    uint64_t prompt_step; /* the last step that admitted a sequence, plus one; 0: none yet */
};

static bool may_admit(const void *state, const struct sched_view *view) {
    const struct prefill_state *p = state;
    uint32_t there = view->waiting_count + view->swapped_count;
    if (view->running_count == 0 || p->prompt_step == view->steps + 1) return true;
    if (view->steps >= p->prompt_step + view->knobs->max_waiting_tokens) return true;
    if (view->steps % view->knobs->prefill_every != 0) return false;
    return (double)there >= view->knobs->waiting_served_ratio * (double)view->running_count;
}

static bool runs_decodes(const void *state, const struct sched_view *view) {
    (void)state;
    return view->prefill_count == 0;
}

/* Plus one, so that zero means never. */
static void on_admit(void *state, struct sched_seq *seq, const struct sched_view *view) {
    (void)seq;
    struct prefill_state *p = state;
    p->prompt_step = view->steps + 1;
}

const struct sched_policy sched_policy_prefill_first = {
    .name = "prefill-first",
    .summary = "whole prompts before decodes, by ratio of waiting to running or after an interval",
    .state_bytes = sizeof(struct prefill_state),
    .whole_prompts = true,
    .key = fcfs_key,
    .may_admit = may_admit,
    .pick_victim = fcfs_pick_victim,
    .runs_decodes = runs_decodes,
    .on_admit = on_admit,
};
