/* graph/tap.h - the inputs of products, as a callback sees them while a model is calibrated.
 *
 * The device calls it (struct device_profiler, tap) before each product of matrices, with every row
 * that the product reads, on one thread at a time. A row of experts comes once for each of its
 * experts.
 *
 * Lifetime: an input is valid during the call.
 */
#ifndef GRAPH_TAP_H
#define GRAPH_TAP_H

#include <stdint.h>

struct weight;

/* A part of a row that a product with `weight` reads: columns [col, col + count) as float32. The
 * parts of a row come in rising order; one that begins at column 0 begins a row. */
struct device_input {
    const struct weight *weight;
    uint32_t col, count;
    const float *x;
};
typedef void device_tap_fn(void *ctx, const struct device_input *input);

#endif
