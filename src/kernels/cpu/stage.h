/* kernels/cpu/stage.h - where the threads of a run meet, and what one of them does for all.
 *
 * A tape is cut into stages: runs of ops that a thread may walk without waiting for the others.
 * Behind every stage all meet, and that costs most where there is least to do: each meeting waits
 * for the slowest. So a stage of little work has no meeting of its own: whoever comes last to the
 * meeting before does it for all, which loses what sharing it out would have saved and saves the
 * meeting. The step's rows decide, so that one sequence that decodes meets five times a layer (six
 * where a long context is cut up), and a prompt shares everything out:
 *
 *     matmul qkv | rope q . rope k . kv_write | attention | matmul o | norm | matmul gate, up . act
 *     all        | the last                   | all       | all      | last | all, chunk by chunk
 *
 * An act of few rows needs no meeting either: it follows its product chunk by chunk of columns,
 * done by whoever computes the last panel of a chunk.
 *
 * Lifetime: made with a plan. Thread: read-only once made; pure.
 */
#ifndef KERNELS_CPU_STAGE_H
#define KERNELS_CPU_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/tape.h"

struct step;

struct stage {
    uint32_t first, end; /* ops */
    enum rows_kind rows; /* what their rows are */
    uint32_t row_work;   /* of all its ops in one row, in elements; 0: never for one thread alone */
    bool splits_rows;    /* threads share out a single row, too */
    bool follows;        /* with few rows, the op before has done it (kernels/cpu/plan.h) */
};

/* What a meeting is worth for each thread that comes to it, in elements: about 0.3 us. Two threads
 * of SmolLM2 wait 0.6 us at each (Zen 4, 2026-11), and each further thread makes it longer. */
enum { STAGE_ALONE_ELEMS = 512 };

/* Op `i` is an act that may be applied to its product's columns while others are still computed. */
bool stage_may_follow(const struct tape *t, uint32_t i);

/* follows[op]: the op follows the one before. `out` has room for as many stages as the tape has
 * ops; returns how many there are. */
uint32_t stages_make(const struct tape *t, const bool *follows, struct stage *out);

/* Of the stages from `at` on, the first that is not done by one thread for all `threads`. */
uint32_t stages_alone_end(const struct stage *stages, uint32_t count, uint32_t at,
                          const struct step *step, uint32_t threads);

#endif
