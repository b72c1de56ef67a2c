/* base/pool.c - see base/pool.h for the contract.
 *
 * A run is announced by raising `epoch`; a worker that sees a new epoch calls the job and
 * then arrives at the barrier. The barrier counts arrivals; the last one resets the count and
 * raises `phase`, which the others wait for. Both words count in steps of two; the lowest bit
 * says that a thread may be asleep on the word.
 *
 * Why what is written before is seen after:
 *   - epoch: release by the caller, acquire by workers: they see fn and ctx.
 *   - arrived: acq_rel, so that the last arriver has seen what all others wrote. Its reset may be
 *     relaxed: no thread adds to it again before acquiring the phase that is raised after it.
 *   - phase: release by the last arriver, acquire by the rest, which so see all of it, too, and
 *     what the last arriver has written in between.
 *
 * Why no wake-up is lost. A waiter sleeps only while the word is exactly `seen | PARKED`: it sets
 * that itself or finds it set, and the kernel compares once more under its own lock. The
 * thread that raises the word exchanges it. All this happens to one word, whose changes have one
 * order: if the bit was set before the exchange, the exchange returns it and the sleepers are
 * woken; if it was not, setting it fails afterwards, for the word is no longer `seen`, and no
 * thread sleeps.
 *
 * Why an old value never comes back under a waiter (ABA). The phase moves on only when all have
 * arrived, so while a thread waits for `seen` to pass, it passes once: the next move needs that
 * thread. The same holds for the epoch, which moves on only after a run that needs every worker.
 * For the same reason a thread may read the phase before arriving with no order at all: it cannot
 * move between that and the arrival.
 *
 * Spinning or sleeping. On a quiet machine a spin of 85 ns beats a sleep of some 50 us. Where other
 * programs use the processors, a thread that spins uses up a time slice that another thread of the
 * pool needs: two threads beside four busy loops made 18 tokens a second spinning and 170 sleeping,
 * and even a spin of 4 us before the sleep cost two thirds of that (SmolLM2, 2 processors,
 * 2026-11). So there are two modes and nothing between them: a waiting thread spins up to
 * `spin_ns`, or sleeps at once (`spin_ns` is 0). A pool that spins measures how long its threads
 * were kept from running inside runs, and how long they spun without success; a program that
 * competes for the processors makes that a large share, a short interruption does not. If the share
 * is large, and more than sleeping at every barrier would have cost, the pool sleeps for a while: a
 * large pool always has some thread that is kept from running, and sixteen that slept for that lost
 * a third of their tokens. Then it spins on trial: a few waits at barriers that last longer than
 * `spin_ns` end the trial, and each trial that fails makes the next period of sleeping longer.
 *
 * A pool with more threads than the processors that it may use yields instead of spinning, so that
 * threads that have not arrived can run. Its threads keep each other from running, so the time
 * lost says nothing, and it is always on trial.
 */
#define _GNU_SOURCE
#include "base/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/check.h"
#include "base/mem.h"

enum {
    CACHE_LINE = 64,
    PARKED = 1,        /* the bit of a word */
    WORD_STEP = 2,     /* from one value of a word to the next */
    SPINS_A_LOOK = 32, /* between two looks at the clock: about 1 us */

    SPIN_NS = 300 * 1000,   /* longer than the gap between two steps of a decode loop */
    TRIAL_NS = 200 * 1000,  /* on trial, less a strike for each wait that lasted longer */
    YIELD_NS = 2000 * 1000, /* the same of a pool that yields: others run meanwhile */
    STRIKES = 4,

    WINDOW_NS = 10 * 1000 * 1000, /* runs are judged together until they are so long */
    LOST_SHARE = 4,               /* more than one part in so many lost: disturbed ... */
    WAKE_NS = 40 * 1000,          /* ... if sleeping would have cost less: so much a barrier */
    HOLD_NS_MIN = 50 * 1000 * 1000,
    HOLD_NS_MAX = 2000 * 1000 * 1000,
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    uint32_t idx;
};

/* What decides between spinning and sleeping; the caller's. */
struct spin_control {
    int64_t window_ns, lost_ns; /* of the runs that are judged next */
    int64_t barriers;           /* in them */
    int64_t hold_ns;            /* how long the pool sleeps next time */
    int64_t changed_ns;         /* when the mode last changed */
    bool on_trial;              /* spins again, and not judged since */
};

struct pool {
    uint32_t thread_count;
    bool yields; /* more threads than processors */
    pool_fn *fn;
    void *ctx;
    struct spin_control control; /* the caller's */
    atomic_llong spin_ns;        /* relaxed: a stale one costs time, nothing else */
    atomic_llong lost_ns;        /* of this run, added by each thread before its last barrier */
    uint32_t barriers;           /* of this run, counted by the last thread to arrive */
    _Alignas(CACHE_LINE) atomic_uint epoch;
    _Alignas(CACHE_LINE) atomic_uint arrived;
    _Alignas(CACHE_LINE) atomic_uint phase;
    _Alignas(CACHE_LINE) atomic_bool stopping;
    struct worker workers[];
};

static int64_t clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Tell the processor that this is a spin, so that it saves power and leaves the loop cheaply. */
static void spin_hint(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* True if the word changed within spin_ns. */
static bool spin_while(const struct pool *p, const atomic_uint *word, unsigned seen,
                       int64_t spin_ns) {
    int64_t start_ns = 0;
    for (unsigned spins = 1; spin_ns > 0; spins++) {
        if ((atomic_load_explicit(word, memory_order_acquire) & ~PARKED) != seen) return true;
        if (p->yields) {
            sched_yield();
        } else {
            spin_hint();
            if (spins % SPINS_A_LOOK != 0) continue;
        }
        int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
        if (start_ns == 0) start_ns = now_ns;
        if (now_ns - start_ns >= spin_ns) break;
    }
    return false;
}

/* Sleeps until the word has changed. Returns how long that took. */
static int64_t park_while(atomic_uint *word, unsigned seen) {
    const unsigned asleep = seen | PARKED;
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    for (;;) {
        unsigned found = seen;
        bool was_set = atomic_compare_exchange_strong_explicit(
            word, &found, asleep, memory_order_acquire, memory_order_acquire);
        if (!was_set && found != asleep) break;
        /* Returns at once if the word differs, and now and then for no reason. */
        (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, asleep, NULL, NULL, 0);
    }
    return clock_ns(CLOCK_MONOTONIC) - start_ns;
}

static int64_t trial_spin_ns(const struct pool *p) { return p->yields ? YIELD_NS : TRIAL_NS; }

static int64_t spin_ns_of(const struct pool *p) {
    return atomic_load_explicit(&p->spin_ns, memory_order_relaxed);
}

/* Returns how long it slept. */
static int64_t wait_at_barrier(struct pool *p, unsigned phase) {
    long long spin_ns = spin_ns_of(p);
    if (spin_while(p, &p->phase, phase, spin_ns)) return 0;
    long long strike_ns = trial_spin_ns(p) / STRIKES;
    /* Spun without success: that time is lost. All who wait for one late thread lose it once. */
    atomic_fetch_add_explicit(&p->lost_ns, spin_ns / (p->thread_count - 1), memory_order_relaxed);
    /* One late thread is one strike: of all who waited for it, the first to get here counts. */
    if (spin_ns > 0 && spin_ns <= trial_spin_ns(p))
        atomic_compare_exchange_strong_explicit(&p->spin_ns, &spin_ns, spin_ns - strike_ns,
                                                memory_order_relaxed, memory_order_relaxed);
    return park_while(&p->phase, phase);
}

static void raise_word(atomic_uint *word, unsigned next) {
    unsigned before = atomic_exchange_explicit(word, next, memory_order_release);
    if (before & PARKED) (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* What the last thread to arrive at a barrier does while the others wait. */
struct then {
    pool_then_fn *fn; /* NULL: nothing */
    void *ctx;
    bool was_mine;
};

/* The barrier. Returns how long the thread slept in it. */
static int64_t arrive(struct pool *p, struct then *then) {
    unsigned phase = atomic_load_explicit(&p->phase, memory_order_relaxed) & ~PARKED;
    unsigned before = atomic_fetch_add_explicit(&p->arrived, 1, memory_order_acq_rel);
    if (before + 1 < p->thread_count) return wait_at_barrier(p, phase);
    then->was_mine = true;
    if (then->fn) then->fn(then->ctx);
    p->barriers++;
    atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
    raise_word(&p->phase, phase + WORD_STEP);
    return 0;
}

bool pool_barrier_then(struct pool *p, pool_then_fn *fn, void *ctx) {
    struct then then = {fn, ctx, false};
    if (p->thread_count == 1) {
        if (fn) fn(ctx);
        return true;
    }
    int64_t slept_ns = arrive(p, &then);
    if (slept_ns) atomic_fetch_sub_explicit(&p->lost_ns, slept_ns, memory_order_relaxed);
    return then.was_mine;
}

void pool_barrier(struct pool *p) { (void)pool_barrier_then(p, NULL, NULL); }

/* The job on one thread. Time in which the thread did not run is lost to others, except for what
 * it slept at barriers, which those have subtracted. The last barrier gives the sum to the caller,
 * so its own sleep is not counted. */
static void do_share(struct pool *p, uint32_t idx) {
    int64_t wall_ns = clock_ns(CLOCK_MONOTONIC), ran_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    p->fn(p->ctx, idx, p->thread_count);
    wall_ns = clock_ns(CLOCK_MONOTONIC) - wall_ns;
    ran_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - ran_ns;
    atomic_fetch_add_explicit(&p->lost_ns, wall_ns - ran_ns, memory_order_relaxed);
    arrive(p, &(struct then){.fn = NULL});
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    struct pool *p = w->pool;
    for (unsigned seen = 0;; seen += WORD_STEP) {
        if (!spin_while(p, &p->epoch, seen, spin_ns_of(p))) park_while(&p->epoch, seen);
        if (atomic_load_explicit(&p->stopping, memory_order_relaxed)) return NULL;
        do_share(p, w->idx);
    }
}

static void announce(struct pool *p) {
    unsigned epoch = atomic_load_explicit(&p->epoch, memory_order_relaxed) & ~PARKED;
    raise_word(&p->epoch, epoch + WORD_STEP);
}

static void set_spin(struct pool *p, int64_t spin_ns, int64_t now_ns) {
    p->control.changed_ns = now_ns;
    p->control.window_ns = p->control.lost_ns = p->control.barriers = 0;
    p->control.on_trial = spin_ns == trial_spin_ns(p);
    atomic_store_explicit(&p->spin_ns, spin_ns, memory_order_relaxed);
}

static void stop_spinning(struct pool *p, int64_t now_ns) {
    struct spin_control *m = &p->control;
    if (m->on_trial)
        m->hold_ns = 2 * m->hold_ns < HOLD_NS_MAX ? 2 * m->hold_ns : HOLD_NS_MAX;
    else
        m->hold_ns = HOLD_NS_MIN;
    set_spin(p, 0, now_ns);
}

/* The runs of a pool that spins, once there are enough of them to judge. */
static void judge_window(struct pool *p, int64_t now_ns) {
    struct spin_control *m = &p->control;
    if (m->window_ns < WINDOW_NS) return;
    bool is_large = m->lost_ns > m->window_ns / LOST_SHARE;
    if (!p->yields && is_large && m->lost_ns > m->barriers * WAKE_NS) {
        stop_spinning(p, now_ns);
        return;
    }
    set_spin(p, p->yields ? YIELD_NS : SPIN_NS, now_ns);
    m->hold_ns = HOLD_NS_MIN;
}

/* After a run that began at `start_ns`. */
static void judge(struct pool *p, int64_t start_ns) {
    struct spin_control *m = &p->control;
    int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    int64_t lost_ns = atomic_exchange_explicit(&p->lost_ns, 0, memory_order_relaxed);
    uint32_t barriers = p->barriers;
    p->barriers = 0;
    if (spin_ns_of(p) > 0) {
        m->window_ns += now_ns - start_ns;
        m->lost_ns += lost_ns;
        m->barriers += barriers;
        judge_window(p, now_ns);
    } else if (m->on_trial) {
        stop_spinning(p, now_ns);
    } else if (now_ns - m->changed_ns >= m->hold_ns) {
        set_spin(p, trial_spin_ns(p), now_ns);
    }
}

void pool_run(struct pool *p, pool_fn *fn, void *ctx) {
    if (p->thread_count == 1) {
        fn(ctx, 0, 1);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    announce(p);
    do_share(p, 0);
    judge(p, start_ns);
}

uint32_t pool_threads(const struct pool *p) { return p->thread_count; }

static void stop_workers(struct pool *p, uint32_t started) {
    atomic_store_explicit(&p->stopping, true, memory_order_relaxed); /* the epoch publishes it */
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
    p->yields = thread_count > pool_processors();
    p->control.on_trial = p->yields;
    atomic_init(&p->spin_ns, p->yields ? YIELD_NS : SPIN_NS);
    p->control.hold_ns = HOLD_NS_MIN;
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
    mem_free(p);
}

uint32_t pool_processors(void) {
    cpu_set_t set;
    uint32_t threads = 1;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) threads = (uint32_t)CPU_COUNT(&set);
    uint32_t quota = cgroup_cpu_quota("");
    if (quota && quota < threads) threads = quota;
    if (threads > POOL_THREADS_MAX) threads = POOL_THREADS_MAX;
    return threads ? threads : 1;
}

uint32_t pool_threads_for(uint32_t processors) {
    return processors >= POOL_SPARE_FROM ? processors - 1 : processors;
}

uint32_t pool_default_threads(void) { return pool_threads_for(pool_processors()); }
