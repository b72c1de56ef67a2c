/* kernels/cuda/launch_attention.h - the kernels around the KV cache, as the host calls them.
 *
 * As in kernels/cuda/launch.h. Attention has two definitions: cuda_attention computes in f32 in the
 * CPU's order, to its bits; cuda_attention_mma, for a cache of f16 or fp8, on tensor cores, near
 * them. Either gives a row the same bits whatever else the step holds.
 */
#ifndef KERNELS_CUDA_LAUNCH_ATTENTION_H
#define KERNELS_CUDA_LAUNCH_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/layout.h"
#include "kernels/cuda/operands.h"
#include "kernels/cuda/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- qkv.cu ---- */

struct cuda_kv_write {
    struct cuda_kv kv;
    uint32_t layer;
    const int32_t *pos;
    const uint32_t *seq;
    const uint32_t *blocks; /* of the group, sequence s at blocks + s * blocks_stride */
    size_t blocks_stride;
    struct cuda_mat k, v;
};
void cuda_kv_write(const struct cuda_kv_write *a, const struct cuda_queue *queue);

enum { CUDA_QKV_HEAD_MAX = 256 }; /* dimensions of a head */
/* Norms (RMS) and rotations of queries and keys, in place, then the cache. */
struct cuda_qkv {
    struct cuda_kv kv;
    uint32_t layer;
    const int32_t *pos;
    const uint32_t *seq, *blocks;
    size_t blocks_stride;
    struct cuda_mat q, k, v;
    const float *q_norm, *k_norm; /* NULL: none */
    float norm_eps;
    bool is_wide; /* two numbers at a time, where heads and cache allow it; the same bits */
    struct {
        bool is_neox;
        uint32_t rot_dims;
        const float *freqs;
        float factor;
    } rope;
};
void cuda_qkv(const struct cuda_qkv *a, const struct cuda_queue *queue);

/* ---- attention.cu ---- */

struct cuda_attention {
    struct cuda_kv kv; /* heads are KV heads; base NULL: keys and values are the rows k and v */
    uint32_t layer;
    uint32_t heads, kv_heads, head_dim;
    uint32_t window; /* 0: all */
    float scale, softcap;
    const int32_t *pos;
    const uint32_t *seq, *seqs, *blocks;
    size_t blocks_stride;
    struct cuda_mat q, k, v, dst;
    struct cuda_half half; /* the result in 16 bits as well: cuda_attention_mma alone */
    uint32_t segments;     /* 1: a block does all of a row's; else as many blocks, joined after */
    float *parts;          /* [rows][heads][segments][head_dim + 2]: out, max, sum */
    bool is_bulk; /* decoding without parts goes on from row to row, by bulk copies (Hopper) */
    uint32_t multiprocessors;
    bool by_groups; /* long runs: products by wgmma (Hopper) */
};
void cuda_attention(const struct cuda_attention *a, const struct cuda_queue *queue);

/* ---- attention_mma.cu ---- */

/* Rows [first, first + count) of the step, neighbours in one sequence. */
struct cuda_row_run {
    uint32_t first, count;
};
/* Which rows attend: in short runs, of which a block takes one, and in long ones. */
struct cuda_row_runs {
    const struct cuda_row_run *table; /* the short ones, then the long ones; NULL: a run each row */
    uint32_t short_count, long_count;
};
/* Rows of a short and of a long run, and of a long one for attention_chunk.cu: at most so many
 * queries that share a KV head. */
enum { CUDA_SHORT_QUERIES = 16, CUDA_LONG_QUERIES = 64, CUDA_CHUNK_QUERIES = 128 };
enum { CUDA_WHOLE_BLOCKS = 3 }; /* of attention to whole sequences, on a multiprocessor */

bool cuda_attention_mma_can(const struct cuda_attention *a);
void cuda_attention_mma(const struct cuda_attention *a, const struct cuda_row_runs *runs,
                        const struct cuda_queue *queue);
void cuda_attention_mma_prepare(void); /* once for each card */

/* cuda_qkv and cuda_attention_mma of few sequences in one launch, with the same bits; queries that
 * are normed and rotated are not written. Two launches if there are more than 8 segments. */
bool cuda_attention_fresh_can(const struct cuda_attention *a, const struct cuda_row_runs *runs);
void cuda_attention_fresh(const struct cuda_attention *a, const struct cuda_qkv *n,
                          const struct cuda_queue *queue);

/* The part of cuda_attention_mma that does `count` long runs. */
void cuda_attention_long(const struct cuda_attention *a, const struct cuda_row_run *table,
                         uint32_t count, const struct cuda_queue *queue);
void cuda_attention_long_prepare(void);

/* The same with long runs of CUDA_CHUNK_QUERIES, where cuda_attends_chunks. */
void cuda_attention_chunk(const struct cuda_attention *a, const struct cuda_row_run *table,
                          uint32_t count, const struct cuda_queue *queue);
void cuda_attention_chunk_prepare(void);

size_t cuda_attention_parts_floats(const struct cuda_attention *a, uint32_t segments);

#ifdef __cplusplus
}
#endif
#endif
