/* kernels/cpu/attention_neon.c - attention for NEON: kernels/cpu/attention_body.h on vectors of
 * four floats. Six queries and one tile have 24 sums in registers. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/vec_neon.h"

#include "kernels/cpu/kernels_neon.h"
#include "kernels/cpu/kv_range.h"
#include "tensor/fp8.h"

enum { ATTN_WIDE_QUERIES = 0, ATTN_PREFETCHES = 0 };

/* Elements i .. i + 7. */
VEC_INLINE void load8(const uint8_t *p, size_t i, const enum kv_type type, vec out[2]) {
    if (type == KV_I8) {
        int16x8_t low = vmovl_s8(vld1_s8((const int8_t *)p + i));
        out[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
        out[1] = vcvtq_f32_s32(vmovl_high_s16(low));
    } else if (type == KV_F8) { /* fp8_half_bits: the sign fills the bit below it */
        int16x8_t wide = vshll_n_s8(vld1_s8((const int8_t *)p + i), 7);
        float16x8_t half = vreinterpretq_f16_s16(vandq_s16(wide, vdupq_n_s16((int16_t)0xbf80)));
        out[0] = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(half)), FP8_HALF_FACTOR);
        out[1] = vmulq_n_f32(vcvt_high_f32_f16(half), FP8_HALF_FACTOR);
    } else if (type == KV_F16) {
        float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(p + 2 * i));
        out[0] = vcvt_f32_f16(vget_low_f16(low));
        out[1] = vcvt_high_f32_f16(low);
    } else {
        out[0] = vreinterpretq_f32_u8(vld1q_u8(p + 4 * i));
        out[1] = vreinterpretq_f32_u8(vld1q_u8(p + 4 * i + 16));
    }
}

VEC_INLINE void attn_load(const uint8_t *p, size_t i, const enum kv_type type, const int vectors,
                          vec *out) {
    load8(p, i, type, out);
    if (vectors > 2) load8(p, i + 8, type, out + 2);
}

VEC_INLINE void attn_load_codes(const uint8_t *p, const int is_high, const int vectors, vec *out) {
#pragma GCC unroll 2
    for (int c = 0; c < vectors; c += 2) {
        uint8x8_t pairs = vld1_u8(p + (size_t)c * VEC_LANES);
        uint8x8_t codes = is_high ? vshr_n_u8(pairs, 4) : vand_u8(pairs, vdup_n_u8(15));
        uint16x8_t wide = vmovl_u8(codes);
        out[c] = vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide)));
        out[c + 1] = vcvtq_f32_u32(vmovl_high_u16(wide));
    }
}

VEC_INLINE vec attn_load_sums(const int32_t *p) { return vcvtq_f32_s32(vld1q_s32(p)); }

VEC_INLINE void attn_load_units(const uint8_t *p, vec out[4]) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        uint16x8_t wide = vmovl_u8(vld1_u8(p + 8 * i));
        uint32x4_t low = vshlq_n_u32(vmovl_u16(vget_low_u16(wide)), INT4_UNIT_SHIFT);
        uint32x4_t high = vshlq_n_u32(vmovl_high_u16(wide), INT4_UNIT_SHIFT);
        out[2 * i] = vreinterpretq_f32_u32(vaddq_u32(low, vdupq_n_u32(int4_unit_first)));
        out[2 * i + 1] = vreinterpretq_f32_u32(vaddq_u32(high, vdupq_n_u32(int4_unit_first)));
    }
}

/* Plain loops, of which the compiler makes widening products. */
static void multiply_codes(const struct attn_segment *s, const uint8_t *tile,
                           const struct attn_query *q, int32_t sums[KV_TILE_TOKENS]) {
    const uint32_t width = kv_group_dims(s->head_dim);
    memset(sums, 0, KV_TILE_TOKENS * sizeof(*sums));
    for (uint32_t n = 0; n < kv_groups_of_head(s->head_dim); n++) {
        int32_t dots[KV_TILE_TOKENS] = {0};
        for (uint32_t d = n * width; d < (n + 1) * width; d += KV_KEY_DIMS) {
            const uint8_t *at = tile + kv_key_codes(d);
            for (int t = 0; t < KV_TILE_TOKENS; t++)
                for (int i = 0; i < KV_KEY_STRIDE; i++) {
                    uint8_t pair = at[t * KV_KEY_STRIDE + i];
                    dots[t] += q->codes[d + (uint32_t)i] * (pair & 15);
                    dots[t] += q->codes[d + KV_KEY_STRIDE + (uint32_t)i] * (pair >> 4);
                }
        }
        const uint8_t *groups = tile + kv_group_offset(s->head_dim, n);
        for (int t = 0; t < KV_TILE_TOKENS; t++) {
            struct int4_group g = int4_group_of(groups[t]);
            sums[t] += g.step * (2 * dots[t] - (16 + g.offset) * q->sums[n]);
        }
    }
}

VEC_INLINE void attn_multiply_codes(const struct attn_segment *s, const uint8_t *tile,
                                    const int queries, int32_t sums[][KV_TILE_TOKENS]) {
    for (int i = 0; i < queries; i++) multiply_codes(s, tile, &s->query[i], sums[i]);
}

VEC_INLINE void attn_prefetch(const uint8_t *p) { (void)p; }

#include "kernels/cpu/attention_body.h"

ATTEND_KERNEL(neon_attend)
