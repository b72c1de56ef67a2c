/* engine/recorder.h - gathers, during a turn of the engine, what its step record holds.
 *
 *     recorder_arrived, recorder_ended   as it happens
 *     recorder_rows                      after a plan was applied, before its events are taken
 *     recorder_step                      the step is over: write its record
 *     recorder_flush                     no step is under way: what has happened gets a record
 *
 * Nothing is lost: if more has happened than fits into one record, a record without a step is
 * written in between.
 *
 * Lifetime: as its engine. Thread: the engine thread. Memory: all allocated by create.
 */
#ifndef ENGINE_RECORDER_H
#define ENGINE_RECORDER_H

#include <stddef.h>
#include <stdint.h>

#include "engine/record.h"

struct choice;
struct recorder; /* opaque */
struct sched;
struct sched_event;
struct sched_stats;

/* `bytes` of the ring; 0: a MiB. `stats` are the engine thread's, as of the last step. */
enum status recorder_create(struct recorder **out, size_t bytes, uint32_t max_seqs,
                            const struct sched_stats *stats, const struct kv_cache *kv);
void recorder_destroy(struct recorder *r); /* NULL is fine */
struct record_ring *recorder_ring(const struct recorder *r);

void recorder_arrived(struct recorder *r, const struct choice *c);
/* `generated` tokens; `seat` as in struct record_ended. */
void recorder_ended(struct recorder *r, const struct choice *c, uint32_t generated, uint32_t seat,
                    enum finish_reason why, int64_t now_us);
/* A plan without rows and moves, of which there will be no step. */
void recorder_empty_plan(struct recorder *r, const struct plan *plan);

void recorder_rows(struct recorder *r, const struct sched *s, const struct plan *plan);
void recorder_step(struct recorder *r, const struct record_times *times, const struct plan *plan);
void recorder_flush(struct recorder *r, int64_t now_us);
void recorder_set_policy(struct recorder *r, uint32_t place); /* in sched_policies */

#endif
