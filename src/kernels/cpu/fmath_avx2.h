/* kernels/cpu/fmath_avx2.h - base/fmath.h eight at a time, with the same bits.
 *
 * Each function performs the steps that base/fmath_poly.h spells out, in that order. Included
 * only by files that are compiled for AVX2 and FMA.
 */
#ifndef KERNELS_CPU_FMATH_AVX2_H
#define KERNELS_CPU_FMATH_AVX2_H

#include <immintrin.h>

#include "base/fmath_poly.h"

#define FM_INLINE static inline __attribute__((always_inline))

FM_INLINE __m256 fm8_fma(__m256 a, __m256 b, float c) {
    return _mm256_fmadd_ps(a, b, _mm256_set1_ps(c));
}

/* 2^k. */
FM_INLINE __m256 fm8_pow2(__m256i k) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k, _mm256_set1_epi32(127)), 23));
}

FM_INLINE __m256 fm8_exp(__m256 x) {
    const __m256 magic = _mm256_set1_ps(FM_MAGIC);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(FM_LOG2E), magic);
    __m256 n = _mm256_sub_ps(t, magic);
    __m256i k = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(magic));
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-FM_LN2_HI), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-FM_LN2_LO), r);
    __m256 p = _mm256_set1_ps(FM_E4);
    p = fm8_fma(p, r, FM_E3);
    p = fm8_fma(p, r, FM_E2);
    p = fm8_fma(p, r, FM_E1);
    p = fm8_fma(p, r, FM_E0);
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    __m256i half = _mm256_srai_epi32(k, 1);
    __m256 y = _mm256_mul_ps(p, fm8_pow2(half));
    y = _mm256_mul_ps(y, fm8_pow2(_mm256_sub_epi32(k, half)));
    __m256 over = _mm256_cmp_ps(x, _mm256_set1_ps(FM_EXP_MAX), _CMP_GT_OQ);
    __m256 under = _mm256_cmp_ps(x, _mm256_set1_ps(FM_EXP_MIN), _CMP_LT_OQ);
    y = _mm256_blendv_ps(y, _mm256_set1_ps(__builtin_huge_valf()), over);
    return _mm256_andnot_ps(under, y);
}

/* The magnitude of a, the sign of b. */
FM_INLINE __m256 fm8_with_sign_of(__m256 a, __m256 b) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, b));
}

FM_INLINE __m256 fm8_tanh(__m256 x) {
    __m256 a = fm8_with_sign_of(x, _mm256_setzero_ps());
    __m256 z = _mm256_mul_ps(x, x);
    __m256 p = _mm256_set1_ps(FM_T5);
    p = fm8_fma(p, z, FM_T4);
    p = fm8_fma(p, z, FM_T3);
    p = fm8_fma(p, z, FM_T2);
    p = fm8_fma(p, z, FM_T1);
    p = fm8_fma(p, z, FM_T0);
    p = _mm256_mul_ps(p, z);
    __m256 small = _mm256_fmadd_ps(p, a, a);
    const __m256 one = _mm256_set1_ps(1.0f), two = _mm256_set1_ps(2.0f);
    __m256 e = _mm256_add_ps(fm8_exp(_mm256_add_ps(a, a)), one);
    __m256 large = _mm256_sub_ps(one, _mm256_div_ps(two, e));
    __m256 is_small = _mm256_cmp_ps(a, _mm256_set1_ps(FM_TANH_SPLIT), _CMP_LT_OQ);
    return fm8_with_sign_of(_mm256_blendv_ps(large, small, is_small), x);
}

FM_INLINE __m256 fm8_erf(__m256 x) {
    __m256 a = fm8_with_sign_of(x, _mm256_setzero_ps());
    __m256 z = _mm256_mul_ps(x, x);
    __m256 p = _mm256_set1_ps(FM_S6);
    p = fm8_fma(p, z, FM_S5);
    p = fm8_fma(p, z, FM_S4);
    p = fm8_fma(p, z, FM_S3);
    p = fm8_fma(p, z, FM_S2);
    p = fm8_fma(p, z, FM_S1);
    p = fm8_fma(p, z, FM_S0);
    __m256 small = _mm256_fmadd_ps(p, a, a);
    /* min(a, max) is a < max ? a : max, also for a NaN. */
    __m256 b = _mm256_min_ps(a, _mm256_set1_ps(FM_ERF_MAX));
    __m256 q = _mm256_set1_ps(FM_L8);
    q = fm8_fma(q, b, FM_L7);
    q = fm8_fma(q, b, FM_L6);
    q = fm8_fma(q, b, FM_L5);
    q = fm8_fma(q, b, FM_L4);
    q = fm8_fma(q, b, FM_L3);
    q = fm8_fma(q, b, FM_L2);
    q = fm8_fma(q, b, FM_L1);
    q = fm8_fma(q, b, FM_L0);
    __m256 large = _mm256_sub_ps(_mm256_set1_ps(1.0f), fm8_exp(q));
    __m256 is_small = _mm256_cmp_ps(a, _mm256_set1_ps(FM_ERF_SPLIT), _CMP_LT_OQ);
    return fm8_with_sign_of(_mm256_blendv_ps(large, small, is_small), x);
}

FM_INLINE __m256 fm8_silu(__m256 x) {
    __m256 e = fm8_exp(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

FM_INLINE __m256 fm8_gelu_tanh(__m256 x) {
    __m256 u = _mm256_mul_ps(_mm256_mul_ps(x, x), x);
    u = _mm256_fmadd_ps(_mm256_set1_ps(FM_GELU_CUBE), u, x);
    __m256 t = fm8_tanh(_mm256_mul_ps(u, _mm256_set1_ps(FM_SQRT_2_PI)));
    __m256 h = _mm256_mul_ps(_mm256_set1_ps(0.5f), x);
    return _mm256_fmadd_ps(h, t, h);
}

FM_INLINE __m256 fm8_gelu_erf(__m256 x) {
    __m256 t = fm8_erf(_mm256_mul_ps(x, _mm256_set1_ps(FM_SQRT_HALF)));
    __m256 h = _mm256_mul_ps(_mm256_set1_ps(0.5f), x);
    return _mm256_fmadd_ps(h, t, h);
}

#endif
