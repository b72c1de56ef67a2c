/* quant/cholesky.h - the triangular factor of a symmetric positive definite matrix.
 *
 *     A = U^T U,  U upper triangular with a positive diagonal
 *
 * Sums have a fixed order (quant/dense.h), so the factor is the same bits on every machine and with
 * any number of threads. A LAPACK has neither property (docs/decisions/0023).
 *
 * Thread: runs inside a pool's run (base/pool.h). Memory: the matrix, and 256 bytes * n.
 */
#ifndef QUANT_CHOLESKY_H
#define QUANT_CHOLESKY_H

#include <stdbool.h>
#include <stdint.h>

struct pool;

enum { CHOLESKY_BLOCK = 64 };

struct cholesky {
    float *a; /* [n][n]: the upper half of A, then U; what is below the diagonal does not count,
                      and is undefined afterwards */
    float *transposed; /* [n][CHOLESKY_BLOCK]: scratch for a block of rows of U */
    uint32_t n;
    struct pool *pool; /* NULL: this thread alone */
};

/* False: A is not positive definite, or not finite; U is unusable. */
bool cholesky_factor(struct cholesky *c);

#endif
