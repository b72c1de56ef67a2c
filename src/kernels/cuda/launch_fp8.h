/* kernels/cuda/launch_fp8.h - kernels of fp8 weights, as the host calls them; see launch.h.
 *
 * A weight row (output) and a row of activations have a scale each (fp8_scale.h). Products follow
 * Hopper's tensor cores for e4m3: one accumulator, rising k in steps of 32; they cut it to
 * about 14 bits after each step. Then the sum is multiplied by both scales.
 */
#ifndef KERNELS_CUDA_LAUNCH_FP8_H
#define KERNELS_CUDA_LAUNCH_FP8_H

#include "kernels/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- fp8_rows.cu ---- */

/* Columns of a row that an act or a conversion can make e4m3 of. */
enum { CUDA_FP8_COLS_MAX = 32768 };

/* As cuda_norm, cuda_act and cuda_convert, but a->half (a->to) has the form CUDA_FP8 and as many
 * elements in a row as the result has columns; a conversion fills up with zeros. */
void cuda_fp8_norm(const struct cuda_norm *a, const struct cuda_queue *queue);
void cuda_fp8_act(const struct cuda_act *a, const struct cuda_queue *queue);
void cuda_fp8_convert(const struct cuda_mat *src, const struct cuda_half *to,
                      const struct cuda_queue *queue);

/* cuda_fp8_act with the blocks of a cluster for each row, where there are few (Hopper). */
void cuda_fp8_act_few(const struct cuda_act *a, const struct cuda_queue *queue);

void cuda_fp8_rows_prepare(void); /* once for each card, before the first of these */

/* Rows of bf16 or f16 numbers, `from`, as rows of e4m3 with their scales; zeros behind. */
struct cuda_fp8_weights {
    enum cuda_form form; /* of `from` */
    const void *from;    /* [rows][from_elems] */
    uint32_t rows, cols, from_elems, row_elems;
    uint8_t *codes; /* [rows][row_elems] */
    float *scale;   /* [rows] */
};
void cuda_fp8_weights(const struct cuda_fp8_weights *a, const struct cuda_queue *queue);

/* ---- product_fp8.cu ---- */

/* Any number of rows; made for up to CUDA_FEW_ROWS, whose weights arrive while kernels in front of
 * it run. */
bool cuda_product_fp8_can(const struct cuda_product *a);
void cuda_product_fp8(const struct cuda_product *a, uint32_t multiprocessors,
                      const struct cuda_queue *queue);
void cuda_product_fp8_prepare(void); /* once for each card, before its first product */

#ifdef __cplusplus
}
#endif
#endif
