/* sched/slot.h - an entry of the scheduler's table: a sequence, and what only the scheduler uses.
 *
 * In src/sched the word "slot" alone means this entry. A place in the batch (max_seqs of them) is
 * always called a batch slot, and room for one KV block in host memory a spill slot.
 *
 * Internal to the scheduler. Aligned, so that a step uses two cache lines of it.
 */
#ifndef SCHED_SLOT_H
#define SCHED_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/seq.h"

struct slot {
    _Alignas(64) struct sched_seq seq; /* first: idx_of relies on it */

    /* What every step uses. */
    uint64_t serial;     /* order of submission; it never changes */
    int64_t place;       /* has_share: in the order of its tenant */
    seq_idx child_first; /* FORKING choices that wait for its prompt, linked by seq.next */
    seq_idx event_next;  /* in the list of sequences with an event */
    /* Tokens of its row in the older of two plans under way. They count as computed although that
     * plan is not applied yet. 0: it has no row there. */
    uint32_t assumed;
    bool assumes_token;     /* that row samples: the last token of the sequence is not known yet */
    uint8_t planned_drafts; /* of seq.planned, those that are drafts */
    uint8_t assumed_drafts; /* of `assumed`, those that are drafts: taken as accepted */
    /* How many of its drafts were accepted, and of how many; older ones count less. */
    float draft_hits, draft_tries;
    uint32_t drafted, accepted; /* since its submission */
    bool has_event, has_timer;
    bool is_prefilling;        /* RUNNING: counted in prefill_count, otherwise in decode_count */
    uint64_t row_in, moved_in; /* numbers of the last plans with a row or a move of it */
    uint64_t lingers_until;    /* ended: number of the last plan under way that uses it; or 0 */

    enum finish_reason finish; /* once ENDED */
    seq_idx linger_next, hash_next;
    bool lingers_with_kv, lingers_with_reservation; /* what it still holds */
    uint32_t reserved; /* RUNNING: blocks reserved for it; 0 if the policy does not reserve */
    uint64_t admitted_in, preempted_in; /* numbers of the last plans that admitted, preempted it */
    double line_added_us;               /* lines.added_us when it had its first token */
    int64_t waits_since_us;             /* when it arrived, or was last preempted */

    /* The result of the last attempt to admit it. While s->epoch is unchanged the attempt is not
     * repeated. */
    uint64_t seen_epoch;
    uint32_t seen_need;     /* blocks that must become available; 0: not tried */
    uint32_t seen_match;    /* tokens of its prefix that the cache had */
    bool seen_above;        /* its tenant was above its share of the blocks */
    bool seen_promised;     /* another sequence was computing the next block */
    uint32_t promise_looks; /* attempts since seen_match last grew */
};

/* The newest plan has no row of it, or the row no longer counts. */
static inline void slot_unplan(struct slot *slot) {
    slot->seq.planned = 0;
    slot->planned_drafts = 0;
}

/* Loops over the rows of a plan prefetch the slot of a later row: with many sequences the table
 * does not fit into the first-level cache. */
enum { PREFETCH_ROWS = 6 };
static inline void slot_prefetch(const struct slot *slot) {
    __builtin_prefetch(&slot->seq, 1);
    __builtin_prefetch(&slot->serial, 1);
}

#endif
