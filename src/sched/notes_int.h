/* sched/notes_int.h - what a scheduler keeps for the notes of its plans: seats, admissions, the
 * front of the queue. See sched/plan.h for what a plan notes.
 *
 * The notes change no decision of the scheduler.
 */
#ifndef SCHED_NOTES_INT_H
#define SCHED_NOTES_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/plan.h"

struct planning;
struct sched;

struct sched_notes {
    uint64_t *seats;               /* a bit for each seat that is free */
    struct plan_admitted *started; /* since the last plan; PLAN_ADMITTED_PARTS * max_seqs */
    uint32_t started_count;
    struct queue_front {
        struct plan_wait waits[PLAN_WAITS_MAX];
        uint32_t count;
        /* What it was made from; if nothing of it has changed, it is right. */
        uint64_t moves;
        uint32_t queue_count;
        enum wait_why stop;
        bool is_known; /* false: a promise, or a choice that waits for its parent, has changed */
    } front;
};

enum status sched_notes_init(struct sched *s); /* zeroed before; also after a failure: deinit */
void sched_notes_deinit(struct sched *s);
/* The lowest free seat, and back. */
void sched_seat_take(struct sched *s, seq_idx i);
void sched_seat_give(struct sched *s, seq_idx i);
/* The sequence has entered the batch, with so many tokens that it need not compute. */
void sched_note_admitted(struct sched *s, seq_idx i, uint32_t cached, int64_t now_us);
/* It was preempted, for `for_seq` (SEQ_NONE: for none in particular); it has left the batch. */
void sched_note_preempted(struct sched *s, struct plan *plan, seq_idx i, seq_idx for_seq,
                          enum preempt_why why);
/* No sequence of the queue is admitted any more in this plan, for this reason. */
void sched_stop_admitting(struct planning *p, enum wait_why why);
/* The plan is made: write down who was admitted, and who waits. */
void sched_note_queue(struct planning *p);
void sched_notes_verify(const struct sched *s);

#endif
