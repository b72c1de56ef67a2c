/* sched/policy.h - the only place where scheduling taste lives.
 *
 * The scheduler owns the queues, the seats, the token budget and the KV blocks; a policy only
 * answers questions about them. It sees sequences through `struct sched_seq`, changes only its
 * notes in them, and reads no clock (`now_us` is given). What it remembers lives in a state of
 * fixed size that the scheduler allocates at boot. That is what lets the simulator replay a day
 * of traffic against it in seconds.
 *
 * Every entry but name, key and pick_victim may be NULL and then means what its comment says.
 *
 * To add one: write sched/policy_NAME.c, add a line to sched/policy_list.c.
 */
#ifndef SCHED_POLICY_H
#define SCHED_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sched/cost.h"
#include "sched/knobs.h"
#include "sched/seq.h"

/* What a policy may look at. Filled by the scheduler before every call. */
struct sched_view {
    int64_t now_us;
    const struct knobs *knobs;
    const struct cost_model *cost;
    uint32_t running_count, waiting_count, swapped_count;
    uint32_t decode_count;     /* running sequences that need one token */
    uint32_t prompt_count;     /* running sequences that are still in their prompt */
    int64_t oldest_waiting_us; /* arrival of the longest waiting; INT64_MAX if none waits */
    uint32_t free_blocks;
    uint64_t steps; /* since boot */
};

struct sched_policy {
    const char *name;    /* what --policy takes */
    const char *summary; /* one sentence for --help and docs */
    size_t state_bytes;  /* 0 if it remembers nothing */

    /* Flags of the mechanism, not of taste: */
    bool whole_prompts; /* a prompt is computed in one step, never in chunks */
    bool reserves_all;  /* admission counts blocks for prompt and max_tokens: none run out */
    bool displaces;     /* a waiting sequence with a smaller key may take a running one's seat */

    void (*init)(void *state, const struct knobs *knobs);

    /* The place in line: smaller goes first, ties keep arrival order. It may change only in an
     * on_* call, so the line is a heap and costs nothing per waiting sequence. One exception: it
     * may grow by itself (fair: what the tenant has used meanwhile). The scheduler asks again
     * when a sequence is first in line and, if its key has grown, puts it back, a bounded number
     * of times in a step. */
    int64_t (*key)(const void *state, const struct sched_seq *seq, const struct sched_view *view);

    /* May a waiting (or swapped) sequence take a seat in this step? NULL: always. Asked once
     * per step before the first admission and again after each. */
    bool (*may_admit)(const void *state, const struct sched_view *view);

    /* Does `waiting` take the seat of `running`? NULL with displaces: when its key is smaller. */
    bool (*displaces_seq)(const void *state, const struct sched_seq *waiting,
                          const struct sched_seq *running, const struct sched_view *view);

    /* Which of `running` to preempt when blocks run out or a seat is wanted: an index. */
    uint32_t (*pick_victim)(const void *state, const struct sched_seq *const *running,
                            uint32_t count, const struct sched_view *view);

    /* How many prompt tokens this step may compute, of at most `budget` that are left beside the
     * decoding sequences. NULL: all of them. */
    uint32_t (*prompt_budget)(const void *state, uint32_t budget, const struct sched_view *view);

    /* How many blocks to keep free ahead of need, by swapping out the victims that pick_victim
     * names (mlfq: proactive swapping). NULL: 0. */
    uint32_t (*blocks_to_keep_free)(const void *state, const struct sched_view *view);

    /* Do decoding sequences run in this step? NULL: always. prefill-first says no while prompts
     * go in. */
    bool (*runs_decodes)(const void *state, const struct sched_view *view);

    /* Is a finished sequence's seat free at once? NULL: yes. static and dynamic say no until
     * the batch is empty. */
    bool (*frees_batch_slot)(const void *state, const struct sched_view *view);

    /* Events. NULL: nothing to note. Every sequence arrives once and finishes once (cancelled
     * ones too, wherever they are); in between it may be admitted and preempted several times.
     * The view already counts the change. */
    void (*on_arrive)(void *state, struct sched_seq *seq, const struct sched_view *view);
    void (*on_admit)(void *state, struct sched_seq *seq, const struct sched_view *view);
    void (*on_preempt)(void *state, struct sched_seq *seq, const struct sched_view *view);
    /* Per sequence that was in the step; true if its key or timer may have changed. */
    bool (*on_step)(void *state, struct sched_seq *seq, uint32_t tokens,
                    const struct sched_view *view);
    void (*on_finish)(void *state, struct sched_seq *seq, const struct sched_view *view);

    /* Should this waiting or running sequence be ended as FINISH_EXPIRED now, because its target
     * cannot be met? Asked at arrival and when its timer fires. NULL: never. */
    bool (*sheds)(const void *state, const struct sched_seq *seq, const struct sched_view *view);

    /* When to look at this sequence again though nothing has happened to it (demotion,
     * starvation, a hopeless deadline): an absolute time, INT64_MAX for never. NULL: never. At
     * that time on_timer is called, then its key is asked anew. Asked after every event of the
     * sequence, and in every plan of whoever is first in line. */
    int64_t (*next_timer)(const void *state, const struct sched_seq *seq,
                          const struct sched_view *view);
    void (*on_timer)(void *state, struct sched_seq *seq, const struct sched_view *view);

    /* CHECK the state's own invariants. NULL: none. */
    void (*verify)(const void *state);
};

/* NULL-terminated; policy_list.c holds it. */
extern const struct sched_policy *const sched_policies[];

const struct sched_policy *sched_policy_find(const char *name); /* NULL if unknown */

#endif
