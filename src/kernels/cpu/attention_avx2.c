/* kernels/cpu/attention_avx2.c - one segment of attention for up to four queries that share
 * a KV head, AVX2 + FMA + F16C.
 *
 * A tile's 16 keys are two vectors of scores for each query; keys and values are read and
 * widened once for all queries. Tokens outside [first, end) may hold anything: their scores
 * are replaced by minus infinity, and their values are never read.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "kernels/cpu/fmath_avx2.h"
#include "kernels/cpu/kernels_avx2.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8, CHUNK = 2 * LANES };

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

/* All ones in lane i where first <= base + i < end. */
INLINE __m256 attended(uint32_t base, uint32_t first, uint32_t end) {
    __m256i at =
        _mm256_add_epi32(_mm256_set1_epi32((int)base), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i early = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)first), at);
    __m256i in_time = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)end), at);
    return _mm256_castsi256_ps(_mm256_andnot_si256(early, in_time));
}

INLINE __m256 finish_score(__m256 acc, const struct attn_segment *s, __m256 mask) {
    acc = _mm256_mul_ps(acc, _mm256_set1_ps(s->scale));
    if (s->softcap > 0.0f) {
        __m256 cap = _mm256_set1_ps(s->softcap);
        acc = _mm256_mul_ps(cap, fm8_tanh(_mm256_div_ps(acc, cap)));
    }
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), acc, mask);
}

/* The scores of tile t into p[query][16 * t ..]. */
INLINE void score_tile(const struct attn_segment *s, uint32_t t, const int queries,
                       const enum kv_type type, float p[ATTN_QUERIES][ATTN_SEGMENT]) {
    __m256 acc[ATTN_QUERIES][2];
    const uint8_t *k = s->k[t];
    for (int i = 0; i < queries; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (uint32_t d = 0; d < s->head_dim; d++) {
        __m256 k0 = load8(k, (size_t)d * KV_BLOCK_TOKENS, type);
        __m256 k1 = load8(k, (size_t)d * KV_BLOCK_TOKENS + LANES, type);
#pragma GCC unroll 4
        for (int i = 0; i < queries; i++) {
            __m256 q = _mm256_set1_ps(s->q[(size_t)i * s->head_dim + d]);
            acc[i][0] = _mm256_fmadd_ps(q, k0, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(q, k1, acc[i][1]);
        }
    }
    if (type == KV_I8) {
        const uint8_t *scales = k + kv_scales_offset(s->head_dim);
        __m256 scale0 = load8(scales, 0, KV_F16), scale1 = load8(scales, LANES, KV_F16);
        for (int i = 0; i < queries; i++) {
            acc[i][0] = _mm256_mul_ps(acc[i][0], scale0);
            acc[i][1] = _mm256_mul_ps(acc[i][1], scale1);
        }
    }
    uint32_t base = t * KV_BLOCK_TOKENS;
    __m256 mask0 = attended(base, s->first, s->end);
    __m256 mask1 = attended(base + LANES, s->first, s->end);
#pragma GCC unroll 4
    for (int i = 0; i < queries; i++) {
        _mm256_storeu_ps(p[i] + base, finish_score(acc[i][0], s, mask0));
        _mm256_storeu_ps(p[i] + base + LANES, finish_score(acc[i][1], s, mask1));
    }
}

/* The scores at p, from `first` to `end` (multiples of 16), become exponentials. Those that
 * are not attended are exp(-inf) = 0 and change no lane's sum. */
INLINE float exponentials(float *p, uint32_t first, uint32_t end, float *max_out) {
    __m256 max = _mm256_set1_ps(-INFINITY);
    for (uint32_t j = first; j < end; j += LANES) max = _mm256_max_ps(_mm256_loadu_ps(p + j), max);
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    *max_out = _mm_cvtss_f32(m);
    max = _mm256_set1_ps(*max_out);
    __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0;
    for (uint32_t j = first; j < end; j += ATTN_LANES) {
        __m256 e0 = fm8_exp(_mm256_sub_ps(_mm256_loadu_ps(p + j), max));
        __m256 e1 = fm8_exp(_mm256_sub_ps(_mm256_loadu_ps(p + j + LANES), max));
        _mm256_storeu_ps(p + j, e0);
        _mm256_storeu_ps(p + j + LANES, e1);
        sum0 = _mm256_add_ps(sum0, e0);
        sum1 = _mm256_add_ps(sum1, e1);
    }
    __m256 sum = _mm256_add_ps(sum0, sum1);
    __m128 l = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    l = _mm_add_ps(l, _mm_movehl_ps(l, l));
    l = _mm_add_ss(l, _mm_movehdup_ps(l));
    return _mm_cvtss_f32(l);
}

/* The exponentials of tile t take the scales of its values. Those that are not attended may
 * become NaN; they are not looked at again. */
INLINE void scale_tile(const struct attn_segment *s, uint32_t t, const int queries,
                       float p[ATTN_QUERIES][ATTN_SEGMENT]) {
    const uint8_t *scales = s->v[t] + kv_scales_offset(s->head_dim);
    for (uint32_t j = 0; j < KV_BLOCK_TOKENS; j += LANES) {
        __m256 scale = load8(scales, j, KV_F16);
        for (int i = 0; i < queries; i++) {
            float *at = p[i] + t * KV_BLOCK_TOKENS + j;
            _mm256_storeu_ps(at, _mm256_mul_ps(_mm256_loadu_ps(at), scale));
        }
    }
}

/* Columns d .. d + 15 of the result, for all queries. */
INLINE void weigh_chunk(const struct attn_segment *s, uint32_t d, const int queries,
                        const enum kv_type type, float p[ATTN_QUERIES][ATTN_SEGMENT], float *out) {
    __m256 acc[ATTN_QUERIES][2];
    for (int i = 0; i < queries; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (uint32_t j = s->first; j < s->end; j++) {
        const uint8_t *v = s->v[j / KV_BLOCK_TOKENS] + j % KV_BLOCK_TOKENS * s->v_stride;
        __m256 v0 = load8(v, d, type), v1 = load8(v, d + LANES, type);
#pragma GCC unroll 4
        for (int i = 0; i < queries; i++) {
            __m256 w = _mm256_set1_ps(p[i][j]);
            acc[i][0] = _mm256_fmadd_ps(w, v0, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(w, v1, acc[i][1]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < queries; i++) {
        _mm256_storeu_ps(out + (size_t)i * s->head_dim + d, acc[i][0]);
        _mm256_storeu_ps(out + (size_t)i * s->head_dim + d + LANES, acc[i][1]);
    }
}

/* The last columns of a head that is not a multiple of 16 wide. */
INLINE void weigh_one(const struct attn_segment *s, uint32_t d, const enum kv_type type,
                      const float *p, float *out) {
    float acc = 0.0f;
    for (uint32_t j = s->first; j < s->end; j++) {
        const uint8_t *v = s->v[j / KV_BLOCK_TOKENS] + j % KV_BLOCK_TOKENS * s->v_stride;
        acc = fmaf(p[j], load1(v, d, type), acc);
    }
    *out = acc;
}

INLINE void attend(const struct attn_segment *s, const int queries, const enum kv_type type,
                   struct attn_part *out) {
    float p[ATTN_QUERIES][ATTN_SEGMENT];
    uint32_t first_tile = s->first / KV_BLOCK_TOKENS;
    uint32_t end_tile = (s->end + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    for (uint32_t t = first_tile; t < end_tile; t++) score_tile(s, t, queries, type, p);
    for (int i = 0; i < queries; i++)
        out->sum[i] = exponentials(p[i], first_tile * KV_BLOCK_TOKENS, end_tile * KV_BLOCK_TOKENS,
                                   &out->max[i]);
    for (uint32_t t = first_tile; t < end_tile && type == KV_I8; t++) scale_tile(s, t, queries, p);
    uint32_t d = 0;
    for (; d + CHUNK <= s->head_dim; d += CHUNK) weigh_chunk(s, d, queries, type, p, out->out);
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

void avx2_attend(const struct attn_segment *s, struct attn_part *out) {
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

void avx2_attn_join(struct attn_part *into, const struct attn_part *part, uint32_t queries,
                    uint32_t head_dim) {
    for (uint32_t i = 0; i < queries; i++) {
        float max = into->max[i] > part->max[i] ? into->max[i] : part->max[i];
        float f1 = fm_exp(into->max[i] - max), f2 = fm_exp(part->max[i] - max);
        float *a = into->out + (size_t)i * head_dim;
        const float *b = part->out + (size_t)i * head_dim;
        into->max[i] = max;
        into->sum[i] = fmaf(part->sum[i], f2, into->sum[i] * f1);
        for (uint32_t d = 0; d < head_dim; d++) a[d] = fmaf(b[d], f2, a[d] * f1);
    }
}

void avx2_attn_finish(struct attn_part *part, uint32_t queries, uint32_t head_dim) {
    for (uint32_t i = 0; i < queries; i++)
        for (uint32_t d = 0; d < head_dim; d++) part->out[(size_t)i * head_dim + d] /= part->sum[i];
}
