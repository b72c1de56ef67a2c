/* kernels/cpu/attention_avx512.c - one segment of attention for up to four queries that share a
 * KV head, AVX-512.
 *
 * A tile's 16 keys are one vector of scores for each query, which are also the 16 lanes of the
 * sum; two tiles, and two vectors of columns, go together so that every query has two chains.
 * Tokens outside [first, end) may hold anything: their scores are replaced by minus infinity, and
 * their values are never read. Joining and finishing are AVX2's.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "kernels/cpu/fmath_avx512.h"
#include "kernels/cpu/kernels_avx512.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16 };
_Static_assert((int)KV_BLOCK_TOKENS == (int)LANES, "a tile is one vector");
_Static_assert((int)ATTN_LANES == (int)LANES, "a vector holds the lanes of the sum");

/* Elements i .. i + 15 of a run of the cache's numbers. */
INLINE __m512 load16(const uint8_t *p, size_t i, const enum kv_type type) {
    if (type == KV_I8) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    }
    if (type == KV_F16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p + 2 * i)));
    return _mm512_loadu_ps((const float *)(const void *)(p + 4 * i));
}

INLINE float load1(const uint8_t *p, size_t i, const enum kv_type type) {
    if (type == KV_I8) return (float)(int8_t)p[i];
    if (type == KV_F16) {
        uint16_t half;
        memcpy(&half, p + 2 * i, sizeof(half));
        return f16_to_f32(half);
    }
    float value;
    memcpy(&value, p + 4 * i, sizeof(value));
    return value;
}

/* Bit i where first <= base + i < end. */
INLINE __mmask16 attended(uint32_t base, uint32_t first, uint32_t end) {
    uint32_t bits = 0xFFFF;
    if (first > base) bits &= 0xFFFFu << (first - base);
    if (end < base + LANES) bits &= 0xFFFFu >> (base + LANES - end);
    return (__mmask16)bits;
}

INLINE __m512 finish_score(__m512 acc, const struct attn_segment *s, __mmask16 mask) {
    acc = _mm512_mul_ps(acc, _mm512_set1_ps(s->scale));
    if (s->softcap > 0.0f) {
        __m512 cap = _mm512_set1_ps(s->softcap);
        acc = _mm512_mul_ps(cap, fm16_tanh(_mm512_div_ps(acc, cap)));
    }
    return _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), mask, acc);
}

/* The scores of `tiles` tiles (1 or 2) from t on into p[query][16 * t ..]. */
INLINE void score_tiles(const struct attn_segment *s, uint32_t t, const int tiles,
                        const int queries, const enum kv_type type,
                        float p[ATTN_QUERIES][ATTN_SEGMENT]) {
    __m512 acc[ATTN_QUERIES][2];
    for (int i = 0; i < queries; i++) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    for (uint32_t d = 0; d < s->head_dim; d++) {
        __m512 k[2];
#pragma GCC unroll 2
        for (int j = 0; j < tiles; j++) k[j] = load16(s->k[t + j], (size_t)d * LANES, type);
#pragma GCC unroll 4
        for (int i = 0; i < queries; i++) {
            __m512 q = _mm512_set1_ps(s->q[(size_t)i * s->head_dim + d]);
#pragma GCC unroll 2
            for (int j = 0; j < tiles; j++) acc[i][j] = _mm512_fmadd_ps(q, k[j], acc[i][j]);
        }
    }
#pragma GCC unroll 2
    for (int j = 0; j < tiles; j++) {
        uint32_t base = (t + (uint32_t)j) * LANES;
        __mmask16 mask = attended(base, s->first, s->end);
#pragma GCC unroll 4
        for (int i = 0; i < queries; i++) {
            if (type == KV_I8)
                acc[i][j] = _mm512_mul_ps(
                    acc[i][j], load16(s->k[t + j] + kv_scales_offset(s->head_dim), 0, KV_F16));
            _mm512_storeu_ps(p[i] + base, finish_score(acc[i][j], s, mask));
        }
    }
}

/* The scores at p, from `first` to `end` (multiples of 16), become exponentials. Those that are
 * not attended are exp(-inf) = 0 and change no lane's sum. */
INLINE float exponentials(float *p, uint32_t first, uint32_t end, float *max_out) {
    __m512 max = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
    for (uint32_t j = first; j < end; j += LANES) max = _mm512_max_ps(_mm512_loadu_ps(p + j), max);
    *max_out = _mm512_reduce_max_ps(max);
    max = _mm512_set1_ps(*max_out);
    for (uint32_t j = first; j < end; j += LANES) {
        __m512 e = fm16_exp(_mm512_sub_ps(_mm512_loadu_ps(p + j), max));
        _mm512_storeu_ps(p + j, e);
        sum = _mm512_add_ps(sum, e);
    }
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
    __m128 l = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    l = _mm_add_ps(l, _mm_movehl_ps(l, l));
    l = _mm_add_ss(l, _mm_movehdup_ps(l));
    return _mm_cvtss_f32(l);
}

/* The exponentials of tile t take the scales of its values. Those that are not attended may
 * become NaN; they are not looked at again. */
INLINE void scale_tile(const struct attn_segment *s, uint32_t t, const int queries,
                       float p[ATTN_QUERIES][ATTN_SEGMENT]) {
    __m512 scale = load16(s->v[t] + kv_scales_offset(s->head_dim), 0, KV_F16);
    for (int i = 0; i < queries; i++) {
        float *at = p[i] + (size_t)t * LANES;
        _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), scale));
    }
}

/* `vectors` (1 or 2) times 16 columns of the result from d on, for all queries. */
INLINE void weigh_chunk(const struct attn_segment *s, uint32_t d, const int vectors,
                        const int queries, const enum kv_type type,
                        float p[ATTN_QUERIES][ATTN_SEGMENT], float *out) {
    __m512 acc[ATTN_QUERIES][2];
    for (int i = 0; i < queries; i++) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    for (uint32_t j = s->first; j < s->end; j++) {
        const uint8_t *v = s->v[j / LANES] + j % LANES * s->v_stride;
        __m512 value[2];
#pragma GCC unroll 2
        for (int c = 0; c < vectors; c++) value[c] = load16(v, d + (uint32_t)c * LANES, type);
#pragma GCC unroll 4
        for (int i = 0; i < queries; i++) {
            __m512 w = _mm512_set1_ps(p[i][j]);
#pragma GCC unroll 2
            for (int c = 0; c < vectors; c++) acc[i][c] = _mm512_fmadd_ps(w, value[c], acc[i][c]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 2
        for (int c = 0; c < vectors; c++)
            _mm512_storeu_ps(out + (size_t)i * s->head_dim + d + (size_t)c * LANES, acc[i][c]);
}

/* The last columns of a head that is not a multiple of 16 wide. */
INLINE void weigh_one(const struct attn_segment *s, uint32_t d, const enum kv_type type,
                      const float *p, float *out) {
    float acc = 0.0f;
    for (uint32_t j = s->first; j < s->end; j++) {
        const uint8_t *v = s->v[j / LANES] + j % LANES * s->v_stride;
        acc = fmaf(p[j], load1(v, d, type), acc);
    }
    *out = acc;
}

INLINE void attend(const struct attn_segment *s, const int queries, const enum kv_type type,
                   struct attn_part *out) {
    float p[ATTN_QUERIES][ATTN_SEGMENT];
    uint32_t first = s->first / LANES, end = (s->end + LANES - 1) / LANES, t = first, d = 0;
    for (; t + 2 <= end; t += 2) score_tiles(s, t, 2, queries, type, p);
    if (t < end) score_tiles(s, t, 1, queries, type, p);
    for (int i = 0; i < queries; i++)
        out->sum[i] = exponentials(p[i], first * LANES, end * LANES, &out->max[i]);
    for (t = first; t < end && type == KV_I8; t++) scale_tile(s, t, queries, p);
    for (; d + 2 * LANES <= s->head_dim; d += 2 * LANES)
        weigh_chunk(s, d, 2, queries, type, p, out->out);
    if (d + LANES <= s->head_dim) {
        weigh_chunk(s, d, 1, queries, type, p, out->out);
        d += LANES;
    }
    for (; d < s->head_dim; d++)
        for (int i = 0; i < queries; i++)
            weigh_one(s, d, type, p[i], out->out + (size_t)i * s->head_dim + d);
}

#define ATTEND(queries)                                                                            \
    if (s->type == KV_F16)                                                                         \
        attend(s, queries, KV_F16, out);                                                           \
    else if (s->type == KV_I8)                                                                     \
        attend(s, queries, KV_I8, out);                                                            \
    else                                                                                           \
        attend(s, queries, KV_F32, out);                                                           \
    break

void avx512_attend(const struct attn_segment *s, struct attn_part *out) {
    switch (s->query_count) {
    case 1:
        ATTEND(1);
    case 2:
        ATTEND(2);
    case 3:
        ATTEND(3);
    default:
        ATTEND(4);
    }
}
