/* base/pool.h - a team of threads that work through one job together.
 *
 * pool_run() calls `fn` once on every thread of the team, the caller being thread 0, and
 * returns when all have finished. Inside a run the threads meet at pool_barrier() as often as
 * they like: on a quiet machine it spins, because a sleeping barrier costs more than the work
 * between two of them; it sleeps at once while other programs want the processors, for spinning
 * would burn the time that a team mate needs; a team larger than the processors yields.
 * Between runs the workers spin for a moment at most and then sleep, so an idle program uses no
 * processor.
 *
 * How work is split must never change its result: that is the job's business, not the pool's.
 *
 * Lifetime: create, run as often as needed, destroy. Thread: one caller at a time.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { POOL_THREADS_MAX = 256 };

struct pool; /* opaque */

typedef void pool_fn(void *ctx, uint32_t thread_idx, uint32_t thread_count);

/* `thread_count` from 1 to POOL_THREADS_MAX, the caller's thread included. */
enum status pool_create(struct pool **out, uint32_t thread_count, struct err *err);
void pool_destroy(struct pool *p); /* NULL is fine */

void pool_run(struct pool *p, pool_fn *fn, void *ctx);

/* Everything written before it by any thread of the team is seen after it by all. */
void pool_barrier(struct pool *p);

/* The same, and before anybody goes on, whoever comes last calls `fn`, which sees what all have
 * written and whose writes all see: a small piece of work for one thread costs no meeting of its
 * own. Returns whether this thread was the one. */
typedef void pool_then_fn(void *ctx);
bool pool_barrier_then(struct pool *p, pool_then_fn *fn, void *ctx);

uint32_t pool_threads(const struct pool *p);

/* Processors that this process may use: affinity mask and cgroup quota both counted. */
uint32_t pool_processors(void);

/* Threads for so many processors: all of them, and from POOL_SPARE_FROM on one fewer. All threads
 * wait for the slowest, and whatever else runs, the program's own sockets among it, would make one
 * of them slow: of 16 virtual processors, 15 threads made 137 to 166 tokens a second where 16 made
 * 94 to 123 (Emerald Rapids, 2026-11). Of few processors one is too much to leave. */
enum { POOL_SPARE_FROM = 8 };
uint32_t pool_threads_for(uint32_t processors);

/* Threads for the processors that this process may use. */
uint32_t pool_default_threads(void);

#endif
