/* kernels/cpu/vec_avx512.h - the operations of base/fmath_body.h and of the kernels on sixteen
 * floats.
 *
 * Included only by files that are compiled for AVX-512.
 * Thread: any.
 */
#ifndef KERNELS_CPU_VEC_AVX512_H
#define KERNELS_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "base/fmath_poly.h"

#define VEC_INLINE static inline __attribute__((always_inline))

typedef __m512 vec;
enum { VEC_LANES = 16 };

VEC_INLINE vec vec_set1(float c) { return _mm512_set1_ps(c); }
VEC_INLINE vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
VEC_INLINE void vec_store(float *p, vec a) { _mm512_storeu_ps(p, a); }
VEC_INLINE vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
VEC_INLINE vec vec_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
VEC_INLINE vec vec_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
VEC_INLINE vec vec_div(vec a, vec b) { return _mm512_div_ps(a, b); }
VEC_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
VEC_INLINE vec vec_neg(vec a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
VEC_INLINE vec vec_abs(vec a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
VEC_INLINE vec vec_min(vec a, vec b) { return _mm512_min_ps(a, b); }
VEC_INLINE vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); }

/* `count` floats, fewer than a vector holds, and zeros. */
VEC_INLINE vec vec_load_some(const float *p, uint32_t count) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), p);
}

/* To the nearest f16, even at a tie. */
VEC_INLINE void vec_store_f16(uint16_t *p, vec a) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* To the nearest whole number, even at a tie, within -127 .. 127; a NaN becomes 0. */
VEC_INLINE void vec_store_int8(int8_t *p, vec a) {
    a = _mm512_maskz_min_ps(_mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), a, _mm512_set1_ps(127.0f));
    a = _mm512_max_ps(a, _mm512_set1_ps(-127.0f));
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}

VEC_INLINE float vec_max_lane(vec a) { return _mm512_reduce_max_ps(a); }

VEC_INLINE vec vec_if_less(vec x, vec limit, vec a, vec b) {
    return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, limit, _CMP_LT_OQ), a);
}

VEC_INLINE vec vec_if_greater(vec x, vec limit, vec a, vec b) {
    return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, limit, _CMP_GT_OQ), a);
}

VEC_INLINE vec vec_zero_if_less(vec x, vec limit, vec a) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), a);
}

VEC_INLINE vec vec_copysign(vec a, vec b) {
    const __m512 sign = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b));
}

VEC_INLINE vec vec_mul_exp2(vec a, vec t) {
    return _mm512_scalef_ps(a, _mm512_sub_ps(t, _mm512_set1_ps(FM_MAGIC)));
}

/* The sum of the lanes, joined by halves (kernels/cpu/numerics.h). */
VEC_INLINE float vec_sum16(vec v) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 l = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    l = _mm_add_ps(l, _mm_movehl_ps(l, l));
    l = _mm_add_ss(l, _mm_movehdup_ps(l));
    return _mm_cvtss_f32(l);
}

#endif
