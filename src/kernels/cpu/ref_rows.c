/* kernels/cpu/ref_rows.c - the row kernels straight from kernels/cpu/numerics.h. */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "kernels/cpu/kernels_ref.h"
#include "kernels/cpu/kv_range.h"
#include "tensor/fp8.h"

static float square_sum(const float *x, float mean, uint32_t count) {
    float lanes[NORM_LANES] = {0};
    for (uint32_t i = 0; i < count; i++) {
        float d = x[i] - mean;
        lanes[i % NORM_LANES] = fmaf(d, d, lanes[i % NORM_LANES]);
    }
    return sum_lanes(lanes);
}

static float mean_of(const float *x, uint32_t count) {
    float lanes[NORM_LANES] = {0};
    for (uint32_t i = 0; i < count; i++) lanes[i % NORM_LANES] += x[i];
    return sum_lanes(lanes) / (float)count;
}

static void ref_norm(const struct norm_args *n, const float *x, float *y) {
    uint32_t count = n->group;
    float mean = n->kind == NORM_LAYER ? mean_of(x, count) : 0.0f;
    float rate = 1.0f / sqrtf(square_sum(x, mean, count) / (float)count + n->eps);
    for (uint32_t i = 0; i < count; i++) {
        float unit = (x[i] - mean) * rate;
        y[i] = n->bias ? fmaf(unit, n->weight[i], n->bias[i]) : unit * n->weight[i];
    }
}

void ref_quantise(const float *x, uint32_t count, struct q8_out out) {
    q8_quantise_blocks(x, count / Q8_BLOCK, out);
}

void ref_rope(const struct op_rope *r, const float *cosine, const float *sine, float *head) {
    uint32_t pairs = r->rot_dims / 2;
    bool neox = r->style == ROPE_NEOX;
    for (uint32_t i = 0; i < pairs; i++) {
        float *a = head + (neox ? i : 2 * i), *b = a + (neox ? pairs : 1);
        float x = *a, y = *b;
        *a = fmaf(x, cosine[i], -(y * sine[i]));
        *b = fmaf(x, sine[i], y * cosine[i]);
    }
}

static float act_one(enum act_kind kind, float x) {
    switch (kind) {
    case ACT_SILU:
        return fm_silu(x);
    case ACT_GELU_TANH:
        return fm_gelu_tanh(x);
    default:
        return fm_gelu_erf(x);
    }
}

void ref_act(enum act_kind kind, const float *gate, const float *up, uint32_t count, float *y) {
    for (uint32_t i = 0; i < count; i++) {
        float a = act_one(kind, gate[i]);
        y[i] = up ? a * up[i] : a;
    }
}

void ref_add(const float *src, uint32_t count, float *dst) {
    for (uint32_t i = 0; i < count; i++) dst[i] += src[i];
}

void ref_softcap(float cap, uint32_t count, float *x) {
    for (uint32_t i = 0; i < count; i++) x[i] = cap * fm_tanh(x[i] / cap);
}

/* The least f16 not below m / 127. */
static uint16_t int8_scale(const float *x, uint32_t count) {
    float max = 0.0f;
    for (uint32_t i = 0; i < count; i++)
        if (fabsf(x[i]) > max) max = fabsf(x[i]);
    return half_not_below(max / 127.0f);
}

/* The comparisons are false for a NaN. */
static int8_t int8_of(float x, float scale) {
    float y = scale > 0.0f ? x / scale : 0.0f;
    if (y > 127.0f) return 127;
    if (y < -127.0f) return -127;
    return y == y ? (int8_t)(int32_t)rintf(y) : 0;
}

static void store_int8(const float *x, uint32_t head_dim, size_t first, size_t stride,
                       uint32_t token, uint8_t *tile) {
    uint16_t half = int8_scale(x, head_dim);
    float scale = f16_to_f32(half);
    memcpy(tile + kv_scales_offset(KV_I8, head_dim) + token * sizeof(half), &half, sizeof(half));
    for (uint32_t d = 0; d < head_dim; d++)
        tile[first + d * stride] = (uint8_t)int8_of(x[d], scale);
}

/* The comparisons are false for a NaN. */
static uint8_t int4_of(float x, float min, float scale) {
    float y = scale > 0.0f ? (x - min) / scale : 0.0f;
    if (y > 15.0f) return 15;
    return y > 0.0f ? (uint8_t)rintf(y) : 0;
}

/* The low code of a byte is written before its high one. */
static void store_int4(const float *x, uint32_t head_dim, uint32_t token, bool is_value,
                       uint8_t *tile) {
    float lo = INFINITY, hi = -INFINITY;
    size_t row = kv_row_bytes(KV_I4, head_dim), scales = kv_scales_offset(KV_I4, head_dim);
    for (uint32_t d = 0; d < head_dim; d++) {
        if (x[d] < lo) lo = x[d];
        if (x[d] > hi) hi = x[d];
    }
    struct int4_range r = int4_range(lo, hi);
    memcpy(tile + scales + token * sizeof(r.scale), &r.scale, sizeof(r.scale));
    memcpy(tile + scales + KV_MINIMA_OFFSET + token * sizeof(r.min), &r.min, sizeof(r.min));
    for (uint32_t d = 0; d < 2 * row; d++) {
        uint8_t code = d < head_dim ? int4_of(x[d], f16_to_f32(r.min), f16_to_f32(r.scale)) : 0;
        bool is_high = is_value ? kv_value_is_high(d) : d % 2;
        uint8_t *at = tile + (is_value ? token * row + kv_value_codes(d) : kv_key_codes(d) + token);
        *at = (uint8_t)(is_high ? *at | code << 4 : code);
    }
}

void ref_kv_hadamard(float *x, uint32_t head_dim) {
    uint32_t n = head_dim & (0 - head_dim);
    float factor = 1.0f / sqrtf((float)n);
    for (uint32_t h = 1; h < n; h *= 2)
        for (uint32_t i = 0; i < head_dim; i++) {
            if (i & h) continue;
            float a = x[i], b = x[i + h];
            x[i] = a + b;
            x[i + h] = a - b;
        }
    for (uint32_t i = 0; i < head_dim; i++) x[i] *= factor;
}

static void store_one(enum kv_type type, float value, size_t index, uint8_t *tile) {
    if (type == KV_F32) {
        memcpy(tile + index * sizeof(value), &value, sizeof(value));
    } else if (type == KV_F8) {
        tile[index] = fp8_from_f32(value);
    } else {
        uint16_t half = f16_from_f32(value);
        memcpy(tile + index * sizeof(half), &half, sizeof(half));
    }
}

void ref_kv_store(enum kv_type type, const float *k, const float *v, uint32_t head_dim,
                  uint8_t *k_tile, uint8_t *v_tile, uint32_t token) {
    if (type == KV_I8) {
        store_int8(k, head_dim, token, KV_TILE_TOKENS, token, k_tile);
        store_int8(v, head_dim, (size_t)token * head_dim, 1, token, v_tile);
        return;
    }
    if (type == KV_I4) {
        store_int4(k, head_dim, token, false, k_tile);
        store_int4(v, head_dim, token, true, v_tile);
        return;
    }
    for (uint32_t d = 0; d < head_dim; d++) {
        store_one(type, k[d], (size_t)d * KV_TILE_TOKENS + token, k_tile);
        store_one(type, v[d], (size_t)token * head_dim + d, v_tile);
    }
}

/* Attention and products have drivers of their own in ref_attention.c and ref_matmul.c. */
const struct cpu_kernels cpu_kernels_ref = {
    .norm = ref_norm,
    .quantise = ref_quantise,
    .rope = ref_rope,
    .act = ref_act,
    .add = ref_add,
    .softcap = ref_softcap,
    .kv_hadamard = ref_kv_hadamard,
    .kv_store = ref_kv_store,
};
