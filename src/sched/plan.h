/* sched/plan.h - what one step computes, and its result.
 *
 * sched_plan fills a plan, a runner runs it and returns a result with the same rows. A plan that is
 * made while the one before it is under way is an *ahead* plan: it assumes that the other one
 * succeeds, and does not know yet which tokens that one samples.
 *
 * A plan also notes what people want to know about it (engine/record.h): which sequences were
 * admitted, which wait and why, which were preempted for which.
 *
 * Lifetime: two plans per engine, allocated at start. Thread: the engine thread.
 */
#ifndef SCHED_PLAN_H
#define SCHED_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/cache.h"
#include "sched/seq.h"

/* Tokens [first, first + count) of one sequence. The sum of all counts is at most max_step_tokens,
 * with one exception: a policy that never splits prompts runs a longer prompt as the only row. */
struct plan_row {
    seq_idx seq;
    uint32_t first, count;
    bool samples; /* the row has the sequence's last token: the next token is sampled */
    /* The last so many of `count` are drafts (sched/drafts.h): they follow the sequence's last
     * token in `tokens`, and a token is sampled at each of their places, too. Only of a decode. */
    uint32_t draft_count;
    /* The row's first token is the one that the plan before samples for this sequence. It is not in
     * `tokens` yet; what is there is a guess of it. */
    bool takes_sampled;
    uint32_t accepted; /* set by sched_apply: of its drafts */
    /* Set by sched_apply and sched_fail: the result was not used, because the sequence had ended,
     * is to be recomputed, or the row failed or was late. */
    bool is_dropped;
    kv_seq kv;
    const int32_t *tokens; /* the sequence's, from position 0 */
};

/* Why a sequence was preempted, for the step record. */
enum preempt_why {
    PREEMPT_MEMORY,
    PREEMPT_POLICY,
    PREEMPT_FAILED, /* the plan failed that should have moved its blocks */
    PREEMPT_BATCH,  /* a batch line: another sequence needs its seat or its blocks */
};
struct plan_preempted {
    uint64_t request;
    uint64_t for_request; /* the sequence that got its place or its blocks; 0: none in particular */
    uint32_t choice, for_choice;
    uint32_t seat; /* the one that it had */
    enum preempt_why why;
    bool swapped; /* its blocks were swapped out; otherwise it will be recomputed */
};

/* A sequence that has entered the batch since the plan before: by this plan, or as a choice whose
 * prompt was computed. */
struct plan_admitted {
    uint64_t request;
    int64_t waited_us; /* since it arrived, or since it was preempted */
    uint32_t choice, tenant;
    uint32_t seat;   /* its place in the batch until it ends or is preempted, below max_seqs */
    uint32_t cached; /* tokens that it need not compute: of the prefix cache or of its parent */
};

/* Why a sequence was not admitted. The queue is admitted in policy order: what stops its first
 * sequence stops those behind it, so they have the same reason. */
enum wait_why {
    WAIT_SEAT,    /* max_seqs sequences run */
    WAIT_BLOCKS,  /* there are not enough KV blocks */
    WAIT_POLICY,  /* the policy does not admit now, or its tenant has its share */
    WAIT_PREFIX,  /* another sequence computes its prefix or, of a further choice, its prompt */
    WAIT_BUDGET,  /* the step has no tokens or no time left for it */
    WAIT_SWAPPED, /* it is swapped out, and waits to return */
};
struct plan_wait {
    uint64_t request;
    uint32_t choice, tenant;
    enum wait_why why;
};
enum { PLAN_WAITS_MAX = 32 };

struct plan {
    struct plan_row *rows; /* decoding sequences first, then prompts */
    uint32_t row_count, row_cap;
    uint32_t token_count;     /* sum of the rows' counts */
    uint32_t sample_count;    /* rows that sample */
    uint32_t draft_count;     /* of token_count, those that are drafts */
    uint32_t batch_row_count; /* rows of batch lines */
    uint64_t attended_tokens; /* sum over tokens of the context each one reads */
    double batch_us;          /* predicted: what the rows of batch lines add to the step */
    struct kv_moves moves;    /* to do before the rows, in order */
    struct plan_preempted *preempted;
    uint32_t preempted_count, preempted_cap;
    struct plan_admitted *admitted;
    uint32_t admitted_count, admitted_cap;
    struct plan_wait waits[PLAN_WAITS_MAX]; /* the first of the queue */
    uint32_t wait_count;
    uint32_t waiting_count, running_count;             /* after planning; batch lines included */
    uint32_t batch_waiting_count, batch_running_count; /* of these, the batch lines */
    /* This ahead plan lacks something that needs an empty pipeline, such as a preemption. The
     * caller collects and applies every plan under way before it calls sched_plan again. */
    bool wants_drain;
};

/* Room for `row_cap` rows and preemptions (max_seqs), as many admissions as there can be between
 * two plans (PLAN_ADMITTED_PARTS for each row), and `move_cap` moves, at least
 * KV_CACHE_GROUPS_MAX: a copy of one block of each group. If a swap does not fit into the moves the
 * sequence is recomputed instead; if a copy does not fit it waits for the next step. */
enum { PLAN_ADMITTED_PARTS = 3 };
enum status plan_init(struct plan *p, uint32_t row_cap, uint32_t move_cap);
void plan_deinit(struct plan *p);
void plan_clear(struct plan *p); /* no rows, no moves */

/* One per row of the plan, in its order. */
struct row_result {
    bool failed;           /* the row's logits are unusable: the sequence ends with FINISH_ERROR */
    bool is_late;          /* it samples, and has no result yet: the row is planned again */
    bool is_end;           /* the sequence ends with its new tokens */
    uint32_t checked;      /* of the row's drafts, those that were compared with samples */
    uint32_t accepted;     /* of these, those that are equal: they are appended first */
    int32_t token;         /* if the row samples; appended, also if it is an end token */
    const int32_t *forced; /* tokens that follow it without being sampled; valid like the result */
    uint32_t forced_count;
};

struct step_result {
    struct row_result *rows;
    uint32_t row_count;
    int64_t elapsed_us; /* for the cost model */
};

#endif
