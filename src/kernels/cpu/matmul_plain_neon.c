/* kernels/cpu/matmul_plain_neon.c - products with weights that are floats, for any 64-bit Arm. */
#include "kernels/cpu/codes_neon.h"
#include "kernels/cpu/panel_kernel.h"

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

PANEL_KERNEL(neon_panel_f32, plain_panel, DTYPE_F32)
PANEL_KERNEL(neon_panel_f16, plain_panel, DTYPE_F16)
PANEL_KERNEL(neon_panel_bf16, plain_panel, DTYPE_BF16)
