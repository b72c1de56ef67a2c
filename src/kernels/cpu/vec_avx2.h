/* kernels/cpu/vec_avx2.h - the operations of base/fmath_body.h and of the kernels on eight floats.
 *
 * Included only by files that are compiled for AVX2, FMA and F16C.
 * Thread: any.
 */
#ifndef KERNELS_CPU_VEC_AVX2_H
#define KERNELS_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "base/fmath_poly.h"

#define VEC_INLINE static inline __attribute__((always_inline))

typedef __m256 vec;
enum { VEC_LANES = 8 };

VEC_INLINE vec vec_set1(float c) { return _mm256_set1_ps(c); }
VEC_INLINE vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
VEC_INLINE void vec_store(float *p, vec a) { _mm256_storeu_ps(p, a); }
VEC_INLINE vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
VEC_INLINE vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
VEC_INLINE vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
VEC_INLINE vec vec_div(vec a, vec b) { return _mm256_div_ps(a, b); }
VEC_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
VEC_INLINE vec vec_fms(vec a, vec b, vec c) { return _mm256_fmsub_ps(a, b, c); } /* a * b - c */
VEC_INLINE vec vec_neg(vec a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
VEC_INLINE vec vec_abs(vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
VEC_INLINE vec vec_min(vec a, vec b) { return _mm256_min_ps(a, b); }
VEC_INLINE vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); }

/* `count` floats, fewer than a vector holds, and zeros. */
VEC_INLINE vec vec_load_some(const float *p, uint32_t count) {
    float some[VEC_LANES] = {0};
    for (uint32_t i = 0; i < count; i++) some[i] = p[i];
    return vec_load(some);
}

/* To the nearest f16, even at a tie. */
VEC_INLINE void vec_store_f16(uint16_t *p, vec a) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* To the nearest whole number, even at a tie, within -127 .. 127; a NaN becomes 0. */
VEC_INLINE __m256i vec_round_int8(vec a) {
    a = _mm256_and_ps(a, _mm256_cmp_ps(a, a, _CMP_ORD_Q));
    a = _mm256_min_ps(a, _mm256_set1_ps(127.0f));
    a = _mm256_max_ps(a, _mm256_set1_ps(-127.0f));
    return _mm256_cvtps_epi32(a);
}

VEC_INLINE void vec_store_int8(int8_t *p, vec a) {
    __m256i q = vec_round_int8(a);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(words, words));
}

VEC_INLINE vec vec_if_less(vec x, vec limit, vec a, vec b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, limit, _CMP_LT_OQ));
}

VEC_INLINE vec vec_if_greater(vec x, vec limit, vec a, vec b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, limit, _CMP_GT_OQ));
}

VEC_INLINE vec vec_zero_if_less(vec x, vec limit, vec a) {
    return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), a);
}

VEC_INLINE vec vec_copysign(vec a, vec b) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, b));
}

VEC_INLINE vec vec_exp2(__m256i k) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k, _mm256_set1_epi32(127)), 23));
}

VEC_INLINE vec vec_mul_exp2(vec a, vec t) {
    __m256i k =
        _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(_mm256_set1_ps(FM_MAGIC)));
    __m256i half = _mm256_srai_epi32(k, 1);
    vec y = _mm256_mul_ps(a, vec_exp2(half));
    return _mm256_mul_ps(y, vec_exp2(_mm256_sub_epi32(k, half)));
}

/* Lane i is a's where first <= base + i < end, else b's. */
VEC_INLINE vec vec_if_between(uint32_t base, uint32_t first, uint32_t end, vec a, vec b) {
    __m256i at =
        _mm256_add_epi32(_mm256_set1_epi32((int)base), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)first), at);
    __m256i below_end = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)end), at);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_andnot_si256(below, below_end)));
}

VEC_INLINE float vec_max_lane(vec a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

/* The sum of 16 lanes, joined by halves (kernels/cpu/numerics.h). */
VEC_INLINE float vec_sum16(const vec a[2]) {
    __m256 sum = _mm256_add_ps(a[0], a[1]);
    __m128 l = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    l = _mm_add_ps(l, _mm_movehl_ps(l, l));
    l = _mm_add_ss(l, _mm_movehdup_ps(l));
    return _mm_cvtss_f32(l);
}

#endif
