/* kernels/cpu/attention_avx2.c - one segment of attention for queries that share a KV
 * head, up to six at a time, AVX2 + FMA + F16C.
 *
 * A tile's 16 keys are two vectors of scores for each query; keys and values are read and
 * widened once for all queries. Six queries meet one tile at a time, so that there are twelve
 * sums in registers; one or two queries meet two. Tokens that a query does not attend to may
 * hold anything: their scores are replaced by minus infinity, and their values never weighed.
 * While keys are multiplied, their values are fetched; while values are weighed, the tiles that the
 * caller says are next.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "kernels/cpu/attn_reach.h"
#include "kernels/cpu/fmath_avx2.h"
#include "kernels/cpu/kernels_avx2.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8, VECTORS = 4 };

/* Elements i .. i + 7 of a run of the cache's numbers. */
INLINE __m256 load8(const uint8_t *p, size_t i, const enum kv_type type) {
    if (type == KV_I8) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(p + i));
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    }
    if (type == KV_F16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 2 * i)));
    return _mm256_loadu_ps((const float *)(const void *)(p + 4 * i));
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

/* Begins to read what is needed soon. Into the second cache: the first has too few reads in flight
 * to keep the memory busy. */
INLINE void fetch(const uint8_t *p, size_t i, const enum kv_type type) {
    _mm_prefetch((const char *)(p + i * kv_elem_bytes(type)), _MM_HINT_T1);
}

/* Six queries are mostly those of a prompt, whose keys and values have been read before; floats are
 * mostly those of an encoder. */
INLINE bool fetches_ahead(const int queries, const enum kv_type type) {
    return queries < ATTN_FEW && type != KV_F32;
}

/* All ones in lane i where first <= base + i < end. */
INLINE __m256 attended(uint32_t base, uint32_t first, uint32_t end) {
    __m256i at =
        _mm256_add_epi32(_mm256_set1_epi32((int)base), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i early = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)first), at);
    __m256i in_time = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)end), at);
    return _mm256_castsi256_ps(_mm256_andnot_si256(early, in_time));
}

/* The products of all queries with `vectors` times 8 keys from key `first` of the segment on;
 * a tile is two vectors. */
INLINE void multiply_keys(const struct attn_segment *s, uint32_t first, const int vectors,
                          const int queries, const enum kv_type type,
                          float p[ATTN_FEW][ATTN_SEGMENT]) {
    __m256 acc[ATTN_FEW][VECTORS], k[VECTORS];
    const uint8_t *tiles[] = {s->k[first / KV_TILE_TOKENS],
                              vectors > 2 ? s->k[first / KV_TILE_TOKENS + 1] : NULL};
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) acc[i][j] = _mm256_setzero_ps();
    /* Values lie as far from the keys in all tiles of a cache. */
    const ptrdiff_t values = type == KV_F32 ? 0 : s->v[first / KV_TILE_TOKENS] - tiles[0];
    const bool fetches = fetches_ahead(queries, type);
    for (size_t d = 0; d < s->head_dim; d++) {
        if (fetches) fetch(tiles[0] + values, d * KV_TILE_TOKENS, type);
        if (fetches && vectors > 2) fetch(tiles[1] + values, d * KV_TILE_TOKENS, type);
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            k[j] = load8(tiles[j / 2], d * KV_TILE_TOKENS + (size_t)(j % 2) * LANES, type);
#pragma GCC unroll 6
        for (int i = 0; i < queries; i++) {
            __m256 q = _mm256_set1_ps(s->query[i].q[d]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) acc[i][j] = _mm256_fmadd_ps(q, k[j], acc[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            _mm256_storeu_ps(p[i] + first + (size_t)j * LANES, acc[i][j]);
}

/* The products of one query with keys j .. j + 7, as scores. */
INLINE __m256 score(const struct attn_segment *s, const struct attn_query *q, uint32_t j,
                    __m256 x) {
    if (s->type == KV_I8) {
        const uint8_t *scales = s->k[j / KV_TILE_TOKENS] + kv_scales_offset(s->head_dim);
        x = _mm256_mul_ps(x, load8(scales, j % KV_TILE_TOKENS, KV_F16));
    }
    x = _mm256_mul_ps(x, _mm256_set1_ps(s->scale));
    if (s->softcap > 0.0f) {
        __m256 cap = _mm256_set1_ps(s->softcap);
        x = _mm256_mul_ps(cap, fm8_tanh(_mm256_div_ps(x, cap)));
    }
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), x, attended(j, q->first, q->end));
}

INLINE float max_of(__m256 max) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

/* 16 lanes joined by halves. */
INLINE float sum_of(__m256 sum0, __m256 sum1) {
    __m256 sum = _mm256_add_ps(sum0, sum1);
    __m128 l = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    l = _mm_add_ps(l, _mm_movehl_ps(l, l));
    l = _mm_add_ss(l, _mm_movehdup_ps(l));
    return _mm_cvtss_f32(l);
}

/* One query's products at p, of the tokens from `first` to `end` (whole tiles), become what its
 * values are weighed with: exponentials, times the values' scales where the cache has them.
 * Tokens that are not attended to are exp(-inf) = 0 and change no lane's sum; a scale may make
 * them NaN, but they are not looked at again. */
static void weights_of(const struct attn_segment *s, const struct attn_query *q, uint32_t first,
                       uint32_t end, float *p, struct attn_part *out) {
    __m256 max = _mm256_set1_ps(-INFINITY), sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (uint32_t j = first; j < end; j += LANES) {
        __m256 x = score(s, q, j, _mm256_loadu_ps(p + j));
        _mm256_storeu_ps(p + j, x);
        max = _mm256_max_ps(x, max);
    }
    out->max = max_of(max);
    max = _mm256_set1_ps(out->max);
    for (uint32_t t = first; t < end; t += KV_TILE_TOKENS)
#pragma GCC unroll 2
        for (uint32_t h = 0; h < 2; h++) {
            float *at = p + t + h * LANES;
            __m256 e = fm8_exp(_mm256_sub_ps(_mm256_loadu_ps(at), max));
            sum[h] = _mm256_add_ps(sum[h], e);
            if (s->type == KV_I8) {
                const uint8_t *scales = s->v[t / KV_TILE_TOKENS] + kv_scales_offset(s->head_dim);
                e = _mm256_mul_ps(e, load8(scales, (size_t)h * LANES, KV_F16));
            }
            _mm256_storeu_ps(at, e);
        }
    out->sum = sum_of(sum[0], sum[1]);
}

/* Adds the values of `tokens` in `vectors` vectors of columns from d on to the results of all
 * queries. */
INLINE void weigh_columns(const struct attn_segment *s, struct span tokens, uint32_t d,
                          const int vectors, const int queries, const enum kv_type type,
                          float p[][ATTN_SEGMENT], struct attn_part *out) {
    __m256 acc[ATTN_FEW][VECTORS], v[VECTORS];
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int c = 0; c < vectors; c++)
            acc[i][c] = _mm256_loadu_ps(out[i].out + d + (size_t)c * LANES);
    for (uint32_t j = tokens.first; j < tokens.end;) {
        const uint8_t *row = s->v[j / KV_TILE_TOKENS] + j % KV_TILE_TOKENS * s->v_stride;
        uint32_t edge = (j / KV_TILE_TOKENS + 1) * KV_TILE_TOKENS;
        uint32_t end = edge < tokens.end ? edge : tokens.end, tile = j / KV_TILE_TOKENS;
        ptrdiff_t next = s->next[tile] ? s->next[tile] - s->v[tile] : 0;
        for (; j < end; j++, row += s->v_stride) {
            if (fetches_ahead(queries, type)) fetch(row + next, d, type);
#pragma GCC unroll 4
            for (int c = 0; c < vectors; c++) v[c] = load8(row, d + (size_t)c * LANES, type);
#pragma GCC unroll 6
            for (int i = 0; i < queries; i++) {
                __m256 w = _mm256_set1_ps(p[i][j]);
#pragma GCC unroll 4
                for (int c = 0; c < vectors; c++) acc[i][c] = _mm256_fmadd_ps(w, v[c], acc[i][c]);
            }
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int c = 0; c < vectors; c++)
            _mm256_storeu_ps(out[i].out + d + (size_t)c * LANES, acc[i][c]);
}

/* Column d, the width of the head not being a multiple of 8. */
INLINE void weigh_one(const struct attn_segment *s, struct span tokens, uint32_t d,
                      const enum kv_type type, const float *p, float *out) {
    float acc = *out;
    for (uint32_t j = tokens.first; j < tokens.end; j++) {
        const uint8_t *v = s->v[j / KV_TILE_TOKENS] + j % KV_TILE_TOKENS * s->v_stride;
        acc = fmaf(p[j], load1(v, d, type), acc);
    }
    *out = acc;
}

INLINE void weigh(const struct attn_segment *s, struct span tokens, const int queries,
                  const enum kv_type type, float p[][ATTN_SEGMENT], struct attn_part *out) {
    uint32_t d = 0, width = s->head_dim;
    for (; queries <= 2 && d + 4 * LANES <= width; d += 4 * LANES)
        weigh_columns(s, tokens, d, 4, queries, type, p, out);
    for (; d + 2 * LANES <= width; d += 2 * LANES)
        weigh_columns(s, tokens, d, 2, queries, type, p, out);
    if (d + LANES <= width) {
        weigh_columns(s, tokens, d, 1, queries, type, p, out);
        d += LANES;
    }
    for (; d < width; d++)
        for (int i = 0; i < queries; i++) weigh_one(s, tokens, d, type, p[i], out[i].out + d);
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
    float p[ATTN_FEW][ATTN_SEGMENT];
    struct attn_reach r = attn_reach(s);
    uint32_t first = r.any.first / KV_TILE_TOKENS * KV_TILE_TOKENS, j = first;
    uint32_t end = (r.any.end + KV_TILE_TOKENS - 1) / KV_TILE_TOKENS * KV_TILE_TOKENS;
    for (; queries <= 2 && j + 4 * LANES <= end; j += 4 * LANES)
        multiply_keys(s, j, 4, queries, type, p);
    for (; j < end; j += 2 * LANES) multiply_keys(s, j, 2, queries, type, p);
    for (int i = 0; i < queries; i++) {
        const struct attn_query *q = &s->query[i];
        weights_of(s, q, first, end, p[i], &out[i]);
        memset(out[i].out, 0, s->head_dim * sizeof(float));
        weigh_alone(s, attn_before(q, &r), p + i, out + i);
    }
    weigh(s, r.all, queries, type, p, out);
    for (int i = 0; i < queries; i++) weigh_alone(s, attn_after(&s->query[i], &r), p + i, out + i);
}

ATTEND_KERNEL(avx2_attend)

void avx2_attn_join(struct attn_part *into, const struct attn_part *part, uint32_t head_dim) {
    float max = into->max > part->max ? into->max : part->max;
    float f1 = fm_exp(into->max - max), f2 = fm_exp(part->max - max);
    into->max = max;
    into->sum = fmaf(part->sum, f2, into->sum * f1);
    float *out = into->out;
    const float *from = part->out;
    for (uint32_t d = 0; d < head_dim; d++) out[d] = fmaf(from[d], f2, out[d] * f1);
}

void avx2_attn_finish(struct attn_part *part, uint32_t head_dim) {
    float *out = part->out, sum = part->sum;
    for (uint32_t d = 0; d < head_dim; d++) out[d] /= sum;
}
