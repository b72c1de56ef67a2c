/* kernels/cpu/attention_avx512.c - one segment of attention for up to six queries that share a
 * KV head, AVX-512.
 *
 * A tile's 16 keys are one vector of scores for each query, which are also the 16 lanes of the
 * sum. The processor loads or broadcasts once for each multiplication at most, so six queries
 * meet four tiles, and four vectors of columns, at a time: 24 sums stay in registers, and a
 * step of ten loads feeds 24 multiplications. Tokens that a query does not attend to may hold
 * anything: their scores are replaced by minus infinity, and their values never weighed.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "kernels/cpu/attn_reach.h"
#include "kernels/cpu/fmath_avx512.h"
#include "kernels/cpu/kernels_avx512.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, VECTORS = 4, ALL_LANES = 0xFFFF };
_Static_assert((int)KV_BLOCK_TOKENS == (int)LANES, "a tile is one vector");
_Static_assert((int)ATTN_LANES == (int)LANES, "a vector holds the lanes of the sum");

/* Elements i .. i + 15 of a run of the cache's numbers, those outside the mask as zeros. */
INLINE __m512 load_some(const uint8_t *p, size_t i, const enum kv_type type, __mmask16 mask) {
    if (type == KV_I8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, p + i)));
    if (type == KV_F16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p + 2 * i));
    return _mm512_maskz_loadu_ps(mask, p + 4 * i);
}

INLINE __m512 load16(const uint8_t *p, size_t i, const enum kv_type type) {
    return load_some(p, i, type, ALL_LANES);
}

/* Bit i where first <= base + i < end. */
INLINE __mmask16 attended(uint32_t base, uint32_t first, uint32_t end) {
    uint32_t bits = ALL_LANES;
    if (base >= end || base + LANES <= first) return 0;
    if (first > base) bits &= 0xFFFFu << (first - base);
    if (end < base + LANES) bits &= 0xFFFFu >> (base + LANES - end);
    return (__mmask16)bits;
}

/* The products of all queries with the keys of `tiles` tiles from t on, to p[query][16 * t]. */
INLINE void multiply_keys(const struct attn_segment *s, uint32_t t, const int tiles,
                          const int queries, const enum kv_type type,
                          float p[ATTN_QUERIES][ATTN_SEGMENT]) {
    __m512 acc[ATTN_QUERIES][VECTORS], k[VECTORS];
    const uint8_t *tile[VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < tiles; j++) tile[j] = s->k[t + (uint32_t)j];
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < tiles; j++) acc[i][j] = _mm512_setzero_ps();
    for (size_t d = 0; d < s->head_dim; d++) {
#pragma GCC unroll 4
        for (int j = 0; j < tiles; j++) k[j] = load16(tile[j], d * LANES, type);
#pragma GCC unroll 6
        for (int i = 0; i < queries; i++) {
            __m512 q = _mm512_set1_ps(s->query[i].q[d]);
#pragma GCC unroll 4
            for (int j = 0; j < tiles; j++) acc[i][j] = _mm512_fmadd_ps(q, k[j], acc[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < tiles; j++)
            _mm512_storeu_ps(p[i] + (t + (uint32_t)j) * LANES, acc[i][j]);
}

/* The products of one query with the keys of tile t, as scores. */
INLINE __m512 score(const struct attn_segment *s, const struct attn_query *q, uint32_t t,
                    __m512 x) {
    if (s->type == KV_I8)
        x = _mm512_mul_ps(x, load16(s->k[t] + kv_scales_offset(s->head_dim), 0, KV_F16));
    x = _mm512_mul_ps(x, _mm512_set1_ps(s->scale));
    if (s->softcap > 0.0f) {
        __m512 cap = _mm512_set1_ps(s->softcap);
        x = _mm512_mul_ps(cap, fm16_tanh(_mm512_div_ps(x, cap)));
    }
    __mmask16 mask = attended(t * LANES, q->first, q->end);
    return _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), mask, x);
}

/* One query's products at p, of the tiles from `first` to `end`, become what its values are
 * weighed with: exponentials, times the values' scales where the cache has them. Tokens that
 * are not attended to are exp(-inf) = 0 and change no lane's sum; a scale may make them NaN,
 * but they are not looked at again. */
static void weights_of(const struct attn_segment *s, const struct attn_query *q, uint32_t first,
                       uint32_t end, float *p, struct attn_part *out) {
    __m512 max = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
    for (uint32_t t = first; t < end; t++) {
        __m512 x = score(s, q, t, _mm512_loadu_ps(p + (size_t)t * LANES));
        _mm512_storeu_ps(p + (size_t)t * LANES, x);
        max = _mm512_max_ps(x, max);
    }
    out->max = _mm512_reduce_max_ps(max);
    max = _mm512_set1_ps(out->max);
    for (uint32_t t = first; t < end; t++) {
        __m512 e = fm16_exp(_mm512_sub_ps(_mm512_loadu_ps(p + (size_t)t * LANES), max));
        sum = _mm512_add_ps(sum, e);
        if (s->type == KV_I8)
            e = _mm512_mul_ps(e, load16(s->v[t] + kv_scales_offset(s->head_dim), 0, KV_F16));
        _mm512_storeu_ps(p + (size_t)t * LANES, e);
    }
    out->sum = fm16_sum(sum);
}

/* Adds the values of `tokens` in `vectors` vectors of columns from d on to the results of all
 * queries. One vector may be the last and not full. */
INLINE void weigh_columns(const struct attn_segment *s, struct span tokens, uint32_t d,
                          const int vectors, const int queries, const enum kv_type type,
                          float p[][ATTN_SEGMENT], struct attn_part *out) {
    __m512 acc[ATTN_QUERIES][VECTORS], v[VECTORS];
    const __mmask16 mask = vectors == 1 ? attended(d, 0, s->head_dim) : (__mmask16)ALL_LANES;
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int c = 0; c < vectors; c++)
            acc[i][c] = _mm512_maskz_loadu_ps(mask, out[i].out + d + (size_t)c * LANES);
    for (uint32_t j = tokens.first; j < tokens.end;) {
        const uint8_t *row = s->v[j / LANES] + j % LANES * s->v_stride;
        uint32_t edge = (j / LANES + 1) * LANES, end = edge < tokens.end ? edge : tokens.end;
        for (; j < end; j++, row += s->v_stride) {
#pragma GCC unroll 4
            for (int c = 0; c < vectors; c++)
                v[c] = load_some(row, d + (size_t)c * LANES, type, mask);
#pragma GCC unroll 6
            for (int i = 0; i < queries; i++) {
                __m512 w = _mm512_set1_ps(p[i][j]);
#pragma GCC unroll 4
                for (int c = 0; c < vectors; c++) acc[i][c] = _mm512_fmadd_ps(w, v[c], acc[i][c]);
            }
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int c = 0; c < vectors; c++)
            _mm512_mask_storeu_ps(out[i].out + d + (size_t)c * LANES, mask, acc[i][c]);
}

INLINE void weigh(const struct attn_segment *s, struct span tokens, const int queries,
                  const enum kv_type type, float p[][ATTN_SEGMENT], struct attn_part *out) {
    uint32_t d = 0, width = s->head_dim;
    for (; d + 4 * LANES <= width; d += 4 * LANES)
        weigh_columns(s, tokens, d, 4, queries, type, p, out);
    if (d + 2 * LANES <= width) {
        weigh_columns(s, tokens, d, 2, queries, type, p, out);
        d += 2 * LANES;
    }
    for (; d < width; d += LANES) weigh_columns(s, tokens, d, 1, queries, type, p, out);
}

/* The tokens that only some of the queries attend to. */
static void weigh_alone(const struct attn_segment *s, struct span tokens, float p[][ATTN_SEGMENT],
                        struct attn_part *out) {
    if (tokens.first >= tokens.end) return;
    if (s->type == KV_F16)
        weigh(s, tokens, 1, KV_F16, p, out);
    else if (s->type == KV_I8)
        weigh(s, tokens, 1, KV_I8, p, out);
    else
        weigh(s, tokens, 1, KV_F32, p, out);
}

INLINE void attend(const struct attn_segment *s, const int queries, const enum kv_type type,
                   struct attn_part *out) {
    float p[ATTN_QUERIES][ATTN_SEGMENT];
    struct attn_reach r = attn_reach(s);
    uint32_t first = r.any.first / LANES, end = (r.any.end + LANES - 1) / LANES, t = first;
    for (; t + 4 <= end; t += 4) multiply_keys(s, t, 4, queries, type, p);
    if (t + 2 <= end) {
        multiply_keys(s, t, 2, queries, type, p);
        t += 2;
    }
    if (t < end) multiply_keys(s, t, 1, queries, type, p);
    for (int i = 0; i < queries; i++) {
        const struct attn_query *q = &s->query[i];
        weights_of(s, q, first, end, p[i], &out[i]);
        memset(out[i].out, 0, s->head_dim * sizeof(float));
        weigh_alone(s, attn_before(q, &r), p + i, out + i);
    }
    weigh(s, r.all, queries, type, p, out);
    for (int i = 0; i < queries; i++) weigh_alone(s, attn_after(&s->query[i], &r), p + i, out + i);
}

ATTEND_KERNEL(avx512_attend)
