/* sched/sched_int.h - what the files of the scheduler share.
 *
 *     sched.c         create, submit, cancel, events, statistics
 *     sched_seq.c     how a sequence changes its state: waiting, running, ended; timers
 *     sched_plan.c    one plan: decodes, prompts, the queue
 *     sched_ahead.c   what an ahead plan assumes; ended sequences that a plan under way uses
 *     sched_admit.c   whether a waiting sequence is admitted, and with how many tokens
 *     sched_memory.c  blocks for a row; which sequence is preempted
 *     sched_share.c   what one tenant may take while there are others
 *     sched_lines.c   batch lines: what the others leave
 *     sched_drafts.c  how many drafts rows carry, and what is learned from them
 *     sched_apply.c   the results of a plan
 *     sched_verify.c  every invariant
 *
 * sched/ahead_int.h declares what sched_ahead.c and sched_drafts.c give to the others.
 *
 * README.md numbers the invariants; the code cites them as "sched I3".
 */
#ifndef SCHED_SCHED_INT_H
#define SCHED_SCHED_INT_H

#include "base/check.h"
#include "kv/cache.h"
#include "sched/ahead_int.h"
#include "sched/heap.h"
#include "sched/lines.h"
#include "sched/notes_int.h"
#include "sched/planning.h"
#include "sched/sched.h"
#include "sched/share.h"
#include "sched/slot.h"

enum { PLANS_UNDER_WAY_MAX = 2 };
struct sched {
    const struct sched_policy *policy;
    struct knobs knobs;
    struct cost_model cost;
    uint32_t ctx_tokens;
    void *state;        /* the policy's */
    size_t state_bytes; /* enough for each policy of the list */
    struct kv_cache *kv;

    struct slot *slots;
    uint32_t slot_count;
    seq_idx free_first; /* linked by seq.next */
    seq_idx *buckets;   /* hash table: (request, choice) -> slot */
    uint32_t bucket_mask;

    struct seq_heap queue;      /* WAITING and SWAPPED, by policy key */
    struct seq_heap by_arrival; /* WAITING, by arrival */
    struct seq_heap timers;     /* by time */
    struct seq_heap prompts;    /* RUNNING and prefilling, by policy key; scratch of one plan */
    seq_idx *running;           /* RUNNING, in any order; max_seqs elements */
    uint32_t decode_start;      /* the element with which the next plan starts its decodes */
    seq_idx oldest_running;     /* the running one that was submitted first; SEQ_NONE: none runs */
    uint32_t running_count, swapped_count, forking_count, live_count;
    uint32_t decode_count, prefill_count; /* of running_count */
    uint32_t held_batch_slots;  /* of ended sequences that the policy does not refill yet */
    uint32_t live_max;          /* sequences that may be live at one time */
    uint64_t reserved_blocks;   /* of RUNNING sequences, if the policy reserves */
    struct sched_shares shares; /* of tenants */
    uint64_t queue_tokens;      /* tokens that the sequences of the queue still have to compute */
    struct sched_lines lines;   /* batch lines: no other count above includes them */

    seq_idx event_first, event_last;
    seq_idx linger_first; /* ended sequences that a plan under way uses */
    uint64_t next_serial, plan_number;
    struct plan_under_way {
        const struct plan *plan; /* the caller's */
        uint64_t number;
        bool is_lines_only;           /* all its rows are of batch lines */
    } under_way[PLANS_UNDER_WAY_MAX]; /* the oldest first */
    uint32_t under_way_count;
    bool is_assumed;  /* sequences are in the state after the oldest plan under way */
    bool is_draining; /* a plan failed: no new plan before all plans under way are applied */
    uint64_t epoch;   /* rises when blocks or prefixes may have become available */
    struct sched_notes notes;

    /* Scratch of one plan, of max_seqs elements. */
    const struct sched_seq **candidates;
    seq_idx *order; /* the sequences that ran when the plan was started, the oldest first */
    struct plan_row *rows;

    struct sched_view view;
    double mean_output; /* tokens of an answer, a running mean */
    uint64_t steps, preempted, swapped_out, recomputed_tokens, finished;
    uint64_t ahead_plans, dropped_rows;
    struct draft_source drafts;
    uint32_t draft_rows_max;
    uint32_t draft_seqs; /* live sequences that may have drafts */
    struct draft_stats draft_stats;
    uint64_t held_positions, used_positions;
};

/* ---- sched.c ---- */
seq_idx sched_find(const struct sched *s, uint64_t request, uint32_t choice);
void sched_slot_free(struct sched *s, seq_idx i); /* after its last event */

/* ---- sched_seq.c ---- */
static inline struct sched_seq *seq_at(const struct sched *s, seq_idx i) {
    return &s->slots[i].seq;
}
static inline seq_idx idx_of(const struct sched *s, const struct sched_seq *seq) {
    return (seq_idx)((const struct slot *)(const void *)seq - s->slots);
}

static inline bool is_line(const struct sched *s, seq_idx i) {
    return s->lines.slot_count > 0 && seq_at(s, i)->is_batch;
}

/* Fill in s->view, which is passed to the policy. */
const struct sched_view *sched_update_view(struct sched *s, int64_t now_us);

/* Policy order: smaller key first, then the order of submission. */
bool sched_goes_before(const struct sched *s, seq_idx a, seq_idx b);
uint32_t sched_blocks_for(const struct sched *s, uint32_t tokens);

uint64_t sched_queue_tie(const struct sched *s, seq_idx i);
void sched_queue_push(struct sched *s, seq_idx i); /* WAITING or SWAPPED, with its current key */
void sched_queue_remove(struct sched *s, seq_idx i);

/* After an event of the sequence: get its key and its timer from the policy again. */
void sched_rekey(struct sched *s, seq_idx i);
void sched_set_timer(struct sched *s, seq_idx i);

void sched_running_add(struct sched *s, seq_idx i); /* becomes RUNNING */
void sched_running_remove(struct sched *s, seq_idx i);
void sched_update_phase(struct sched *s, seq_idx i); /* after `computed` changed */
void sched_event_push(struct sched *s, seq_idx i);

/* The only function that ends a sequence. One that a plan under way uses lingers. */
void sched_end(struct sched *s, seq_idx i, enum finish_reason why, int64_t now_us);

/* Choices that wait for `parent` enter the queue by themselves. */
void sched_children_to_queue(struct sched *s, seq_idx parent, int64_t now_us);
void sched_child_unlink(struct sched *s, seq_idx child);
uint32_t *sched_forking_count(struct sched *s, seq_idx i); /* of its class */
void sched_enqueue(struct sched *s, seq_idx i); /* becomes WAITING, with nothing computed */
void sched_fire_timers(struct sched *s, int64_t now_us);

/* ---- sched_memory.c ---- */
/* Blocks for the positions below `tokens`; may preempt others. False: the sequence must wait. */
bool sched_ensure_blocks(struct planning *p, seq_idx i, uint32_t tokens);
/* Take blocks that are available. False: there are too few, or the list of moves is full. */
bool sched_grow(struct planning *p, seq_idx i, uint32_t tokens);
/* The end of the block that has position tokens - 1. */
uint32_t sched_end_of_block(const struct sched *s, uint32_t tokens);
/* Remove a running sequence from the batch, and its row from the plan. */
void sched_preempt(struct planning *p, seq_idx i, seq_idx for_seq, enum preempt_why why);
/* An ahead plan preempts no sequence: the plan under way may use the victim's blocks. */
bool sched_needs_drain(struct planning *p);
/* Free the blocks and put the sequence into the queue, to be recomputed. */
void sched_drop_blocks(struct sched *s, seq_idx i);

/* Preempt a running sequence that `waiting` may displace. False: there is none, or all of them
 * together could not make so many blocks available. */
bool sched_displace(struct planning *p, seq_idx waiting, uint64_t blocks);

/* Blocks kept by retention hints (the most of any group); release all, true if there were any. */
uint32_t sched_kept_blocks(const struct sched *s);
bool sched_release_kept(struct sched *s);

/* Swap sequences out in advance, so that the policy's blocks_to_keep_free are free. */
void sched_keep_free(struct planning *p);

/* ---- sched_admit.c ---- */
enum admission {
    ADMITTED,
    ADMIT_SKIP, /* another sequence computes its prefix: later ones of the queue may go first */
    ADMIT_NO_MEMORY,
    ADMIT_ABOVE_SHARE, /* no memory for its tenant: those of other tenants may go first */
    ADMIT_NO_TOKENS,   /* the step has no tokens left for it */
    ADMIT_NO_SEAT,     /* a batch line has its seat, and an ahead plan cannot preempt that */
};

/* On ADMIT_NO_MEMORY seen_need of its slot is the number of blocks that must become available. */
enum admission sched_admit(struct planning *p, seq_idx i);

/* Prompt tokens that sequence i may compute now, from position `first` on; 0: none. */
uint32_t sched_chunk(struct planning *p, seq_idx i, uint32_t first);
/* The sequence starts to run, with these block tables. */
void sched_start_running(struct sched *s, seq_idx i, kv_seq kv, uint32_t computed, int64_t now_us);
/* As many of `count` tokens of a running prompt as there are blocks for; at least one. */
uint32_t sched_cut_to_memory(const struct sched *s, seq_idx i, uint32_t count);
uint32_t sched_watermark(const struct sched *s);
/* May a choice start to run beside its parent now? */
bool sched_fork_fits(const struct sched *s, seq_idx child);

/* ---- sched_plan.c; sched_notes.c: notes_int.h ---- */
void sched_row_add(struct planning *p, seq_idx i, uint32_t count);
void sched_row_drop(struct planning *p, seq_idx i); /* it has a row */
void sched_rows_drop_all(struct planning *p);       /* to make room for a long prompt */

#endif
