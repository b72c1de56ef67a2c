/* quant/round_int.h - what the files of rounding share: the scale of a group, and codes. */
#ifndef QUANT_ROUND_INT_H
#define QUANT_ROUND_INT_H

#include <stdint.h>

#include "base/pool.h"
#include "quant/int_matrix.h"

/* Of one group of a row. */
struct grid {
    float scale; /* positive, finite, a number that f16 holds */
    float zero;  /* a whole number */
    float most;  /* the largest code */
};

/* The grid that spans the numbers from `least` to `most`, and 0. */
struct grid grid_of(const struct int_format *format, float least, float most);
struct grid grid_of_numbers(const struct int_format *format, const float *w, uint32_t count);

/* Ties to even. The code of anything is in range. */
static inline float grid_code(const struct grid *g, float x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: floats next to it have steps of 1 */
    float v = x / g->scale;
    v = v < -512.0f ? -512.0f : v > 512.0f ? 512.0f : v;
    v = ((v + magic) - magic) + g->zero;
    return v < 0.0f ? 0.0f : v > g->most ? g->most : v;
}

/* Row `row` of `out` from the numbers `w`, each by itself. */
void round_row(const float *w, struct int_matrix *out, uint32_t row);

/* Runs `fn` on a pool of `threads` threads (0: the default), or on this thread alone if there is no
 * memory for a pool: the work is the same. */
void round_on_threads(uint32_t threads, pool_fn *fn, void *ctx);

#endif
