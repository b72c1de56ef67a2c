/* kernels/cpu/matmul_neon.h - panels times a few rows of activations; the body of matmul_neon.c
 * and matmul_dotprod.c.
 *
 * A vector of weights holds 4 rows x 4 k; a panel's 16 rows are four quarters. A quarter's
 * weights of a block are loaded and unpacked once into 8 vectors of signed bytes, then multiplied
 * with each row's activations by
 *
 *     int32x4_t dot16(int32x4_t sums, const int8x16_t w[4], int8x16_t x)
 *
 * which adds to sums[r] the exact sum of w[j][4r + c] * x[4j + c] over the 16 k = 4j + c. A file
 * that defines NEON_HAS_DOT16 before it includes this has its own; else it is here. Weights
 * are -128 .. 127 and activations -127 .. 127. Each output element has one lane and one
 * accumulator; the bits are those of the definition in tensor/q8.h.
 *
 * Every body is written once, with its format as constants, for each format and row count.
 */
#ifndef KERNELS_CPU_MATMUL_NEON_H
#define KERNELS_CPU_MATMUL_NEON_H

#include <arm_neon.h>

#include "kernels/cpu/codes_neon.h"
#include "kernels/cpu/kernels_neon.h"
#include "kernels/cpu/panel_kernel.h"

#ifndef NEON_HAS_DOT16

/* Two products are at most 2 x 128 x 127 = 32,512: two steps add up in 16 bits before neighbours
 * are added into 32. */
NEON_INLINE int32x4_t dot16(int32x4_t sums, const int8x16_t w[4], int8x16_t x) {
    int32x4_t quads = vreinterpretq_s32_s8(x), low, high;
    int8x16_t x0 = vreinterpretq_s8_s32(vdupq_laneq_s32(quads, 0));
    int8x16_t x1 = vreinterpretq_s8_s32(vdupq_laneq_s32(quads, 1));
    int8x16_t x2 = vreinterpretq_s8_s32(vdupq_laneq_s32(quads, 2));
    int8x16_t x3 = vreinterpretq_s8_s32(vdupq_laneq_s32(quads, 3));
    int16x8_t pair = vmull_s8(vget_low_s8(w[0]), vget_low_s8(x0));
    low = vpaddlq_s16(vmlal_s8(pair, vget_low_s8(w[1]), vget_low_s8(x1)));
    pair = vmull_s8(vget_low_s8(w[2]), vget_low_s8(x2));
    low = vpadalq_s16(low, vmlal_s8(pair, vget_low_s8(w[3]), vget_low_s8(x3)));
    pair = vmull_high_s8(w[0], x0);
    high = vpaddlq_s16(vmlal_high_s8(pair, w[1], x1));
    pair = vmull_high_s8(w[2], x2);
    high = vpadalq_s16(high, vmlal_high_s8(pair, w[3], x3));
    return vaddq_s32(sums, vpaddq_s32(low, high));
}

#endif

/* Where a tile stands: block b of the panel. */
struct neon_tile {
    const struct mm_row *rows;
    uint32_t b;
    const uint8_t *values;        /* of the block */
    const uint8_t *scales, *mins; /* its numbers, or in a superblock their codes */
    const float *d, *dmin;        /* what the codes of a superblock count; NULL: no codes */
    int8x16_t table;
};

/* The exact sums of group g of a block, whose activations are at q. */
NEON_INLINE int32x4_t group_sums(const int8x16_t w[STEPS], const int8_t *q, int32_t start,
                                 const struct neon_format f, const uint32_t g) {
    int32x4_t sums = vdupq_n_s32(start);
    if (f.groups == 2) return dot16(sums, w + 4 * g, vld1q_s8(q + 16 * g));
    sums = dot16(sums, w, vld1q_s8(q));
    return dot16(sums, w + 4, vld1q_s8(q + 16));
}

/* Group g of the tile's block for quarter h of the panel, whose weights are w:
 * acc = fma(sum, scale of weight x scale of row, acc), then the minimum. */
NEON_INLINE void add_group(const int8x16_t w[STEPS], const struct neon_tile *t, const int count,
                           const struct neon_format f, const uint32_t g, const uint32_t h,
                           float32x4_t acc[TILE][QUARTERS]) {
    const uint32_t at = QUARTERS * g + h;
    float32x4_t min, scale;
    if (t->d) {
        scale = vmulq_f32(vld1q_f32(t->d + LANES * h), load_codes(t->scales, at));
        min =
            f.has_min ? vmulq_f32(vld1q_f32(t->dmin + LANES * h), load_codes(t->mins, at)) : scale;
    } else {
        scale = load_numbers(t->scales, at, f.half);
        min = scale;
        if (f.zero)
            min = vmulq_f32(vnegq_f32(scale), load_codes(t->mins, at));
        else if (f.has_min)
            min = load_numbers(t->mins, at, f.half);
    }
#pragma GCC unroll 4
    for (int m = 0; m < count; m++) {
        const struct q8_row *x = &t->rows[m].q8;
        int32_t start = f.offset ? -f.offset * x->isum[t->b] : 0;
        int32x4_t sums = group_sums(w, x->q + (size_t)t->b * Q8_BLOCK, start, f, g);
        float32x4_t s = vmulq_n_f32(scale, x->scale[t->b]);
        acc[m][h] = vfmaq_f32(acc[m][h], vcvtq_f32_s32(sums), s);
        if (!f.has_min) continue;
        float dsum = f.groups == 1 ? x->dsum[t->b] : x->dsum16[2 * t->b + g];
        acc[m][h] = vfmaq_n_f32(acc[m][h], min, dsum);
    }
}

/* gcc 12 loads the weights of all quarters first, and spills, unless a quarter must wait. */
NEON_INLINE void forget_loads(void) { __asm__ volatile("" ::: "memory"); }

NEON_INLINE void add_block(const struct neon_tile *t, const int count, const struct neon_format f,
                           float32x4_t acc[TILE][QUARTERS]) {
#pragma GCC unroll 4
    for (uint32_t h = 0; h < QUARTERS; h++) {
        int8x16_t w[STEPS];
        forget_loads();
        load_quarter(t->values, h, t->table, f, w);
#pragma GCC unroll 2
        for (uint32_t g = 0; g < f.groups; g++) add_group(w, t, count, f, g, h, acc);
    }
}

/* PACK_NIBBLES and PACK_BYTES. */
NEON_INLINE void block_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                             const int count, const struct neon_format f,
                             float out[MM_TILE][PANEL_ROWS]) {
    const uint32_t value_bytes = f.nibbles ? PACK_NIBBLE_BYTES : VALUE_BYTES;
    const uint32_t number_bytes = f.groups * PANEL_ROWS * (f.half ? 2 : 4);
    const uint32_t min_bytes = f.zero ? PANEL_ROWS : f.has_min ? number_bytes : 0;
    const uint32_t step = value_bytes + number_bytes + min_bytes;
    float32x4_t acc[TILE][QUARTERS];
    struct neon_tile t = {.rows = rows};
    zero_accs(acc, count);
    if (f.table) t.table = vld1q_s8(dtype_code_values(w->type));
    for (; t.b < w->cols / Q8_BLOCK; t.b++, p += step) {
        t.values = p;
        t.scales = p + value_bytes;
        t.mins = t.scales + number_bytes;
        add_block(&t, count, f, acc);
    }
    store_accs(acc, count, out);
}

/* PACK_SUPER. The f16 numbers of a superblock are widened once, its codes where they are used. */
NEON_INLINE void super_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                             const int count, const struct neon_format f,
                             float out[MM_TILE][PANEL_ROWS]) {
    const struct pack_super s = pack_super(f.has_min, f.groups, f.high_bits);
    float32x4_t acc[TILE][QUARTERS];
    float units[2 * PANEL_ROWS];
    struct neon_tile t = {.rows = rows, .d = units, .dmin = units + PANEL_ROWS};
    zero_accs(acc, count);
    if (f.table) t.table = vld1q_s8(dtype_code_values(w->type));
    for (; t.b < w->cols / Q8_BLOCK; p += s.bytes) {
        for (uint32_t i = 0; i < QUARTERS * (f.has_min ? 2 : 1); i++)
            vst1q_f32(units + LANES * i, load_numbers(p, i, true));
        for (uint32_t i = 0; i < PACK_SUPER_BLOCKS; i++, t.b++) {
            t.values = p + s.values + (size_t)i * s.value_step;
            t.scales = p + s.codes + (size_t)i * s.code_step;
            t.mins = t.scales + f.groups * PANEL_ROWS;
            add_block(&t, count, f, acc);
        }
    }
    store_accs(acc, count, out);
}

#define FORMAT(...) ((struct neon_format){__VA_ARGS__})

static mm_panel_fn panel_q4_0, panel_q4_1, panel_iq4_nl, panel_q8_0, panel_q5_1, panel_q3_k,
    panel_q2_k, panel_q4_k, panel_q5_k, panel_q6_k, panel_iq4_xs, panel_int4, panel_int8,
    panel_int8_z, panel_table4;

PANEL_KERNEL(panel_q4_0, block_panel,
             FORMAT(.nibbles = true, .half = true, .offset = 8, .groups = 1))
PANEL_KERNEL(panel_q4_1, block_panel,
             FORMAT(.nibbles = true, .half = true, .has_min = true, .groups = 1))
PANEL_KERNEL(panel_iq4_nl, block_panel,
             FORMAT(.nibbles = true, .half = true, .table = true, .groups = 1))
PANEL_KERNEL(panel_q8_0, block_panel, FORMAT(.half = true, .groups = 1))
PANEL_KERNEL(panel_q5_1, block_panel, FORMAT(.half = true, .has_min = true, .groups = 1))
PANEL_KERNEL(panel_q3_k, block_panel, FORMAT(.groups = 2))
PANEL_KERNEL(panel_q2_k, block_panel, FORMAT(.has_min = true, .groups = 2))
PANEL_KERNEL(panel_q4_k, super_panel, FORMAT(.nibbles = true, .has_min = true, .groups = 1))
PANEL_KERNEL(panel_q5_k, super_panel,
             FORMAT(.nibbles = true, .has_min = true, .groups = 1, .high_bits = 1))
PANEL_KERNEL(panel_q6_k, super_panel,
             FORMAT(.nibbles = true, .groups = 2, .high_bits = 2, .less = 32))
PANEL_KERNEL(panel_iq4_xs, super_panel, FORMAT(.nibbles = true, .table = true, .groups = 1))

PANEL_KERNEL(panel_int4, block_panel,
             FORMAT(.nibbles = true, .half = true, .has_min = true, .zero = true, .groups = 1))
PANEL_KERNEL(panel_int8, block_panel, FORMAT(.groups = 1))
PANEL_KERNEL(panel_int8_z, block_panel, FORMAT(.has_min = true, .groups = 1))
PANEL_KERNEL(panel_table4, block_panel, FORMAT(.nibbles = true, .table = true, .groups = 1))

#define NEON_PANELS                                                                                \
    {                                                                                              \
        [DTYPE_F32] = neon_panel_f32, [DTYPE_F16] = neon_panel_f16,                                \
        [DTYPE_BF16] = neon_panel_bf16, [DTYPE_Q4_0] = panel_q4_0, [DTYPE_Q4_1] = panel_q4_1,      \
        [DTYPE_Q4_K] = panel_q4_k, [DTYPE_Q5_0] = panel_q8_0, [DTYPE_Q5_1] = panel_q5_1,           \
        [DTYPE_Q5_K] = panel_q5_k, [DTYPE_Q8_0] = panel_q8_0, [DTYPE_IQ4_NL] = panel_iq4_nl,       \
        [DTYPE_IQ4_XS] = panel_iq4_xs, [DTYPE_Q6_K] = panel_q6_k, [DTYPE_Q3_K] = panel_q3_k,       \
        [DTYPE_Q2_K] = panel_q2_k, [DTYPE_INT4] = panel_int4, [DTYPE_INT8] = panel_int8,           \
        [DTYPE_INT8_Z] = panel_int8_z, [DTYPE_NF4] = panel_table4, [DTYPE_FP4] = panel_table4,     \
        [DTYPE_F8] = neon_panel_f8,                                                                \
    }

#endif
