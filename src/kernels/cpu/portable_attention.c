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

/* TOKENS codes of one half of as many bytes. */
static void load_codes(const uint8_t *p, bool is_high, float out[TOKENS]) {
    int shift = is_high ? 4 : 0;
    for (int i = 0; i < TOKENS; i++) out[i] = (float)(p[i] >> shift & 15);
}

/* Keys of all tokens in dimension d. */
static void load_keys(const struct attn_segment *s, const uint8_t *tile, uint32_t d,
                      float out[TOKENS]) {
    if (s->type == KV_I4)
        load_codes(tile + kv_key_codes(d), d % 2, out);
    else
        load_row(tile + (size_t)d * TOKENS * kv_elem_bytes(s->type), s->type, TOKENS, out);
}

/* A token's values from column d on, up to CHUNK of them. */
enum { CHUNK = 32 };
static void load_values(const struct attn_segment *s, const uint8_t *v, uint32_t d, uint32_t count,
                        float out[CHUNK]) {
    if (s->type == KV_I4) {
        load_codes(v + kv_value_codes(d), false, out);
        load_codes(v + kv_value_codes(d), true, out + TOKENS);
    } else {
        load_row(v + d * kv_elem_bytes(s->type), s->type, count, out);
    }
}

/* Of token i of a tile; for the formats that have them. */
static void load_scales(const struct attn_segment *s, const uint8_t *tile, float scales[TOKENS]) {
    load_row(tile + kv_scales_offset(s->type, s->head_dim), KV_F16, TOKENS, scales);
}
static void load_minima(const struct attn_segment *s, const uint8_t *tile, float minima[TOKENS]) {
    load_row(tile + kv_scales_offset(s->type, s->head_dim) + KV_MINIMA_OFFSET, KV_F16, TOKENS,
             minima);
}

/* x[i] *= scale of token i of the tile, for the formats that have scales. */
static void apply_scales(const struct attn_segment *s, const uint8_t *tile, float x[TOKENS]) {
    float scales[TOKENS];
    if (kv_scale_bytes(s->type) == 0) return;
    load_scales(s, tile, scales);
    for (int i = 0; i < TOKENS; i++) x[i] *= scales[i];
}

/* Products of codes become products of keys. */
static void apply_key_ranges(const struct attn_segment *s, const uint8_t *tile,
                             const struct attn_query *q, float x[TOKENS]) {
    float scales[TOKENS], minima[TOKENS];
    load_scales(s, tile, scales);
    load_minima(s, tile, minima);
    for (int i = 0; i < TOKENS; i++) x[i] = fmaf(x[i], scales[i], minima[i] * q->sum);
}

/* Scores of all 16 tokens of tile t; the caller looks only at those that are attended. */
static void score_tile(const struct attn_segment *s, uint32_t t, const struct attn_query *q,
                       float out[TOKENS]) {
    memset(out, 0, TOKENS * sizeof(float));
    for (uint32_t d = 0; d < s->head_dim; d++) {
        float keys[TOKENS];
        load_keys(s, s->k[t], d, keys);
        for (int i = 0; i < TOKENS; i++) out[i] = fmaf(q->q[d], keys[i], out[i]);
    }
    if (s->type == KV_I4)
        apply_key_ranges(s, s->k[t], q, out);
    else
        apply_scales(s, s->k[t], out);
    for (uint32_t i = 0; t == 0 && i < s->early; i++) out[i] += q->shift;
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

/* The sum of the weights, still without scales, times the values' minima. */
static float weigh_minima(const struct attn_segment *s, const struct attn_query *q,
                          const float *p) {
    float lanes[ATTN_LANES] = {0}, minima[TOKENS];
    for (uint32_t j = q->first; j < q->end; j++) {
        if (j == q->first || j % TOKENS == 0) load_minima(s, s->v[j / TOKENS], minima);
        lanes[j % ATTN_LANES] = fmaf(p[j], minima[j % TOKENS], lanes[j % ATTN_LANES]);
    }
    return sum_lanes(lanes);
}

/* Columns in chunks, so that the accumulators stay in registers or the nearest cache. */
static void weigh(const struct attn_segment *s, const struct attn_query *q, const float *p,
                  float *out) {
    for (uint32_t d = 0; d < s->head_dim; d += CHUNK) {
        uint32_t count = s->head_dim - d < CHUNK ? s->head_dim - d : CHUNK;
        float acc[CHUNK] = {0}, values[CHUNK];
        for (uint32_t j = q->first; j < q->end; j++) {
            const uint8_t *v = s->v[j / TOKENS] + j % TOKENS * s->v_stride;
            load_values(s, v, d, count, values);
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
            score_tile(s, t, q, p + (size_t)t * TOKENS);
        out[i].sum = exponentials(q, p, &out[i].max);
        float minima = s->type == KV_I4 ? weigh_minima(s, q, p) : 0.0f;
        for (uint32_t t = q->first / TOKENS; t * TOKENS < q->end; t++)
            apply_scales(s, s->v[t], p + (size_t)t * TOKENS);
        weigh(s, q, p, out[i].out);
        for (uint32_t d = 0; s->type == KV_I4 && d < s->head_dim; d++) out[i].out[d] += minima;
    }
}

void portable_attn_merge(struct attn_part *into, const struct attn_part *part, uint32_t head_dim) {
    attn_merge(into, part, head_dim);
}

void portable_attn_finish(struct attn_part *part, uint32_t head_dim) {
    attn_finish(part, head_dim);
}
