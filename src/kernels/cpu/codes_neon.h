/* kernels/cpu/codes_neon.h - from the bytes of a panel to vectors of weights and numbers, and what
 * else the files of products on NEON share.
 *
 * A vector of weights holds 4 rows x 4 k; a panel's 16 rows are four quarters. A quarter of a
 * block of 32 k is 8 vectors of signed bytes, whatever the format: a nibble or a byte, its high
 * bits shifted into place, 32 less for Q6_K, a table for IQ4.
 */
#ifndef KERNELS_CPU_CODES_NEON_H
#define KERNELS_CPU_CODES_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "kernels/cpu/kernels_neon.h"

#define NEON_INLINE static inline __attribute__((always_inline))

enum {
    TILE = 4, /* rows; their 16 accumulators and a quarter's weights fit the 32 registers */
    QUARTERS = 4,
    LANES = 4,
    STEP_BYTES = PANEL_ROWS * 4, /* one step of 4 k, all rows of the panel */
    STEPS = Q8_BLOCK / 4,
    VALUE_BYTES = PANEL_ROWS * Q8_BLOCK,
};

/* What a body needs to know about its format; always a constant. */
struct neon_format {
    bool nibbles, half, has_min;
    bool zero;          /* minima are zero points, int8 */
    bool table;         /* codes are places in a table */
    int offset;         /* the zero point that nibbles leave out, taken from the sums */
    int less;           /* the same of wider codes, taken from each */
    uint32_t groups;    /* in a block of 32 */
    uint32_t high_bits; /* of a code, beyond its nibble: 0, 1 or 2 */
};

/* Numbers 4 * i .. 4 * i + 3 of an array of f16 or f32. */
NEON_INLINE float32x4_t load_numbers(const uint8_t *array, uint32_t i, const bool half) {
    if (half) return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(array + 8 * (size_t)i)));
    return vreinterpretq_f32_u8(vld1q_u8(array + 16 * (size_t)i));
}

/* The same of an array of int8. */
NEON_INLINE float32x4_t load_codes(const uint8_t *array, uint32_t i) {
    uint32_t four;
    memcpy(&four, array + 4 * (size_t)i, sizeof(four));
    int16x8_t wide = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

/* Bits 4 and up of a quarter's codes. */
NEON_INLINE void add_high_bits(const uint8_t *high, const uint32_t high_bits,
                               uint8x16_t codes[STEPS]) {
    if (high_bits == 1) {
        uint8x16_t bits = vld1q_u8(high);
#pragma GCC unroll 8
        for (int j = 0; j < STEPS; j++, bits = vshrq_n_u8(bits, 1))
            codes[j] = vsliq_n_u8(codes[j], vandq_u8(bits, vdupq_n_u8(1)), 4);
        return;
    }
    uint8x16_t bits = vld1q_u8(high), later = vld1q_u8(high + PACK_HIGH_BYTES);
#pragma GCC unroll 4
    for (int j = 0; j < STEPS / 2; j++) {
        codes[j] = vsliq_n_u8(codes[j], vandq_u8(bits, vdupq_n_u8(3)), 4);
        codes[STEPS / 2 + j] = vsliq_n_u8(codes[STEPS / 2 + j], vandq_u8(later, vdupq_n_u8(3)), 4);
        bits = vshrq_n_u8(bits, 2);
        later = vshrq_n_u8(later, 2);
    }
}

/* A quarter's values as codes: codes[j] is 4 rows x k = 4j .. 4j + 3. */
NEON_INLINE void open_codes(const uint8_t *p, const struct neon_format f, uint8x16_t codes[STEPS]) {
    if (!f.nibbles) {
#pragma GCC unroll 8
        for (int j = 0; j < STEPS; j++) codes[j] = vld1q_u8(p + (size_t)j * STEP_BYTES);
        return;
    }
#pragma GCC unroll 4
    for (int j = 0; j < STEPS / 2; j++) {
        uint8x16_t both = vld1q_u8(p + (size_t)j * STEP_BYTES);
        codes[j] = vandq_u8(both, vdupq_n_u8(15));
        codes[STEPS / 2 + j] = vshrq_n_u8(both, 4);
    }
    if (f.high_bits) add_high_bits(p + PACK_NIBBLE_BYTES, f.high_bits, codes);
}

/* Quarter h of the block at `values` as weights; `table` is for codes that are places in one. */
NEON_INLINE void load_quarter(const uint8_t *values, const uint32_t h, const int8x16_t table,
                              const struct neon_format f, int8x16_t w[STEPS]) {
    uint8x16_t codes[STEPS];
    open_codes(values + 16 * (size_t)h, f, codes);
#pragma GCC unroll 8
    for (int j = 0; j < STEPS; j++) {
        w[j] = f.table ? vqtbl1q_s8(table, codes[j]) : vreinterpretq_s8_u8(codes[j]);
        if (f.less) w[j] = vsubq_s8(w[j], vdupq_n_s8((int8_t)f.less));
    }
}

NEON_INLINE void zero_accs(float32x4_t acc[TILE][QUARTERS], const int count) {
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
#pragma GCC unroll 4
        for (int h = 0; h < QUARTERS; h++) acc[m][h] = vdupq_n_f32(0.0f);
}

NEON_INLINE void store_accs(float32x4_t acc[TILE][QUARTERS], const int count,
                            float out[MM_TILE][PANEL_ROWS]) {
#pragma GCC unroll 4
    for (int m = 0; m < count; m++)
#pragma GCC unroll 4
        for (int h = 0; h < QUARTERS; h++) vst1q_f32(out[m] + LANES * h, acc[m][h]);
}

#endif
