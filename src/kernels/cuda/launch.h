/* kernels/cuda/launch.h - the kernels, as the host calls them.
 *
 * Each function enqueues one op on a stream. None allocates or waits, so a step can be captured.
 * Pointers are device memory unless said otherwise. Failed launches are left for cudaGetLastError.
 *
 * Rows that are marked -1 (graph/step.h) are skipped: what their scratch holds means nothing, and
 * nothing of them reaches the cache, a result or another row.
 *
 * All arithmetic is that of kernels/cpu/numerics.h to the bit, but for products of bf16 and f16
 * weights: there activations are rounded to the weight's type, and sums follow docs/identity.md for
 * tensor cores (one f32 accumulator, rising k in steps of 16). launch_fp8.h has those of fp8.
 */
#ifndef KERNELS_CUDA_LAUNCH_H
#define KERNELS_CUDA_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/layout.h"
#include "kernels/cuda/operands.h"
#include "kernels/cuda/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rows.cu ---- */

enum cuda_index { CUDA_INDEX_TOKEN, CUDA_INDEX_POSITION, CUDA_INDEX_ZERO };
struct cuda_embed {
    struct cuda_matrix table;
    enum cuda_index source;
    bool add;
    float scale;
    const int32_t *token, *pos;
    const int32_t *slots; /* tokens that earlier steps sampled */
    struct cuda_mat dst;
};
void cuda_embed(const struct cuda_embed *a, const struct cuda_queue *queue);

struct cuda_norm {
    bool is_layer; /* subtracts the mean */
    uint32_t group;
    float eps;
    const float *weight, *bias; /* bias NULL: none */
    struct cuda_mat src, dst;
    struct cuda_half half; /* the same in 16 bits, and quantised: where cuda_norm_rounds alone */
    struct cuda_mat q8;
    bool is_wide, is_dense; /* four numbers at a time, fp8: more rows at once; the same bits */
};
bool cuda_norm_rounds(uint32_t cols, uint32_t group);
void cuda_norm(const struct cuda_norm *a, const struct cuda_queue *queue);
void cuda_rows_prepare(void); /* once for each card, before its first norm */

/* Rows of tensor/q8.h; q8.col is 0. */
void cuda_quantise(const struct cuda_mat *src, const struct cuda_mat *q8,
                   const struct cuda_queue *queue);

struct cuda_rope {
    bool is_neox;
    uint32_t heads, head_dim, rot_dims;
    const float *freqs;
    float factor;
    const int32_t *pos;
    struct cuda_mat x;
};
void cuda_rope(const struct cuda_rope *a, const struct cuda_queue *queue);

enum cuda_act_kind { CUDA_SILU, CUDA_GELU_TANH, CUDA_GELU_ERF };
struct cuda_act {
    enum cuda_act_kind kind;
    uint32_t segments, stride;
    struct cuda_mat gate, up, dst; /* gate.cols: one segment */
    struct cuda_half half;         /* the same in 16 bits, and quantised */
    struct cuda_mat q8;
    bool is_wide; /* as in struct cuda_norm */
};
void cuda_act(const struct cuda_act *a, const struct cuda_queue *queue);

void cuda_add(const struct cuda_mat *src, const struct cuda_mat *dst,
              const struct cuda_queue *queue);
void cuda_softcap(float cap, const struct cuda_mat *x, const struct cuda_queue *queue);
void cuda_gather(const struct cuda_mat *src, const struct cuda_mat *dst, const uint32_t *output_row,
                 const float *order, const struct cuda_queue *queue);

enum cuda_pool_kind { CUDA_POOL_MEAN, CUDA_POOL_FIRST, CUDA_POOL_LAST };
struct cuda_pool {
    enum cuda_pool_kind kind;
    bool unit_length;
    const uint32_t *seqs; /* [S][2]: first row, row count */
    struct cuda_mat src, dst;
};
void cuda_pool(const struct cuda_pool *a, const struct cuda_queue *queue);

/* ---- experts.cu ---- */

struct cuda_route {
    uint32_t experts, used;
    bool normalise;
    struct cuda_mat logits, ids, weights;
};
void cuda_route(const struct cuda_route *a, const struct cuda_queue *queue);

struct cuda_expert_sum {
    uint32_t used;
    bool add;
    struct cuda_mat src, weights, dst;
};
void cuda_expert_sum(const struct cuda_expert_sum *a, const struct cuda_queue *queue);

/* ---- products ---- */

/* dst columns [dst.col, dst.col + w.rows) = (or +=) src * w^T + bias. With experts, "row" r of the
 * product is expert j = r % used of the step's row r / used, and goes to segment j of dst. */
struct cuda_product {
    struct cuda_matrix w;
    const float *bias; /* NULL: none */
    bool add;
    struct cuda_mat src; /* f32 or q8; for CUDA_BF16, CUDA_F16 and CUDA_FP8 see `x` */
    struct cuda_mat dst;
    const void *x;        /* src as rows of w.row_elems of the weight's type (cuda_convert) */
    const float *x_scale; /* fp8: [rows] */
    uint32_t row_count;   /* rows of the product */
    uint32_t used;        /* 0: no experts */
    struct cuda_mat ids;
    bool src_per_expert;
    uint32_t dst_width; /* of a segment */
};
void cuda_product_f32(const struct cuda_product *a, const struct cuda_queue *queue);
void cuda_product_codes(const struct cuda_product *a, const struct cuda_queue *queue);
void cuda_product_codes_mma(const struct cuda_product *a, const struct cuda_queue *queue);
void cuda_product_codes_mma_prepare(void); /* once for each card, before its first product */
void cuda_product_mma(const struct cuda_product *a, const struct cuda_queue *queue);
void cuda_product_mma_prepare(void); /* likewise */

/* What a product of few rows does first: its rows are these floats, perhaps normed. */
struct cuda_first {
    struct cuda_mat src; /* base NULL: nothing; the rows are there as the weights want them */
    const float *weight; /* of an RMS norm over whole rows; NULL: none */
    float eps;
};

/* A product of few rows without experts, whose weights arrive while kernels in front of it run.
 * With `gates`, the first half of the weights are gates and the second half ups: act(gate) * up
 * goes to `gated`, in 16 bits, and nothing to dst. */
enum { CUDA_FEW_ROWS = 8 };
struct cuda_few {
    struct cuda_product product;
    uint32_t multiprocessors;
    bool gates;
    enum cuda_act_kind act;
    struct cuda_half gated;
    struct cuda_mat gated_q8; /* instead, for quantised weights */
    float *handed;            /* cuda_handed_bytes: pairs may be parted; NULL: may not */
    struct cuda_first first;  /* where cuda_product_two or cuda_product_codes_dots does it */
};
bool cuda_product_few_can(const struct cuda_product *a);
void cuda_product_few(const struct cuda_few *a, const struct cuda_queue *queue);
void cuda_product_few_prepare(void); /* once for each card, before its first product */
/* Likewise for one row and two, with fewer instructions; not of every size. */
bool cuda_product_two_can(const struct cuda_few *f);
void cuda_product_two(const struct cuda_few *f, const struct cuda_queue *queue);
void cuda_product_two_prepare(void);
/* Likewise for quantised weights; not of every width. */
bool cuda_product_codes_few_can(const struct cuda_product *a);
void cuda_product_codes_few(const struct cuda_product *a, uint32_t multiprocessors,
                            const struct cuda_queue *queue);
void cuda_product_codes_few_prepare(void);
/* Likewise for up to 4 rows of them, with fewer instructions; with gates, too. */
bool cuda_product_codes_dots_can(const struct cuda_few *f);
void cuda_product_codes_dots(const struct cuda_few *f, const struct cuda_queue *queue);
void cuda_product_codes_dots_prepare(void);

/* Row r * segments + s of `to` = segment s of src's row r, zeros up to row_elems. */
struct cuda_convert {
    struct cuda_mat src;
    uint32_t segments;
    struct cuda_half to;
};
void cuda_convert(const struct cuda_convert *a, const struct cuda_queue *queue);

/* dst = (from + bias), or dst + that; from has rows of dst.cols floats. */
struct cuda_finish {
    const float *from, *bias;
    bool add;
    struct cuda_mat dst;
};
void cuda_finish(const struct cuda_finish *a, const struct cuda_queue *queue);

/* ---- peaks.cu ---- */

/* Read so much, for measuring; `sink` is a number that may be written. */
void cuda_read(const void *from, size_t bytes, uint32_t *sink, uint32_t multiprocessors,
               struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
