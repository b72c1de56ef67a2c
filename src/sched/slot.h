/* sched/slot.h - a sequence in the scheduler's table, with what only the mechanism knows of it.
 *
 * Internal to the scheduler. Aligned, so that a step touches two cache lines of it.
 */
#ifndef SCHED_SLOT_H
#define SCHED_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/seq.h"

struct slot {
    _Alignas(64) struct sched_seq seq; /* first: idx_of relies on it */

    /* What every step touches. */
    uint64_t serial;     /* order of submission: the one order that never changes */
    seq_idx child_first; /* FORKING choices that wait for its prompt, linked by seq.next */
    seq_idx event_next;  /* in the list of those that moved */
    /* Tokens of its row in the older of two plans under way. They count as computed although that
     * plan is not applied yet. 0: it has no row there. */
    uint32_t assumed;
    bool assumes_token; /* that row samples: the last of its tokens is not known yet */
    bool has_event, has_timer;
    bool is_prompt;            /* how a RUNNING one is counted: prompt or decode */
    uint64_t row_in, moved_in; /* numbers of the last plans with a row or a move of it */
    uint64_t lingers_until;    /* ended: the number of the last plan under way that uses it; or 0 */

    enum finish_reason finish; /* once ENDED */
    seq_idx linger_next, hash_next;
    bool lingers_with_kv, lingers_with_reservation; /* it holds tables; it holds its reservation */
    uint64_t admitted_in, preempted_in;             /* numbers of the last plans that did so */

    /* What the last look at it in line found, so that a step costs nothing for it while
     * nothing has changed. */
    uint64_t seen_epoch;
    uint32_t seen_need;     /* blocks it lacked; 0: not looked at */
    uint32_t seen_match;    /* tokens of its prefix that were there */
    bool seen_promised;     /* and the next block was promised */
    uint32_t promise_looks; /* since the match last grew */
};

/* Loops over the rows of a plan ask for the slot of a later row ahead of need: with many sequences
 * the table does not fit the first cache. */
enum { PREFETCH_ROWS = 6 };
static inline void slot_prefetch(const struct slot *slot) {
    __builtin_prefetch(&slot->seq, 1);
    __builtin_prefetch(&slot->serial, 1);
}

#endif
