/* graph/op_args.h - what each operation takes, and what it computes.
 *
 * The comment above a struct gives the op's formula, the same on every device, and its tolerance.
 * "f of A" means |result - reference| <= f * A, where the reference is the formula in float64. For
 * a sum, A is the sum of the absolute values of its terms. u = 2^-24; E(n) = (8 + 4 sqrt(n)) u, for
 * a sum of n terms; h = 0, or 2^-11 (f16), 2^-8 (bf16) where a device rounds a factor to 16 bits
 * (docs/identity.md). Ops without a tolerance give the same bits on every device. The order in
 * which the CPU's tables sum and round, so that all their bits are equal, is in
 * kernels/cpu/numerics.h.
 */
#ifndef GRAPH_OP_ARGS_H
#define GRAPH_OP_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/key_smoothing.h"
#include "graph/weight.h"

typedef uint16_t value_id;
enum { VALUE_NONE = 0xFFFF, OP_PARTS_MAX = 3 };

/* Columns [col, col + cols) of a value. value == VALUE_NONE: no operand. */
struct operand {
    value_id value;
    uint32_t col, cols;
};

/* dst (+)= scale * table[index of the row]. 4 u of A = |old dst| + |scale| * (|group scale * code|
 * + |group minimum|). */
enum embed_source { EMBED_TOKEN, EMBED_POSITION, EMBED_ZERO };
struct op_embed {
    const struct weight *table;
    enum embed_source source;
    bool add;
    float scale;
    struct operand dst; /* f32 */
};

/* RMS: x / sqrt(mean(x^2) + eps) * weight. LAYER: (x - mean) / sqrt(var + eps) * weight + bias.
 * Over runs of `group` columns (a head, or the whole row); weight has `group` elements.
 * E(group) of A = |y|; LAYER adds |bias| + (|x| + mean |x|) * |weight| / sqrt(var + eps) to A. */
enum norm_kind { NORM_RMS, NORM_LAYER };
struct op_norm {
    enum norm_kind kind;
    uint32_t group;
    float eps;
    const struct weight *weight, *bias; /* vectors; bias NULL unless LAYER */
    struct operand src;                 /* f32 */
    struct operand dst;                 /* f32, may be src; NONE if only q8 is wanted */
    struct operand q8;                  /* NONE, or q8: the result quantised (tensor/q8.h) */
};

/* q8 = src in blocks of 32 as tensor/q8.h defines. Scales and sums: 2 u of their size; a code may
 * be one off where x * 127 / max|x| lies within 2^-15 of a half. The same holds for every
 * q8 result below. */
struct op_quant {
    struct operand src; /* f32 */
    struct operand q8;
};

/* dst = (or +=) src * part^T + bias, the parts' rows side by side in dst. src is q8 if the
 * weights are quantised, f32 if they are plain. E(n) + h of A; the terms are n products, the bias
 * and the old dst. Of quantised weights, a group of 16 or 32 products is one exact term, a minimum
 * another (tensor/q8.h), and h is 0. */
struct matmul_part {
    const struct weight *weight;
    const struct weight *bias; /* a vector; NULL: none */
};
struct op_matmul {
    struct matmul_part parts[OP_PARTS_MAX];
    uint32_t part_count;
    bool add;
    struct operand src;
    struct operand dst; /* f32 */
};

/* Rotate the first rot_dims of each head by pos * freq. NEOX pairs (i, i + rot/2); ADJACENT
 * pairs (2i, 2i + 1). The angle is the product rounded to float; that rounding is the largest one
 * far into a context, so it is defined here. With c, s = factor times its cosine and sine:
 * a' = a * c - b * s, b' = a * s + b * c. 8 u of A = |factor| * (|a| + |b|). */
enum rope_style { ROPE_NEOX, ROPE_ADJACENT };
struct op_rope {
    enum rope_style style;
    uint32_t heads, head_dim, rot_dims;
    const struct weight *freqs; /* a vector of rot_dims / 2 */
    float factor;
    struct operand x; /* f32, in place */
};

/* Put this row's keys and values into the cache in its format. `layer`: of the KV group's. */
struct op_kv_write {
    uint32_t layer, group;
    struct operand k, v;                   /* f32, heads * head_dim */
    const struct key_smoothing *smoothing; /* of KV_I4: graph/key_smoothing.h; NULL: none */
};

/* Causal attention over the row's own sequence in the cache, the row itself included. For each
 * query head, over the positions j up to its own:
 *     s_j = scale * sum over d of q[d] * k_j[d]
 *     s_j = cap * tanh(s_j / cap)                 if softcap > 0
 *     p_j = exp(s_j - max s), divided by the sum of all of them
 *     o[d] = sum over j of p_j * v_j[d]
 * k_j and v_j are what the cache holds; q is smoothed as KV_I4's keys are.
 * Positions below pos - window + 1 are not attended if window > 0.
 * With n positions, e = (E(head_dim) + h) * |scale| * max over j of sum |q[d] * k_j[d]|, which is
 * the error of a score, and A = sum over j of p_j * |v_j[d]|: 2 e + 2 E(n) + 2 h of A. */
struct op_attention {
    uint32_t layer, group;
    uint32_t heads, kv_heads, head_dim;
    uint32_t window; /* 0: all */
    float scale, softcap;
    struct operand q;                      /* f32, heads * head_dim */
    struct operand dst, q8;                /* f32; NONE if only q8 is wanted */
    const struct key_smoothing *smoothing; /* as in op_kv_write */
};

/* Attention of an encoder: every row of the sequence sees every other; no cache. The same
 * mathematics and tolerance with K and V read as float rows; h is 0. */
struct op_self_attention {
    uint32_t heads, head_dim;
    float scale;
    struct operand q, k, v; /* f32 */
    struct operand dst, q8;
};

/* dst = act(gate) * up, or act(gate) if up is NONE; `segments` times side by side (experts):
 * segment s of gate and up lies `stride` columns after segment s - 1. 16 u of A = |gate * up|. */
enum act_kind { ACT_SILU, ACT_GELU_TANH, ACT_GELU_ERF };
struct op_act {
    enum act_kind kind;
    uint32_t segments, stride;
    struct operand gate, up; /* f32; cols: one segment */
    struct operand dst, q8;  /* cols: all segments */
};

/* dst += src. */
struct op_add {
    struct operand src, dst; /* f32 */
};

/* x = cap * tanh(x / cap), in place. 16 u of the result. */
struct op_softcap {
    float cap;
    struct operand x;
};

/* The `used` most likely of `experts` by softmax of the logits, in that order, ties to the
 * lower number; their weights divided by their sum if `normalise`. The ids are the same on every
 * device: they follow from comparing logits. Weights: E(experts) of the result. */
struct op_route {
    uint32_t experts, used;
    bool normalise;
    struct operand logits;  /* f32, experts */
    struct operand ids;     /* i32, used */
    struct operand weights; /* f32, used */
};

/* A matmul for each of the row's experts j: dst segment j = src * parts[ids[j]]^T, the parts side
 * by side inside the segment. src is the whole row, or segment j of it if src_per_expert.
 * Tolerance: as op_matmul. */
struct op_expert_matmul {
    struct matmul_part parts[OP_PARTS_MAX]; /* biases unused */
    uint32_t part_count, used;
    bool src_per_expert;
    struct operand src, ids;
    struct operand dst; /* f32, used * (rows of the parts) */
};

/* dst (+)= sum over j of weights[j] * src segment j. E(used + 1) of A; the old dst is a term. */
struct op_expert_sum {
    uint32_t used;
    bool add;
    struct operand src, weights;
    struct operand dst; /* f32 */
};

/* dst row r = src row output_row[r]. */
struct op_gather {
    struct operand src, dst; /* f32; dst has R rows */
};

/* dst column i = src column order[i]. `order` is a vector of whole numbers below the columns of
 * src. */
struct op_permute {
    const struct weight *order;
    struct operand src, dst; /* f32 */
};

/* One row per sequence: the mean, the first or the last of its rows. With unit_length it is divided
 * by its Euclidean norm; a row of zeros stays. MEAN of n rows: E(n) of A = mean |x|. With
 * unit_length A is divided by the norm as well, and E(cols) of the result is added. */
enum pool_kind { POOL_MEAN, POOL_FIRST, POOL_LAST };
struct op_pool {
    enum pool_kind kind;
    bool unit_length;
    struct operand src, dst; /* f32; dst has S rows */
};

#endif
