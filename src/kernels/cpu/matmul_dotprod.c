/* kernels/cpu/matmul_dotprod.c - products for a 64-bit Arm with sdot, which multiplies 16 pairs
 * of signed bytes and adds four neighbours at a time into 32 bits (FEAT_DotProd). */
#include <arm_neon.h>

static inline __attribute__((always_inline)) int32x4_t dot16(int32x4_t sums, const int8x16_t w[4],
                                                             int8x16_t x) {
    sums = vdotq_laneq_s32(sums, w[0], x, 0);
    sums = vdotq_laneq_s32(sums, w[1], x, 1);
    sums = vdotq_laneq_s32(sums, w[2], x, 2);
    return vdotq_laneq_s32(sums, w[3], x, 3);
}

#define NEON_HAS_DOT16
#include "kernels/cpu/matmul_neon.h"

mm_panel_fn *const dotprod_panels[DTYPE_COUNT] = NEON_PANELS;
