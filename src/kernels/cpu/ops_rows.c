/* kernels/cpu/ops_rows.c - drivers of the ops that work row by row.
 *
 * Entry points: op_embed_run, op_norm_run, op_quant_run, op_rope_run, op_kv_write_run,
 * op_act_run, op_act_follow, op_add_run, op_softcap_run, op_gather_run, op_permute_run,
 * op_pool_run.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "graph/key_smoothing.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/workspace.h"

/* Columns of a row that one thread takes at a time where a row may be shared: whole blocks of
 * Q8_BLOCK, and enough of them to be worth a claim. Of a row that it has for itself it takes
 * several chunks at once, as many as stay in the nearest cache. */
enum { CHUNK_COLS = WORKSPACE_CHUNK_COLS, CHUNKS_AT_ONCE = 8 };
_Static_assert((int)CHUNK_COLS % (int)Q8_BLOCK == 0, "blocks are quantised whole");

static uint32_t embed_index(const struct cpu_run *x, const struct op_embed *e, uint32_t row) {
    switch (e->source) {
    case EMBED_TOKEN: {
        int32_t token = x->step->token[row];
        CHECK(token >= 0 || step_token_slot(token) < x->slot_count);
        if (token < 0) token = x->slots[step_token_slot(token)];
        return token < 0 ? 0 : (uint32_t)token; /* an empty slot: the row's result is not used */
    }
    case EMBED_POSITION:
        return (uint32_t)x->step->pos[row];
    default:
        return 0;
    }
}

/* From its panels where the table is packed, as one that is also the model's head is: then the
 * file's pages of it need not be in memory. */
static void read_embedding(const struct weight *w, uint32_t row, float *out) {
    size_t row_bytes;
    CHECK(row < w->rows);
    if (w->prepared) {
        pack_read_row(w->prepared, row, out);
        return;
    }
    CHECK(dtype_bytes(w->type, w->cols, &row_bytes));
    dtype_dequant(w->type, (const uint8_t *)w->data + row * row_bytes, w->cols, out);
}

void op_embed_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_embed *e = &op->embed;
    const struct weight *w = e->table;
    struct mat dst = mat_of(x, e->dst);
    struct range rows = range_share(dst.row_count, ith, nth);
    float *scratch = workspace_scratch(x->workspace, ith);
    for (uint32_t r = rows.first; r < rows.end; r++) {
        if (!run_row_is_live(x, dst.kind, r)) continue;
        float *out = mat_f32(&dst, r), *in = e->add ? scratch : out;
        read_embedding(w, embed_index(x, e, r), in);
        for (uint32_t i = 0; i < w->cols; i++) in[i] *= e->scale;
        if (e->add) x->table->kernels->add(in, w->cols, out);
    }
}

void op_norm_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_norm *n = &op->norm;
    const struct cpu_kernels *k = x->table->kernels;
    struct mat src = mat_of(x, n->src), dst = mat_of(x, n->dst), q8 = mat_of(x, n->q8);
    struct range rows = range_share(src.row_count, ith, nth);
    const struct norm_args args = {.kind = n->kind,
                                   .group = n->group,
                                   .eps = n->eps,
                                   .weight = vector_floats(n->weight),
                                   .bias = vector_floats(n->bias)};
    for (uint32_t r = rows.first; r < rows.end; r++) {
        if (!run_row_is_live(x, src.kind, r)) continue;
        const float *in = mat_f32(&src, r);
        float *out = dst.base ? mat_f32(&dst, r) : workspace_scratch(x->workspace, ith);
        for (uint32_t c = 0; c < src.cols; c += n->group) k->norm(&args, in + c, out + c);
        if (q8.base) k->quantise(out, src.cols, mat_q8_write(&q8, r, 0));
    }
}

void op_quant_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    struct mat src = mat_of(x, op->quant.src), q8 = mat_of(x, op->quant.q8);
    struct range rows = range_share(src.row_count, ith, nth);
    for (uint32_t r = rows.first; r < rows.end; r++)
        if (run_row_is_live(x, src.kind, r))
            x->table->kernels->quantise(mat_f32(&src, r), src.cols, mat_q8_write(&q8, r, 0));
}

void op_rope_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_rope *p = &op->rope;
    struct mat m = mat_of(x, p->x);
    CHECK(m.kind == ROWS_TOKENS);
    struct range rows = range_share(m.row_count, ith, nth);
    for (uint32_t r = rows.first; r < rows.end; r++) {
        if (!run_row_is_live(x, m.kind, r)) continue;
        const float *cosine = workspace_rope_row(x->workspace, p, r),
                    *sine = cosine + p->rot_dims / 2;
        for (uint32_t h = 0; h < p->heads; h++)
            x->table->kernels->rope(p, cosine, sine, mat_f32(&m, r) + (size_t)h * p->head_dim);
    }
}

/* A key as KV_I4 stores it, smoothed and transformed. */
static void int4_key(const struct cpu_run *x, const struct op_kv_write *w, uint32_t head,
                     uint32_t pos, const float *key, float *room) {
    const struct key_smoothing *s = w->smoothing;
    const uint32_t head_dim = x->kv[w->group].head_dim;
    const size_t first = (size_t)head * head_dim;
    for (uint32_t d = 0; s && d < head_dim; d++) {
        float mean = pos < KEY_MEAN_FIRST ? 0.0f : s->mean[first + d];
        room[d] = (key[d] - mean) * s->inverse[first + d];
    }
    if (!s) memcpy(room, key, head_dim * sizeof(*room));
    x->table->kernels->kv_hadamard(room, head_dim);
}

/* A head's key and value of a row into a cache of KV_I4. */
static void int4_write(const struct cpu_run *x, const struct op_kv_write *w, uint32_t head,
                       uint32_t pos, const float *key, const float *value, uint8_t *tile,
                       float *scratch) {
    const struct cpu_kernels *k = x->table->kernels;
    const uint32_t head_dim = x->kv[w->group].head_dim, token = pos % KV_TILE_TOKENS;
    const size_t first = (size_t)head * head_dim * kv_feedback_stride(head_dim);
    const float *feedback = w->smoothing ? w->smoothing->feedback : NULL;
    float *room = scratch + kv_padded_dims(head_dim);
    int4_key(x, w, head, pos, key, scratch);
    k->kv_store_int4(scratch, room, feedback ? feedback + first : NULL, head_dim, false, tile,
                     token);
    memcpy(scratch, value, head_dim * sizeof(*scratch));
    k->kv_hadamard(scratch, head_dim);
    k->kv_store_int4(scratch, room, NULL, head_dim, true, tile + kv_side_bytes(KV_I4, head_dim),
                     token);
}

void op_kv_write_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_kv_write *w = &op->kv_write;
    const struct kv_tiles *kv = &x->kv[w->group];
    struct mat k = mat_of(x, w->k), v = mat_of(x, w->v);
    float *scratch = workspace_scratch(x->workspace, ith);
    CHECK(x->kv);
    CHECK(k.cols == kv->heads * kv->head_dim);
    struct range rows = range_share(k.row_count, ith, nth);
    for (uint32_t r = rows.first; r < rows.end; r++) {
        if (!run_row_is_live(x, k.kind, r)) continue;
        uint32_t pos = (uint32_t)x->step->pos[r];
        const uint32_t *blocks = step_blocks(x->step, x->step->seq[r], w->group);
        uint32_t at = kv_tile_index(kv, blocks, pos / KV_TILE_TOKENS);
        CHECK(at < kv->tile_count);
        for (uint32_t h = 0; h < kv->heads; h++) {
            uint8_t *tile = kv_tile(kv, w->layer, at, h);
            const float *kh = mat_f32(&k, r) + (size_t)h * kv->head_dim;
            const float *vh = mat_f32(&v, r) + (size_t)h * kv->head_dim;
            if (kv->type == KV_I4) {
                int4_write(x, w, h, pos, kh, vh, tile, scratch);
                continue;
            }
            x->table->kernels->kv_store(kv->type, kh, vh, kv->head_dim, tile,
                                        tile + kv_side_bytes(kv->type, kv->head_dim),
                                        pos % KV_TILE_TOKENS);
        }
    }
}

/* The operands of an act. */
struct act_mats {
    struct mat gate, up, dst, q8;
};

static struct act_mats act_mats(const struct cpu_run *x, const struct op_act *a) {
    return (struct act_mats){mat_of(x, a->gate), mat_of(x, a->up), mat_of(x, a->dst),
                             mat_of(x, a->q8)};
}

/* Columns [cols.first, cols.end) of the result in one row; `room` for them if no floats are
 * wanted. */
static void act_chunk(const struct cpu_run *x, const struct op_act *a, const struct act_mats *m,
                      uint32_t row, struct range cols, float *room) {
    uint32_t width = a->gate.cols;
    float *out = m->dst.base ? mat_f32(&m->dst, row) + cols.first : room;
    for (uint32_t c = cols.first; c < cols.end;) {
        uint32_t s = c / width, within = c % width;
        uint32_t count = width - within < cols.end - c ? width - within : cols.end - c;
        size_t from = (size_t)s * a->stride + within;
        x->table->kernels->act(a->kind, mat_f32(&m->gate, row) + from,
                               m->up.base ? mat_f32(&m->up, row) + from : NULL, count,
                               out + (c - cols.first));
        c += count;
    }
    if (m->q8.base)
        x->table->kernels->quantise(out, cols.end - cols.first,
                                    mat_q8_write(&m->q8, row, cols.first));
}

static uint32_t act_chunks(const struct op_act *a) {
    return (a->gate.cols * a->segments + CHUNK_COLS - 1) / CHUNK_COLS;
}

/* Items are chunks of columns, so that a single row is still shared by all threads. Neighbours go
 * together, because a kernel waits at its beginning and at its end. */
static void act_items(const struct cpu_run *x, const struct op_act *a, const struct act_mats *m,
                      struct range items, uint32_t ith) {
    uint32_t cols = a->gate.cols * a->segments, chunks = act_chunks(a);
    for (uint32_t i = items.first, next; i < items.end; i = next) {
        uint32_t row = i / chunks, first = i % chunks;
        next = (row + 1) * chunks < items.end ? (row + 1) * chunks : items.end;
        if (next > i + CHUNKS_AT_ONCE) next = i + CHUNKS_AT_ONCE;
        uint32_t end = (first + next - i) * CHUNK_COLS;
        if (run_row_is_live(x, m->gate.kind, row))
            act_chunk(x, a, m, row, (struct range){first * CHUNK_COLS, end < cols ? end : cols},
                      workspace_scratch(x->workspace, ith));
    }
}

/* Of many rows, a thread takes its own, a few at a time, and then what others have not come to, so
 * that a disturbed processor delays no other. */
void op_act_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_act *a = &op->act;
    struct act_mats m = act_mats(x, a);
    uint32_t rows = m.gate.row_count, items = rows * act_chunks(a);
    uint32_t op_idx = (uint32_t)(op - tape_op(x->tape, 0)), piece;
    if (workspace_follows(x->workspace, op, rows)) return;
    if (nth == 1 || rows < CLAIM_ROWS_MIN) {
        act_items(x, a, &m, range_share(items, ith, nth), ith);
        return;
    }
    for (uint32_t i = 0; i < nth && workspace_has_left(x->workspace, op_idx, nth); i++) {
        uint32_t owner = (ith + i) % nth;
        while ((piece = workspace_take(x->workspace, op_idx, owner, CLAIMS_PER_THREAD)) <
               CLAIMS_PER_THREAD)
            act_items(
                x, a, &m,
                range_share(items, owner * CLAIMS_PER_THREAD + piece, nth * CLAIMS_PER_THREAD),
                ith);
    }
}

/* Of one operand, columns [cols.first, cols.end) of its value are done. */
static void follow_operand(const struct cpu_run *x, const struct op_act *a, struct operand o,
                           struct range cols) {
    _Alignas(64) float room[CHUNK_COLS];
    uint32_t first = cols.first > o.col ? cols.first - o.col : 0;
    uint32_t end = cols.end < o.col + o.cols ? cols.end : o.col + o.cols;
    end = end > o.col ? end - o.col : 0;
    for (uint32_t c = first, next; c < end; c = next) {
        struct range chunk = {c / CHUNK_COLS * CHUNK_COLS, (c / CHUNK_COLS + 1) * CHUNK_COLS};
        if (chunk.end > o.cols) chunk.end = o.cols;
        next = chunk.end < end ? chunk.end : end;
        uint32_t all = (chunk.end - chunk.first) * (a->up.value == VALUE_NONE ? 1 : 2);
        if (!workspace_finishes(x->workspace, c / CHUNK_COLS, next - c, all)) continue;
        struct act_mats m = act_mats(x, a);
        for (uint32_t row = 0; row < m.gate.row_count; row++)
            if (run_row_is_live(x, m.gate.kind, row)) act_chunk(x, a, &m, row, chunk, room);
    }
}

void op_act_follow(const struct cpu_run *x, const struct op *op, struct range cols) {
    const struct op_act *a = &op->act;
    follow_operand(x, a, a->gate, cols);
    if (a->up.value != VALUE_NONE) follow_operand(x, a, a->up, cols);
}

void op_add_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    struct mat src = mat_of(x, op->add.src), dst = mat_of(x, op->add.dst);
    struct range rows = range_share(dst.row_count, ith, nth);
    for (uint32_t r = rows.first; r < rows.end; r++)
        if (run_row_is_live(x, dst.kind, r))
            x->table->kernels->add(mat_f32(&src, r), dst.cols, mat_f32(&dst, r));
}

void op_softcap_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    struct mat m = mat_of(x, op->softcap.x);
    struct range rows = range_share(m.row_count, ith, nth);
    for (uint32_t r = rows.first; r < rows.end; r++)
        if (run_row_is_live(x, m.kind, r))
            x->table->kernels->softcap(op->softcap.cap, m.cols, mat_f32(&m, r));
}

void op_gather_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    struct mat src = mat_of(x, op->gather.src), dst = mat_of(x, op->gather.dst);
    struct range rows = range_share(dst.row_count, ith, nth);
    for (uint32_t r = rows.first; r < rows.end; r++) {
        uint32_t from = x->step->output_row[r];
        CHECK(from < src.row_count);
        if (run_row_is_live(x, dst.kind, r))
            memcpy(mat_f32(&dst, r), mat_f32(&src, from), dst.cols * sizeof(float));
    }
}

void op_input_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    struct mat dst = mat_of(x, op->input.dst);
    struct range rows = range_share(dst.row_count, ith, nth);
    CHECK(x->step->sizes.input_floats == dst.cols);
    for (uint32_t r = rows.first; r < rows.end; r++)
        if (run_row_is_live(x, dst.kind, r))
            memcpy(mat_f32(&dst, r), x->step->input + (size_t)r * dst.cols,
                   dst.cols * sizeof(float));
}

void op_permute_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    struct mat src = mat_of(x, op->permute.src), dst = mat_of(x, op->permute.dst);
    const float *order = vector_floats(op->permute.order);
    struct range rows = range_share(dst.row_count, ith, nth);
    for (uint32_t r = rows.first; r < rows.end; r++) {
        if (!run_row_is_live(x, dst.kind, r)) continue;
        const float *in = mat_f32(&src, r);
        float *out = mat_f32(&dst, r);
        for (uint32_t i = 0; i < dst.cols; i++) out[i] = in[(uint32_t)order[i]];
    }
}

/* Rising rows, one accumulator per column; then divided by how many there were. */
static void pool_mean(const struct cpu_run *x, const struct mat *src, const struct step_seq *seq,
                      float *out) {
    uint32_t count = 0;
    memset(out, 0, src->cols * sizeof(*out));
    for (uint32_t r = seq->first_row; r < seq->first_row + seq->row_count; r++) {
        if (!run_row_is_live(x, src->kind, r)) continue;
        x->table->kernels->add(mat_f32(src, r), src->cols, out);
        count++;
    }
    for (uint32_t i = 0; i < src->cols && count > 0; i++) out[i] /= (float)count;
}

static void pool_copy(const struct cpu_run *x, const struct mat *src, const struct step_seq *seq,
                      bool last, float *out) {
    for (uint32_t i = 0; i < seq->row_count; i++) {
        uint32_t r = seq->first_row + (last ? seq->row_count - 1 - i : i);
        if (!run_row_is_live(x, src->kind, r)) continue;
        memcpy(out, mat_f32(src, r), src->cols * sizeof(*out));
        return;
    }
}

/* The square sum is taken as a norm takes it; a vector of zeros stays as it is. */
static void scale_to_unit(float *x, uint32_t count) {
    float lanes[NORM_LANES] = {0};
    for (uint32_t i = 0; i < count; i++)
        lanes[i % NORM_LANES] = fmaf(x[i], x[i], lanes[i % NORM_LANES]);
    float squares = sum_lanes(lanes);
    if (!(squares > 0.0f)) return;
    float length = sqrtf(squares);
    for (uint32_t i = 0; i < count; i++) x[i] /= length;
}

void op_pool_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_pool *p = &op->pool;
    struct mat src = mat_of(x, p->src), dst = mat_of(x, p->dst);
    struct range seqs = range_share(dst.row_count, ith, nth);
    for (uint32_t s = seqs.first; s < seqs.end; s++) {
        const struct step_seq *seq = &x->step->seqs[s];
        float *out = mat_f32(&dst, s);
        if (p->kind == POOL_MEAN)
            pool_mean(x, &src, seq, out);
        else
            pool_copy(x, &src, seq, p->kind == POOL_LAST, out);
        if (p->unit_length) scale_to_unit(out, dst.cols);
    }
}
