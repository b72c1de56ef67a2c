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
#include "kernels/cpu/kv_range.h"
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
    load_row(tile + (size_t)d * TOKENS * kv_elem_bytes(s->type), s->type, TOKENS, out);
}

/* A token's values from column d on, up to CHUNK of them. */
enum { CHUNK = KV_CODES_RUN };
static void load_int4_values(const struct attn_segment *s, uint32_t token, uint32_t d,
                             float out[CHUNK]) {
    const uint8_t *tile = s->v[token / TOKENS];
    const size_t at = token % TOKENS;
    const uint8_t *codes = tile + at * s->v_stride + kv_value_codes(d);
    const float unit = int4_unit(tile[kv_scales_offset(KV_I4, s->head_dim) + at]);
    load_codes(codes, false, out);
    load_codes(codes, true, out + TOKENS);
    for (uint32_t i = 0; i < CHUNK && d + i < s->head_dim; i++) {
        uint32_t group = (d + i) / kv_group_dims(s->head_dim);
        struct int4_group g = int4_group_of(tile[kv_group_offset(s->head_dim, group) + at]);
        out[i] = (2.0f * out[i] - (float)(16 + g.offset)) * ((float)g.step * unit);
    }
}

static void load_values(const struct attn_segment *s, uint32_t token, uint32_t d, uint32_t count,
                        float out[CHUNK]) {
    const uint8_t *v = s->v[token / TOKENS] + token % TOKENS * s->v_stride;
    if (s->type == KV_I4)
        load_int4_values(s, token, d, out);
    else
        load_row(v + d * kv_elem_bytes(s->type), s->type, count, out);
}

/* x[i] *= scale of token i of the tile, for the format that has scales. */
static void apply_scales(const struct attn_segment *s, const uint8_t *tile, float x[TOKENS]) {
    float scales[TOKENS];
    if (s->type != KV_I8) return;
    load_row(tile + kv_scales_offset(KV_I8, s->head_dim), KV_F16, TOKENS, scales);
    for (int i = 0; i < TOKENS; i++) x[i] *= scales[i];
}

/* Products of a query in whole numbers with a tile's keys. */
static void multiply_int4_keys(const struct attn_segment *s, const uint8_t *tile,
                               const struct attn_query *q, float out[TOKENS]) {
    int32_t sums[TOKENS] = {0};
    const uint32_t width = kv_group_dims(s->head_dim);
    for (uint32_t n = 0; n < kv_groups_of_head(s->head_dim); n++) {
        int32_t dots[TOKENS] = {0};
        for (uint32_t d = n * width; d < (n + 1) * width; d++)
            for (int i = 0; i < TOKENS; i++) {
                uint8_t pair = tile[kv_key_codes(d) + (size_t)i * KV_KEY_STRIDE];
                dots[i] += q->codes[d] * (kv_key_is_high(d) ? pair >> 4 : pair & 15);
            }
        for (int i = 0; i < TOKENS; i++) {
            struct int4_group g = int4_group_of(tile[kv_group_offset(s->head_dim, n) + (size_t)i]);
            sums[i] += g.step * (2 * dots[i] - (16 + g.offset) * q->sums[n]);
        }
    }
    const uint8_t *units = tile + kv_scales_offset(KV_I4, s->head_dim);
    for (int i = 0; i < TOKENS; i++) out[i] = (float)sums[i] * int4_unit(units[i]) * q->codes_scale;
}

/* Scores of all 16 tokens of tile t; the caller looks only at those that are attended. */
static void score_tile(const struct attn_segment *s, uint32_t t, const struct attn_query *q,
                       float out[TOKENS]) {
    memset(out, 0, TOKENS * sizeof(float));
    if (s->type == KV_I4) multiply_int4_keys(s, s->k[t], q, out);
    for (uint32_t d = 0; s->type != KV_I4 && d < s->head_dim; d++) {
        float keys[TOKENS];
        load_keys(s, s->k[t], d, keys);
        for (int i = 0; i < TOKENS; i++) out[i] = fmaf(q->q[d], keys[i], out[i]);
    }
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

/* Columns in chunks, so that the accumulators stay in registers or the nearest cache. */
static void weigh(const struct attn_segment *s, const struct attn_query *q, const float *p,
                  float *out) {
    for (uint32_t d = 0; d < s->head_dim; d += CHUNK) {
        uint32_t count = s->head_dim - d < CHUNK ? s->head_dim - d : CHUNK;
        float acc[CHUNK] = {0}, values[CHUNK];
        for (uint32_t j = q->first; j < q->end; j++) {
            load_values(s, j, d, count, values);
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
