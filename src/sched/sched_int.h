/* sched/sched_int.h - what the files of the scheduler share: its struct, and verbs on one sequence.
 *
 *     sched.c         birth, submit, cancel, events, numbers
 *     sched_seq.c     how a sequence changes its state: line, seat, end; timers
 *     sched_plan.c    one plan: decodes, prompts, the line
 *     sched_ahead.c   what an ahead plan assumes; ended sequences that a plan under way uses
 *     sched_admit.c   may this one in, and for how many tokens
 *     sched_memory.c  blocks for a row; who gives way
 *     sched_apply.c   what came of a plan
 *     sched_verify.c  every invariant
 *
 * README.md numbers the invariants; the code cites them as "sched I3".
 */
#ifndef SCHED_SCHED_INT_H
#define SCHED_SCHED_INT_H

#include "base/check.h"
#include "kv/cache.h"
#include "sched/heap.h"
#include "sched/sched.h"
#include "sched/slot.h"

enum { PLANS_UNDER_WAY_MAX = 2 };
struct sched {
    const struct sched_policy *policy;
    struct knobs knobs;
    struct cost_model cost;
    uint32_t ctx_tokens;
    void *state; /* the policy's */
    struct kv_cache *kv;

    struct slot *slots;
    uint32_t slot_count;
    seq_idx free_first; /* linked by seq.next */
    seq_idx *buckets;   /* (request, choice) -> slot */
    uint32_t bucket_mask;

    struct seq_heap queue;      /* WAITING and SWAPPED, by policy key */
    struct seq_heap by_arrival; /* WAITING, by arrival */
    struct seq_heap timers;     /* by time */
    struct seq_heap prompts;    /* RUNNING in their prompts, by policy key; one plan's scratch */
    seq_idx *running;           /* RUNNING, in no order that matters; max_seqs elements */
    uint32_t decode_start;      /* where the next plan begins among them */
    seq_idx oldest_running;     /* of them, the one submitted first; SEQ_NONE if none runs */
    uint32_t running_count, swapped_count, forking_count, live_count;
    uint32_t decode_count, prompt_count; /* of running_count */
    uint32_t held_batch_slots;           /* of ended sequences whose seats are not free yet */
    uint32_t live_max;                   /* sequences that may be live at one time */
    uint64_t reserved_blocks;            /* of RUNNING ones, where the policy reserves */
    uint64_t queue_tokens;               /* still to compute, over the line */

    seq_idx event_first, event_last;
    seq_idx linger_first; /* ended ones that a plan under way uses */
    uint64_t next_serial;
    uint64_t plan_number;
    struct plan_under_way {
        const struct plan *plan; /* the caller's */
        uint64_t number;
    } under_way[PLANS_UNDER_WAY_MAX]; /* the oldest first */
    uint32_t under_way_count;
    bool is_assumed; /* sequences stand as if the oldest plan under way had been applied */
    bool must_drain; /* a plan failed: no new one before all under way are over */
    uint64_t epoch;  /* counts what may change an answer of the prefix cache for the better */

    /* Scratch of one plan, of max_seqs elements. */
    const struct sched_seq **candidates;
    seq_idx *order; /* who ran when the plan began, the eldest first */
    struct plan_row *rows;

    struct sched_view view;
    double mean_output; /* tokens of an answer, learned */
    uint64_t steps, preempted, swapped_out, recomputed_tokens, finished;
    uint64_t ahead_plans, dropped_rows;
    uint64_t held_slots, used_slots;
};

/* A plan being made. */
struct planning {
    struct sched *s;
    struct plan *plan;
    int64_t now_us;
    bool is_ahead;        /* another plan is under way */
    uint32_t prompt_left; /* tokens that prompts may still take */
    uint32_t keep_free;   /* blocks that admission leaves alone */
    uint64_t pending;     /* blocks that running sequences lack for the tokens they have */
    bool is_pending_known;
    bool is_admitting;
    uint32_t rekeyed;     /* so far, for the bound */
    bool has_prompt;      /* a prompt row is planned */
    bool is_mixed;        /* a decode row stands behind a prompt */
    uint32_t order_count; /* of s->order */
    bool is_solo;         /* its only row is a prompt too long to share a step */
    uint32_t displaced;   /* so far, for the bound */
};

/* ---- sched.c ---- */
seq_idx sched_find(const struct sched *s, uint64_t request, uint32_t choice);
void sched_slot_free(struct sched *s, seq_idx i); /* its last event has been taken */

/* ---- sched_seq.c ---- */
static inline struct sched_seq *seq_at(const struct sched *s, seq_idx i) {
    return &s->slots[i].seq;
}
static inline seq_idx idx_of(const struct sched *s, const struct sched_seq *seq) {
    return (seq_idx)((const struct slot *)(const void *)seq - s->slots);
}

/* Refresh the view; it is what a policy is shown next. */
const struct sched_view *sched_update_view(struct sched *s, int64_t now_us);

/* Policy order: smaller key first, then the order of submission. */
bool sched_goes_before(const struct sched *s, seq_idx a, seq_idx b);
uint32_t sched_blocks_for(const struct sched *s, uint32_t tokens);

uint64_t sched_queue_tie(const struct sched *s, seq_idx i);
void sched_queue_push(struct sched *s, seq_idx i); /* WAITING or SWAPPED, its key is fresh */
void sched_queue_remove(struct sched *s, seq_idx i);

/* Something happened to it: ask the policy for its key and its timer again. */
void sched_rekey(struct sched *s, seq_idx i);
void sched_set_timer(struct sched *s, seq_idx i);

void sched_running_add(struct sched *s, seq_idx i); /* becomes RUNNING, takes a seat */
void sched_running_remove(struct sched *s, seq_idx i);
void sched_update_phase(struct sched *s, seq_idx i); /* decode or prompt, after `computed` moved */
uint32_t sched_reservation(const struct sched *s,
                           seq_idx i); /* blocks, where the policy reserves */
void sched_event_push(struct sched *s, seq_idx i);

/* The one place where sequences end. One that a plan under way uses lingers. */
void sched_end(struct sched *s, seq_idx i, enum finish_reason why, int64_t now_us);

/* Choices that wait for `parent` take their own place in line. */
void sched_children_to_queue(struct sched *s, seq_idx parent, int64_t now_us);
void sched_child_unlink(struct sched *s, seq_idx child);
void sched_enqueue(struct sched *s, seq_idx i); /* into the line, all to be computed */
void sched_fire_timers(struct sched *s, int64_t now_us);

/* ---- sched_ahead.c ---- */
/* Update all sequences as if the plan under way had succeeded; its sampled tokens stay unknown. */
void sched_assume(struct sched *s);
/* Take back what was assumed of sequence i. */
void sched_unassume(struct sched *s, seq_idx i);
/* Must sequence i have no row in this ahead plan, because the plan under way has one? */
bool sched_skips_ahead_plan(const struct planning *p, seq_idx i);

/* The number of the last plan under way that uses sequence i; 0: none does. One that ends keeps its
 * blocks and its index until that plan is over. */
uint64_t sched_used_until(const struct sched *s, seq_idx i);
void sched_linger(struct sched *s, seq_idx i, uint64_t until, bool has_kv, bool is_running);
/* The oldest plan under way is over: returns its number. When its rows have been dealt with, what
 * lingered for it is given back. */
uint64_t sched_take_oldest(struct sched *s, const struct plan *plan);
void sched_end_lingering(struct sched *s, uint64_t number);

/* ---- sched_memory.c ---- */
/* Room for the positions below `tokens`; may preempt others. False: it must wait. */
bool sched_ensure_blocks(struct planning *p, seq_idx i, uint32_t tokens);

/* A sequence whose blocks cannot be used: back into the line, all to be computed again. */
void sched_drop_blocks(struct sched *s, seq_idx i);

/* Take the seat of one that `waiting` may displace; false if there is none, or if all of them
 * together could not make so many blocks available. */
bool sched_displace(struct planning *p, seq_idx waiting, uint64_t blocks);

/* Blocks that retention hints keep from being available (the most of any group); and give them
 * all up, true if there were any. */
uint32_t sched_kept_blocks(const struct sched *s);
bool sched_release_kept(struct sched *s);

/* Swap out ahead of need, as the policy wants. */
void sched_keep_free(struct planning *p);

/* ---- sched_admit.c ---- */
enum admission {
    ADMITTED,
    ADMIT_SKIP, /* another computes its prefix: others may pass */
    ADMIT_NO_MEMORY,
    ADMIT_NO_TOKENS, /* this step has none left for it */
};

/* On ADMIT_NO_MEMORY its slot's seen_need says how many blocks would have to be available. */
enum admission sched_admit(struct planning *p, seq_idx i);

/* Prompt tokens that sequence i may compute now, from position `first` on; 0: none. */
uint32_t sched_chunk(const struct planning *p, seq_idx i, uint32_t first);

/* The sequence takes a seat with the tables it has. */
void sched_start_running(struct sched *s, seq_idx i, kv_seq kv, uint32_t computed, int64_t now_us);

/* May a choice take a seat beside its parent now? */
bool sched_fork_fits(const struct sched *s, seq_idx child);

/* ---- sched_plan.c ---- */
void sched_row_add(struct planning *p, seq_idx i, uint32_t count);
void sched_row_drop(struct planning *p, seq_idx i); /* it has one */
void sched_rows_drop_all(struct planning *p);       /* decodes make way for a long prompt */

#endif
