/* kernels/cpu/op_timer.h - the times of every op of a run on every thread, while profiling is on.
 *
 * Each thread takes a lap after every op and after every barrier, and writes it into memory of its
 * own. The time of an op that one thread runs alone counts as work of that thread and as waiting of
 * all others. With no timer a lap is one branch that is never taken.
 *
 * Lifetime: op_timer_create, any number of runs, op_timer_destroy.
 * Thread:   laps by every thread of a run, the rest by the device's caller.
 * Memory:   allocated by create for the longest possible tape; pages that no run touches are never
 *           backed by memory.
 */
#ifndef KERNELS_CPU_OP_TIMER_H
#define KERNELS_CPU_OP_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "graph/device.h"

struct op_timer; /* opaque */

struct op_timer *op_timer_create(uint32_t thread_count, device_watch_fn *fn,
                                 void *ctx); /* or NULL */
void op_timer_destroy(struct op_timer *w);   /* NULL is fine */

/* Around a run, by the caller. */
void op_timer_begin(struct op_timer *w, const struct device_run *run);
void op_timer_end(struct op_timer *w, const struct device_run *run); /* calls fn */

/* One thread's laps in one run. */
struct lap {
    int64_t *work_ns, *wait_ns; /* the thread's, by op; NULL: no timer */
    const int64_t *serial_ns;   /* by op: those that one thread runs alone */
    int64_t last_ns;
};
struct lap lap_begin(struct op_timer *w, uint32_t thread); /* NULL is fine */
struct lap lap_begin_serial(struct op_timer *w); /* of the thread that runs alone; only lap_work */

static inline void lap_take(struct lap *l, int64_t *into) {
    int64_t now_ns = clock_fine_ns();
    *into = now_ns - l->last_ns;
    l->last_ns = now_ns;
}
static inline void lap_work(struct lap *l, uint32_t op) {
    if (l->work_ns) lap_take(l, &l->work_ns[op]);
}
/* The barrier after the ops [first, end); one thread ran the ops from `end` to `serial_end` alone,
 * this one or another. */
struct lap_barrier {
    uint32_t first, end, serial_end;
    bool by_me;
};
void lap_fill_barrier(struct lap *l, const struct lap_barrier *m);
static inline void lap_wait(struct lap *l, const struct lap_barrier *m) {
    if (l->work_ns) lap_fill_barrier(l, m);
}

#endif
