/* sched/policy_orca.c - Orca: iteration-level, first come first served, with reservation.
 *
 * Sequences join and leave the batch between steps. A prompt is computed in one step, together with
 * the decodes of others (which a long prompt slows down). A sequence is admitted only when blocks
 * for its prompt and all of max_tokens can be reserved, so none is ever preempted.
 */
#include "sched/policy_fcfs.h"

const struct sched_policy sched_policy_orca = {
    .name = "orca",
    .summary =
        "iteration-level FCFS: whole prompts merged with decodes, memory reserved to the end",
    .whole_prompts = true,
    .reserves_all = true,
    .key = fcfs_key,
    .pick_victim = fcfs_pick_victim,
};
