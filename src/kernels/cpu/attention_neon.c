/* kernels/cpu/attention_neon.c - one segment of attention for up to four queries that share
 * a KV head, NEON.
 *
 * A tile's 16 keys are four vectors of scores for each query; keys and values are read and
 * widened once for all queries. Tokens outside [first, end) may hold anything: their scores
 * are replaced by minus infinity, and their values are never read.
 */
#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/fmath_neon.h"
#include "kernels/cpu/kernels_neon.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 4, PARTS = KV_BLOCK_TOKENS / LANES, CHUNK = PARTS * LANES };

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

INLINE float32x4_t finish_score(float32x4_t acc, const struct attn_segment *s, uint32x4_t mask) {
    acc = vmulq_n_f32(acc, s->scale);
    if (s->softcap > 0.0f) {
        float32x4_t cap = vdupq_n_f32(s->softcap);
        acc = vmulq_f32(cap, fm4_tanh(vdivq_f32(acc, cap)));
    }
    return vbslq_f32(mask, acc, vdupq_n_f32(-INFINITY));
}

/* The scores of tile t into p[query][16 * t ..]. */
INLINE void score_tile(const struct attn_segment *s, uint32_t t, const int queries,
                       const enum kv_type type, float p[ATTN_QUERIES][ATTN_SEGMENT]) {
    float32x4_t acc[ATTN_QUERIES][PARTS], keys[PARTS], scales[PARTS];
    const uint8_t *k = s->k[t];
    for (int i = 0; i < queries; i++)
        for (int c = 0; c < PARTS; c++) acc[i][c] = vdupq_n_f32(0.0f);
    for (uint32_t d = 0; d < s->head_dim; d++) {
        load16(k, (size_t)d * KV_BLOCK_TOKENS, type, keys);
#pragma GCC unroll 4
        for (int i = 0; i < queries; i++) {
            float q = s->q[(size_t)i * s->head_dim + d];
#pragma GCC unroll 4
            for (int c = 0; c < PARTS; c++) acc[i][c] = vfmaq_n_f32(acc[i][c], keys[c], q);
        }
    }
    if (type == KV_I8) {
        load16(k + kv_scales_offset(s->head_dim), 0, KV_F16, scales);
        for (int i = 0; i < queries; i++)
            for (int c = 0; c < PARTS; c++) acc[i][c] = vmulq_f32(acc[i][c], scales[c]);
    }
    for (int c = 0; c < PARTS; c++) {
        uint32_t at = t * KV_BLOCK_TOKENS + (uint32_t)(c * LANES);
        uint32x4_t mask = attended(at, s->first, s->end);
        for (int i = 0; i < queries; i++) vst1q_f32(p[i] + at, finish_score(acc[i][c], s, mask));
    }
}

/* The larger, and b if a is no number. */
INLINE float32x4_t larger(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }

/* The scores at p, from `first` to `end` (multiples of 16), become exponentials. Those that
 * are not attended are exp(-inf) = 0 and change no lane's sum. */
INLINE float exponentials(float *p, uint32_t first, uint32_t end, float *max_out) {
    float32x4_t max = vdupq_n_f32(-INFINITY), sum[PARTS];
    for (uint32_t j = first; j < end; j += LANES) max = larger(vld1q_f32(p + j), max);
    max = larger(vextq_f32(max, max, 2), max);
    max = larger(vextq_f32(max, max, 1), max);
    *max_out = vgetq_lane_f32(max, 0);
    max = vdupq_laneq_f32(max, 0);
    for (int c = 0; c < PARTS; c++) sum[c] = vdupq_n_f32(0.0f);
    for (uint32_t j = first; j < end; j += CHUNK) {
#pragma GCC unroll 4
        for (int c = 0; c < PARTS; c++) {
            float *at = p + j + c * LANES;
            float32x4_t e = fm4_exp(vsubq_f32(vld1q_f32(at), max));
            vst1q_f32(at, e);
            sum[c] = vaddq_f32(sum[c], e);
        }
    }
    float32x4_t four = vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* The exponentials of tile t take the scales of its values. Those that are not attended may
 * become NaN; they are not looked at again. */
INLINE void scale_tile(const struct attn_segment *s, uint32_t t, const int queries,
                       float p[ATTN_QUERIES][ATTN_SEGMENT]) {
    float32x4_t scales[PARTS];
    load16(s->v[t] + kv_scales_offset(s->head_dim), 0, KV_F16, scales);
    for (int i = 0; i < queries; i++)
        for (int c = 0; c < PARTS; c++) {
            float *at = p[i] + t * KV_BLOCK_TOKENS + c * LANES;
            vst1q_f32(at, vmulq_f32(vld1q_f32(at), scales[c]));
        }
}

/* Columns d .. d + 15 of the result, for all queries. */
INLINE void weigh_chunk(const struct attn_segment *s, uint32_t d, const int queries,
                        const enum kv_type type, float p[ATTN_QUERIES][ATTN_SEGMENT], float *out) {
    float32x4_t acc[ATTN_QUERIES][PARTS], values[PARTS];
    for (int i = 0; i < queries; i++)
        for (int c = 0; c < PARTS; c++) acc[i][c] = vdupq_n_f32(0.0f);
    for (uint32_t j = s->first; j < s->end; j++) {
        const uint8_t *v = s->v[j / KV_BLOCK_TOKENS] + j % KV_BLOCK_TOKENS * s->v_stride;
        load16(v, d, type, values);
#pragma GCC unroll 4
        for (int i = 0; i < queries; i++)
#pragma GCC unroll 4
            for (int c = 0; c < PARTS; c++) acc[i][c] = vfmaq_n_f32(acc[i][c], values[c], p[i][j]);
    }
    for (int i = 0; i < queries; i++)
        for (int c = 0; c < PARTS; c++)
            vst1q_f32(out + (size_t)i * s->head_dim + d + c * LANES, acc[i][c]);
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

void neon_attend(const struct attn_segment *s, struct attn_part *out) {
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
