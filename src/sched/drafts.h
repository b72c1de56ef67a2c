/* sched/drafts.h - where draft tokens come from: the plug between the scheduler and src/spec.
 *
 * A *draft* is a guess of a token that a sequence will sample. A decode row may carry drafts: they
 * are computed behind the sequence's last token, in the same step, and the target model samples at
 * each of their places. Drafts count as long as each equals the token that was sampled there; the
 * first one that differs and all behind it are refused. So drafts change how many tokens a step
 * gives, never which.
 *
 * The scheduler decides how many drafts a sequence may have (sched_drafts.c), then asks the source
 * for all sequences of the plan at once.
 *
 * Thread: the engine thread. The scheduler owns the asks.
 */
#ifndef SCHED_DRAFTS_H
#define SCHED_DRAFTS_H

#include <stdint.h>

#include "sched/seq.h"

enum { DRAFT_MAX = 24 };      /* of one sequence in one step */
enum { DRAFT_ROWS_MAX = 32 }; /* of all sequences in one step, by default */

struct draft_ask {
    seq_idx seq;
    /* The text so far: [count]. The first `known` tokens are final; those behind are drafts of the
     * plan under way. */
    const int32_t *tokens;
    uint32_t known, count;
    uint32_t max;   /* 1 to DRAFT_MAX + 1 tokens are wanted, the ones that follow the text */
    int32_t *out;   /* [max] for the source to fill */
    uint32_t given; /* how many it has filled: 0 to max; 0 before the call */
};

/* Since the start. */
struct draft_stats {
    uint64_t rows;                   /* that had drafts */
    uint64_t drafted;                /* drafts that were compared with samples */
    uint64_t accepted;               /* of these, those that were equal */
    uint64_t accepted_at[DRAFT_MAX]; /* by place among the drafts of the row */
};

struct draft_source {
    /* Guess what follows. It allocates nothing. */
    void (*propose)(void *ctx, struct draft_ask *asks, uint32_t count);
    /* How long propose takes for `seqs` sequences and `tokens` drafts of each, in microseconds.
     * NULL: too little to count. */
    double (*cost_us)(void *ctx, uint32_t seqs, uint32_t tokens);
    void *ctx;
};

#endif
