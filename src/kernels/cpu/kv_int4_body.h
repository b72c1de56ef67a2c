/* kernels/cpu/kv_int4_body.h - converts a key, a value and a query for KV_I4 (graph/kv_space.h), in
 * loops over INT4_LANES numbers, which the compiler turns into vector instructions.
 *
 * Include <math.h>, <string.h> and a vec_X.h before this file.
 * Thread: any.
 */
#ifndef KERNELS_CPU_KV_INT4_BODY_H
#define KERNELS_CPU_KV_INT4_BODY_H

#include "graph/key_smoothing.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/kv_range.h"

#define INT4_INLINE static inline __attribute__((always_inline))

enum { INT4_LANES = SUM_LANES, INT4_GROUP_MAX = 32 };

INT4_INLINE float least_lane(float x[INT4_LANES]) {
    for (int width = INT4_LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) x[i] = x[i + width] < x[i] ? x[i + width] : x[i];
    return x[0];
}

struct int4_span {
    float lo, hi;
};

/* Of `count` numbers, at least one. */
INT4_INLINE struct int4_span int4_span_of(const float *x, uint32_t count) {
    float least[INT4_LANES], most[INT4_LANES]; /* the second with its sign turned */
    for (int i = 0; i < INT4_LANES; i++) {
        least[i] = x[(uint32_t)i < count ? i : 0];
        most[i] = -least[i];
    }
    for (uint32_t d = INT4_LANES; d < count; d++) {
        uint32_t i = d % INT4_LANES;
        least[i] = x[d] < least[i] ? x[d] : least[i];
        most[i] = -x[d] < most[i] ? -x[d] : most[i];
    }
    return (struct int4_span){least_lane(least), -least_lane(most)};
}

/* Numbers of a group, over the size of a step; `live` is 0 for those behind its end, else 1. */
struct int4_numbers {
    float x[INT4_GROUP_MAX], live[INT4_GROUP_MAX];
    uint32_t count; /* whole lanes */
};

INT4_INLINE float int4_group_error(const struct int4_numbers *n, float size, int offset) {
    float lanes[INT4_LANES] = {0};
    for (uint32_t d = 0; d < n->count; d += INT4_LANES)
        for (uint32_t i = 0; i < INT4_LANES; i++) {
            float x = n->x[d + i], e = int4_error(x, int4_code(x, offset), offset);
            e *= n->live[d + i];
            lanes[i] = fmaf(e, e, lanes[i]);
        }
    return sum_lanes(lanes) * size * size;
}

static struct int4_group int4_choose(const float *t, uint32_t count, float unit) {
    struct int4_group best = {0, 0};
    struct int4_numbers n = {.count = (count + INT4_LANES - 1) / INT4_LANES * INT4_LANES};
    const struct int4_span span = int4_span_of(t, count);
    const int top = int4_largest_step(int4_reach(span.lo, span.hi), unit);
    float least = INFINITY;
    for (uint32_t i = 0; i < count; i++) n.live[i] = 1.0f;
    for (int step = top; step > 0 && step + 1 >= top; step--) {
        float size = unit * (float)step, inverse = 1.0f / size;
        int middle = int4_middle_offset((span.lo + span.hi) * 0.5f * inverse);
        for (uint32_t i = 0; i < count; i++) n.x[i] = t[i] * inverse;
        for (int o = middle - 1; o <= middle + 1; o++) {
            struct int4_group g = {step, int4_offset_within(o)};
            float error = int4_group_error(&n, size, g.offset);
            if (error < least || best.step == 0) {
                least = error;
                best = g;
            }
        }
    }
    return best;
}

/* The feedback is 0 from the diagonal on: what is beyond changes nothing. */
INT4_INLINE void int4_feed(const float *feedback, float error, uint32_t count, float *t) {
    for (uint32_t i = 0; i < count; i += INT4_LANES)
        for (uint32_t j = 0; j < INT4_LANES; j++) t[i + j] = fmaf(feedback[i + j], error, t[i + j]);
}

/* t[first, end) become codes. */
INT4_INLINE void int4_codes(const float *x, const float *feedback, uint32_t stride,
                            struct int4_group g, float unit, struct range dims, float *t) {
    const float size = unit * (float)g.step, inverse = 1.0f / size;
    for (uint32_t d = dims.end; d-- > dims.first;) {
        float c = int4_code(t[d] * inverse, g.offset);
        float error = fmaf(-size, 2.0f * c - (float)(16 + g.offset), x[d]);
        if (feedback) int4_feed(feedback + (size_t)d * stride, error, d, t);
        t[d] = c;
    }
}

INT4_INLINE void int4_put_key(const float *codes, uint32_t head_dim, uint32_t token,
                              uint8_t *tile) {
    for (uint32_t d = 0; d < kv_padded_dims(head_dim); d += KV_KEY_DIMS) {
        uint8_t *at = tile + kv_key_codes(d) + (size_t)token * KV_KEY_STRIDE;
        for (int i = 0; i < KV_KEY_STRIDE; i++)
            at[i] = (uint8_t)((int)codes[d + i] | (int)codes[d + KV_KEY_STRIDE + i] << 4);
    }
}

INT4_INLINE void int4_put_value(const float *codes, uint32_t head_dim, uint32_t token,
                                uint8_t *tile) {
    enum { HALF = KV_CODES_RUN / 2 };
    uint8_t *row = tile + token * kv_row_bytes(KV_I4, head_dim);
    for (uint32_t d = 0; d < kv_padded_dims(head_dim); d += KV_CODES_RUN)
        for (int i = 0; i < HALF; i++)
            row[kv_value_codes(d) + (size_t)i] =
                (uint8_t)((int)codes[d + i] | (int)codes[d + HALF + i] << 4);
}

static void int4_store(float *x, float *t, const float *feedback, uint32_t head_dim, bool is_value,
                       uint8_t *tile, uint32_t token) {
    const uint32_t width = kv_group_dims(head_dim);
    float reach = 0.0f;
    for (uint32_t d = 0; d < head_dim; d++) t[d] = x[d] = int4_limited(x[d]);
    memset(t + head_dim, 0, (kv_padded_dims(head_dim) - head_dim) * sizeof(*t));
    for (uint32_t d = 0; d < head_dim; d += width) {
        uint32_t count = head_dim - d < width ? head_dim - d : width;
        struct int4_span span = int4_span_of(x + d, count);
        float own = int4_reach(span.lo, span.hi);
        if (own > reach) reach = own;
    }
    const uint8_t unit = int4_unit_above(reach / (float)INT4_STEPS);
    tile[kv_scales_offset(KV_I4, head_dim) + token] = unit;
    for (uint32_t n = kv_groups_of_head(head_dim); n-- > 0;) {
        struct range dims = {n * width, (n + 1) * width < head_dim ? (n + 1) * width : head_dim};
        struct int4_group g = int4_choose(t + dims.first, dims.end - dims.first, int4_unit(unit));
        tile[kv_group_offset(head_dim, n) + token] = int4_group_byte(g);
        int4_codes(x, feedback, kv_feedback_stride(head_dim), g, int4_unit(unit), dims, t);
    }
    if (is_value)
        int4_put_value(t, head_dim, token, tile);
    else
        int4_put_key(t, head_dim, token, tile);
}

static float int4_smooth(const float *q, const float *scale, const float *mean, uint32_t head_dim,
                         float *out) {
    float lanes[INT4_LANES] = {0};
    uint32_t d = 0;
    for (; d + INT4_LANES <= head_dim; d += INT4_LANES)
        for (uint32_t i = 0; i < INT4_LANES; i++) {
            out[d + i] = q[d + i] * scale[d + i];
            lanes[i] = fmaf(q[d + i], mean[d + i], lanes[i]);
        }
    for (uint32_t i = 0; d < head_dim; d++, i++) {
        out[d] = q[d] * scale[d];
        lanes[i] = fmaf(q[d], mean[d], lanes[i]);
    }
    return sum_lanes(lanes);
}

static void int4_query(float *q, uint32_t head_dim, struct int4_query out) {
    const uint32_t padded = kv_padded_dims(head_dim), width = kv_group_dims(head_dim);
    float most[INT4_LANES] = {0}, broken[INT4_LANES] = {0}; /* the first with its sign turned */
    memset(q + head_dim, 0, (padded - head_dim) * sizeof(*q));
    for (uint32_t d = 0; d < padded; d += INT4_LANES)
        for (uint32_t i = 0; i < INT4_LANES; i++) {
            float size = -fabsf(q[d + i]);
            most[i] = size < most[i] ? size : most[i];
            broken[i] += q[d + i] * 0.0f;
        }
    const float scale = -least_lane(most) / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (uint32_t d = 0; d < padded; d += VEC_LANES)
        vec_store_int8(out.codes + d, vec_mul(vec_load(q + d), vec_set1(inverse)));
    for (uint32_t g = 0; g < kv_groups_of_head(head_dim); g++) {
        int sum = 0;
        for (uint32_t i = 0; i < width; i++) sum += out.codes[g * width + i];
        out.sums[g] = sum;
    }
    *out.scale = scale + sum_lanes(broken);
}

#endif
