/* kernels/cpu/rows_neon.c - the row kernels for NEON, and the kernels of the two Arm tables.
 *
 * The operations and their order are those of ref_rows.c. Kernels whose plain loops the compiler
 * turns into NEON by itself, which every 64-bit Arm has, are taken from the portable table. What
 * does not fill a vector goes through a padded copy of one vector.
 */
#include <arm_neon.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/vec_neon.h"

#include "kernels/cpu/kernels_neon.h"
#include "kernels/cpu/kernels_portable.h"
#include "kernels/cpu/kernels_ref.h"
#include "kernels/cpu/rows_body.h"

enum { LANES = VEC_LANES, PARTS = Q8_BLOCK / LANES };

static inline int8x16_t narrow(const int32x4_t q[4]) {
    int16x8_t low = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
    int16x8_t high = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
    return vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}

static void quantise_block(const float *x, uint32_t b, struct q8_out out) {
    float32x4_t v[PARTS], largest = vdupq_n_f32(0.0f);
    int32x4_t q[PARTS];
    for (int i = 0; i < PARTS; i++) {
        v[i] = vld1q_f32(x + LANES * i);
        largest = vec_max(vec_abs(v[i]), largest); /* a NaN does not count */
    }
    float max = vmaxvq_f32(largest);
    max = max < FLT_MAX ? max : FLT_MAX;
    float inverse = max > 0.0f ? 127.0f / max : 0.0f;
    for (int i = 0; i < PARTS; i++) q[i] = vec_round_int8(vmulq_n_f32(v[i], inverse));
    int8x16_t first = narrow(q), second = narrow(q + 4);
    vst1q_s8(out.q + (size_t)b * Q8_BLOCK, first);
    vst1q_s8(out.q + (size_t)b * Q8_BLOCK + 16, second);
    int32_t low = vaddlvq_s8(first), high = vaddlvq_s8(second);
    float scale = max / 127.0f;
    out.scale[b] = scale;
    out.isum[b] = low + high;
    out.dsum[b] = scale * (float)(low + high);
    out.dsum16[2 * b] = scale * (float)low;
    out.dsum16[2 * b + 1] = scale * (float)high;
}

static void neon_quantise(const float *x, uint32_t count, struct q8_out out) {
    for (uint32_t b = 0; b < count / Q8_BLOCK; b++)
        quantise_block(x + (size_t)b * Q8_BLOCK, b, out);
}

/* The pairs 2i and 2i + 1, as many as fill vectors; returns how many. */
static uint32_t rope_adjacent(uint32_t pairs, const float *cosine, const float *sine, float *head) {
    uint32_t i = 0;
    for (; i + LANES <= pairs; i += LANES) {
        float32x4x2_t v = vld2q_f32(head + 2 * (size_t)i);
        rotate(&v.val[0], &v.val[1], vld1q_f32(cosine + i), vld1q_f32(sine + i));
        vst2q_f32(head + 2 * (size_t)i, v);
    }
    return i;
}

static void neon_rope(const struct op_rope *r, const float *cosine, const float *sine,
                      float *head) {
    uint32_t pairs = r->rot_dims / 2;
    uint32_t done = r->style == ROPE_NEOX ? rope_neox(pairs, cosine, sine, head)
                                          : rope_adjacent(pairs, cosine, sine, head);
    rope_rest(r, done, cosine, sine, head);
}

static void neon_act(enum act_kind kind, const float *gate, const float *up, uint32_t count,
                     float *y) {
    act_row(kind, gate, up, count, y);
}

static void neon_softcap(float cap, uint32_t count, float *x) { softcap_row(cap, count, x); }

/* Positive halves are in the order of their bits. */
static uint16_t f16_above(float x) {
    uint16_t half = f16_from_f32(x);
    return f16_to_f32(half) < x ? (uint16_t)(half + 1) : half;
}

/* A product with 1 or -1 is exact, so the sum is rounded once. */
VEC_INLINE vec vec_hadamard(vec v, const uint32_t h) {
    static const float signs[2][VEC_LANES] = {{1, -1, 1, -1}, {1, 1, -1, -1}};
    if (h == 1) return vec_fma(v, vec_load(signs[0]), vrev64q_f32(v));
    return vec_fma(v, vec_load(signs[1]), vextq_f32(v, v, 2));
}

#include "kernels/cpu/kv_store_body.h"
#include "kernels/cpu/kv_hadamard_body.h"
#include "kernels/cpu/kv_int4_body.h"

static void neon_kv_hadamard(float *x, uint32_t head_dim) { hadamard_head(x, head_dim); }

static float neon_kv_smooth(const float *q, const float *scale, const float *mean,
                            uint32_t head_dim, float *out) {
    return int4_smooth(q, scale, mean, head_dim, out);
}

static void neon_kv_query(float *q, uint32_t head_dim, struct int4_query out) {
    int4_query(q, head_dim, out);
}

static void neon_kv_store_int4(float *x, float *room, const float *feedback, uint32_t head_dim,
                               bool is_value, uint8_t *tile, uint32_t token) {
    int4_store(x, room, feedback, head_dim, is_value, tile, token);
}

static void neon_kv_store(enum kv_type type, const float *k, const float *v, uint32_t head_dim,
                          uint8_t *k_tile, uint8_t *v_tile, uint32_t token) {
    if (type == KV_I8) {
        store_token_int8(k, v, head_dim, k_tile, v_tile, token);
    } else if (type == KV_F16) {
        store_f16(k, v, head_dim, (uint16_t *)(void *)k_tile, (uint16_t *)(void *)v_tile, token);
    } else {
        ref_kv_store(type, k, v, head_dim, k_tile, v_tile, token);
    }
}

#define ARM_KERNELS                                                                                \
    .norm = portable_norm, .quantise = neon_quantise, .rope = neon_rope, .act = neon_act,          \
    .add = ref_add, .softcap = neon_softcap, .kv_hadamard = neon_kv_hadamard,                      \
    .kv_smooth = neon_kv_smooth, .kv_query = neon_kv_query, .kv_store_int4 = neon_kv_store_int4,   \
    .kv_store = neon_kv_store, .attend = neon_attend, .attn_merge = portable_attn_merge,           \
    .attn_finish = portable_attn_finish

const struct cpu_kernels cpu_kernels_neon = {ARM_KERNELS, .panel = neon_panels};
const struct cpu_kernels cpu_kernels_dotprod = {ARM_KERNELS, .panel = dotprod_panels};
