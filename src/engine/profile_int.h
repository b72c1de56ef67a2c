/* engine/profile_int.h - the inside of a profile, shared by its two files only. */
#ifndef ENGINE_PROFILE_INT_H
#define ENGINE_PROFILE_INT_H

#include "engine/profile.h"
#include "graph/tape.h"

/* What one step took, by part. */
struct step_times {
    double step_us, run_us;
    double work_us[PROFILE_PARTS_MAX], wait_us[PROFILE_PARTS_MAX];
};

/* Find the part of every op of the tape, making parts as they come, and count its work. More kinds
 * than there is room for share the last part. */
void profile_sort_ops(const struct device_run *run, struct profile *out,
                      uint8_t part_of[TAPE_OPS_MAX]);

/* Fill the times of `out` from `count` steps, which it sorts. */
void profile_reduce(struct step_times *steps, uint32_t count, struct profile *out);

#endif
