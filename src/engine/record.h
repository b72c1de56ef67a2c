/* engine/record.h - what each step did, by sequence: a ring of records, bounded in bytes.
 *
 * A record has the numbers of one step and these lists: the rows that were computed, who waits and
 * why, and what has happened since the record before it: who arrived, was admitted, was preempted,
 * has ended. Sequences that end or arrive while no step is made get a record without a step.
 * Records are numbered from 1 without gaps; a new one takes the place of the oldest.
 *
 *     engine thread:  record_begin, fill in, record_end
 *     any thread:     record_read -> copies of whole records -> record_next ... each of them
 *
 * Lifetime: as its engine. Thread: one thread writes; any thread reads, under the ring's lock,
 * which is held while bytes are copied and no longer. Memory: all allocated by create; pages of it
 * are real once records fill them.
 */
#ifndef ENGINE_RECORD_H
#define ENGINE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/plan.h"

struct buf;
struct record_ring; /* opaque */

/* One sequence in a step; dropped rows are left out. */
struct record_row {
    uint64_t request;
    uint32_t tenant;
    uint32_t first, count; /* its tokens [first, first + count) */
    uint16_t seat;
    uint16_t choice : 4;
    uint16_t samples : 1;  /* 1: a token was sampled */
    uint16_t is_batch : 1; /* 1: of a batch line */
    uint16_t drafts : 5;   /* of `count`, those that were drafts */
    uint16_t accepted : 5; /* of these */
};

struct record_arrived {
    uint64_t request;
    int64_t at_us;
    uint32_t choice, tenant;
    uint32_t prompt_tokens, max_tokens;
    bool is_batch; /* a batch line */
};

struct record_ended {
    uint64_t request;
    int64_t at_us;
    uint32_t choice;
    uint32_t generated; /* tokens sampled for it, an end token included */
    uint32_t seat;      /* the one that it had; SEAT_NONE: it was not in the batch */
    enum finish_reason why;
};

struct record_times {
    uint64_t step; /* steps before it */
    int64_t at_us, elapsed_us, sched_us;
    int64_t submit_us; /* of depth 0 the whole step; of depth 1 the time until the device has it */
    int64_t predicted_us, target_us; /* by the cost model; step_target_ms, 0: none */
};

/* The numbers of a step. */
struct record_head {
    uint64_t number; /* of the record; set by record_end */
    uint32_t bytes;  /* of the whole record; set by record_end */
    bool has_step;   /* false: only lists of what has happened */
    uint8_t policy;  /* its place in sched_policies */
    struct record_times times;
    uint32_t tokens, samples; /* planned: those of dropped rows, which are not listed, included */
    uint32_t prompts;         /* rows of more than one token, drafts not counted */
    uint32_t running, waiting, swapped;    /* batch lines included */
    uint32_t batch_running, batch_waiting; /* of these, the batch lines */
    uint32_t moves_in, moves_out, moves_copy;
    /* Of the first KV group. */
    uint32_t available_blocks; /* free, or cached and not kept by a hint */
    uint32_t used_blocks, shared_blocks, cached_blocks, free_blocks;
    uint32_t row_count;
    /* Entries of the other lists; set by record_end. */
    uint32_t wait_count, arrived_count, admitted_count, preempted_count, ended_count;
};

/* A list and how many entries it has. */
struct record_lists {
    const struct record_row *rows;
    const struct plan_wait *waits;
    const struct record_arrived *arrived;
    const struct plan_admitted *admitted;
    const struct plan_preempted *preempted;
    const struct record_ended *ended;
    uint32_t row_count, wait_count, arrived_count, admitted_count, preempted_count, ended_count;
};

struct record {
    const struct record_head *head;
    struct record_lists lists;
};

/* A ring of `bytes`, or of as many as two of the largest records take, if that is more: `entries`
 * is the largest number of entries of all lists of a record together. `seats`: max_seqs. */
enum status record_ring_create(struct record_ring **out, size_t bytes, uint32_t entries,
                               uint32_t seats);
void record_ring_destroy(struct record_ring *ring); /* NULL is fine */
/* Begin the next record: its head, which the caller fills in, and its rows behind it. It can be
 * begun again until record_end; readers see it after that. Takes the lock only now and then. */
struct record_head *record_begin(struct record_ring *ring);
static inline struct record_row *record_rows(struct record_head *head) {
    return (struct record_row *)(void *)(head + 1);
}
/* head->row_count rows are filled in; the other lists are copied. NULL: they are empty. */
void record_end(struct record_ring *ring, struct record_head *head,
                const struct record_lists *others);

/* The oldest record that is kept, and the number that the next one gets. */
struct record_span {
    uint64_t first, next;
};
struct record_span record_span(struct record_ring *ring);

/* Where a reader is. Zeroed: at the oldest record. */
struct record_cursor {
    uint64_t next; /* the number that it reads next */
    uint64_t at;   /* private: where record `at_number` is */
    uint64_t at_number;
};
/* Copy whole records, from number c->next on, to `out`, which is aligned as uint64_t; returns how
 * many bytes. c->next moves behind them. Records that are no longer kept are left out: c->next was
 * below record_span.first then. 0: there is none, or the next one has more than `out_bytes`; no
 * record has more than record_bytes_max. */
size_t record_read(struct record_ring *ring, struct record_cursor *c, void *out, size_t out_bytes);
size_t record_bytes_max(const struct record_ring *ring);
/* The next record of bytes that record_read has copied; false: there are no more. `out` points into
 * the bytes. */
bool record_next(const void **at, const void *end, struct record *out);

/* Who is in which seat after the newest record; request 0: nobody. `out` has room for all. */
struct record_seat {
    uint64_t request;
    uint32_t choice, tenant;
};
void record_seats(struct record_ring *ring, struct record_seat *out);

const char *preempt_why_name(enum preempt_why why); /* "memory", "policy", "failed", "batch" */
const char *wait_why_name(enum wait_why why);       /* "seat", "blocks", "policy", ... */

/* All steps as an array of events, in the format of chrome://tracing and Perfetto. */
void record_put_json(struct record_ring *ring, struct buf *out);

/* CHECK all invariants; slow. */
void record_verify(struct record_ring *ring);

#endif
