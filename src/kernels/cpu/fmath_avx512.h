/* kernels/cpu/fmath_avx512.h - base/fmath.h sixteen at a time, with the same bits.
 *
 * Each function performs the steps that base/fmath_poly.h spells out, in that order; a sum joins
 * lanes as kernels/cpu/exact.h says. Included only by files that are compiled for AVX-512.
 */
#ifndef KERNELS_CPU_FMATH_AVX512_H
#define KERNELS_CPU_FMATH_AVX512_H

#include <immintrin.h>

#include "base/fmath_poly.h"

#define FM16_INLINE static inline __attribute__((always_inline))

FM16_INLINE __m512 fm16_fma(__m512 a, __m512 b, float c) {
    return _mm512_fmadd_ps(a, b, _mm512_set1_ps(c));
}

/* The sum of the lanes, joined by halves. */
FM16_INLINE float fm16_sum(__m512 v) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 l = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    l = _mm_add_ps(l, _mm_movehl_ps(l, l));
    l = _mm_add_ss(l, _mm_movehdup_ps(l));
    return _mm_cvtss_f32(l);
}

/* exp(x) is the result times 2^n. */
FM16_INLINE __m512 fm16_exp_parts(__m512 x, __m512 *n) {
    const __m512 magic = _mm512_set1_ps(FM_MAGIC);
    *n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(FM_LOG2E), magic), magic);
    __m512 r = _mm512_fmadd_ps(*n, _mm512_set1_ps(-FM_LN2_HI), x);
    r = _mm512_fmadd_ps(*n, _mm512_set1_ps(-FM_LN2_LO), r);
    __m512 p = _mm512_set1_ps(FM_E4);
    p = fm16_fma(p, r, FM_E3);
    p = fm16_fma(p, r, FM_E2);
    p = fm16_fma(p, r, FM_E1);
    p = fm16_fma(p, r, FM_E0);
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
    return _mm512_add_ps(p, _mm512_set1_ps(1.0f));
}

FM16_INLINE __m512 fm16_exp(__m512 x) {
    __m512 n, p = fm16_exp_parts(x, &n);
    /* p * 2^n at once: the two steps of the definition do not round where the result is normal,
     * and what would not be normal is replaced. */
    __mmask16 over = _mm512_cmp_ps_mask(x, _mm512_set1_ps(FM_EXP_MAX), _CMP_GT_OQ);
    __mmask16 kept = _mm512_cmp_ps_mask(x, _mm512_set1_ps(FM_EXP_MIN), _CMP_NLT_UQ);
    __m512 y = _mm512_maskz_scalef_ps(kept, p, n);
    return _mm512_mask_mov_ps(y, over, _mm512_set1_ps(__builtin_huge_valf()));
}

/* exp(x) for x that is at most 0 or NaN, in a thread that flushes denormals to zero. A compare
 * would cost as much as a multiplication; a maximum costs nothing beside them, and below EXP_MIN
 * the product is denormal, so zero. */
FM16_INLINE __m512 fm16_exp_down(__m512 x) {
    __m512 n, p = fm16_exp_parts(_mm512_max_ps(_mm512_set1_ps(FM_EXP_MIN - 1.0f), x), &n);
    return _mm512_scalef_ps(p, n);
}

/* The magnitude of a, the sign of b. */
FM16_INLINE __m512 fm16_with_sign_of(__m512 a, __m512 b) {
    const __m512 sign = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b));
}

FM16_INLINE __m512 fm16_tanh(__m512 x) {
    __m512 a = fm16_with_sign_of(x, _mm512_setzero_ps());
    __m512 z = _mm512_mul_ps(x, x);
    __m512 p = _mm512_set1_ps(FM_T5);
    p = fm16_fma(p, z, FM_T4);
    p = fm16_fma(p, z, FM_T3);
    p = fm16_fma(p, z, FM_T2);
    p = fm16_fma(p, z, FM_T1);
    p = fm16_fma(p, z, FM_T0);
    p = _mm512_mul_ps(p, z);
    __m512 small = _mm512_fmadd_ps(p, a, a);
    const __m512 one = _mm512_set1_ps(1.0f), two = _mm512_set1_ps(2.0f);
    __m512 e = _mm512_add_ps(fm16_exp(_mm512_add_ps(a, a)), one);
    __m512 large = _mm512_sub_ps(one, _mm512_div_ps(two, e));
    __mmask16 is_small = _mm512_cmp_ps_mask(a, _mm512_set1_ps(FM_TANH_SPLIT), _CMP_LT_OQ);
    return fm16_with_sign_of(_mm512_mask_mov_ps(large, is_small, small), x);
}

FM16_INLINE __m512 fm16_erf(__m512 x) {
    __m512 a = fm16_with_sign_of(x, _mm512_setzero_ps());
    __m512 z = _mm512_mul_ps(x, x);
    __m512 p = _mm512_set1_ps(FM_S6);
    p = fm16_fma(p, z, FM_S5);
    p = fm16_fma(p, z, FM_S4);
    p = fm16_fma(p, z, FM_S3);
    p = fm16_fma(p, z, FM_S2);
    p = fm16_fma(p, z, FM_S1);
    p = fm16_fma(p, z, FM_S0);
    __m512 small = _mm512_fmadd_ps(p, a, a);
    /* min(a, max) is a < max ? a : max, also for a NaN. */
    __m512 b = _mm512_min_ps(a, _mm512_set1_ps(FM_ERF_MAX));
    __m512 q = _mm512_set1_ps(FM_L8);
    q = fm16_fma(q, b, FM_L7);
    q = fm16_fma(q, b, FM_L6);
    q = fm16_fma(q, b, FM_L5);
    q = fm16_fma(q, b, FM_L4);
    q = fm16_fma(q, b, FM_L3);
    q = fm16_fma(q, b, FM_L2);
    q = fm16_fma(q, b, FM_L1);
    q = fm16_fma(q, b, FM_L0);
    __m512 large = _mm512_sub_ps(_mm512_set1_ps(1.0f), fm16_exp(q));
    __mmask16 is_small = _mm512_cmp_ps_mask(a, _mm512_set1_ps(FM_ERF_SPLIT), _CMP_LT_OQ);
    return fm16_with_sign_of(_mm512_mask_mov_ps(large, is_small, small), x);
}

/* Above 80, 1 + exp(-x) is 1, and below -130 it is infinite, so that a bound stands for all that
 * lies beyond it: cheaper than the compares of fm16_exp. A NaN wins against a bound. The minus goes
 * into the steps of exp that read x, where it costs nothing. Vectors go side by side, step by step,
 * so that there is always a step that waits for no other: 13.7 cycles each, where one after the
 * other took 15.1 and the multiplications alone take 12 (Zen 4, 2026-11). */
enum { FM16_WIDE = 4 };
#define FM16_EACH _Pragma("GCC unroll 4") for (int i = 0; i < FM16_WIDE; i++)
FM16_INLINE void fm16_silu(__m512 x[FM16_WIDE]) {
    const __m512 magic = _mm512_set1_ps(FM_MAGIC), one = _mm512_set1_ps(1.0f);
    __m512 h[FM16_WIDE], n[FM16_WIDE], r[FM16_WIDE], p[FM16_WIDE];
    FM16_EACH h[i] = _mm512_max_ps(_mm512_set1_ps(-130.0f), x[i]);
    FM16_EACH h[i] = _mm512_min_ps(_mm512_set1_ps(80.0f), h[i]);
    FM16_EACH n[i] = _mm512_fnmadd_ps(h[i], _mm512_set1_ps(FM_LOG2E), magic);
    FM16_EACH n[i] = _mm512_sub_ps(n[i], magic);
    FM16_EACH r[i] = _mm512_fnmsub_ps(n[i], _mm512_set1_ps(FM_LN2_HI), h[i]);
    FM16_EACH r[i] = _mm512_fnmadd_ps(n[i], _mm512_set1_ps(FM_LN2_LO), r[i]);
    FM16_EACH p[i] = fm16_fma(_mm512_set1_ps(FM_E4), r[i], FM_E3);
    FM16_EACH p[i] = fm16_fma(p[i], r[i], FM_E2);
    FM16_EACH p[i] = fm16_fma(p[i], r[i], FM_E1);
    FM16_EACH p[i] = fm16_fma(p[i], r[i], FM_E0);
    FM16_EACH p[i] = _mm512_fmadd_ps(p[i], _mm512_mul_ps(r[i], r[i]), r[i]);
    FM16_EACH p[i] = _mm512_scalef_ps(_mm512_add_ps(p[i], one), n[i]);
    FM16_EACH p[i] = _mm512_add_ps(one, p[i]);
    FM16_EACH x[i] = _mm512_div_ps(x[i], p[i]);
}
#undef FM16_EACH

FM16_INLINE __m512 fm16_gelu_tanh(__m512 x) {
    __m512 u = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
    u = _mm512_fmadd_ps(_mm512_set1_ps(FM_GELU_CUBE), u, x);
    __m512 t = fm16_tanh(_mm512_mul_ps(u, _mm512_set1_ps(FM_SQRT_2_PI)));
    __m512 h = _mm512_mul_ps(_mm512_set1_ps(0.5f), x);
    return _mm512_fmadd_ps(h, t, h);
}

FM16_INLINE __m512 fm16_gelu_erf(__m512 x) {
    __m512 t = fm16_erf(_mm512_mul_ps(x, _mm512_set1_ps(FM_SQRT_HALF)));
    __m512 h = _mm512_mul_ps(_mm512_set1_ps(0.5f), x);
    return _mm512_fmadd_ps(h, t, h);
}

#endif
