/* base/pool.c - see base/pool.h for the contract.
 *
 * A run is announced by raising `epoch`; a worker that sees a new epoch calls the job and
 * then arrives at the barrier. The barrier counts arrivals; the last one resets the count and
 * raises `phase`, which the others wait for. Orders of the atomics:
 *   - epoch: release by the caller, acquire by workers: they see fn and ctx.
 *   - arrived: acq_rel, so that the last arriver has seen what all others wrote.
 *   - phase: release by the last arriver, acquire by the rest, who so see it too.
 */
#define _GNU_SOURCE
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

/* A spin is some 15 ns. Before sleeping, about 300 us: longer than the gap between two steps of a
 * decode loop. Before yielding, about 30 us: by then a team mate has lost its processor to some
 * other program, and spinning on would keep it from coming back. */
enum { SPINS_BEFORE_SLEEP = 20000, SPINS_BEFORE_YIELD = 2000, CACHE_LINE = 64 };

struct worker {
    struct pool *pool;
    pthread_t thread;
    uint32_t idx;
};

struct pool {
    uint32_t thread_count;
    bool oversubscribed;
    pool_fn *fn;
    void *ctx;
    _Alignas(CACHE_LINE) atomic_uint epoch;
    _Alignas(CACHE_LINE) atomic_uint arrived;
    _Alignas(CACHE_LINE) atomic_uint phase;
    _Alignas(CACHE_LINE) atomic_uint sleepers;
    atomic_bool stopping;
    pthread_mutex_t lock; /* only for sleeping and waking */
    pthread_cond_t wake;
    struct worker workers[];
};

/* Tell the processor that this is a spin, so that it saves power and leaves the loop cheaply. */
static void spin_hint(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void relax(const struct pool *p, int spins) {
    if (p->oversubscribed || spins > SPINS_BEFORE_YIELD)
        sched_yield();
    else
        spin_hint();
}

void pool_barrier(struct pool *p) {
    if (p->thread_count == 1) return;
    unsigned phase = atomic_load_explicit(&p->phase, memory_order_acquire);
    unsigned before = atomic_fetch_add_explicit(&p->arrived, 1, memory_order_acq_rel);
    if (before + 1 == p->thread_count) {
        atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&p->phase, phase + 1, memory_order_release);
        return;
    }
    int spins = 0;
    while (atomic_load_explicit(&p->phase, memory_order_acquire) == phase) {
        relax(p, spins);
        if (spins <= SPINS_BEFORE_YIELD) spins++;
    }
}

/* Sleep until epoch differs from `seen`. Counting sleepers under the lock closes the gap
 * between looking at the epoch and going to sleep. */
static void sleep_until_new(struct pool *p, unsigned seen) {
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->epoch) == seen) pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

static void wait_for_epoch(struct pool *p, unsigned seen) {
    int spins = p->oversubscribed ? 0 : SPINS_BEFORE_SLEEP;
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(&p->epoch, memory_order_acquire) != seen) return;
        relax(p, i);
    }
    sleep_until_new(p, seen);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    struct pool *p = w->pool;
    for (unsigned seen = 0;; seen++) {
        wait_for_epoch(p, seen);
        if (atomic_load(&p->stopping)) return NULL;
        p->fn(p->ctx, w->idx, p->thread_count);
        pool_barrier(p);
    }
}

/* Raising the epoch and reading the sleepers are both sequentially consistent, as are the
 * worker's counting and looking: one of the two sides sees the other. */
static void announce(struct pool *p) {
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->sleepers) == 0) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void pool_run(struct pool *p, pool_fn *fn, void *ctx) {
    p->fn = fn;
    p->ctx = ctx;
    if (p->thread_count > 1) announce(p);
    fn(ctx, 0, p->thread_count);
    pool_barrier(p);
}

uint32_t pool_threads(const struct pool *p) { return p->thread_count; }

static void stop_workers(struct pool *p, uint32_t started) {
    atomic_store(&p->stopping, true);
    announce(p);
    for (uint32_t i = 1; i < started; i++) pthread_join(p->workers[i].thread, NULL);
}

enum status pool_create(struct pool **out, uint32_t thread_count, struct err *err) {
    CHECK(thread_count >= 1);
    CHECK(thread_count <= POOL_THREADS_MAX);
    size_t bytes = sizeof(struct pool) + thread_count * sizeof(struct worker);
    struct pool *p = mem_alloc_aligned(CACHE_LINE, bytes);
    if (!p) return err_set(err, ST_NOMEM, "out of memory for %u threads", thread_count);
    memset(p, 0, bytes);
    p->thread_count = thread_count;
    p->oversubscribed = thread_count > pool_default_threads();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (uint32_t i = 1; i < thread_count; i++) {
        p->workers[i] = (struct worker){.pool = p, .idx = i};
        int rc = pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i]);
        if (rc == 0) continue;
        stop_workers(p, i);
        mem_free(p);
        return err_set(err, ST_NOMEM, "cannot start thread %u of %u: %s", i + 1, thread_count,
                       strerror(rc));
    }
    *out = p;
    return ST_OK;
}

void pool_destroy(struct pool *p) {
    if (!p) return;
    stop_workers(p, p->thread_count);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

/* cgroup v2: "max 100000" or "QUOTA PERIOD". 0 when there is no quota. */
static uint32_t quota_threads(void) {
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f) return 0;
    long long quota = 0, period = 0;
    int got = fscanf(f, "%lld %lld", &quota, &period);
    fclose(f);
    if (got != 2 || quota <= 0 || period <= 0) return 0;
    long long threads = (quota + period - 1) / period;
    return threads < POOL_THREADS_MAX ? (uint32_t)threads : POOL_THREADS_MAX;
}

uint32_t pool_default_threads(void) {
    cpu_set_t set;
    uint32_t threads = 1;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) threads = (uint32_t)CPU_COUNT(&set);
    uint32_t quota = quota_threads();
    if (quota && quota < threads) threads = quota;
    if (threads > POOL_THREADS_MAX) threads = POOL_THREADS_MAX;
    return threads ? threads : 1;
}
