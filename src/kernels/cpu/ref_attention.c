/* kernels/cpu/ref_attention.c - attention straight from kernels/cpu/numerics.h.
 *
 * Both ops see keys and values as a function of (position, dimension); they differ only in
 * where these are read from and in which positions are attended.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/fmath.h"
#include "graph/key_smoothing.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/kernels_ref.h"
#include "kernels/cpu/key_sums.h"
#include "kernels/cpu/kv_range.h"
#include "kernels/cpu/workspace.h"
#include "tensor/fp8.h"

/* Keys and values of one KV head: in the cache, or as rows of values. */
struct kv_view {
    const struct kv_tiles *kv; /* NULL: rows */
    const uint32_t *blocks;
    uint32_t layer, head;
    const struct mat *k, *v;
    uint32_t first_row, head_dim;
    const struct key_smoothing *smoothing;
};

static const uint8_t *tile_of(const struct kv_view *s, bool value, uint32_t pos) {
    uint32_t tile = kv_tile_index(s->kv, s->blocks, pos / KV_TILE_TOKENS);
    const uint8_t *k = kv_tile(s->kv, s->layer, tile, s->head);
    return value ? k + kv_side_bytes(s->kv->type, s->kv->head_dim) : k;
}

static float load_half(const uint8_t *halves, size_t i) {
    uint16_t half;
    memcpy(&half, halves + i * sizeof(half), sizeof(half));
    return f16_to_f32(half);
}

static bool is_int4(const struct kv_view *s) { return s->kv && s->kv->type == KV_I4; }

/* What a token's numbers are multiples of; 1 where they are kept as they are. */
static float load_scale(const struct kv_view *s, bool value, uint32_t pos) {
    if (!s->kv || s->kv->type != KV_I8) return 1.0f;
    return load_half(tile_of(s, value, pos) + kv_scales_offset(KV_I8, s->head_dim),
                     pos % KV_TILE_TOKENS);
}

/* Of a cache of KV_I4: a token's unit, and number d in such units. */
static float load_unit(const struct kv_view *s, bool value, uint32_t pos) {
    return int4_unit(
        tile_of(s, value, pos)[kv_scales_offset(KV_I4, s->head_dim) + pos % KV_TILE_TOKENS]);
}
static int load_units(const struct kv_view *s, bool value, uint32_t pos, uint32_t d) {
    const uint8_t *tile = tile_of(s, value, pos);
    uint32_t token = pos % KV_TILE_TOKENS, group = d / kv_group_dims(s->head_dim);
    size_t row = token * kv_row_bytes(KV_I4, s->head_dim), key = (size_t)token * KV_KEY_STRIDE;
    uint8_t pair = tile[value ? row + kv_value_codes(d) : key + kv_key_codes(d)];
    int code = (value ? kv_value_is_high(d) : kv_key_is_high(d)) ? pair >> 4 : pair & 15;
    struct int4_group g = int4_group_of(tile[kv_group_offset(s->head_dim, group) + token]);
    return g.step * (2 * code - 16 - g.offset);
}

/* The key or the value of one token: number d lies `stride` numbers behind number d - 1. Not of
 * KV_I4. */
struct numbers {
    const uint8_t *at;
    size_t stride;
    enum kv_type type;
};

static struct numbers numbers_of(const struct kv_view *s, bool value, uint32_t pos) {
    if (!s->kv) {
        const float *row = mat_f32(value ? s->v : s->k, s->first_row + pos);
        return (struct numbers){(const uint8_t *)(row + (size_t)s->head * s->head_dim), 1, KV_F32};
    }
    uint32_t token = pos % KV_TILE_TOKENS;
    size_t first =
        value ? token * kv_row_bytes(s->kv->type, s->head_dim) : token * kv_elem_bytes(s->kv->type);
    return (struct numbers){tile_of(s, value, pos) + first, value ? 1 : KV_TILE_TOKENS,
                            s->kv->type};
}

static float load_one(const struct numbers *n, uint32_t d) {
    size_t i = d * n->stride;
    if (n->type == KV_F32) {
        float wide;
        memcpy(&wide, n->at + i * sizeof(wide), sizeof(wide));
        return wide;
    }
    if (n->type == KV_F8) return fp8_to_f32(n->at[i]);
    return n->type == KV_F16 ? load_half(n->at, i) : (float)(int8_t)n->at[i];
}

struct query {
    const float *q;
    struct attn_query whole; /* of KV_I4 */
    float scale, softcap;
    uint32_t first, end; /* attended positions */
};

/* The product of a query and a key of KV_I4: a sum of whole numbers, then the two units. */
static float int4_product(const struct kv_view *s, const struct query *q, uint32_t pos) {
    int32_t sum = 0;
    for (uint32_t d = 0; d < s->head_dim; d++)
        sum += q->whole.codes[d] * load_units(s, false, pos, d);
    float product = (float)sum * load_unit(s, false, pos) * q->whole.codes_scale;
    return s->smoothing && pos < KEY_MEAN_FIRST ? product + q->whole.shift : product;
}

static float score(const struct kv_view *s, const struct query *q, uint32_t pos) {
    float acc = 0.0f;
    if (is_int4(s)) {
        acc = int4_product(s, q, pos);
    } else {
        const struct numbers key = numbers_of(s, false, pos);
        for (uint32_t d = 0; d < s->head_dim; d++) acc = fmaf(q->q[d], load_one(&key, d), acc);
        acc *= load_scale(s, false, pos);
    }
    acc *= q->scale;
    return q->softcap > 0.0f ? q->softcap * fm_tanh(acc / q->softcap) : acc;
}

static float load_value(const struct kv_view *s, const struct numbers *value, uint32_t pos,
                        uint32_t d) {
    if (!is_int4(s)) return load_one(value, d);
    return (float)load_units(s, true, pos, d) * load_unit(s, true, pos);
}

/* Positions [first, end), all of one segment. */
static void attend_segment(const struct kv_view *s, const struct query *q, uint32_t first,
                           uint32_t end, struct attn_part *out) {
    float p[ATTN_SEGMENT], lanes[ATTN_LANES] = {0}, max = -INFINITY;
    for (uint32_t j = first; j < end; j++) {
        p[j - first] = score(s, q, j);
        if (p[j - first] > max) max = p[j - first];
    }
    for (uint32_t j = first; j < end; j++) {
        p[j - first] = fm_exp(p[j - first] - max);
        lanes[j % ATTN_LANES] += p[j - first];
    }
    out->max = max;
    out->sum = sum_lanes(lanes);
    for (uint32_t j = first; j < end; j++) p[j - first] *= load_scale(s, true, j);
    memset(out->out, 0, s->head_dim * sizeof(out->out[0]));
    for (uint32_t j = first; j < end; j++) {
        const struct numbers value = numbers_of(s, true, j);
        for (uint32_t d = 0; d < s->head_dim; d++)
            out->out[d] = fmaf(p[j - first], load_value(s, &value, j, d), out->out[d]);
    }
}

static void join(struct attn_part *a, const struct attn_part *b, uint32_t head_dim) {
    float max = a->max > b->max ? a->max : b->max;
    float fa = fm_exp(a->max - max), fb = fm_exp(b->max - max);
    a->max = max;
    a->sum = fmaf(b->sum, fb, a->sum * fa);
    for (uint32_t d = 0; d < head_dim; d++) a->out[d] = fmaf(b->out[d], fb, a->out[d] * fa);
}

/* `scratch`: places for a part, and for a query. */
static void attend(const struct kv_view *s, struct query *q, float *scratch, float *out) {
    struct attn_part all = {.out = out}, part = {.out = scratch};
    if (is_int4(s)) {
        q->whole.q = q->q;
        transform_query(&cpu_kernels_ref, s->smoothing, (size_t)s->head * s->head_dim, s->head_dim,
                        scratch + s->head_dim, &q->whole);
    }
    for (uint32_t first = q->first; first < q->end;) {
        uint32_t edge = (first / ATTN_SEGMENT + 1) * ATTN_SEGMENT;
        uint32_t end = edge < q->end ? edge : q->end;
        attend_segment(s, q, first, end, first == q->first ? &all : &part);
        if (first != q->first) join(&all, &part, s->head_dim);
        first = end;
    }
    for (uint32_t d = 0; d < s->head_dim; d++) out[d] /= all.sum;
    if (is_int4(s)) ref_kv_hadamard(out, s->head_dim);
}

void ref_attention_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_attention *a = &op->attention;
    struct mat q = mat_of(x, a->q), dst = mat_of(x, a->dst), q8 = mat_of(x, a->q8);
    struct attn_scratch places = attn_scratch(a->heads, a->head_dim, 0);
    float *scratch = workspace_scratch(x->workspace, ith);
    attention_add_sums(x, a, ith, nth);
    struct range rows = range_share(q.row_count, ith, nth);
    for (uint32_t r = rows.first; r < rows.end; r++) {
        if (!run_row_is_live(x, q.kind, r)) continue;
        uint32_t end = (uint32_t)x->step->pos[r] + 1;
        float *out = dst.base ? mat_f32(&dst, r) : scratch + places.row;
        for (uint32_t h = 0; h < a->heads; h++) {
            struct kv_view view = {.kv = &x->kv[a->group],
                                   .blocks = step_blocks(x->step, x->step->seq[r], a->group),
                                   .layer = a->layer,
                                   .head = h / (a->heads / a->kv_heads),
                                   .head_dim = a->head_dim,
                                   .smoothing = a->smoothing};
            struct query query = {.q = mat_f32(&q, r) + (size_t)h * a->head_dim,
                                  .scale = a->scale,
                                  .softcap = a->softcap,
                                  .first = a->window > 0 && end > a->window ? end - a->window : 0,
                                  .end = end};
            attend(&view, &query, scratch + places.part, out + (size_t)h * a->head_dim);
        }
        if (q8.base) x->table->kernels->quantise(out, q.cols, mat_q8_write(&q8, r, 0));
    }
}

void ref_self_attention_run(const struct cpu_run *x, const struct op *op, uint32_t ith,
                            uint32_t nth) {
    const struct op_self_attention *a = &op->self_attention;
    struct mat q = mat_of(x, a->q), k = mat_of(x, a->k), v = mat_of(x, a->v);
    struct mat dst = mat_of(x, a->dst), q8 = mat_of(x, a->q8);
    struct attn_scratch places = attn_scratch(a->heads, a->head_dim, 0);
    float *scratch = workspace_scratch(x->workspace, ith);
    struct range rows = range_share(q.row_count, ith, nth);
    for (uint32_t r = rows.first; r < rows.end; r++) {
        if (!run_row_is_live(x, q.kind, r)) continue;
        const struct step_seq *seq = &x->step->seqs[x->step->seq[r]];
        float *out = dst.base ? mat_f32(&dst, r) : scratch + places.row;
        for (uint32_t h = 0; h < a->heads; h++) {
            struct kv_view view = {
                .k = &k, .v = &v, .first_row = seq->first_row, .head = h, .head_dim = a->head_dim};
            struct query query = {.q = mat_f32(&q, r) + (size_t)h * a->head_dim,
                                  .scale = a->scale,
                                  .end = seq->row_count};
            attend(&view, &query, scratch + places.part, out + (size_t)h * a->head_dim);
        }
        if (q8.base) x->table->kernels->quantise(out, q.cols, mat_q8_write(&q8, r, 0));
    }
}
