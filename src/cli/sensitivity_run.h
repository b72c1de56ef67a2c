/* cli/sensitivity_run.h - how much the output of a model changes when one matrix alone is
 * quantised, for `jitney quantize --budget`.
 *
 * The model computes some windows of text; then, for each matrix, the matrix is replaced by what is
 * left of it in a 4-bit type (its numbers decoded again, so that activations stay as they are), the
 * windows are computed again, and the mean KL of the logits is taken.
 *
 * Lifetime: all of it is in use during sensitivity_run only. Thread: the main thread; the device
 * has threads of its own. Memory: the model twice (a device keeps every matrix that it has
 * prepared), and the logits of all windows.
 */
#ifndef CLI_SENSITIVITY_RUN_H
#define CLI_SENSITIVITY_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "engine/window_kl.h"
#include "tensor/dtype.h"

struct loaded_model;

/* Windows that are measured, and the most tokens of one; positions from a quarter on count. */
enum { SENSITIVITY_WINDOWS = 4, SENSITIVITY_WINDOW_TOKENS = 64 };

struct sensitivity {
    struct str name;         /* of the tensor in the model's file */
    const float *importance; /* of each column, or NULL */
    enum dtype probe;        /* the type that is tried */
    bool is_measured;        /* false: the forward pass does not use the tensor as a matrix, or its
                                result is no number then */
    double kl;               /* result */
};

struct sensitivity_options {
    uint32_t threads;
    struct window_kl_text text;
};

/* ST_BAD: the device is not the CPU, a number that the type cannot hold, or predictions that are no
 * numbers whatever is tried. */
enum status sensitivity_run(struct loaded_model *loaded, const struct sensitivity_options *options,
                            struct sensitivity *tensors, size_t count, struct err *err);

#endif
