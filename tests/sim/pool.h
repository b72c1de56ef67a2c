/* Worlds in several processes: a CHECK that fails in one of them ends that process, and the
 * parent still knows which seed it was. */
#ifndef TESTS_SIM_POOL_H
#define TESTS_SIM_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/world.h"

enum { POOL_PROCESSES_MAX = 2, POOL_POLICIES_MAX = 16 };

/* What one process has done; in memory that the parent shares. */
struct pool_report {
    struct world_mark mark; /* where it is */
    bool is_done, is_wrong;
    struct world_outcome outcome; /* of the world that was wrong */
    uint64_t failed_seed;         /* of a sum */
    uint32_t failed_depth;
    uint64_t worlds, hash, counts[WORLD_COUNTS];
    uint64_t worlds_of[POOL_POLICIES_MAX], steps_of[POOL_POLICIES_MAX]; /* by place in the list */
};

struct pool_task {
    uint64_t first_seed;
    uint64_t worlds_min, steps_min; /* go on until both are reached */
    uint64_t worlds_max;
    struct world_options options; /* of every world; its seed is set here */
    bool both_depths;             /* odd seeds at depth 1, even ones at depth 0 */
    uint32_t processes;
    uint32_t seconds_max; /* a world that takes longer never ends, and is wrong; 0: no limit */
};

/* Sums over all processes. False: something was wrong, and `what` says it with
 * seed, step and policy. */
bool pool_run(const struct pool_task *task, struct pool_report *sum, struct err *what);

#endif
