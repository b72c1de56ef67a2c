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

#include "base/fmath_body.h"
#include "kernels/cpu/kernels_neon.h"
#include "kernels/cpu/kernels_portable.h"
#include "kernels/cpu/kernels_ref.h"

enum { LANES = 4, PARTS = Q8_BLOCK / LANES };
static const float F16_MAX = 65504.0f;

/* max(|v|, so far); a NaN is not greater and so does not count. */
static inline float32x4_t max_magnitude(float32x4_t v, float32x4_t so_far) {
    float32x4_t a = vabsq_f32(v);
    return vbslq_f32(vcgtq_f32(a, so_far), a, so_far);
}

/* To nearest even within -127 .. 127; the conversion makes 0 of a NaN and saturates. */
static inline int32x4_t round_to_int8(float32x4_t y) {
    int32x4_t q = vcvtnq_s32_f32(y);
    return vmaxq_s32(vminq_s32(q, vdupq_n_s32(127)), vdupq_n_s32(-127));
}

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
        largest = max_magnitude(v[i], largest);
    }
    float max = vmaxvq_f32(largest);
    max = max < FLT_MAX ? max : FLT_MAX;
    float inverse = max > 0.0f ? 127.0f / max : 0.0f;
    for (int i = 0; i < PARTS; i++) q[i] = round_to_int8(vmulq_n_f32(v[i], inverse));
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

/* a becomes a * c - b * s, b becomes a * s + b * c. */
static inline void turn(float32x4_t *a, float32x4_t *b, float32x4_t c, float32x4_t s) {
    float32x4_t x = *a, y = *b;
    *a = vfmaq_f32(vnegq_f32(vmulq_f32(y, s)), x, c);
    *b = vfmaq_f32(vmulq_f32(y, c), x, s);
}

/* Pairs i and i + rot/2. */
static uint32_t rope_neox(uint32_t pairs, const float *cosine, const float *sine, float *head) {
    uint32_t i = 0;
    for (; i + LANES <= pairs; i += LANES) {
        float32x4_t a = vld1q_f32(head + i), b = vld1q_f32(head + pairs + i);
        turn(&a, &b, vld1q_f32(cosine + i), vld1q_f32(sine + i));
        vst1q_f32(head + i, a);
        vst1q_f32(head + pairs + i, b);
    }
    return i;
}

/* Pairs 2i and 2i + 1. */
static uint32_t rope_adjacent(uint32_t pairs, const float *cosine, const float *sine, float *head) {
    uint32_t i = 0;
    for (; i + LANES <= pairs; i += LANES) {
        float32x4x2_t v = vld2q_f32(head + 2 * (size_t)i);
        turn(&v.val[0], &v.val[1], vld1q_f32(cosine + i), vld1q_f32(sine + i));
        vst2q_f32(head + 2 * (size_t)i, v);
    }
    return i;
}

static void neon_rope(const struct op_rope *r, const float *cosine, const float *sine,
                      float *head) {
    uint32_t pairs = r->rot_dims / 2;
    bool neox = r->style == ROPE_NEOX;
    uint32_t i =
        neox ? rope_neox(pairs, cosine, sine, head) : rope_adjacent(pairs, cosine, sine, head);
    for (; i < pairs; i++) {
        float *a = head + (neox ? i : 2 * i), *b = a + (neox ? pairs : 1);
        float x = *a, y = *b;
        *a = fmaf(x, cosine[i], -(y * sine[i]));
        *b = fmaf(x, sine[i], y * cosine[i]);
    }
}

static inline float32x4_t act4(enum act_kind kind, float32x4_t x) {
    switch (kind) {
    case ACT_SILU:
        return vec_silu(x);
    case ACT_GELU_TANH:
        return vec_gelu_tanh(x);
    default:
        return vec_gelu_erf(x);
    }
}

static void neon_act(enum act_kind kind, const float *gate, const float *up, uint32_t count,
                     float *y) {
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        float32x4_t a = act4(kind, vld1q_f32(gate + i));
        vst1q_f32(y + i, up ? vmulq_f32(a, vld1q_f32(up + i)) : a);
    }
    if (i == count) return;
    float rest[LANES] = {0};
    memcpy(rest, gate + i, (count - i) * sizeof(float));
    vst1q_f32(rest, act4(kind, vld1q_f32(rest)));
    for (uint32_t j = 0; i < count; i++, j++) y[i] = up ? rest[j] * up[i] : rest[j];
}

static inline float32x4_t softcap4(float32x4_t cap, float32x4_t x) {
    return vmulq_f32(cap, vec_tanh(vdivq_f32(x, cap)));
}

static void neon_softcap(float cap, uint32_t count, float *x) {
    uint32_t i = 0;
    float32x4_t c = vdupq_n_f32(cap);
    for (; i + LANES <= count; i += LANES) vst1q_f32(x + i, softcap4(c, vld1q_f32(x + i)));
    if (i == count) return;
    float rest[LANES] = {0};
    memcpy(rest, x + i, (count - i) * sizeof(float));
    vst1q_f32(rest, softcap4(c, vld1q_f32(rest)));
    memcpy(x + i, rest, (count - i) * sizeof(float));
}

/* The conversion rounds to nearest even and keeps f16's denormals: flush-to-zero (FPCR.FZ) does
 * not reach them, only FZ16 would, which stays off. */
static void store_f16(const float *k, const float *v, uint32_t head_dim, uint16_t *k_tile,
                      uint16_t *v_tile, uint32_t token) {
    uint16_t *v_row = v_tile + (size_t)token * head_dim;
    uint32_t d = 0;
    for (; d + LANES <= head_dim; d += LANES) {
        uint16_t halves[LANES];
        vst1_u16(halves, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(k + d))));
        vst1_u16(v_row + d, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(v + d))));
        for (uint32_t i = 0; i < LANES; i++) k_tile[(d + i) * KV_TILE_TOKENS + token] = halves[i];
    }
    for (; d < head_dim; d++) {
        k_tile[d * KV_TILE_TOKENS + token] = f16_from_f32(k[d]);
        v_row[d] = f16_from_f32(v[d]);
    }
}

/* Rows are padded to a whole vector: zeros change neither the scale nor anything that is kept. */
static float32x4_t load_padded(const float *x, uint32_t d, uint32_t count) {
    float rest[LANES] = {0};
    if (d + LANES <= count) return vld1q_f32(x + d);
    memcpy(rest, x + d, (count - d) * sizeof(float));
    return vld1q_f32(rest);
}

/* The least f16 not below m / 127. Positive halves are in the order of their bits. */
static uint16_t int8_scale(const float *x, uint32_t count) {
    float32x4_t largest = vdupq_n_f32(0.0f);
    for (uint32_t d = 0; d < count; d += LANES)
        largest = max_magnitude(load_padded(x, d, count), largest);
    float want = vmaxvq_f32(largest) / 127.0f;
    if (want >= F16_MAX) return f16_from_f32(F16_MAX);
    uint16_t half = f16_from_f32(want);
    return f16_to_f32(half) < want ? (uint16_t)(half + 1) : half;
}

static void store_int8(const float *x, uint32_t head_dim, size_t first, size_t stride,
                       uint32_t token, uint8_t *tile) {
    uint16_t half = int8_scale(x, head_dim);
    /* A scale of 0 stands for numbers that all become 0, as they do divided by infinity. */
    float32x4_t scale = vdupq_n_f32(half == 0 ? INFINITY : f16_to_f32(half));
    memcpy(tile + kv_scales_offset(head_dim) + token * sizeof(half), &half, sizeof(half));
    for (uint32_t d = 0; d < head_dim; d += LANES) {
        int32_t q[LANES];
        uint32_t count = head_dim - d < LANES ? head_dim - d : LANES;
        vst1q_s32(q, round_to_int8(vdivq_f32(load_padded(x, d, head_dim), scale)));
        for (uint32_t i = 0; i < count; i++) tile[first + (d + i) * stride] = (uint8_t)(int8_t)q[i];
    }
}

static void neon_kv_store(enum kv_type type, const float *k, const float *v, uint32_t head_dim,
                          uint8_t *k_tile, uint8_t *v_tile, uint32_t token) {
    if (type == KV_I8) {
        store_int8(k, head_dim, token, KV_TILE_TOKENS, token, k_tile);
        store_int8(v, head_dim, (size_t)token * head_dim, 1, token, v_tile);
    } else if (type == KV_F16) {
        store_f16(k, v, head_dim, (uint16_t *)(void *)k_tile, (uint16_t *)(void *)v_tile, token);
    } else {
        ref_kv_store(type, k, v, head_dim, k_tile, v_tile, token);
    }
}

#define ARM_KERNELS                                                                                \
    .norm = portable_norm, .quantise = neon_quantise, .rope = neon_rope, .act = neon_act,          \
    .add = ref_add, .softcap = neon_softcap, .kv_store = neon_kv_store, .attend = neon_attend,     \
    .attn_merge = portable_attn_merge, .attn_finish = portable_attn_finish

const struct cpu_kernels cpu_kernels_neon = {ARM_KERNELS, .panel = neon_panels};
const struct cpu_kernels cpu_kernels_dotprod = {ARM_KERNELS, .panel = dotprod_panels};
