/* base/pool.h - threads that run one job together.
 *
 * pool_run() calls `fn` once on every thread of the pool, the caller being thread 0, and returns
 * when all have finished. Inside a run the threads may call pool_barrier() any number of times. On
 * a quiet machine the barrier spins, because sleeping costs more than the work between two
 * barriers. While other programs use the processors it sleeps at once, because spinning would take
 * time that another thread of the pool needs. A pool with more threads than processors yields.
 * Between runs the workers spin for a moment at most and then sleep, so an idle program uses no
 * processor.
 *
 * How work is split must never change its result: the job ensures that, not the pool.
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

/* Everything written before it by any thread of the pool is visible after it to all. */
void pool_barrier(struct pool *p);

/* A barrier at which the last thread to arrive calls `fn` before any thread continues. `fn` sees
 * everything that was written before the barrier, and all threads see what it writes. So a small
 * piece of work for one thread needs no second barrier. True for the thread that was the last. */
typedef void pool_then_fn(void *ctx);
bool pool_barrier_then(struct pool *p, pool_then_fn *fn, void *ctx);

uint32_t pool_threads(const struct pool *p);

/* Processors that this process may use: affinity mask and cgroup quota both counted. */
uint32_t pool_processors(void);

/* Threads for so many processors: all of them, and from POOL_SPARE_FROM on one fewer. All threads
 * wait for the slowest, and whatever else runs, the program's own sockets among it, would make one
 * of them slow: of 16 virtual processors, 15 threads made 137 to 166 tokens a second where 16 made
 * 94 to 123 (Emerald Rapids, 2026-11). With few processors, leaving one idle costs more than it
 * saves. */
enum { POOL_SPARE_FROM = 8 };
uint32_t pool_threads_for(uint32_t processors);

/* Threads for the processors that this process may use. */
uint32_t pool_default_threads(void);

#endif
