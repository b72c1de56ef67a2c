/* sched/lines.h - batch lines: the class of sequences below all others; README.md, "Batch lines".
 *
 * A line is a sequence that was submitted with `is_batch`: one line of a batch job. All others are
 * called interactive here. Lines have a queue, an array of running sequences, timers and counts of
 * their own, so what the policy sees and what the common code counts is about interactive
 * sequences alone. A plan is first made as if there were no lines: where it lacks a seat or
 * blocks, lines are preempted. Then lines get what is left of the step.
 *
 * Internal to the scheduler.
 */
#ifndef SCHED_LINES_H
#define SCHED_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/cost_rows.h"
#include "sched/heap.h"
#include "sched/knobs.h"
#include "sched/line_pace.h"
#include "sched/seq.h"

struct plan;
struct planning;
struct sched;

struct sched_lines {
    struct seq_heap queue;  /* WAITING and SWAPPED, by submission */
    struct seq_heap timers; /* expiry, by time */
    seq_idx *running;       /* RUNNING, the oldest first; max_seqs elements */
    seq_idx *swapped;       /* SWAPPED, in any order; max_seqs elements */
    uint32_t running_count, swapped_count, forking_count, live_count;
    uint32_t live_max;
    uint32_t slot_count; /* entries of the table in use: live, ended, lingering */
    double credit_us;    /* time that interactive steps have earned for lines, not spent yet */
    double added_us;     /* time that rows of lines have added to steps, since create */
    struct line_pace pace;
    struct cost_rows cost;
    uint64_t steps; /* steps with rows of lines alone: the policy does not count them */
};

enum status sched_lines_init(struct sched *s); /* zeroed before; also after a failure: deinit */
void sched_lines_deinit(struct sched *s);

uint32_t sched_lines_waiting(const struct sched *s); /* not those that are swapped out */
/* A line starts and stops to run; is swapped out, and back in or ended. */
void sched_line_start(struct sched *s, seq_idx i);
void sched_line_stop(struct sched *s, seq_idx i);
void sched_line_swapped(struct sched *s, seq_idx i);
void sched_line_unswapped(struct sched *s, seq_idx i);

/* ---- for interactive sequences ---- */

/* Preempt the line that was submitted last, for `for_seq`. False: none runs, or the plan is an
 * ahead plan, which then wants a drain. */
bool sched_line_yields(struct planning *p, seq_idx for_seq);
/* Preempt lines until so many blocks are available. False: not even without lines. */
bool sched_lines_free_blocks(struct planning *p, seq_idx for_seq, uint64_t blocks);
/* Preempt lines until there are seats for `seats` more, and for all choices that wait for their
 * parent. False: this ahead plan cannot. */
bool sched_lines_free_seats(struct planning *p, seq_idx for_seq, uint32_t seats);
/* A line that is swapped out is recomputed instead: it leaves its spill slots. False: none is. */
bool sched_line_unspills(struct sched *s);
/* Before other sequences: room for the choices that the plan will start. */
void sched_lines_make_room(struct planning *p);

/* ---- for lines ---- */

bool sched_line_has_seat(const struct sched *s); /* is there a seat that a line may take? */
/* Blocks for the positions below `tokens`; may preempt later lines. */
bool sched_line_ensure_blocks(struct planning *p, seq_idx i, uint32_t tokens);
uint32_t sched_line_chunk(struct planning *p, seq_idx i, uint32_t first);
/* Are its blocks few enough to be swapped out in this plan? (Other rows wait for the copies.) */
bool sched_line_may_swap(const struct planning *p, seq_idx i);
/* The rows of lines, after those of all other sequences. */
void sched_plan_lines(struct planning *p);

/* ---- what lines have cost ---- */

/* A plan has taken so long: count what its rows of lines have added to it. */
void sched_lines_count_time(struct sched *s, const struct plan *plan, double us);
/* An interactive sequence has its first token; it has ended with its last. */
void sched_lines_first_token(struct sched *s, seq_idx i);
void sched_lines_last_token(struct sched *s, seq_idx i);

void sched_lines_verify(const struct sched *s);

#endif
