/* kernels/cpu/ops_attention.c - drivers of attention.
 *
 * The work is a list of items (row, unit): a unit is the fewest heads whose results are whole
 * blocks of Q8_BLOCK, mostly one. A thread takes a run of items of about equal cost, a row
 * costing as much as it attends to; the heads of a run that share a KV head go through the
 * kernel together.
 *
 * Entry points: op_attention_run, op_self_attention_run.
 */
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/plan.h"

enum { ROW_COST = 32 }; /* what a row costs beside its attended tokens, in tokens */

/* One row's attention. */
struct attn_row {
    const float *q;
    float *out;
    uint32_t heads_per_kv, head_dim;
    uint32_t first, end; /* attended positions */
    float scale, softcap;
    /* The cache, or for an encoder (kv NULL) tiles of the keys of `head0` and those after. */
    const struct kv_space *kv;
    const uint32_t *blocks;
    uint32_t layer;
    const float *tiles;
    size_t tiles_per_head; /* floats */
    uint32_t head0;
    const uint8_t *v_rows;
    size_t v_stride;
};

static void find_tile(const struct attn_row *a, uint32_t kv_head, uint32_t tile, const uint8_t **k,
                      const uint8_t **v) {
    if (a->kv) {
        CHECK(a->blocks[tile] < a->kv->block_count);
        *k = kv_tile(a->kv, a->layer, a->blocks[tile], kv_head);
        *v = *k + kv_tile_bytes(a->kv);
        return;
    }
    const float *keys = a->tiles + (kv_head - a->head0) * a->tiles_per_head;
    *k = (const uint8_t *)(keys + (size_t)tile * KV_BLOCK_TOKENS * a->head_dim);
    *v = a->v_rows + (size_t)tile * KV_BLOCK_TOKENS * a->v_stride +
         (size_t)kv_head * a->head_dim * sizeof(float);
}

/* Positions [first, end) of one segment. */
static void fill_segment(const struct attn_row *a, uint32_t kv_head, uint32_t first, uint32_t end,
                         struct attn_segment *s) {
    uint32_t start = first / ATTN_SEGMENT * ATTN_SEGMENT;
    s->first = first - start;
    s->end = end - start;
    for (uint32_t t = s->first / KV_BLOCK_TOKENS; t * KV_BLOCK_TOKENS < s->end; t++)
        find_tile(a, kv_head, start / KV_BLOCK_TOKENS + t, &s->k[t], &s->v[t]);
}

/* Heads [head, head + count), all of one KV head. */
static void attend_heads(const struct cpu_kernels *k, const struct attn_row *a, uint32_t head,
                         uint32_t count, float *scratch) {
    struct attn_segment s = {
        .v_stride = a->v_stride,
        .type = a->kv ? a->kv->type : KV_F32,
        .head_dim = a->head_dim,
        .scale = a->scale,
        .softcap = a->softcap,
        .q = a->q + (size_t)head * a->head_dim,
        .query_count = count,
    };
    struct attn_part all = {.out = a->out + (size_t)head * a->head_dim}, part = {.out = scratch};
    for (uint32_t first = a->first; first < a->end;) {
        uint32_t edge = (first / ATTN_SEGMENT + 1) * ATTN_SEGMENT;
        uint32_t end = edge < a->end ? edge : a->end;
        fill_segment(a, head / a->heads_per_kv, first, end, &s);
        k->attend(&s, first == a->first ? &all : &part);
        if (first != a->first) k->attn_join(&all, &part, count, a->head_dim);
        first = end;
    }
    k->attn_finish(&all, count, a->head_dim);
}

static void attend_row(const struct cpu_kernels *k, const struct attn_row *a, struct span heads,
                       float *scratch) {
    for (uint32_t h = heads.first; h < heads.end;) {
        uint32_t end = (h / a->heads_per_kv + 1) * a->heads_per_kv;
        if (end > heads.end) end = heads.end;
        if (end > h + ATTN_QUERIES) end = h + ATTN_QUERIES;
        attend_heads(k, a, h, end - h, scratch);
        h = end;
    }
}

/* The units of a row, laid out from `at` at `cost` each, that start inside [from, to). */
static struct span units_within(uint64_t at, uint64_t cost, uint32_t units, uint64_t from,
                                uint64_t to) {
    uint64_t first = from > at ? (from - at + cost - 1) / cost : 0;
    uint64_t end = to > at ? (to - at + cost - 1) / cost : 0;
    return (struct span){(uint32_t)(first < units ? first : units),
                         (uint32_t)(end < units ? end : units)};
}

static uint32_t first_position(uint32_t window, uint32_t end) {
    return window > 0 && end > window ? end - window : 0;
}

static uint64_t row_cost(const struct cpu_run *x, uint32_t window, uint32_t row) {
    if (x->step->pos[row] < 0) return 0;
    uint32_t end = (uint32_t)x->step->pos[row] + 1;
    return end - first_position(window, end) + ROW_COST;
}

/* Where a row's results go, and the quantising of those that are done. */
struct attn_results {
    struct mat dst, q8;
    float *row; /* scratch, where no floats are wanted */
};

static float *results_row(const struct attn_results *o, uint32_t row) {
    return o->dst.base ? mat_f32(&o->dst, row) : o->row;
}

static void quantise_heads(const struct cpu_kernels *k, const struct attn_results *o, uint32_t row,
                           struct span heads, uint32_t head_dim) {
    if (!o->q8.base || heads.first == heads.end) return;
    uint32_t col = heads.first * head_dim;
    k->quantise(results_row(o, row) + col, (heads.end - heads.first) * head_dim,
                mat_q8_write(&o->q8, row, col));
}

static struct attn_row cached_row(const struct cpu_run *x, const struct op_attention *a,
                                  const struct mat *q, uint32_t row, float *out) {
    uint32_t end = (uint32_t)x->step->pos[row] + 1;
    return (struct attn_row){
        .q = mat_f32(q, row),
        .out = out,
        .heads_per_kv = a->heads / a->kv_heads,
        .head_dim = a->head_dim,
        .first = first_position(a->window, end),
        .end = end,
        .scale = a->scale,
        .softcap = a->softcap,
        .kv = &x->kv[a->group],
        .blocks = x->step->seqs[x->step->seq[row]].blocks[a->group],
        .layer = a->layer,
        .v_stride = a->head_dim * kv_elem_bytes(x->kv[a->group].type),
    };
}

void op_attention_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_attention *a = &op->attention;
    const struct cpu_kernels *k = x->table->kernels;
    struct mat q = mat_of(x, a->q);
    float *scratch = plan_scratch(x->plan, ith);
    struct attn_scratch places = attn_scratch(a->heads, a->head_dim, 0);
    struct attn_results results = {mat_of(x, a->dst), mat_of(x, a->q8), scratch + places.row};
    uint32_t unit = attn_unit(a->heads, a->head_dim), units = a->heads / unit;
    CHECK(x->kv);
    CHECK(x->kv[a->group].head_dim == a->head_dim);
    uint64_t total = 0, at = 0;
    for (uint32_t r = 0; r < q.row_count; r++) total += row_cost(x, a->window, r) * units;
    uint64_t from = total * ith / nth, to = total * (ith + 1) / nth;
    for (uint32_t r = 0; r < q.row_count && at < to; r++) {
        uint64_t cost = row_cost(x, a->window, r);
        if (cost == 0) continue;
        struct span mine = units_within(at, cost, units, from, to);
        struct span heads = {mine.first * unit, mine.end * unit};
        struct attn_row row = cached_row(x, a, &q, r, results_row(&results, r));
        attend_row(k, &row, heads, scratch + places.part);
        quantise_heads(k, &results, r, heads, a->head_dim);
        at += cost * units;
    }
}

/* The keys of `count` heads of a sequence as tiles, the last one padded with zeros. */
static void tile_keys(const struct mat *k, const struct step_seq *seq, struct span heads,
                      uint32_t head_dim, float *tiles) {
    uint32_t tile_count = (seq->row_count + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    for (uint32_t h = heads.first; h < heads.end; h++) {
        for (uint32_t j = 0; j < tile_count * KV_BLOCK_TOKENS; j++) {
            bool real = j < seq->row_count;
            const float *key = real ? mat_f32(k, seq->first_row + j) + (size_t)h * head_dim : NULL;
            float *to = tiles + (size_t)(j / KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS * head_dim +
                        j % KV_BLOCK_TOKENS;
            for (uint32_t d = 0; d < head_dim; d++) to[d * KV_BLOCK_TOKENS] = real ? key[d] : 0.0f;
        }
        tiles += (size_t)tile_count * KV_BLOCK_TOKENS * head_dim;
    }
}

/* Rows [rows.first, rows.end) of a sequence, one unit of heads. */
static void encode_unit(const struct cpu_run *x, const struct op_self_attention *a,
                        const struct step_seq *seq, struct span heads, struct span rows,
                        uint32_t ith) {
    struct mat q = mat_of(x, a->q), k = mat_of(x, a->k), v = mat_of(x, a->v);
    float *scratch = plan_scratch(x->plan, ith);
    struct attn_scratch places = attn_scratch(a->heads, a->head_dim, 0);
    struct attn_results results = {mat_of(x, a->dst), mat_of(x, a->q8), scratch + places.row};
    uint32_t tile_count = (seq->row_count + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    tile_keys(&k, seq, heads, a->head_dim, scratch + places.tiles);
    for (uint32_t r = seq->first_row + rows.first; r < seq->first_row + rows.end; r++) {
        if (!run_row_is_live(x, q.kind, r)) continue;
        struct attn_row row = {
            .q = mat_f32(&q, r),
            .out = results_row(&results, r),
            .heads_per_kv = 1,
            .head_dim = a->head_dim,
            .end = seq->row_count,
            .scale = a->scale,
            .tiles = scratch + places.tiles,
            .tiles_per_head = (size_t)tile_count * KV_BLOCK_TOKENS * a->head_dim,
            .head0 = heads.first,
            .v_rows = (const uint8_t *)mat_f32(&v, seq->first_row),
            .v_stride = v.row_bytes,
        };
        attend_row(x->table->kernels, &row, heads, scratch + places.part);
        quantise_heads(x->table->kernels, &results, r, heads, a->head_dim);
    }
}

/* Items run sequence by sequence, unit by unit, row by row, so that a thread makes the tiles
 * of a unit's keys once. */
void op_self_attention_run(const struct cpu_run *x, const struct op *op, uint32_t ith,
                           uint32_t nth) {
    const struct op_self_attention *a = &op->self_attention;
    uint32_t unit = attn_unit(a->heads, a->head_dim), units = a->heads / unit;
    uint64_t total = 0, at = 0;
    for (uint32_t s = 0; s < x->step->seq_count; s++)
        total += (uint64_t)x->step->seqs[s].row_count * units;
    uint64_t from = total * ith / nth, to = total * (ith + 1) / nth;
    for (uint32_t s = 0; s < x->step->seq_count; s++) {
        const struct step_seq *seq = &x->step->seqs[s];
        for (uint32_t u = 0; u < units; u++, at += seq->row_count) {
            struct span rows = units_within(at, 1, seq->row_count, from, to);
            struct span heads = {u * unit, (u + 1) * unit};
            if (rows.first < rows.end) encode_unit(x, a, seq, heads, rows, ith);
        }
    }
}
