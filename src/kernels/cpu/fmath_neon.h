/* kernels/cpu/fmath_neon.h - base/fmath.h four at a time, with the same bits.
 *
 * Each function performs the steps that base/fmath_poly.h spells out, in that order. Included
 * only by files that are compiled for 64-bit Arm.
 */
#ifndef KERNELS_CPU_FMATH_NEON_H
#define KERNELS_CPU_FMATH_NEON_H

#include <arm_neon.h>

#include "base/fmath_poly.h"

#define FM_INLINE static inline __attribute__((always_inline))

/* a * b + c, rounded once. The intrinsic has the summand first. */
FM_INLINE float32x4_t fm4_fma(float32x4_t a, float32x4_t b, float c) {
    return vfmaq_f32(vdupq_n_f32(c), a, b);
}

/* 2^k. */
FM_INLINE float32x4_t fm4_pow2(int32x4_t k) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(k, vdupq_n_s32(127)), 23));
}

FM_INLINE float32x4_t fm4_exp(float32x4_t x) {
    const float32x4_t magic = vdupq_n_f32(FM_MAGIC);
    float32x4_t t = vfmaq_f32(magic, x, vdupq_n_f32(FM_LOG2E));
    float32x4_t n = vsubq_f32(t, magic);
    int32x4_t k = vsubq_s32(vreinterpretq_s32_f32(t), vreinterpretq_s32_f32(magic));
    float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-FM_LN2_HI));
    r = vfmaq_f32(r, n, vdupq_n_f32(-FM_LN2_LO));
    float32x4_t p = vdupq_n_f32(FM_E4);
    p = fm4_fma(p, r, FM_E3);
    p = fm4_fma(p, r, FM_E2);
    p = fm4_fma(p, r, FM_E1);
    p = fm4_fma(p, r, FM_E0);
    p = vfmaq_f32(r, p, vmulq_f32(r, r));
    p = vaddq_f32(p, vdupq_n_f32(1.0f));
    int32x4_t half = vshrq_n_s32(k, 1);
    float32x4_t y = vmulq_f32(p, fm4_pow2(half));
    y = vmulq_f32(y, fm4_pow2(vsubq_s32(k, half)));
    uint32x4_t over = vcgtq_f32(x, vdupq_n_f32(FM_EXP_MAX));
    uint32x4_t under = vcltq_f32(x, vdupq_n_f32(FM_EXP_MIN));
    y = vbslq_f32(over, vdupq_n_f32(__builtin_huge_valf()), y);
    return vbslq_f32(under, vdupq_n_f32(0.0f), y);
}

/* The magnitude of a, the sign of b. */
FM_INLINE float32x4_t fm4_with_sign_of(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vdupq_n_u32(0x80000000u), b, a);
}

FM_INLINE float32x4_t fm4_tanh(float32x4_t x) {
    float32x4_t a = vabsq_f32(x), z = vmulq_f32(x, x);
    float32x4_t p = vdupq_n_f32(FM_T5);
    p = fm4_fma(p, z, FM_T4);
    p = fm4_fma(p, z, FM_T3);
    p = fm4_fma(p, z, FM_T2);
    p = fm4_fma(p, z, FM_T1);
    p = fm4_fma(p, z, FM_T0);
    p = vmulq_f32(p, z);
    float32x4_t small = vfmaq_f32(a, p, a);
    const float32x4_t one = vdupq_n_f32(1.0f), two = vdupq_n_f32(2.0f);
    float32x4_t e = vaddq_f32(fm4_exp(vaddq_f32(a, a)), one);
    float32x4_t large = vsubq_f32(one, vdivq_f32(two, e));
    uint32x4_t is_small = vcltq_f32(a, vdupq_n_f32(FM_TANH_SPLIT));
    return fm4_with_sign_of(vbslq_f32(is_small, small, large), x);
}

FM_INLINE float32x4_t fm4_erf(float32x4_t x) {
    float32x4_t a = vabsq_f32(x), z = vmulq_f32(x, x);
    float32x4_t p = vdupq_n_f32(FM_S6);
    p = fm4_fma(p, z, FM_S5);
    p = fm4_fma(p, z, FM_S4);
    p = fm4_fma(p, z, FM_S3);
    p = fm4_fma(p, z, FM_S2);
    p = fm4_fma(p, z, FM_S1);
    p = fm4_fma(p, z, FM_S0);
    float32x4_t small = vfmaq_f32(a, p, a);
    /* A select, because the instruction for a minimum treats a NaN otherwise. */
    const float32x4_t most = vdupq_n_f32(FM_ERF_MAX);
    float32x4_t b = vbslq_f32(vcltq_f32(a, most), a, most);
    float32x4_t q = vdupq_n_f32(FM_L8);
    q = fm4_fma(q, b, FM_L7);
    q = fm4_fma(q, b, FM_L6);
    q = fm4_fma(q, b, FM_L5);
    q = fm4_fma(q, b, FM_L4);
    q = fm4_fma(q, b, FM_L3);
    q = fm4_fma(q, b, FM_L2);
    q = fm4_fma(q, b, FM_L1);
    q = fm4_fma(q, b, FM_L0);
    float32x4_t large = vsubq_f32(vdupq_n_f32(1.0f), fm4_exp(q));
    uint32x4_t is_small = vcltq_f32(a, vdupq_n_f32(FM_ERF_SPLIT));
    return fm4_with_sign_of(vbslq_f32(is_small, small, large), x);
}

FM_INLINE float32x4_t fm4_silu(float32x4_t x) {
    return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), fm4_exp(vnegq_f32(x))));
}

FM_INLINE float32x4_t fm4_gelu_tanh(float32x4_t x) {
    float32x4_t u = vmulq_f32(vmulq_f32(x, x), x);
    u = vfmaq_f32(x, vdupq_n_f32(FM_GELU_CUBE), u);
    float32x4_t t = fm4_tanh(vmulq_f32(u, vdupq_n_f32(FM_SQRT_2_PI)));
    float32x4_t h = vmulq_f32(vdupq_n_f32(0.5f), x);
    return vfmaq_f32(h, h, t);
}

FM_INLINE float32x4_t fm4_gelu_erf(float32x4_t x) {
    float32x4_t t = fm4_erf(vmulq_f32(x, vdupq_n_f32(FM_SQRT_HALF)));
    float32x4_t h = vmulq_f32(vdupq_n_f32(0.5f), x);
    return vfmaq_f32(h, h, t);
}

#endif
