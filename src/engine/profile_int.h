/* engine/profile_int.h - the inside of a profile, shared by its two files only. */
#ifndef ENGINE_PROFILE_INT_H
#define ENGINE_PROFILE_INT_H

#include "engine/profile.h"
#include "graph/tape.h"

/* One thing in one step. */
struct lap_us {
    double all, wait;
};

/* The same things in every step: the ops of the tape, then these. */
enum { LAP_AROUND, LAP_SAMPLING, LAP_STEP, LAPS_MORE };
struct laps {
    struct lap_us *list; /* [op_count + LAPS_MORE][steps_max] */
    uint32_t op_count, steps_max, count;
};
static inline struct lap_us *laps_of(const struct laps *l, uint32_t thing) {
    return l->list + (size_t)thing * l->steps_max;
}

/* Find the part of every op of the tape, making parts as they come, and count its work. More kinds
 * than there is room for share the last part. */
void profile_sort_ops(const struct device *dev, const struct device_run *run, struct profile *out,
                      uint8_t part_of[TAPE_OPS_MAX]);

/* Fill the times of `out` from the laps, which it sorts. */
void profile_reduce(struct laps *laps, const uint8_t *part_of, struct profile *out);

#endif
