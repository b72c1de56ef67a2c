/* kernels/cpu/matmul_plain_neon.c - products with weights that are floats, for any 64-bit Arm. */
#include "kernels/cpu/codes_neon.h"
#include "kernels/cpu/panel_kernel.h"
#include "tensor/fp8.h"

/* Values 4 * h .. 4 * h + 3 of one k of a plain panel. */
NEON_INLINE float32x4_t load_plain(const uint8_t *p, uint32_t h, const enum dtype type) {
    if (type != DTYPE_BF16) return load_numbers(p, h, type == DTYPE_F16);
    uint16x4_t bits = vreinterpret_u16_u8(vld1_u8(p + 8 * (size_t)h));
    return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}

NEON_INLINE void plain_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                             const int count, const enum dtype type,
                             float out[MM_TILE][PANEL_ROWS]) {
    const uint32_t step = PANEL_ROWS * (type == DTYPE_F32 ? 4 : 2);
    float32x4_t acc[TILE][QUARTERS];
    zero_accs(acc, count);
    for (uint32_t k = 0; k < w->cols; k++, p += step) {
#pragma GCC unroll 4
        for (uint32_t h = 0; h < QUARTERS; h++) {
            float32x4_t v = load_plain(p, h, type);
#pragma GCC unroll 4
            for (int m = 0; m < count; m++) acc[m][h] = vfmaq_n_f32(acc[m][h], v, rows[m].f32[k]);
        }
    }
    store_accs(acc, count, out);
}

/* Sixteen codes of e4m3 as floats without FP8_HALF_FACTOR. */
NEON_INLINE void load_f8(const uint8_t *p, float32x4_t out[QUARTERS]) {
    uint8x16_t code = vld1q_u8(p), sign = vandq_u8(code, vdupq_n_u8(0x80));
    uint8x16_t size = vandq_u8(code, vdupq_n_u8(0x7f));
    uint16x8_t low = vorrq_u16(vshll_n_u8(vget_low_u8(sign), 8), vshll_n_u8(vget_low_u8(size), 7));
    uint16x8_t high = vorrq_u16(vshll_high_n_u8(sign, 8), vshll_high_n_u8(size, 7));
    out[0] = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(low)));
    out[1] = vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(low)));
    out[2] = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(high)));
    out[3] = vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(high)));
}

/* The factor is a power of two, so a code times its scale is rounded once. */
NEON_INLINE void f8_panel(const struct packed *w, const uint8_t *p, const struct mm_row *rows,
                          const int count, const enum dtype type, float out[MM_TILE][PANEL_ROWS]) {
    float32x4_t acc[TILE][QUARTERS], scale[QUARTERS], v[QUARTERS];
    (void)type;
    zero_accs(acc, count);
    for (uint32_t k = 0; k < w->cols;) {
        for (uint32_t h = 0; h < QUARTERS; h++)
            scale[h] = vmulq_n_f32(load_numbers(p, h, false), FP8_HALF_FACTOR);
        p += PACK_F8_SCALE_BYTES;
        for (uint32_t end = k + F8_RUN; k < end && k < w->cols; k++, p += PANEL_ROWS) {
            load_f8(p, v);
#pragma GCC unroll 4
            for (uint32_t h = 0; h < QUARTERS; h++) {
                v[h] = vmulq_f32(v[h], scale[h]);
#pragma GCC unroll 4
                for (int m = 0; m < count; m++)
                    acc[m][h] = vfmaq_n_f32(acc[m][h], v[h], rows[m].f32[k]);
            }
        }
    }
    store_accs(acc, count, out);
}

PANEL_KERNEL(neon_panel_f32, plain_panel, DTYPE_F32)
PANEL_KERNEL(neon_panel_f16, plain_panel, DTYPE_F16)
PANEL_KERNEL(neon_panel_bf16, plain_panel, DTYPE_BF16)
PANEL_KERNEL(neon_panel_f8, f8_panel, DTYPE_F8)
