/* kernels/cpu/watch.h - a stopwatch for every op of a run, if somebody wants to know.
 *
 * Each thread takes a lap behind every op and behind every meeting, and writes it into places of
 * its own. What one thread does for all at a meeting is work of that thread, and waiting for that
 * op of all others. Without a watch a lap is one branch that is never taken.
 *
 * Lifetime: watch_create, as many runs as wanted, watch_destroy. Thread: laps by every thread of a
 * run, the rest by the device's caller. Memory: taken by create for the longest tape there can be;
 * pages that no run touches are never there.
 */
#ifndef KERNELS_CPU_WATCH_H
#define KERNELS_CPU_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "graph/device.h"

struct cpu_watch; /* opaque */

struct cpu_watch *watch_create(uint32_t thread_count, device_watch_fn *fn, void *ctx); /* or NULL */
void watch_destroy(struct cpu_watch *w); /* NULL is fine */

/* Around a run, by the caller. */
void watch_begin(struct cpu_watch *w, const struct device_run *run);
void watch_end(struct cpu_watch *w, const struct device_run *run); /* calls fn */

/* One thread's laps in one run. */
struct lap {
    int64_t *work_ns, *wait_ns; /* the thread's, by op; NULL: nobody watches */
    const int64_t *alone_ns;    /* by op: those that one thread does for all */
    int64_t last_ns;
};
struct lap lap_begin(struct cpu_watch *w, uint32_t thread); /* NULL is fine */
struct lap lap_begin_alone(struct cpu_watch *w);            /* for all; only lap_work */

static inline void lap_take(struct lap *l, int64_t *into) {
    int64_t now_ns = clock_fine_ns();
    *into = now_ns - l->last_ns;
    l->last_ns = now_ns;
}
static inline void lap_work(struct lap *l, uint32_t op) {
    if (l->work_ns) lap_take(l, &l->work_ns[op]);
}
/* Behind the meeting after the ops [first, end), where those from `end` to `alone_end` were done
 * for all: by this thread, or by another? */
struct lap_meeting {
    uint32_t first, end, alone_end;
    bool by_me;
};
void lap_fill_meeting(struct lap *l, const struct lap_meeting *m);
static inline void lap_meet(struct lap *l, const struct lap_meeting *m) {
    if (l->work_ns) lap_fill_meeting(l, m);
}

#endif
