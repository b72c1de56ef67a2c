/* sched/ahead_int.h - plans that assume something: ahead plans assume that the plan under way
 * succeeds, rows with drafts that drafts are accepted.
 */
#ifndef SCHED_AHEAD_INT_H
#define SCHED_AHEAD_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/plan.h"

struct planning;
struct sched;

/* ---- sched_ahead.c ---- */
/* Update all sequences as if the plan under way had succeeded; its sampled tokens stay unknown. */
void sched_assume(struct sched *s);
/* Undo what was assumed of sequence i. */
void sched_unassume(struct sched *s, seq_idx i);
bool sched_skips_ahead_plan(const struct planning *p, seq_idx i); /* it must have no row in it */

/* The number of the last plan under way that uses sequence i; 0: none. If the sequence ends it
 * keeps its blocks and its index until that plan is over. */
uint64_t sched_used_until(const struct sched *s, seq_idx i);
void sched_linger(struct sched *s, seq_idx i, uint64_t until, bool has_kv, bool is_running);
/* The oldest plan under way is over: returns its number. After its rows have been handled,
 * sched_end_lingering frees what was kept for it. */
uint64_t sched_take_oldest(struct sched *s, const struct plan *plan);
void sched_end_lingering(struct sched *s, uint64_t number);

/* ---- sched_drafts.c ---- */
void sched_plan_drafts(struct planning *p); /* after all rows are planned */
void sched_drafts_learn(struct sched *s, const struct plan_row *row,
                        const struct row_result *result);
void sched_drafts_give_back(struct sched *s, seq_idx i);
/* A sequence whose row in the plan under way has drafts: is a row in the ahead plan worth it? */
bool sched_drafts_are_likely(const struct planning *p, seq_idx i);

#endif
