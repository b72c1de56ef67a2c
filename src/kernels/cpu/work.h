/* kernels/cpu/work.h - what an op has to move and compute, and the least time that takes here.
 *
 * Counted from the step that runs it, for figures that people read: a product reads every weight
 * once as it is packed, attention reads each sequence's keys and values once, and ops on rows
 * alone read and write scratch that stays in the caches. The least time is that of the resource
 * which takes longest at its measured ceiling, all of it used by this op alone.
 *
 * A share above 1 means that bytes came from a cache instead of memory, as those of a small model
 * do.
 *
 * Thread: any.
 */
#ifndef KERNELS_CPU_WORK_H
#define KERNELS_CPU_WORK_H

#include "graph/device.h"

struct cpu_peaks;
struct op;

struct cpu_work {
    double memory_bytes; /* weights, keys and values */
    double cache_bytes;  /* rows of scratch, read and written */
    double int8_ops, f32_ops;
};

/* Of one op of the tape that `run` runs. */
struct cpu_work cpu_op_work(const struct device_run *run, const struct op *op);
void cpu_work_add(struct cpu_work *to, const struct cpu_work *more);

enum cpu_bound { BOUND_NONE, BOUND_MEMORY, BOUND_CACHE, BOUND_INT8, BOUND_F32 };
const char *cpu_bound_name(enum cpu_bound b); /* "none", "memory", "cache", "int8", "f32" */

struct cpu_least {
    enum cpu_bound bound;
    double us; /* 0 if nothing bounds it */
};
struct cpu_least cpu_work_least(const struct cpu_work *w, const struct cpu_peaks *peaks);

#endif
