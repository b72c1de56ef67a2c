/* sched/policy.h - the interface of scheduling policies.
 *
 * The scheduler owns the queue, the batch, the token budget and the KV blocks; a policy only
 * answers questions about them. It reads sequences through `struct sched_seq`, writes only its
 * notes in them (`policy`), and reads no clock (`now_us` is given). Its own memory is a state of
 * fixed size, `state_bytes`, which the scheduler allocates and zeroes at start. So the simulator
 * can run hours of traffic through a policy in seconds.
 *
 * Every entry except name, summary, key and pick_victim may be NULL; its comment says what NULL
 * means.
 *
 * To add a policy, see "To add a policy" in src/sched/README.md.
 */
#ifndef SCHED_POLICY_H
#define SCHED_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sched/cost.h"
#include "sched/knobs.h"
#include "sched/seq.h"

/* What a policy may read. The scheduler fills it before the calls of a plan and before the events
 * of a sequence. The on_step calls of one step share the view that was filled before the first of
 * them. A `key` or `next_timer` call sees the view as it was last filled. */
struct sched_view {
    int64_t now_us;
    const struct knobs *knobs;
    const struct cost_model *cost;
    uint32_t running_count, waiting_count, swapped_count;
    uint32_t decode_count;     /* running sequences that compute one token in a step */
    uint32_t prefill_count;    /* running sequences with more than one token left to compute */
    int64_t oldest_waiting_us; /* arrival of the sequence that waits longest; INT64_MAX: none */
    uint32_t free_blocks;
    uint64_t steps; /* since start */
};

struct sched_policy {
    const char *name;    /* value of --policy */
    const char *summary; /* one sentence for "jitney knobs" and docs */
    size_t state_bytes;  /* 0: the policy needs no state */

    /* Rules that the scheduler itself keeps for this policy: */
    bool whole_prompts; /* a prompt is computed in one step, never in chunks */
    /* A sequence is admitted only if there are blocks for its prompt and max_tokens: it is never
     * preempted because blocks run out. */
    bool reserves_all;
    bool displaces; /* a waiting sequence may preempt running ones, at most 2 in a plan */

    void (*init)(void *state, const struct knobs *knobs);

    /* The order of the queue: the smallest key first; of equal keys those that are swapped out
     * first, then in the order of submission. A key may become smaller only in an on_* call for its
     * sequence. It may become larger at any time (fair: by what its tenant has used meanwhile). The
     * queue is a heap that keeps the keys, so a waiting sequence costs nothing in a step: the
     * scheduler calls `key` again when the sequence is at the front of the queue, and moves it back
     * if its key has become larger, at most 64 times in a plan. */
    int64_t (*key)(const void *state, const struct sched_seq *seq, const struct sched_view *view);

    /* May a waiting (or swapped) sequence be admitted in this step? NULL: always. Asked before the
     * first admission of a plan and again after each. */
    bool (*may_admit)(const void *state, const struct sched_view *view);

    /* With `displaces`: may `waiting` preempt `running`? NULL: if its key is smaller. */
    bool (*displaces_seq)(const void *state, const struct sched_seq *waiting,
                          const struct sched_seq *running, const struct sched_view *view);

    /* Which of `candidates`, all running, to preempt if blocks run out or one is displaced. Returns
     * an index below `count`. */
    uint32_t (*pick_victim)(const void *state, const struct sched_seq *const *candidates,
                            uint32_t count, const struct sched_view *view);

    /* How many prompt tokens this step may compute. `budget` is max_step_tokens minus the tokens
     * that the plan has already; the scheduler uses the smaller of the two. 0 is ignored while the
     * plan is empty. NULL: the whole budget. */
    uint32_t (*prompt_budget)(const void *state, uint32_t budget, const struct sched_view *view);

    /* How long a step may take with drafts (sched/drafts.h), in microseconds; 0: any time. The
     * scheduler also keeps step_target_ms. NULL: 0. */
    double (*drafts_within_us)(const void *state, const struct sched_view *view);

    /* How many blocks to keep free in advance, by swapping out the victims that pick_victim
     * returns (mlfq: proactive swapping). The scheduler keeps at most a quarter of the pool free
     * and preempts for it, together with `displaces`, at most 2 sequences in a plan. NULL: 0. */
    uint32_t (*blocks_to_keep_free)(const void *state, const struct sched_view *view);

    /* Do decoding sequences run in this step? NULL: always, and they are planned before the
     * prompts. A policy that has this entry gets its prompts planned first; the answer is ignored
     * if they leave the plan empty. prefill-first returns false while prompts are computed. */
    bool (*runs_decodes)(const void *state, const struct sched_view *view);

    /* May another sequence take the batch slot of one that has ended? NULL: yes. static and
     * dynamic return false until the whole batch has ended. */
    bool (*frees_batch_slot)(const void *state, const struct sched_view *view);

    /* Events. NULL: ignored. Every sequence arrives once and finishes once (also if it is
     * cancelled, in any state); in between it may be admitted and preempted several times. The view
     * already includes the change. */
    void (*on_arrive)(void *state, struct sched_seq *seq, const struct sched_view *view);
    void (*on_admit)(void *state, struct sched_seq *seq, const struct sched_view *view);
    void (*on_preempt)(void *state, struct sched_seq *seq, const struct sched_view *view);
    /* For each sequence of a step; true if its key or timer may have changed. */
    bool (*on_step)(void *state, struct sched_seq *seq, uint32_t tokens,
                    const struct sched_view *view);
    void (*on_finish)(void *state, struct sched_seq *seq, const struct sched_view *view);

    /* Should this waiting or running sequence be ended as FINISH_EXPIRED now, because its target
     * cannot be met? Asked at arrival and when its timer fires. NULL: never. */
    bool (*sheds)(const void *state, const struct sched_seq *seq, const struct sched_view *view);

    /* When to call on_timer for this sequence (demotion, starvation, a missed deadline): an
     * absolute time, INT64_MAX: never. NULL: never. After on_timer the scheduler asks for the key
     * again. Asked after every event of the sequence, and in every plan for the first of the
     * queue. */
    int64_t (*next_timer)(const void *state, const struct sched_seq *seq,
                          const struct sched_view *view);
    void (*on_timer)(void *state, struct sched_seq *seq, const struct sched_view *view);

    /* CHECK the invariants of the state. NULL: there are none. */
    void (*verify)(const void *state);
};

/* NULL-terminated; defined in policy_list.c. The first is the C library's default. */
extern const struct sched_policy *const sched_policies[];

const struct sched_policy *sched_policy_find(const char *name); /* NULL if unknown */

#endif
