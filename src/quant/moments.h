/* quant/moments.h - sums over the inputs that a text gives a matrix: second moments, mean
 * and largest magnitudes.
 *
 *     create -> add rows of inputs -> read the sums
 *
 * The squared error that a rounded matrix makes in its output over the text is, row by row,
 * d * XX * d^T, with d the difference of the row and XX the sum of x^T x: the Hessian of GPTQ. So
 * the searches of AWQ and of GPTQ need no inputs but these sums.
 *
 * Lifetime: create, destroy. Thread: its owner; threads of its own run inside a call.
 * Memory: 4 bytes * cols^2, and 2 KiB * cols until moments_end.
 */
#ifndef QUANT_MOMENTS_H
#define QUANT_MOMENTS_H

#include <stdint.h>

#include "base/status.h"

struct moments_room; /* opaque: until moments_end */

struct moments {
    uint32_t cols;
    uint64_t rows;   /* that were added */
    float *products; /* [cols][cols]: sums of x[i] * x[j]; all of it after moments_end */
    double *abs_sum; /* [cols]: sums of |x| */
    float *abs_max;  /* [cols]: the largest |x| */
    struct moments_room *room;
};

enum status moments_create(uint32_t cols, struct moments **out, struct err *err);
void moments_destroy(struct moments *m); /* NULL is fine */

/* `count` rows of `cols` inputs, one after the other. A number that is not finite counts as 0. The
 * sums do not depend on the number of threads. */
void moments_add(struct moments *m, const float *x, uint32_t count);
void moments_end(struct moments *m); /* once, after the last row */

#endif
