/* graph/op_args.h - what each operation takes, and exactly what it computes.
 *
 * The comment above a struct is the definition of the op's arithmetic: the order of every sum
 * and the place of every rounding. All devices' tables follow it, and the reference kernels
 * are it, written out (kernels/cpu/ref_*.c).
 */
#ifndef GRAPH_OP_ARGS_H
#define GRAPH_OP_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/weight.h"

typedef uint16_t value_id;
enum { VALUE_NONE = 0xFFFF, OP_PARTS_MAX = 3 };

/* Columns [col, col + cols) of a value. value == VALUE_NONE: no operand. */
struct operand {
    value_id value;
    uint32_t col, cols;
};

/* dst (+)= scale * table[index of the row]. */
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
 * Sums are taken in NORM_LANES lanes by column mod NORM_LANES (squares by fma), joined by
 * halves; rate = 1 / sqrt(sum / group + eps); y = (x * rate) * weight, and with a bias
 * fma((x - mean) * rate, weight, bias). */
enum norm_kind { NORM_RMS, NORM_LAYER };
enum { NORM_LANES = 16 };
struct op_norm {
    enum norm_kind kind;
    uint32_t group;
    float eps;
    const struct weight *weight, *bias; /* vectors; bias NULL unless LAYER */
    struct operand src;                 /* f32 */
    struct operand dst;                 /* f32, may be src; NONE if only q8 is wanted */
    struct operand q8;                  /* NONE, or q8: the result quantised (tensor/q8.h) */
};

struct op_quant {
    struct operand src; /* f32 */
    struct operand q8;
};

/* dst = (or +=) src * part^T + bias, the parts' rows side by side in dst. src is q8 if the
 * weights are quantised, f32 if they are plain. Plain product: one accumulator per output,
 * fma in rising k. Then + bias, then + dst. */
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
 * pairs (2i, 2i + 1). Angles: float product of pos and freq, sine and cosine of it rounded to
 * float, times `factor`. a' = fma(a, cos, -(b * sin)), b' = fma(a, sin, b * cos). */
enum rope_style { ROPE_NEOX, ROPE_ADJACENT };
struct op_rope {
    enum rope_style style;
    uint32_t heads, head_dim, rot_dims;
    const struct weight *freqs; /* a vector of rot_dims / 2 */
    float factor;
    struct operand x; /* f32, in place */
};

/* Put this row's keys and values into the cache in its format. `layer` counts within the KV
 * group.
 * KV_F16: each number rounded to nearest even. KV_I8, for a head's key and for its value alone:
 *     m = max |x[d]|, NaN not counting
 *     scale = the least f16 not below m / 127, at most 65504 (the largest f16)
 *     q[d] = x[d] / scale rounded to nearest even, kept within -127 .. 127; 0 for a NaN, and
 *            all 0 if scale is 0
 * A number comes back as q[d] * scale, at most half a scale away unless m is above 127 * 65504. */
struct op_kv_write {
    uint32_t layer, group;
    struct operand k, v; /* f32, heads * head_dim */
};

/* Causal attention over the row's own sequence in the cache, the row itself included. For each
 * query head, in segments of ATTN_SEGMENT absolute positions:
 *     s_j = scale * sum over d of q[d] * k_j[d]   (one accumulator, fma in rising d; then * scale)
 *     s_j = cap * tanh(s_j / cap)                 if softcap > 0
 *     m = max s_j; p_j = exp(s_j - m)
 *     l = sum of p_j in 16 lanes by j mod 16, joined by halves
 *     o[d] = sum of p_j * v_j[d]                  (one accumulator, fma in rising j)
 * In a cache of KV_I8, k_j[d] and v_j[d] are the bytes as floats; the scales enter once a token:
 *     s_j = ((sum over d of q[d] * k_j[d]) * key scale_j) * scale
 *     o[d] = sum of (p_j * value scale_j) * v_j[d], the product in brackets rounded to float
 * The segments are joined in rising order: with M = max(m1, m2), a = exp(m1 - M),
 * b = exp(m2 - M): l = l1*a + l2*b, o = o1*a + o2*b (fma on the second product). Result o / l.
 * Positions below pos - window + 1 are not attended if window > 0. */
enum { ATTN_SEGMENT = 256, ATTN_LANES = 16 };
struct op_attention {
    uint32_t layer, group;
    uint32_t heads, kv_heads, head_dim;
    uint32_t window; /* 0: all */
    float scale, softcap;
    struct operand q;   /* f32, heads * head_dim */
    struct operand dst; /* f32; NONE if only q8 is wanted */
    struct operand q8;
};

/* Attention of an encoder: every row of the sequence sees every other; no cache. The same
 * arithmetic with K and V read as float rows. */
struct op_self_attention {
    uint32_t heads, head_dim;
    float scale;
    struct operand q, k, v; /* f32 */
    struct operand dst, q8;
};

/* dst = act(gate) * up, or act(gate) if up is NONE; `segments` times side by side (experts):
 * segment s of gate and up lies `stride` columns after segment s - 1. */
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

/* x = cap * tanh(x / cap), in place. */
struct op_softcap {
    float cap;
    struct operand x;
};

/* The `used` likeliest of `experts` by softmax of the logits, likeliest first, ties to the
 * lower number; their weights divided by their sum if `normalise`. */
struct op_route {
    uint32_t experts, used;
    bool normalise;
    struct operand logits;  /* f32, experts */
    struct operand ids;     /* i32, used */
    struct operand weights; /* f32, used */
};

/* For each of the row's experts j: dst segment j = src * parts[ids[j]]^T, the parts side by
 * side inside the segment. src is the whole row, or segment j of it if src_per_expert. */
struct op_expert_matmul {
    struct matmul_part parts[OP_PARTS_MAX]; /* biases unused */
    uint32_t part_count, used;
    bool src_per_expert;
    struct operand src, ids;
    struct operand dst; /* f32, used * (rows of the parts) */
};

/* dst (+)= sum over j of weights[j] * src segment j, fma in rising j. */
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

/* One row per sequence: the mean, the first or the last of its rows; to unit length if asked. */
enum pool_kind { POOL_MEAN, POOL_FIRST, POOL_LAST };
struct op_pool {
    enum pool_kind kind;
    bool unit_length;
    struct operand src, dst; /* f32; dst has S rows */
};

#endif
