/* kernels/cpu/ops_matmul.c - drivers of products with packed weights.
 *
 * A thread owns a run of panels of all parts laid side by side. Rows pass in blocks of
 * MM_BLOCK, so that their numbers stay in the second-level cache while the panels stream by;
 * a panel meets a block in tiles of MM_TILE rows. With one row this is one pass over the
 * thread's share of the weights, front to back.
 *
 * Entry points: op_matmul_run, op_expert_matmul_run.
 */
#include "base/check.h"
#include "kernels/cpu/cpu_int.h"

enum { MM_BLOCK = 64 };

/* Rows that go through the same weights together, and where their products go. */
struct mm_block {
    struct mm_row rows[MM_BLOCK];
    float *dst[MM_BLOCK]; /* column 0 of the op's result */
    uint32_t count;
};

static void block_push(struct mm_block *b, const struct mat *src, uint32_t row, uint32_t src_col,
                       bool quantised, float *dst) {
    struct mm_row *r = &b->rows[b->count];
    if (quantised)
        r->q8 = mat_q8_read(src, row, src_col);
    else
        r->f32 = mat_f32(src, row) + src_col;
    b->dst[b->count++] = dst;
}

/* One part of the product: a weight, its place in the result, what is added. */
struct mm_part {
    const struct packed *w;
    const float *bias;
    uint32_t expert, dst_col;
    bool add;
};

static void store_tile(const struct mm_part *part, uint32_t panel, float *const *dst,
                       uint32_t count, float out[MM_TILE][PANEL_ROWS]) {
    uint32_t first = panel * PANEL_ROWS;
    uint32_t cols = part->w->rows - first < PANEL_ROWS ? part->w->rows - first : PANEL_ROWS;
    for (uint32_t t = 0; t < count; t++) {
        float *to = dst[t] + part->dst_col + first, *y = out[t];
        if (part->bias)
            for (uint32_t c = 0; c < cols; c++) y[c] += part->bias[first + c];
        if (part->add)
            for (uint32_t c = 0; c < cols; c++) to[c] = y[c] + to[c];
        else
            for (uint32_t c = 0; c < cols; c++) to[c] = y[c];
    }
}

static void run_panels(const struct cpu_kernels *k, const struct mm_part *part, struct span panels,
                       const struct mm_block *b) {
    mm_panel_fn *kernel = k->panel[part->w->type];
    float out[MM_TILE][PANEL_ROWS];
    for (uint32_t p = panels.first; p < panels.end; p++) {
        const uint8_t *panel = pack_panel(part->w, part->expert, p);
        for (uint32_t r = 0; r < b->count; r += MM_TILE) {
            uint32_t count = b->count - r < MM_TILE ? b->count - r : MM_TILE;
            kernel(part->w, panel, b->rows + r, count, out);
            store_tile(part, p, b->dst + r, count, out);
        }
    }
}

/* What an op's parts have in common. */
struct mm_op {
    const struct matmul_part *parts;
    uint32_t part_count;
    bool add;
};

static uint32_t panel_total(const struct mm_op *m) {
    uint32_t total = 0;
    for (uint32_t i = 0; i < m->part_count; i++) {
        const struct packed *w = m->parts[i].weight->prepared;
        CHECK(w);
        total += w->panel_count;
    }
    return total;
}

/* The thread's panels [mine.first, mine.end), counted over all parts, for one block. */
static void run_block(const struct cpu_run *x, const struct mm_op *m, uint32_t expert,
                      struct span mine, struct mm_block *b) {
    uint32_t before = 0, dst_col = 0;
    for (uint32_t i = 0; i < m->part_count && b->count > 0; i++) {
        const struct packed *w = m->parts[i].weight->prepared;
        uint32_t first = mine.first > before ? mine.first - before : 0;
        uint32_t end = mine.end > before ? mine.end - before : 0;
        if (end > w->panel_count) end = w->panel_count;
        struct mm_part part = {w, m->parts[i].bias, expert, dst_col, m->add};
        if (first < end) run_panels(x->table->kernels, &part, (struct span){first, end}, b);
        before += w->panel_count;
        dst_col += w->rows;
    }
    b->count = 0;
}

void op_matmul_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_matmul *o = &op->matmul;
    struct mm_op m = {o->parts, o->part_count, o->add};
    struct mat src = mat_of(x, o->src), dst = mat_of(x, o->dst);
    bool quantised = dtype_is_quantised(o->parts[0].weight->type);
    struct span mine = span_share(panel_total(&m), ith, nth);
    struct mm_block block;
    block.count = 0;
    for (uint32_t r = 0; r < src.row_count; r++) {
        if (!run_row_is_live(x, src.kind, r)) continue;
        block_push(&block, &src, r, 0, quantised, mat_f32(&dst, r));
        if (block.count == MM_BLOCK) run_block(x, &m, 0, mine, &block);
    }
    run_block(x, &m, 0, mine, &block);
}

/* The rows that use expert e, gathered so that its weights are read once for all of them. */
static void run_expert(const struct cpu_run *x, const struct op_expert_matmul *o, uint32_t e,
                       struct span mine) {
    struct mm_op m = {o->parts, o->part_count, false};
    struct mat src = mat_of(x, o->src), ids = mat_of(x, o->ids), dst = mat_of(x, o->dst);
    bool quantised = dtype_is_quantised(o->parts[0].weight->type);
    uint32_t width = dst.cols / o->used, src_width = o->parts[0].weight->cols;
    struct mm_block block;
    block.count = 0;
    for (uint32_t i = 0; i < src.row_count * o->used; i++) {
        uint32_t r = i / o->used, j = i % o->used;
        if (!run_row_is_live(x, src.kind, r) || mat_i32(&ids, r)[j] != (int32_t)e) continue;
        block_push(&block, &src, r, o->src_per_expert ? j * src_width : 0, quantised,
                   mat_f32(&dst, r) + (size_t)j * width);
        if (block.count == MM_BLOCK) run_block(x, &m, e, mine, &block);
    }
    run_block(x, &m, e, mine, &block);
}

void op_expert_matmul_run(const struct cpu_run *x, const struct op *op, uint32_t ith,
                          uint32_t nth) {
    const struct op_expert_matmul *o = &op->expert_matmul;
    struct mm_op m = {o->parts, o->part_count, false};
    struct span mine = span_share(panel_total(&m), ith, nth);
    for (uint32_t e = 0; e < o->parts[0].weight->experts; e++) run_expert(x, o, e, mine);
}
