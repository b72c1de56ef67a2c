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
#include "kernels/cpu/kv_range.h"
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

VEC_INLINE vec attn_load_sums(const int32_t *p) {
    return _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

VEC_INLINE void attn_load_units(const uint8_t *p, vec out[2]) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m128i *at = (const __m128i *)(const void *)(p + 8 * i);
        __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64(at));
        code = _mm256_slli_epi32(code, INT4_UNIT_SHIFT);
        out[i] =
            _mm256_castsi256_ps(_mm256_add_epi32(code, _mm256_set1_epi32((int)int4_unit_first)));
    }
}

/* Of a tile's keys in a group: 2 * step of eight tokens twice in a lane of 32 bits, for products of
 * pairs; and -step * (16 + offset) in the lower half of one. */
VEC_INLINE void load_groups(const uint8_t *bytes, __m256i twice[2], __m256i base[2]) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m128i *at = (const __m128i *)(const void *)(bytes + 8 * i);
        __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(at)), four = _mm256_set1_epi32(15);
        __m256i step = _mm256_add_epi32(_mm256_and_si256(b, four), _mm256_set1_epi32(1));
        __m256i offset =
            _mm256_add_epi32(_mm256_srli_epi32(b, 4), _mm256_set1_epi32(16 + INT4_OFFSET_LEAST));
        __m256i minus = _mm256_sub_epi16(_mm256_setzero_si256(), step);
        base[i] = _mm256_and_si256(_mm256_mullo_epi16(minus, offset), _mm256_set1_epi32(0xFFFF));
        twice[i] = _mm256_slli_epi32(step, 1);
        twice[i] = _mm256_or_si256(twice[i], _mm256_slli_epi32(twice[i], 16));
    }
}

VEC_INLINE __m256i four_codes(const int8_t *codes) {
    int32_t four;
    memcpy(&four, codes, sizeof(four));
    return _mm256_set1_epi32(four);
}

/* Sixteen dimensions: sums of four products of a code and a whole number, at most 4 * 2 * 15 * 127,
 * stay within 16 bits. */
VEC_INLINE void multiply_codes16(const struct attn_segment *s, const uint8_t *at, uint32_t d,
                                 const int queries, const __m256i twice[2],
                                 __m256i acc[ATTN_FEW][2]) {
    const __m256i low = _mm256_set1_epi8(15);
    const int8_t *q = s->query[0].codes + d;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m256i codes[4];
#pragma GCC unroll 2
        for (int r = 0; r < 2; r++) {
            __m256i pairs = _mm256_loadu_si256((const __m256i *)(const void *)(at + 64 * r) + half);
            codes[2 * r] = _mm256_and_si256(pairs, low);
            codes[2 * r + 1] = _mm256_and_si256(_mm256_srli_epi16(pairs, 4), low);
        }
#pragma GCC unroll 6
        for (int i = 0; i < queries; i++) {
            const int8_t *own = q + (size_t)i * s->codes_stride;
            __m256i sum = _mm256_maddubs_epi16(codes[0], four_codes(own));
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes[1], four_codes(own + 4)));
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes[2], four_codes(own + 8)));
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes[3], four_codes(own + 12)));
            acc[i][half] = _mm256_add_epi32(acc[i][half], _mm256_madd_epi16(sum, twice[half]));
        }
    }
}

VEC_INLINE void attn_multiply_codes(const struct attn_segment *s, const uint8_t *tile,
                                    const int queries, int32_t sums[][KV_TILE_TOKENS]) {
    const uint32_t width = kv_group_dims(s->head_dim);
    __m256i acc[ATTN_FEW][2];
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++) acc[i][0] = acc[i][1] = _mm256_setzero_si256();
    for (uint32_t g = 0; g < kv_groups_of_head(s->head_dim); g++) {
        __m256i twice[2], base[2];
        load_groups(tile + kv_group_offset(s->head_dim, g), twice, base);
        for (uint32_t d = g * width; d < (g + 1) * width; d += 16)
            multiply_codes16(s, tile + kv_key_codes(d), d, queries, twice, acc);
#pragma GCC unroll 6
        for (int i = 0; i < queries; i++) {
            __m256i sum = _mm256_set1_epi32(s->query[i].sums[g]);
            acc[i][0] = _mm256_add_epi32(acc[i][0], _mm256_madd_epi16(base[0], sum));
            acc[i][1] = _mm256_add_epi32(acc[i][1], _mm256_madd_epi16(base[1], sum));
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++) {
        _mm256_storeu_si256((__m256i *)(void *)sums[i], acc[i][0]);
        _mm256_storeu_si256((__m256i *)(void *)sums[i] + 1, acc[i][1]);
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
