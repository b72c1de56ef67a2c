/* cli/layer_parts.h - a layer's forward pass in parts, each of which ends before the products that
 * read the next input.
 *
 *     part 0        x -> x, input 0          (a norm)
 *     part i        x, input i-1 -> x, input i
 *     part count    x, the last input -> x
 *
 * The parts are cut from the model's own tape (graph/tape_part.h), so every architecture whose
 * layer keeps nothing but x beside the input of its products can be run.
 *
 * Lifetime: open for one layer, close; weights, model and device outlive it. Thread: its owner.
 * Memory: keys and values of one window, scratch for a chunk of rows.
 */
#ifndef CLI_LAYER_PARTS_H
#define CLI_LAYER_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/layer_calibration.h"
#include "graph/device.h"
#include "model/model.h"

struct layer_parts; /* opaque */

struct layer_parts_options {
    const struct device *device;
    const struct model *model; /* of one layer */
    uint32_t window_tokens, chunk_tokens;
    uint32_t in_stride; /* from one row of inputs to the next: the columns of the widest */
};

/* What makes an input. */
enum input_maker { MAKER_NORM, MAKER_VALUES, MAKER_UP, MAKER_OTHER };

/* An input, and what reads it. */
struct part_input {
    const struct weight *weights[INPUT_MATRICES_MAX];
    uint32_t weight_count, cols;
    enum input_maker maker;
    const struct weight *norm; /* MAKER_NORM */
    /* MAKER_VALUES, MAKER_UP: column i of the input is a multiple of row first_row + i of a matrix,
     * and of its bias, if it has one. */
    const struct weight *matrix, *bias;
    uint32_t first_row;
};

/* ST_BAD: the layer is not one that can be cut into such parts. */
enum status layer_parts_open(const struct layer_parts_options *options, struct layer_parts **out,
                             struct err *err);
void layer_parts_close(struct layer_parts *p); /* NULL is fine */

uint32_t layer_parts_inputs(const struct layer_parts *p);
const struct part_input *layer_parts_input(const struct layer_parts *p, uint32_t i);

/* One window. x: [window_tokens][dim]; in: [window_tokens][in_stride], which holds input i - 1 and
 * then input i. */
enum status layer_parts_run(struct layer_parts *p, uint32_t i, float *x, float *in,
                            struct err *err);

/* The embeddings of some tokens: [count][dim]. */
struct layer_tokens {
    const int32_t *ids;
    uint32_t count;
};
enum status layer_parts_embed(const struct layer_parts_options *options,
                              const struct layer_tokens *tokens, float *x, struct err *err);

#endif
