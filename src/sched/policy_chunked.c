/* sched/policy_chunked.c - Sarathi-Serve: stall-free, chunked prompts; the default.
 *
 * Every decoding sequence gets its token in every step, and prompts fill what is left of the
 * step's tokens (max_step_tokens) or of its time (step_target_ms), cut where it ends. So a long
 * prompt slows the others by a bounded amount and never stops them.
 */
#include "sched/policy_fcfs.h"

const struct sched_policy sched_policy_chunked = {
    .name = "chunked",
    .summary = "decodes first, prompts in chunks fill the rest of each step; the default",
    .key = fcfs_key,
    .pick_victim = fcfs_pick_victim,
};
