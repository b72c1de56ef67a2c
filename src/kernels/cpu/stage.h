/* kernels/cpu/stage.h - the barriers of a run, and the ops that one thread runs alone.
 *
 * A tape is cut into stages: sequences of ops that a thread may run without waiting for the others.
 * Every stage ends in a barrier. For small ops the barrier costs more than the work, so the last
 * thread to arrive at the previous barrier runs them alone. The number of rows of the step decides:
 * a single sequence that decodes has five barriers a layer (six where a long context is cut up),
 * and in a prompt all ops are shared out:
 *
 *     matmul qkv | rope q . rope k . kv_write | attention | matmul o | norm | matmul gate, up . act
 *     all        | one thread                 | all       | all      | one  | all, chunk by chunk
 *
 * An activation of few rows needs no barrier either: each chunk of columns is activated by the
 * thread that computes the chunk's last panel.
 *
 * Lifetime: made with a workspace. Thread: read-only once made; pure.
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
    uint32_t row_work;   /* of all its ops in one row, in elements; 0: never run by one thread */
    bool splits_rows;    /* a single row is shared out among threads, too */
    bool follows;        /* with few rows, the op before has done it (kernels/cpu/workspace.h) */
};

/* What a barrier costs for each thread, in elements: about 0.3 us. Two threads of SmolLM2 wait
 * 0.6 us at each (Zen 4, 2026-11), and each further thread makes it longer. */
enum { STAGE_SERIAL_ELEMS = 512 };

/* Op `i` is an act that may be applied to its product's columns while others are still computed. */
bool stage_may_follow(const struct tape *t, uint32_t i);

/* follows[op]: the op follows the one before. `out` has room for as many stages as the tape has
 * ops; returns how many there are. */
uint32_t stages_make(const struct tape *t, const bool *follows, struct stage *out);

/* Of the stages from `at` on, the first that all `threads` run. */
uint32_t stages_serial_end(const struct stage *stages, uint32_t count, uint32_t at,
                           const struct step *step, uint32_t threads);

#endif
