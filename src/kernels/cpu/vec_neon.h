/* kernels/cpu/vec_neon.h - the operations of base/fmath_body.h and of the kernels on four floats.
 *
 * Included only by files that are compiled for 64-bit Arm.
 * Thread: any.
 */
#ifndef KERNELS_CPU_VEC_NEON_H
#define KERNELS_CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>

#include "base/fmath_poly.h"

#define VEC_INLINE static inline __attribute__((always_inline))

typedef float32x4_t vec;
enum { VEC_LANES = 4 };

VEC_INLINE vec vec_set1(float c) { return vdupq_n_f32(c); }
VEC_INLINE vec vec_load(const float *p) { return vld1q_f32(p); }
VEC_INLINE void vec_store(float *p, vec a) { vst1q_f32(p, a); }
VEC_INLINE vec vec_add(vec a, vec b) { return vaddq_f32(a, b); }
VEC_INLINE vec vec_sub(vec a, vec b) { return vsubq_f32(a, b); }
VEC_INLINE vec vec_mul(vec a, vec b) { return vmulq_f32(a, b); }
VEC_INLINE vec vec_div(vec a, vec b) { return vdivq_f32(a, b); }
VEC_INLINE vec vec_fma(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
VEC_INLINE vec vec_fms(vec a, vec b, vec c) {
    return vfmaq_f32(vnegq_f32(c), a, b);
} /* a * b - c */
VEC_INLINE vec vec_neg(vec a) { return vnegq_f32(a); }
VEC_INLINE vec vec_abs(vec a) { return vabsq_f32(a); }
/* Selects, because the instructions for minimum and maximum give NaN if either is NaN. */
VEC_INLINE vec vec_min(vec a, vec b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
VEC_INLINE vec vec_max(vec a, vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }

/* `count` floats, fewer than a vector holds, and zeros. */
VEC_INLINE vec vec_load_some(const float *p, uint32_t count) {
    float some[VEC_LANES] = {0};
    for (uint32_t i = 0; i < count; i++) some[i] = p[i];
    return vec_load(some);
}

/* To the nearest f16, even at a tie. f16's denormals are kept: flush-to-zero (FPCR.FZ) does not
 * change them, only FZ16 would, which stays off. */
VEC_INLINE void vec_store_f16(uint16_t *p, vec a) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}

/* To the nearest whole number, even at a tie, within -127 .. 127; the conversion makes 0 of a NaN
 * and saturates. */
VEC_INLINE int32x4_t vec_round_int8(vec a) {
    int32x4_t q = vcvtnq_s32_f32(a);
    return vmaxq_s32(vminq_s32(q, vdupq_n_s32(127)), vdupq_n_s32(-127));
}

VEC_INLINE void vec_store_int8(int8_t *p, vec a) {
    int32_t q[VEC_LANES];
    vst1q_s32(q, vec_round_int8(a));
    for (int i = 0; i < VEC_LANES; i++) p[i] = (int8_t)q[i];
}

VEC_INLINE vec vec_if_less(vec x, vec limit, vec a, vec b) {
    return vbslq_f32(vcltq_f32(x, limit), a, b);
}

VEC_INLINE vec vec_if_greater(vec x, vec limit, vec a, vec b) {
    return vbslq_f32(vcgtq_f32(x, limit), a, b);
}

VEC_INLINE vec vec_zero_if_less(vec x, vec limit, vec a) {
    return vbslq_f32(vcltq_f32(x, limit), vdupq_n_f32(0.0f), a);
}

VEC_INLINE vec vec_copysign(vec a, vec b) { return vbslq_f32(vdupq_n_u32(0x80000000u), b, a); }

VEC_INLINE vec vec_exp2(int32x4_t k) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(k, vdupq_n_s32(127)), 23));
}

VEC_INLINE vec vec_mul_exp2(vec a, vec t) {
    int32x4_t k = vsubq_s32(vreinterpretq_s32_f32(t), vreinterpretq_s32_f32(vdupq_n_f32(FM_MAGIC)));
    int32x4_t half = vshrq_n_s32(k, 1);
    return vmulq_f32(vmulq_f32(a, vec_exp2(half)), vec_exp2(vsubq_s32(k, half)));
}

/* Lane i is a's where first <= base + i < end, else b's. */
VEC_INLINE vec vec_if_between(uint32_t base, uint32_t first, uint32_t end, vec a, vec b) {
    static const uint32_t lanes[VEC_LANES] = {0, 1, 2, 3};
    uint32x4_t at = vaddq_u32(vdupq_n_u32(base), vld1q_u32(lanes));
    uint32x4_t from_first = vcgeq_u32(at, vdupq_n_u32(first));
    return vbslq_f32(vandq_u32(from_first, vcltq_u32(at, vdupq_n_u32(end))), a, b);
}

VEC_INLINE float vec_max_lane(vec a) {
    a = vec_max(vextq_f32(a, a, 2), a);
    a = vec_max(vextq_f32(a, a, 1), a);
    return vgetq_lane_f32(a, 0);
}

/* The sum of 16 lanes, joined by halves (kernels/cpu/numerics.h). */
VEC_INLINE float vec_sum16(const vec a[4]) {
    float32x4_t four = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

#endif
