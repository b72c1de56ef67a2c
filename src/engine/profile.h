/* engine/profile.h - where the time of a step goes, op by op.
 *
 * Runs steps of a given shape through the runner that serves (engine/runner_local.h) while the
 * device reports what each op took, and adds the ops up by kind and weight. The cache is filled
 * with real keys and values first, without computing a whole prompt: 16 tokens are computed and
 * their block is copied to all others, which costs the same to read.
 *
 * Every time, of the step and of each op by itself, is the one below which a quarter of the runs
 * stay. Whatever else runs on the machine then hardly shows in the ops; what it adds to the
 * whole step stands apart.
 *
 * Lifetime: nothing is kept. Thread: the caller's, which is the model's only user.
 */
#ifndef ENGINE_PROFILE_H
#define ENGINE_PROFILE_H

#include <stdint.h>

#include "base/status.h"
#include "engine/loaded_model.h"

enum { PROFILE_LABEL_BYTES = 80, PROFILE_PARTS_MAX = 64, PROFILE_STEPS_MIN = 4 };

/* A step: sequences, the rows of each, and the tokens that each has in the cache before them. */
struct profile_shape {
    uint32_t seqs, rows, ctx;
};

struct profile_options {
    enum kv_type kv_type;
    uint32_t steps_max; /* at least PROFILE_STEPS_MIN */
    int64_t budget_us;  /* fewer steps if they take longer, but never less than the minimum */
};

/* All ops of one kind with weights of one role and format. */
struct profile_part {
    char label[PROFILE_LABEL_BYTES]; /* "matmul ffn_gate,ffn_up Q4_1" */
    uint32_t calls;                  /* in one step */
    double us;                       /* from the op's beginning until its threads may go on */
    double wait_us;                  /* of that, the mean thread's time at the barrier */
    struct work work;
};

struct profile {
    struct profile_shape shape;
    uint32_t steps;
    double step_us;     /* parts + around_us + sampling_us + interrupted_us */
    double median_us;   /* of all steps */
    double around_us;   /* of running the tape, outside its ops: waking threads, tables of angles */
    double sampling_us; /* outside running the tape: step tables, choosing tokens */
    double interrupted_us; /* what a step takes beyond its parts: about 0 on an idle machine */
    struct profile_part parts[PROFILE_PARTS_MAX]; /* in the order of the tape */
    uint32_t part_count;
};

/* ST_BAD: an encoder, or a shape that does not fit the context; ST_NOMEM. */
enum status profile_step(struct loaded_model *loaded, const struct profile_shape *shape,
                         const struct profile_options *options, struct profile *out,
                         struct err *err);

#endif
