/* kernels/cpu/attention_avx2.c - attention for AVX2 + FMA + F16C: kernels/cpu/attention_body.h on
 * vectors of eight floats.
 *
 * Six queries and one tile have twelve sums in registers, two queries and two tiles have eight.
 * While keys are multiplied, their values are prefetched; while values are added, the tiles that
 * the caller says are next.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/attn_merge.h"
#include "kernels/cpu/kernels_avx2.h"
#include "tensor/fp8.h"

enum { ATTN_WIDE_QUERIES = 2, ATTN_PREFETCHES = 1 };

VEC_INLINE vec load8(const uint8_t *p, size_t i, const enum kv_type type) {
    if (type == KV_I8) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(p + i));
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    }
    if (type == KV_F8) { /* fp8_half_bits: the sign fills the bit between it and the exponent */
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(p + i));
        __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7);
        wide = _mm_and_si128(wide, _mm_set1_epi16((short)0xbf80));
        return _mm256_mul_ps(_mm256_cvtph_ps(wide), _mm256_set1_ps(FP8_HALF_FACTOR));
    }
    if (type == KV_F16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 2 * i)));
    return _mm256_loadu_ps((const float *)(const void *)(p + 4 * i));
}

VEC_INLINE void attn_load(const uint8_t *p, size_t i, const enum kv_type type, const int vectors,
                          vec *out) {
#pragma GCC unroll 4
    for (int c = 0; c < vectors; c++) out[c] = load8(p, i + (size_t)c * VEC_LANES, type);
}

VEC_INLINE void attn_load_codes(const uint8_t *p, const int is_high, const int vectors, vec *out) {
#pragma GCC unroll 2
    for (int c = 0; c < vectors; c++) {
        const __m128i *at = (const __m128i *)(const void *)(p + (size_t)c * VEC_LANES);
        __m256i pairs = _mm256_cvtepu8_epi32(_mm_loadl_epi64(at));
        __m256i codes =
            is_high ? _mm256_srli_epi32(pairs, 4) : _mm256_and_si256(pairs, _mm256_set1_epi32(15));
        out[c] = _mm256_cvtepi32_ps(codes);
    }
}

/* Into the second cache: the first has too few reads in flight to keep the memory busy. */
VEC_INLINE void attn_prefetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }

#include "kernels/cpu/attention_body.h"

ATTEND_KERNEL(avx2_attend)

void avx2_attn_merge(struct attn_part *into, const struct attn_part *part, uint32_t head_dim) {
    attn_merge(into, part, head_dim);
}

void avx2_attn_finish(struct attn_part *part, uint32_t head_dim) { attn_finish(part, head_dim); }
