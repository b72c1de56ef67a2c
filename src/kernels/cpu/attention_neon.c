/* kernels/cpu/attention_neon.c - one segment of attention for queries that share a KV
 * head, up to six at a time, NEON.
 *
 * A tile's 16 keys are four vectors of scores for each query; keys and values are read and
 * widened once for all queries. Tokens that a query does not attend to may hold anything: their
 * scores are replaced by minus infinity, and their values never weighed.
 */
#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/attn_reach.h"
#include "kernels/cpu/fmath_neon.h"
#include "kernels/cpu/kernels_neon.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 4, PARTS = KV_TILE_TOKENS / LANES, CHUNK = PARTS * LANES };

_Static_assert((int)ATTN_LANES == (int)CHUNK, "the sums of exponentials are four vectors");

/* Elements i .. i + 15 of a run of the cache's numbers. */
INLINE void load16(const uint8_t *p, size_t i, const enum kv_type type, float32x4_t out[PARTS]) {
    if (type == KV_I8) {
        int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p + i));
        int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
        out[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
        out[1] = vcvtq_f32_s32(vmovl_high_s16(low));
        out[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
        out[3] = vcvtq_f32_s32(vmovl_high_s16(high));
    } else if (type == KV_F16) {
        float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(p + 2 * i));
        float16x8_t high = vreinterpretq_f16_u8(vld1q_u8(p + 2 * i + 16));
        out[0] = vcvt_f32_f16(vget_low_f16(low));
        out[1] = vcvt_high_f32_f16(low);
        out[2] = vcvt_f32_f16(vget_low_f16(high));
        out[3] = vcvt_high_f32_f16(high);
    } else {
        for (int c = 0; c < PARTS; c++)
            out[c] = vreinterpretq_f32_u8(vld1q_u8(p + 4 * i + 16 * (size_t)c));
    }
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
INLINE uint32x4_t attended(uint32_t base, uint32_t first, uint32_t end) {
    static const uint32_t lanes[LANES] = {0, 1, 2, 3};
    uint32x4_t at = vaddq_u32(vdupq_n_u32(base), vld1q_u32(lanes));
    return vandq_u32(vcgeq_u32(at, vdupq_n_u32(first)), vcltq_u32(at, vdupq_n_u32(end)));
}

/* The products of all queries with the keys of tile t, to p[query][16 * t]. */
INLINE void multiply_keys(const struct attn_segment *s, uint32_t t, const int queries,
                          const enum kv_type type, float p[ATTN_FEW][ATTN_SEGMENT]) {
    float32x4_t acc[ATTN_FEW][PARTS], keys[PARTS];
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int c = 0; c < PARTS; c++) acc[i][c] = vdupq_n_f32(0.0f);
    for (uint32_t d = 0; d < s->head_dim; d++) {
        load16(s->k[t], (size_t)d * KV_TILE_TOKENS, type, keys);
#pragma GCC unroll 6
        for (int i = 0; i < queries; i++) {
            float q = s->query[i].q[d];
#pragma GCC unroll 4
            for (int c = 0; c < PARTS; c++) acc[i][c] = vfmaq_n_f32(acc[i][c], keys[c], q);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int c = 0; c < PARTS; c++) vst1q_f32(p[i] + t * KV_TILE_TOKENS + c * LANES, acc[i][c]);
}

/* The products of one query with keys j .. j + 3, as scores. `scales` are those of the keys. */
INLINE float32x4_t score(const struct attn_segment *s, const struct attn_query *q, uint32_t j,
                         float32x4_t scales, float32x4_t x) {
    if (s->type == KV_I8) x = vmulq_f32(x, scales);
    x = vmulq_n_f32(x, s->scale);
    if (s->softcap > 0.0f) {
        float32x4_t cap = vdupq_n_f32(s->softcap);
        x = vmulq_f32(cap, fm4_tanh(vdivq_f32(x, cap)));
    }
    return vbslq_f32(attended(j, q->first, q->end), x, vdupq_n_f32(-INFINITY));
}

/* The larger, and b if a is no number. */
INLINE float32x4_t larger(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }

/* One query's products at p, of the tiles from `first` to `end`, as scores; the result is the
 * largest of them in all lanes. */
static float32x4_t scores_of(const struct attn_segment *s, const struct attn_query *q,
                             uint32_t first, uint32_t end, float *p) {
    float32x4_t max = vdupq_n_f32(-INFINITY), scales[PARTS];
    for (int c = 0; c < PARTS; c++) scales[c] = vdupq_n_f32(1.0f);
    for (uint32_t t = first; t < end; t++) {
        if (s->type == KV_I8) load16(s->k[t] + kv_scales_offset(s->head_dim), 0, KV_F16, scales);
        for (int c = 0; c < PARTS; c++) {
            uint32_t j = t * KV_TILE_TOKENS + (uint32_t)(c * LANES);
            float32x4_t x = score(s, q, j, scales[c], vld1q_f32(p + j));
            vst1q_f32(p + j, x);
            max = larger(x, max);
        }
    }
    max = larger(vextq_f32(max, max, 2), max);
    max = larger(vextq_f32(max, max, 1), max);
    return vdupq_laneq_f32(max, 0);
}

/* One query's products at p, of the tiles from `first` to `end`, become what its values are
 * weighed with: exponentials, times the values' scales where the cache has them. Tokens that
 * are not attended to are exp(-inf) = 0 and change no lane's sum; a scale may make them NaN,
 * but they are not looked at again. */
static void weights_of(const struct attn_segment *s, const struct attn_query *q, uint32_t first,
                       uint32_t end, float *p, struct attn_part *out) {
    float32x4_t max = scores_of(s, q, first, end, p), sum[PARTS], scales[PARTS];
    for (int c = 0; c < PARTS; c++) sum[c] = scales[c] = vdupq_n_f32(0.0f);
    for (uint32_t t = first; t < end; t++) {
        if (s->type == KV_I8) load16(s->v[t] + kv_scales_offset(s->head_dim), 0, KV_F16, scales);
#pragma GCC unroll 4
        for (int c = 0; c < PARTS; c++) {
            float *at = p + t * KV_TILE_TOKENS + c * LANES;
            float32x4_t e = fm4_exp(vsubq_f32(vld1q_f32(at), max));
            sum[c] = vaddq_f32(sum[c], e);
            vst1q_f32(at, s->type == KV_I8 ? vmulq_f32(e, scales[c]) : e);
        }
    }
    float32x4_t four = vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    out->max = vgetq_lane_f32(max, 0);
    out->sum = vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* Adds the values of `tokens` in columns d .. d + 15 to the results of all queries. */
INLINE void weigh_chunk(const struct attn_segment *s, struct span tokens, uint32_t d,
                        const int queries, const enum kv_type type, float p[][ATTN_SEGMENT],
                        struct attn_part *out) {
    float32x4_t acc[ATTN_FEW][PARTS], values[PARTS];
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int c = 0; c < PARTS; c++) acc[i][c] = vld1q_f32(out[i].out + d + c * LANES);
    for (uint32_t j = tokens.first; j < tokens.end; j++) {
        const uint8_t *v = s->v[j / KV_TILE_TOKENS] + j % KV_TILE_TOKENS * s->v_stride;
        load16(v, d, type, values);
#pragma GCC unroll 6
        for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
            for (int c = 0; c < PARTS; c++) acc[i][c] = vfmaq_n_f32(acc[i][c], values[c], p[i][j]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
        for (int c = 0; c < PARTS; c++) vst1q_f32(out[i].out + d + c * LANES, acc[i][c]);
}

/* One of the last columns of a head that is not a multiple of 16 wide. */
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
    uint32_t d = 0;
    for (; d + CHUNK <= s->head_dim; d += CHUNK) weigh_chunk(s, tokens, d, queries, type, p, out);
    for (; d < s->head_dim; d++)
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
    uint32_t first = r.any.first / KV_TILE_TOKENS;
    uint32_t end = (r.any.end + KV_TILE_TOKENS - 1) / KV_TILE_TOKENS;
    for (uint32_t t = first; t < end; t++) multiply_keys(s, t, queries, type, p);
    for (int i = 0; i < queries; i++) {
        const struct attn_query *q = &s->query[i];
        weights_of(s, q, first, end, p[i], &out[i]);
        memset(out[i].out, 0, s->head_dim * sizeof(float));
        weigh_alone(s, attn_before(q, &r), p + i, out + i);
    }
    weigh(s, r.all, queries, type, p, out);
    for (int i = 0; i < queries; i++) weigh_alone(s, attn_after(&s->query[i], &r), p + i, out + i);
}

ATTEND_KERNEL(neon_attend)
