/* tensor/q8.h - a row of activations, quantised for an integer product.
 *
 * A row of K floats (K a multiple of 32) becomes, for each block b of 32,
 *
 *     scale[b] = max|x| / 127                        (0 for a block of zeros)
 *     q[i]     = round to nearest even (x[i] * (127 / max|x|)), held to -127 .. 127
 *     isum[b]  = sum of the block's q, exact
 *     dsum[b]  = scale[b] * (float)isum[b]
 *     dsum16[2b], dsum16[2b+1] = the same for each half of the block
 *
 * stored as five arrays one after the other. A NaN counts as 0, and an infinity as the largest
 * float of its sign, so that every row has a defined result.
 *
 * The product with a quantised weight row w is defined as follows, and every kernel of the CPU
 * gives exactly these bits; other devices may add the groups in another order (graph/op_args.h).
 * With one float accumulator per output element, starting at 0, for each
 * group g of w in rising order (group of 16 or 32 elements, inside activation block b):
 *
 *     acc = fma((float)sum(w.q[i] * q[i]), w.scale[g] * scale[b], acc)
 *     acc = fma(w.min[g], dsum[b] or dsum16[..], acc)          if the format has minima
 *
 * The integer sum is exact; products of scales are rounded once to float.
 */
#ifndef TENSOR_Q8_H
#define TENSOR_Q8_H

#include <stddef.h>
#include <stdint.h>

enum { Q8_BLOCK = 32 };

struct q8_row {
    const int8_t *q;     /* K */
    const float *scale;  /* K / 32 */
    const float *dsum;   /* K / 32 */
    const float *dsum16; /* K / 16 */
    const int32_t *isum; /* K / 32 */
};

/* Bytes of a row of `cols` (a multiple of 32): rounded up to 64, so that rows stay aligned. */
size_t q8_row_bytes(uint32_t cols);

struct q8_row q8_row_at(const void *row, uint32_t cols);

/* The same arrays, for writing. */
struct q8_out {
    int8_t *q;
    float *scale, *dsum, *dsum16;
    int32_t *isum;
};
struct q8_out q8_out_of(struct q8_row row);

/* The definition, in plain C, of `blocks` blocks; `x` holds as many times Q8_BLOCK floats. */
void q8_quantise_blocks(const float *x, uint32_t blocks, struct q8_out out);

/* A whole row. `out` has q8_row_bytes(cols) and is 64-byte aligned. */
void q8_quantise(const float *x, uint32_t cols, void *out);

#endif
