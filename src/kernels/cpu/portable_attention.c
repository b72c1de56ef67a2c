/* kernels/cpu/portable_attention.c - one segment of attention in plain C.
 *
 * A tile's 16 keys are scored together, dimension by dimension; a token's values are added to
 * all columns at once. Both inner loops have no dependence between their elements.
 */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "kernels/cpu/attn_merge.h"
#include "kernels/cpu/kernels_portable.h"
#include "tensor/fp8.h"

enum { TOKENS = KV_TILE_TOKENS };

static void load_row(const uint8_t *p, enum kv_type type, uint32_t count, float *out) {
    if (type == KV_F32) {
        memcpy(out, p, count * sizeof(float));
        return;
    }
    if (type == KV_I8) {
        for (uint32_t i = 0; i < count; i++) out[i] = (float)(int8_t)p[i];
        return;
    }
    if (type == KV_F8) {
        for (uint32_t i = 0; i < count; i++) out[i] = fp8_to_f32(p[i]);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, p + 2 * (size_t)i, sizeof(half));
        out[i] = f16_to_f32(half);
    }
}

/* x[i] *= scale of token i of the tile, for the formats that have scales. */
static void apply_scales(const struct attn_segment *s, const uint8_t *tile, float x[TOKENS]) {
    float scales[TOKENS];
    if (s->type != KV_I8) return;
    load_row(tile + kv_scales_offset(s->head_dim), KV_F16, TOKENS, scales);
    for (int i = 0; i < TOKENS; i++) x[i] *= scales[i];
}

/* Scores of all 16 tokens of tile t; the caller looks only at those that are attended. */
static void score_tile(const struct attn_segment *s, uint32_t t, const float *q,
                       float out[TOKENS]) {
    memset(out, 0, TOKENS * sizeof(float));
    for (uint32_t d = 0; d < s->head_dim; d++) {
        float keys[TOKENS];
        load_row(s->k[t] + (size_t)d * TOKENS * kv_elem_bytes(s->type), s->type, TOKENS, keys);
        for (int i = 0; i < TOKENS; i++) out[i] = fmaf(q[d], keys[i], out[i]);
    }
    apply_scales(s, s->k[t], out);
    for (int i = 0; i < TOKENS; i++) {
        out[i] *= s->scale;
        if (s->softcap > 0.0f) out[i] = s->softcap * fm_tanh(out[i] / s->softcap);
    }
}

/* p[first, end) become exponentials; the result is their sum by lanes. */
static float exponentials(const struct attn_query *q, float *p, float *max_out) {
    float lanes[ATTN_LANES] = {0}, max = -INFINITY;
    for (uint32_t j = q->first; j < q->end; j++)
        if (p[j] > max) max = p[j];
    for (uint32_t j = q->first; j < q->end; j++) {
        p[j] = fm_exp(p[j] - max);
        lanes[j % ATTN_LANES] += p[j];
    }
    *max_out = max;
    return sum_lanes(lanes);
}

/* Columns in chunks, so that the accumulators stay in registers or the nearest cache. */
static void weigh(const struct attn_segment *s, const struct attn_query *q, const float *p,
                  float *out) {
    enum { CHUNK = 32 };
    for (uint32_t d = 0; d < s->head_dim; d += CHUNK) {
        uint32_t count = s->head_dim - d < CHUNK ? s->head_dim - d : CHUNK;
        float acc[CHUNK] = {0}, values[CHUNK];
        for (uint32_t j = q->first; j < q->end; j++) {
            const uint8_t *v = s->v[j / TOKENS] + j % TOKENS * s->v_stride;
            load_row(v + d * kv_elem_bytes(s->type), s->type, count, values);
            for (uint32_t i = 0; i < count; i++) acc[i] = fmaf(p[j], values[i], acc[i]);
        }
        memcpy(out + d, acc, count * sizeof(float));
    }
}

void portable_attend(const struct attn_segment *s, struct attn_part *out) {
    float p[ATTN_SEGMENT];
    for (uint32_t i = 0; i < s->query_count; i++) {
        const struct attn_query *q = &s->query[i];
        for (uint32_t t = q->first / TOKENS; t * TOKENS < q->end; t++)
            score_tile(s, t, q->q, p + (size_t)t * TOKENS);
        out[i].sum = exponentials(q, p, &out[i].max);
        for (uint32_t t = q->first / TOKENS; t * TOKENS < q->end; t++)
            apply_scales(s, s->v[t], p + (size_t)t * TOKENS);
        weigh(s, q, p, out[i].out);
    }
}

void portable_attn_merge(struct attn_part *into, const struct attn_part *part, uint32_t head_dim) {
    attn_merge(into, part, head_dim);
}

void portable_attn_finish(struct attn_part *part, uint32_t head_dim) {
    attn_finish(part, head_dim);
}
