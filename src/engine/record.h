/* engine/record.h - what each step did, kept in a ring that can be written as JSON.
 *
 * Lifetime: as its engine. Thread: the engine thread writes; any thread reads through record_copy,
 * under the ring's lock.
 */
#ifndef ENGINE_RECORD_H
#define ENGINE_RECORD_H

#include <stdint.h>

#include "base/status.h"
#include "sched/plan.h"

struct buf;
struct record_ring; /* opaque */

enum { RECORD_PREEMPTED_MAX = 4 };

struct step_record {
    uint64_t step;
    int64_t at_us, elapsed_us, sched_us;
    int64_t submit_us; /* of depth 0 the whole step; of depth 1 the time until the device has it */
    uint32_t rows, tokens, samples, prompts; /* prompts: rows of more than one token */
    uint32_t running, waiting, free_blocks, moves;
    uint32_t preempted_count; /* all; `preempted` has the first few */
    struct plan_preempted preempted[RECORD_PREEMPTED_MAX];
};

enum status record_ring_create(struct record_ring **out, uint32_t capacity);
void record_ring_destroy(struct record_ring *ring); /* NULL is fine */
void record_push(struct record_ring *ring, const struct step_record *record);

/* The newest records, oldest first; returns how many. */
uint32_t record_copy(struct record_ring *ring, struct step_record *out, uint32_t max);

/* All of them as an array of events, in the format of chrome://tracing and Perfetto. */
void record_put_json(struct record_ring *ring, struct buf *out);

#endif
