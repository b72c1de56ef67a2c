/* kernels/cpu/attention_int4_avx512.h - keys and values of KV_I4 for attention_avx512.c.
 *
 * A query in whole numbers is multiplied with 64 codes at a time: four dimensions of each of a
 * tile's 16 tokens. With 8 subtracted from each code, the sum of a group of dimensions fits in 16
 * bits: it is at most 32 * 8 * 127. So one more integer product multiplies this sum and the sum of
 * the query's numbers with the group's step and offset. All of it is exact.
 *
 * Thread: any.
 */
#ifndef KERNELS_CPU_ATTENTION_INT4_AVX512_H
#define KERNELS_CPU_ATTENTION_INT4_AVX512_H

#include <immintrin.h>

#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/kv_range.h"

#define INT4_INLINE static inline __attribute__((always_inline))

enum { INT4_TILES_MAX = 4 };

INT4_INLINE __m512i int4_bytes(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* The units of a tile's keys or values. */
INT4_INLINE __m512 int4_units(const uint8_t *tile, uint32_t head_dim) {
    __m512i code = int4_bytes(tile + kv_scales_offset(KV_I4, head_dim));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(code, INT4_UNIT_SHIFT),
                                                _mm512_set1_epi32((int)int4_unit_first)));
}

/* By token: 2 * step in the lower half, -step * offset in the upper half. */
INT4_INLINE __m512i int4_factors(const uint8_t *tile, uint32_t head_dim, uint32_t group) {
    __m512i byte = int4_bytes(tile + kv_group_offset(head_dim, group));
    __m512i step =
        _mm512_add_epi32(_mm512_and_si512(byte, _mm512_set1_epi32(15)), _mm512_set1_epi32(1));
    __m512i offset =
        _mm512_sub_epi32(_mm512_set1_epi32(-INT4_OFFSET_LEAST), _mm512_srli_epi32(byte, 4));
    __m512i upper = _mm512_slli_epi32(_mm512_mullo_epi16(step, offset), 16);
    return _mm512_or_si512(
        _mm512_and_si512(_mm512_add_epi32(step, step), _mm512_set1_epi32(0xFFFF)), upper);
}

/* Four of a query's numbers, for all tokens. */
INT4_INLINE __m512i int4_four(const int8_t *codes) {
    int32_t four;
    memcpy(&four, codes, sizeof(four));
    return _mm512_set1_epi32(four);
}

/* Adds the products in the dimensions of a group. */
INT4_INLINE void int4_multiply_group(const struct attn_segment *s, uint32_t t, uint32_t group,
                                     const int tiles, const int queries,
                                     __m512i total[ATTN_QUERIES][INT4_TILES_MAX]) {
    const uint32_t width = kv_group_dims(s->head_dim);
    const __m512i low = _mm512_set1_epi8(15);
    const ptrdiff_t values = s->v[t] - s->k[t];
    __m512i dot[ATTN_QUERIES][INT4_TILES_MAX], factors[INT4_TILES_MAX];
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < tiles; j++) dot[i][j] = _mm512_set1_epi32(-8 * s->query[i].sums[group]);
    for (uint32_t d = group * width; d < (group + 1) * width; d += KV_KEY_DIMS) {
        const int8_t *q = s->query[0].codes + d;
        __m512i first[INT4_TILES_MAX], second[INT4_TILES_MAX];
#pragma GCC unroll 4
        for (int j = 0; j < tiles; j++) {
            const uint8_t *at = s->k[t + (uint32_t)j] + kv_key_codes(d);
            __m512i pairs = _mm512_loadu_si512(at);
            _mm_prefetch((const char *)(at + values), _MM_HINT_T1);
            first[j] = _mm512_and_si512(pairs, low);
            second[j] = _mm512_and_si512(_mm512_srli_epi32(pairs, 4), low);
        }
#pragma GCC unroll 12
        for (int i = 0; i < queries; i++) {
            const int8_t *own = q + (size_t)i * s->codes_stride;
            __m512i low4 = int4_four(own), high4 = int4_four(own + KV_KEY_STRIDE);
#pragma GCC unroll 4
            for (int j = 0; j < tiles; j++)
                dot[i][j] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(dot[i][j], first[j], low4),
                                                second[j], high4);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < tiles; j++)
        factors[j] = int4_factors(s->k[t + (uint32_t)j], s->head_dim, group);
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++) {
        __m512i sum = _mm512_set1_epi32((int)((uint32_t)s->query[i].sums[group] << 16));
#pragma GCC unroll 4
        for (int j = 0; j < tiles; j++) {
            __m512i both = _mm512_mask_mov_epi16(dot[i][j], 0xAAAAAAAA, sum);
            total[i][j] = _mm512_dpwssd_epi32(total[i][j], both, factors[j]);
        }
    }
}

/* The products of all queries with the keys of tiles from t on. */
INT4_INLINE void int4_multiply_keys(const struct attn_segment *s, uint32_t t, const int tiles,
                                    const int queries, __m512 acc[ATTN_QUERIES][INT4_TILES_MAX]) {
    __m512i total[ATTN_QUERIES][INT4_TILES_MAX];
    __m512 units[INT4_TILES_MAX];
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < tiles; j++) total[i][j] = _mm512_setzero_si512();
    for (uint32_t g = 0; g < kv_groups_of_head(s->head_dim); g++)
        int4_multiply_group(s, t, g, tiles, queries, total);
#pragma GCC unroll 4
    for (int j = 0; j < tiles; j++) units[j] = int4_units(s->k[t + (uint32_t)j], s->head_dim);
#pragma GCC unroll 12
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < tiles; j++)
            acc[i][j] = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(total[i][j]), units[j]),
                                      _mm512_set1_ps(s->query[i].codes_scale));
}

/* A tile's values in vectors of columns: the code c of a token is step * c + base. */
struct int4_steps {
    __m512 step[INT4_TILES_MAX], base[INT4_TILES_MAX];
};

INT4_INLINE void int4_steps_of(const uint8_t *tile, uint32_t head_dim, uint32_t d,
                               const int vectors, struct int4_steps *out) {
    const __m512 units = int4_units(tile, head_dim);
#pragma GCC unroll 4
    for (int c = 0; c < vectors; c++) {
        uint32_t group = (d + (uint32_t)c * KV_TILE_TOKENS) / kv_group_dims(head_dim);
        __m512i byte = int4_bytes(tile + kv_group_offset(head_dim, group));
        __m512i step =
            _mm512_add_epi32(_mm512_and_si512(byte, _mm512_set1_epi32(15)), _mm512_set1_epi32(1));
        __m512i offset = _mm512_sub_epi32(_mm512_set1_epi32(-16 - INT4_OFFSET_LEAST),
                                          _mm512_srli_epi32(byte, 4));
        __m512 size = _mm512_mul_ps(units, _mm512_cvtepi32_ps(step));
        out->step[c] = _mm512_add_ps(size, size);
        out->base[c] = _mm512_mul_ps(size, _mm512_cvtepi32_ps(offset));
    }
}

/* Sixteen values of a token: the low or the high halves of as many bytes. The permutation looks at
 * the four lowest bits of an index alone. */
INT4_INLINE __m512 int4_values(const uint8_t *codes, const int is_high, __m512 table) {
    __m512i pairs = int4_bytes(codes);
    return _mm512_permutexvar_ps(is_high ? _mm512_srli_epi32(pairs, 4) : pairs, table);
}

/* What each code of a token stands for; `token` is its place in the tile in every lane. */
INT4_INLINE __m512 int4_table(const struct int4_steps *s, const int column, __m512i token) {
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_fmadd_ps(codes, _mm512_permutexvar_ps(token, s->step[column]),
                           _mm512_permutexvar_ps(token, s->base[column]));
}

#endif
