/* quant/dense.h - products of plain float32 matrices, with the same bits everywhere.
 *
 * An element of a product is a sum of float products in rising order, DENSE_DEPTH of them at a
 * time; each such sum begins at 0 and is added to the result. So the result does not depend
 * on the tiles that it is computed in, the number of threads or the processor.
 *
 * Thread: any; there is no state. Memory: 16 KiB of the stack.
 */
#ifndef QUANT_DENSE_H
#define QUANT_DENSE_H

#include <stddef.h>
#include <stdint.h>

enum { DENSE_DEPTH = 256 };

/* c[i][j] += sum over k of a[i][k] * b[k][j]. Strides are in floats. */
struct dense_product {
    float *c;
    const float *a, *b;
    size_t c_stride, a_stride, b_stride;
    uint32_t rows, cols, depth; /* of c; terms */
};
typedef void dense_fn(const struct dense_product *p);

dense_fn dense_multiply;

/* The same with the code of one instruction set; NULL past the last. For tests. */
struct dense_isa {
    const char *name;
    dense_fn *multiply;
};
const struct dense_isa *dense_isa_at(uint32_t index);

#endif
