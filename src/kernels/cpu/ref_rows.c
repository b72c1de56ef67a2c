/* kernels/cpu/ref_rows.c - the row kernels straight from kernels/cpu/numerics.h. */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "graph/key_smoothing.h"
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

/* The squared error of a group's codes, in units of one step of `size`. */
static float group_error(const float *t, uint32_t count, float size, int offset) {
    float lanes[SUM_LANES] = {0}, inverse = 1.0f / size;
    for (uint32_t i = 0; i < count; i++) {
        float x = t[i] * inverse, e = int4_error(x, int4_code(x, offset), offset);
        lanes[i % SUM_LANES] = fmaf(e, e, lanes[i % SUM_LANES]);
    }
    return sum_lanes(lanes) * size * size;
}

static struct int4_group choose_group(const float *t, uint32_t count, float unit) {
    struct int4_group best = {0, 0};
    float lo = INFINITY, hi = -INFINITY, least = INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        if (t[i] < lo) lo = t[i];
        if (t[i] > hi) hi = t[i];
    }
    int top = int4_largest_step(int4_reach(lo, hi), unit);
    for (int step = top; step > 0 && step + 1 >= top; step--) {
        float size = unit * (float)step;
        int middle = int4_middle_offset((lo + hi) * 0.5f * (1.0f / size));
        for (int o = middle - 1; o <= middle + 1; o++) {
            struct int4_group g = {step, int4_offset_within(o)};
            float error = group_error(t, count, size, g.offset);
            if (error < least || best.step == 0) {
                least = error;
                best = g;
            }
        }
    }
    return best;
}

/* The least unit with which every group has a step. */
static uint8_t choose_unit(const float *x, uint32_t head_dim) {
    float widest = 0.0f;
    for (uint32_t d = 0; d < head_dim; d += kv_group_dims(head_dim)) {
        float lo = INFINITY, hi = -INFINITY;
        for (uint32_t i = d; i < head_dim && i < d + kv_group_dims(head_dim); i++) {
            if (x[i] < lo) lo = x[i];
            if (x[i] > hi) hi = x[i];
        }
        if (int4_reach(lo, hi) > widest) widest = int4_reach(lo, hi);
    }
    return int4_unit_above(widest / (float)INT4_STEPS);
}

static void put_code(uint8_t *tile, uint32_t head_dim, uint32_t token, bool is_value, uint32_t d,
                     uint8_t code) {
    bool is_high = is_value ? kv_value_is_high(d) : kv_key_is_high(d);
    uint8_t *at = tile + (is_value ? token * kv_row_bytes(KV_I4, head_dim) + kv_value_codes(d)
                                   : kv_key_codes(d) + (size_t)token * KV_KEY_STRIDE);
    *at = (uint8_t)(is_high ? (*at & 15) | code << 4 : (*at & 0xf0) | code);
}

/* `x` becomes what is kept, `t` what it should be in view of the errors of those behind. */
void ref_kv_store_int4(float *x, float *t, const float *feedback, uint32_t head_dim, bool is_value,
                       uint8_t *tile, uint32_t token) {
    const uint32_t stride = kv_feedback_stride(head_dim), dims = kv_group_dims(head_dim);
    for (uint32_t d = 0; d < head_dim; d++) t[d] = x[d] = int4_limited(x[d]);
    uint8_t unit = choose_unit(x, head_dim);
    tile[kv_scales_offset(KV_I4, head_dim) + token] = unit;
    for (uint32_t g = kv_groups_of_head(head_dim); g-- > 0;) {
        uint32_t first = g * dims, end = first + dims < head_dim ? first + dims : head_dim;
        struct int4_group group = choose_group(t + first, end - first, int4_unit(unit));
        float size = int4_unit(unit) * (float)group.step, inverse = 1.0f / size;
        tile[kv_group_offset(head_dim, g) + token] = int4_group_byte(group);
        for (uint32_t d = end; d-- > first;) {
            float c = int4_code(t[d] * inverse, group.offset);
            float error = fmaf(-size, 2.0f * c - (float)(16 + group.offset), x[d]);
            put_code(tile, head_dim, token, is_value, d, (uint8_t)c);
            for (uint32_t i = 0; feedback && i < d; i++)
                t[i] = fmaf(feedback[(size_t)d * stride + i], error, t[i]);
        }
    }
    for (uint32_t d = head_dim; d < kv_padded_dims(head_dim); d++)
        put_code(tile, head_dim, token, is_value, d, 0);
}

float ref_kv_smooth(const float *q, const float *scale, const float *mean, uint32_t head_dim,
                    float *out) {
    float lanes[SUM_LANES] = {0};
    for (uint32_t d = 0; d < head_dim; d++) {
        out[d] = q[d] * scale[d];
        lanes[d % SUM_LANES] = fmaf(q[d], mean[d], lanes[d % SUM_LANES]);
    }
    return sum_lanes(lanes);
}

void ref_kv_query(float *q, uint32_t head_dim, struct int4_query out) {
    float most = 0.0f, broken = 0.0f;
    for (uint32_t d = 0; d < head_dim; d++) {
        if (fabsf(q[d]) > most) most = fabsf(q[d]);
        broken += q[d] * 0.0f;
    }
    float scale = most / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    memset(out.sums, 0, kv_groups_of_head(head_dim) * sizeof(out.sums[0]));
    memset(out.codes, 0, kv_padded_dims(head_dim));
    for (uint32_t d = 0; d < head_dim; d++) {
        out.codes[d] = int8_of(q[d] * inverse, 1.0f);
        out.sums[d / kv_group_dims(head_dim)] += out.codes[d];
    }
    *out.scale = scale + broken;
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
    .kv_smooth = ref_kv_smooth,
    .kv_query = ref_kv_query,
    .kv_store_int4 = ref_kv_store_int4,
    .kv_store = ref_kv_store,
};
