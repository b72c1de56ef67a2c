/* graph/work.h - what an op has to move and compute, and the least time that takes on a device.
 *
 * For figures that people read. A device counts the work of an op from the step that runs it: a
 * product reads every weight once as it is prepared, attention reads each sequence's keys and
 * values once, and ops on rows alone read and write scratch that stays in the caches. The least
 * time is that of the resource which takes longest at its measured ceiling, all of it used by this
 * op alone.
 *
 * A share above 1 means that bytes came from a cache instead of memory, as those of a small model
 * do.
 *
 * Thread: any.
 */
#ifndef GRAPH_WORK_H
#define GRAPH_WORK_H

/* The ceilings of a device, all of it together; 0: not known. */
struct peaks {
    double read_gbs;  /* from memory, beyond every cache */
    double cache_gbs; /* from caches */
    double int8_gops, f32_gops;
    const char *int8_name, *f32_name; /* the instructions; "" if not known */
};

struct work {
    double memory_bytes; /* weights, keys and values */
    double cache_bytes;  /* rows of scratch, read and written */
    double int8_ops, f32_ops;
};

void work_add(struct work *to, const struct work *more);

enum bound { BOUND_NONE, BOUND_MEMORY, BOUND_CACHE, BOUND_INT8, BOUND_F32 };
const char *bound_name(enum bound b); /* "none", "memory", "cache", "int8", "f32" */

struct least_time {
    enum bound bound;
    double us; /* 0 if nothing bounds it */
};
struct least_time work_least(const struct work *w, const struct peaks *peaks);

#endif
