/* cli/quantize_layers.h - rounds the matrices of a model layer by layer, by what they read over a
 * text, into a folder.
 *
 *     gptq  each matrix is rounded with round_gptq; its inputs are computed with rounded matrices
 *     awq   the inputs get the scales with the least error; then each number is rounded to nearest
 *     int8  the inputs that a norm makes get SmoothQuant's scales; then the same
 *
 * Lifetime: all of it is in use during quantize_layers only. Thread: the main thread.
 * Memory: that of cli/layer_calibration.h, and the codes of one layer.
 */
#ifndef CLI_QUANTIZE_LAYERS_H
#define CLI_QUANTIZE_LAYERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct folder_writer;
struct layer_calibration;
struct model_file;

struct layer_rounding {
    struct layer_calibration *calibration; /* at_once unless the method is GPTQ */
    struct folder_writer *writer;          /* with its format; no tensor is put yet */
    const struct model_file *source;       /* that the calibration reads */
    double damp;                           /* GPTQ: of struct gptq_options; 0: by the rows */
    double smooth;                         /* int8: alpha of smooth_scales */
    uint32_t threads;                      /* 0: the default of base/pool.h */
    void (*on_put)(void *ctx);             /* a tensor is written */
    void *ctx;
};

/* Writes all tensors. *rounded: the number of matrices that are rounded otherwise than without the
 * text. */
enum status quantize_layers(const struct layer_rounding *r, size_t *rounded, struct err *err);

#endif
