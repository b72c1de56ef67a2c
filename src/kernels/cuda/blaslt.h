/* kernels/cuda/blaslt.h - products of many rows by cuBLASLt. */
#ifndef KERNELS_CUDA_BLASLT_H
#define KERNELS_CUDA_BLASLT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/cuda/operands.h"

struct CUstream_st; /* cudaStream_t points to it */
struct cuda_blas;
struct cuda_device;
struct cuda_library_options;

/* ST_MISSING says where the library was looked for. Algorithms that were kept are read. */
enum status cuda_blas_open(struct cuda_device *dev, const struct cuda_library_options *options,
                           struct cuda_blas **out, struct err *err);
/* Before the first product of fp8. NULL is fine. */
void cuda_blas_open_fp8(struct cuda_blas *b);
/* New algorithms are kept. NULL is fine. */
void cuda_blas_close(struct cuda_blas *b);

/* dst[m][n] = sum over k of x[m][k] * w[n][k], plus dst[m][n] if `add`; split-K is 1. The sums of
 * fp8 are multiplied by x_scale[m] and w_scale[n]. */
struct cuda_gemm {
    enum cuda_form form; /* CUDA_BF16, CUDA_F16 or CUDA_FP8 */
    uint32_t rows, weights, cols;
    const void *x, *w;              /* rows of `cols` */
    const float *x_scale, *w_scale; /* fp8: [rows], [weights]; multiples of 16 bytes */
    bool free_scales;               /* fp8: w_scale are any floats; then not with `add` */
    float *dst;
    size_t dst_floats; /* from one row to the next */
    bool add;
};
/* False: no algorithm for this shape; nothing was done. */
bool cuda_blas_run(struct cuda_blas *b, const struct cuda_gemm *g, struct CUstream_st *stream);
/* The last of the range of rows that share an algorithm. */
uint32_t cuda_blas_range(uint32_t rows);

#endif
