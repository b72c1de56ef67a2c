/* kernels/cpu/ops_attention.c - drivers of attention.
 *
 * The work is a list of items (row, unit): a unit is the fewest heads whose results are whole
 * blocks of Q8_BLOCK, mostly one. A thread takes a run of items of about equal cost, a row
 * costing as much as it attends to; the heads of a run that share a KV head go through the
 * kernel together. Where there are too few items for the threads and the context is long, the
 * items are (row, segment, heads of one KV head) instead; each leaves its part, and once all
 * are there the parts of a head are joined in rising order. The bits are the same either way.
 *
 * Entry points: op_attention_run, op_self_attention_run.
 */
#include <string.h>

#include "base/check.h"
#include "base/pool.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/plan.h"

enum {
    ROW_COST = 32,        /* what a row costs beside its attended tokens, in tokens */
    ITEMS_PER_THREAD = 8, /* with fewer, threads wait for each other for too long */
};

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

static struct attn_segment segment_of(const struct attn_row *a, uint32_t head, uint32_t count) {
    return (struct attn_segment){
        .v_stride = a->v_stride,
        .type = a->kv ? a->kv->type : KV_F32,
        .head_dim = a->head_dim,
        .scale = a->scale,
        .softcap = a->softcap,
        .q = a->q + (size_t)head * a->head_dim,
        .query_count = count,
    };
}

/* Heads [head, head + count), all of one KV head. */
static void attend_heads(const struct cpu_kernels *k, const struct attn_row *a, uint32_t head,
                         uint32_t count, float *scratch) {
    struct attn_segment s = segment_of(a, head, count);
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

/* The end of the longest run of heads from `head` that a kernel takes at once. */
static uint32_t heads_end(const struct attn_row *a, uint32_t head, uint32_t limit) {
    uint32_t end = (head / a->heads_per_kv + 1) * a->heads_per_kv;
    if (end > limit) end = limit;
    return end > head + ATTN_QUERIES ? head + ATTN_QUERIES : end;
}

static void attend_row(const struct cpu_kernels *k, const struct attn_row *a, struct span heads,
                       float *scratch) {
    for (uint32_t h = heads.first; h < heads.end;) {
        uint32_t end = heads_end(a, h, heads.end);
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

/* An attention op, as all threads see it. */
struct attn_op {
    const struct cpu_run *x;
    const struct op_attention *a;
    struct mat q;
    uint32_t unit, units; /* heads in a unit, units in a row */
};

static void run_whole_rows(const struct attn_op *o, const struct attn_results *results,
                           float *scratch, uint32_t ith, uint32_t nth) {
    const struct op_attention *a = o->a;
    uint64_t total = 0, at = 0;
    for (uint32_t r = 0; r < o->q.row_count; r++) total += row_cost(o->x, a->window, r) * o->units;
    uint64_t from = total * ith / nth, to = total * (ith + 1) / nth;
    for (uint32_t r = 0; r < o->q.row_count && at < to; r++) {
        uint64_t cost = row_cost(o->x, a->window, r);
        if (cost == 0) continue;
        struct span mine = units_within(at, cost, o->units, from, to);
        struct span heads = {mine.first * o->unit, mine.end * o->unit};
        struct attn_row row = cached_row(o->x, a, &o->q, r, results_row(results, r));
        attend_row(o->x->table->kernels, &row, heads, scratch);
        quantise_heads(o->x->table->kernels, results, r, heads, a->head_dim);
        at += cost * o->units;
    }
}

static uint32_t segment_count(const struct attn_row *a) {
    return (a->end - 1) / ATTN_SEGMENT - a->first / ATTN_SEGMENT + 1;
}

/* The parts of a step in the plan's memory. Part i has its maximum and sum at numbers[2i] and
 * its values at out[i * head_dim]; a row's parts run segment by segment, head by head. */
struct attn_parts {
    float *numbers, *out;
    uint64_t count;
};

/* How many parts the step has, and whether leaving parts is worth it. */
static bool wants_parts(const struct attn_op *o, uint32_t nth, struct attn_parts *parts) {
    uint64_t live = 0, longest = 0;
    parts->count = 0;
    for (uint32_t r = 0; r < o->q.row_count; r++) {
        if (o->x->step->pos[r] < 0) continue;
        struct attn_row row = cached_row(o->x, o->a, &o->q, r, NULL);
        uint64_t segments = segment_count(&row);
        parts->count += segments * o->a->heads;
        if (segments > longest) longest = segments;
        live++;
    }
    parts->numbers = o->x->plan->parts;
    parts->out = parts->numbers + 2 * parts->count;
    bool fits = parts->count * (o->a->head_dim + 2) <= PLAN_PARTS_FLOATS;
    return nth > 1 && longest > 1 && live * o->units < (uint64_t)nth * ITEMS_PER_THREAD && fits;
}

/* Heads [head, head + count) of one segment of a row whose parts start at `base`. */
static void leave_part(const struct attn_op *o, const struct attn_row *row, uint32_t segment,
                       struct span heads, const struct attn_parts *parts, uint64_t base) {
    uint32_t start = (row->first / ATTN_SEGMENT + segment) * ATTN_SEGMENT;
    uint32_t end = start + ATTN_SEGMENT < row->end ? start + ATTN_SEGMENT : row->end;
    uint64_t idx = base + (uint64_t)segment * o->a->heads + heads.first;
    struct attn_part part = {.out = parts->out + idx * row->head_dim};
    struct attn_segment s = segment_of(row, heads.first, heads.end - heads.first);
    fill_segment(row, heads.first / row->heads_per_kv, start > row->first ? start : row->first, end,
                 &s);
    o->x->table->kernels->attend(&s, &part);
    for (uint32_t i = 0; i < heads.end - heads.first; i++) {
        parts->numbers[2 * (idx + i)] = part.max[i];
        parts->numbers[2 * (idx + i) + 1] = part.sum[i];
    }
}

/* Items in the order row, segment, run of heads; item i belongs to thread i mod nth. */
static void leave_parts(const struct attn_op *o, const struct attn_parts *parts, uint32_t ith,
                        uint32_t nth) {
    uint64_t base = 0, item = 0;
    for (uint32_t r = 0; r < o->q.row_count; r++) {
        if (o->x->step->pos[r] < 0) continue;
        struct attn_row row = cached_row(o->x, o->a, &o->q, r, NULL);
        for (uint32_t i = 0; i < segment_count(&row); i++)
            for (uint32_t h = 0; h < o->a->heads;) {
                uint32_t end = heads_end(&row, h, o->a->heads);
                if (item++ % nth == ith) leave_part(o, &row, i, (struct span){h, end}, parts, base);
                h = end;
            }
        base += (uint64_t)segment_count(&row) * o->a->heads;
    }
}

static struct attn_part part_at(const struct attn_parts *parts, uint64_t idx, uint32_t head_dim) {
    struct attn_part part = {.out = parts->out + idx * head_dim};
    part.max[0] = parts->numbers[2 * idx];
    part.sum[0] = parts->numbers[2 * idx + 1];
    return part;
}

static void join_head(const struct attn_op *o, const struct attn_row *row, uint32_t head,
                      const struct attn_parts *parts, uint64_t base) {
    const struct cpu_kernels *k = o->x->table->kernels;
    struct attn_part all = part_at(parts, base + head, row->head_dim);
    for (uint32_t i = 1; i < segment_count(row); i++) {
        struct attn_part next =
            part_at(parts, base + (uint64_t)i * o->a->heads + head, row->head_dim);
        k->attn_join(&all, &next, 1, row->head_dim);
    }
    k->attn_finish(&all, 1, row->head_dim);
    memcpy(row->out + (size_t)head * row->head_dim, all.out, row->head_dim * sizeof(float));
}

static void join_parts(const struct attn_op *o, const struct attn_results *results,
                       const struct attn_parts *parts, uint32_t ith, uint32_t nth) {
    uint64_t base = 0, item = 0;
    for (uint32_t r = 0; r < o->q.row_count; r++) {
        if (o->x->step->pos[r] < 0) continue;
        struct attn_row row = cached_row(o->x, o->a, &o->q, r, results_row(results, r));
        for (uint32_t u = 0; u < o->units; u++) {
            struct span heads = {u * o->unit, (u + 1) * o->unit};
            if (item++ % nth != ith) continue;
            for (uint32_t h = heads.first; h < heads.end; h++) join_head(o, &row, h, parts, base);
            quantise_heads(o->x->table->kernels, results, r, heads, row.head_dim);
        }
        base += (uint64_t)segment_count(&row) * o->a->heads;
    }
}

void op_attention_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_attention *a = &op->attention;
    float *scratch = plan_scratch(x->plan, ith);
    struct attn_scratch places = attn_scratch(a->heads, a->head_dim, 0);
    struct attn_results results = {mat_of(x, a->dst), mat_of(x, a->q8), scratch + places.row};
    struct attn_op o = {.x = x, .a = a, .q = mat_of(x, a->q)};
    struct attn_parts parts;
    o.unit = attn_unit(a->heads, a->head_dim);
    o.units = a->heads / o.unit;
    CHECK(x->kv);
    CHECK(x->kv->head_dim == a->head_dim);
    if (!wants_parts(&o, nth, &parts)) {
        run_whole_rows(&o, &results, scratch + places.part, ith, nth);
        return;
    }
    leave_parts(&o, &parts, ith, nth);
    pool_barrier(x->pool);
    join_parts(&o, &results, &parts, ith, nth);
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
