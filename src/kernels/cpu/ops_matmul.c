/* kernels/cpu/ops_matmul.c - drivers of products with packed weights.
 *
 * The panels of all parts lie side by side. Rows pass in blocks of MM_BLOCK, so that their
 * numbers stay in the second-level cache while the panels stream by; a panel is multiplied
 * with a block in tiles of a few rows. A table with a wide kernel multiplies most rows of a block
 * MM_WIDE at a time, and those that are left over in tiles like the others. A table with kernels
 * for pairs multiplies two panels with a tile at once. A table with an opener turns a panel's codes
 * into bytes once for all rows of a block (an opened panel).
 *
 * With few rows a thread owns one run of panels: one pass over its share of the weights, front
 * to back, which memory likes best; a thread that is done helps the others. With more of them
 * (CLAIM_ROWS_MIN) threads claim a few panels of a block at a time. With enough for every thread
 * each owns rows instead: what it computes it will read itself, which matters where processors do
 * not share a cache. In each case a thread whose processor is disturbed does less, and no thread
 * waits for all of its share. Which thread computes a panel changes no bits.
 *
 * Entry points: op_matmul_run, op_expert_matmul_run.
 */
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/workspace.h"

/* Pairs are claimed one by one unless a thread's share has more of them: with 32 rows one takes
 * 5 us and more, and a thread with two left at the end makes all others wait. */
enum { MM_BLOCK = 64, MM_TILES = MM_BLOCK / MM_WIDE, PAIR_CLAIMS = 64 };
_Static_assert((int)CLAIM_ROWS_MIN <= (int)MM_BLOCK, "few rows are one block");

/* Rows that go through the same weights together, and where their products go. */
struct mm_block {
    struct mm_row rows[MM_BLOCK];
    float *dst[MM_BLOCK]; /* column 0 of the op's result */
    uint32_t count;
    uint32_t wide_count; /* of the first rows that are gathered in `tiles` */
    bool gathered;
};

static void block_clear(struct mm_block *b) {
    b->count = b->wide_count = 0;
    b->gathered = false;
}

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

/* A panel's results for one row. All of them are copied at a known length, which makes vectors of
 * what the compiler would else store one by one, for fear that source and target overlap. */
static void store_row(const struct mm_part *part, uint32_t first, const float *y, float *to) {
    float sum[PANEL_ROWS], before[PANEL_ROWS];
    memcpy(sum, y, sizeof(sum));
    if (part->bias)
        for (int c = 0; c < PANEL_ROWS; c++) sum[c] += part->bias[first + c];
    if (part->add) {
        memcpy(before, to, sizeof(before));
        for (int c = 0; c < PANEL_ROWS; c++) sum[c] += before[c];
    }
    memcpy(to, sum, sizeof(sum));
}

/* The same for the last panel, where fewer columns may be left. */
static void store_end(const struct mm_part *part, uint32_t first, const float *y, float *to) {
    for (uint32_t c = 0; c < part->w->rows - first; c++) {
        float sum = y[c];
        if (part->bias) sum += part->bias[first + c];
        to[c] = part->add ? sum + to[c] : sum;
    }
}

static void store_tile(const struct mm_part *part, uint32_t panel, float *const *dst,
                       uint32_t count, float (*out)[PANEL_ROWS]) {
    uint32_t first = panel * PANEL_ROWS;
    bool whole = part->w->rows - first >= PANEL_ROWS;
    for (uint32_t t = 0; t < count; t++) {
        float *to = dst[t] + part->dst_col + first;
        if (whole)
            store_row(part, first, out[t], to);
        else
            store_end(part, first, out[t], to);
    }
}

/* A thread's memory: an opened panel, then for wide products the tiles of a block of rows. */
struct mm_room {
    const struct mm_wide *wide; /* NULL: this op is not wide */
    uint8_t *tiles, *panel;
    size_t tile_bytes;
};

/* Not wide if there are `row_count` rows at most, and that is too few. */
static struct mm_room room_of(const struct cpu_run *x, const struct matmul_part *part,
                              uint32_t row_count, uint32_t ith) {
    const struct mm_wide *wide = x->table->kernels->wide;
    struct mm_room room = {.panel = (uint8_t *)workspace_scratch(x->workspace, ith)};
    if (!wide || row_count < wide->rows_min || !wide->takes(part->weight->type)) return room;
    room.wide = wide;
    room.tiles = room.panel + pack_opened_bytes(part->weight->cols);
    room.tile_bytes = wide->row_bytes(part->weight->cols);
    return room;
}

size_t mm_scratch_bytes(const struct cpu_kernels *k, uint32_t cols) {
    size_t opened = k->wide || k->opener ? pack_opened_bytes(cols) : 0;
    return opened + (k->wide ? MM_TILES * k->wide->row_bytes(cols) : 0);
}

static void run_tiles(const struct mm_room *room, const struct mm_part *part, uint32_t panel,
                      const struct mm_block *b) {
    float out[MM_WIDE][PANEL_ROWS];
    struct mm_open open =
        room->wide->open(part->w, pack_panel(part->w, part->expert, panel), room->panel);
    for (uint32_t r = 0; r < b->wide_count; r += MM_WIDE) {
        uint32_t count = b->wide_count - r < MM_WIDE ? b->wide_count - r : MM_WIDE;
        room->wide->multiply(part->w, &open, room->tiles + r / MM_WIDE * room->tile_bytes, out);
        store_tile(part, panel, b->dst + r, count, out);
    }
}

/* Rows that are not wide: is the panel opened first? Only if the rows are many. */
static const struct mm_opener *opener_of(const struct cpu_kernels *k, const struct mm_part *part,
                                         const struct mm_block *b) {
    const struct mm_opener *opener = k->opener;
    if (!opener || b->count - b->wide_count < opener->rows_min) return NULL;
    return opener->panel[part->w->type] ? opener : NULL;
}

/* One panel times the rows from r on. */
static void run_rows(mm_panel_fn *kernel, const uint8_t *data, const struct mm_part *part,
                     uint32_t panel, const struct mm_block *b, uint32_t r) {
    float out[MM_TILE][PANEL_ROWS];
    for (; r < b->count; r += MM_TILE) {
        uint32_t count = b->count - r < MM_TILE ? b->count - r : MM_TILE;
        kernel(part->w, data, b->rows + r, count, out);
        store_tile(part, panel, b->dst + r, count, out);
    }
}

/* Panels p and p + 1 with as many of the rows from r on as make whole tiles; returns the first of
 * the others. */
static uint32_t run_pair(const struct mm_pairs *pairs, const struct mm_part *part, uint32_t p,
                         const struct mm_block *b, uint32_t r) {
    const uint8_t *data = pack_panel(part->w, part->expert, p);
    size_t first = p * PANEL_ROWS;
    struct mm_sink to = {.col = part->dst_col + first, .add = part->add};
    if (part->bias) to.bias = part->bias + first;
    for (; r + MM_TILE <= b->count; r += MM_TILE) {
        to.rows = b->dst + r;
        pairs->pair[part->w->type](part->w, data, b->rows + r, &to);
    }
    return r;
}

/* Whether panels p and p + 1 go together: both are whole. */
static bool makes_pair(const struct mm_pairs *pairs, const struct mm_part *part, uint32_t p,
                       uint32_t end, uint32_t row_count) {
    if (!pairs || !pairs->pair[part->w->type]) return false;
    if (row_count < pairs->rows_min || p + 1 >= end) return false;
    return part->w->rows >= (p + MM_PAIR) * PANEL_ROWS;
}

static void run_panels(const struct cpu_kernels *k, const struct mm_room *room,
                       const struct mm_part *part, struct range panels, const struct mm_block *b) {
    const struct mm_opener *opener = opener_of(k, part, b);
    mm_panel_fn *kernel = (opener ? opener->panel : k->panel)[part->w->type];
    uint32_t p = panels.first, row_count = b->count - b->wide_count;
    while (p < panels.end) {
        uint32_t r = b->wide_count, end = p + 1;
        if (makes_pair(k->pairs, part, p, panels.end, row_count)) {
            end = p + MM_PAIR;
            r = run_pair(k->pairs, part, p, b, r);
        }
        for (; p < end; p++) {
            const uint8_t *data = pack_panel(part->w, part->expert, p);
            if (b->wide_count > 0) run_tiles(room, part, p, b);
            if (opener) {
                opener->open(part->w, data, room->panel);
                data = room->panel;
            }
            run_rows(kernel, data, part, p, b, r);
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

/* What [mine.first, mine.end), counted over all parts, holds of a part with `before` before it. */
static struct range span_in_part(struct range mine, uint32_t before, const struct packed *w) {
    uint32_t first = mine.first > before ? mine.first - before : 0;
    uint32_t end = mine.end > before ? mine.end - before : 0;
    return (struct range){first, end < w->panel_count ? end : w->panel_count};
}

struct range mm_share(const struct matmul_part *parts, uint32_t part_count, uint32_t part,
                      uint32_t ith, uint32_t nth) {
    struct mm_op m = {parts, part_count, false};
    uint32_t before = 0;
    for (uint32_t i = 0; i < part; i++)
        before += ((const struct packed *)parts[i].weight->prepared)->panel_count;
    return span_in_part(range_share(panel_total(&m), ith, nth), before,
                        parts[part].weight->prepared);
}

/* Some part has minima in groups of 16, for which rows are gathered with more numbers. */
static bool needs_halves(const struct mm_op *m) {
    for (uint32_t i = 0; i < m->part_count; i++) {
        const struct dtype_info *info = dtype_info(m->parts[i].weight->type);
        if (info->has_min && info->group_elems != Q8_BLOCK) return true;
    }
    return false;
}

static void gather_block(const struct mm_op *m, const struct mm_room *room, struct mm_block *b) {
    uint32_t cols = m->parts[0].weight->cols, rest = b->count % MM_WIDE;
    bool halves = needs_halves(m);
    b->wide_count = rest < room->wide->rows_min ? b->count - rest : b->count;
    b->gathered = true;
    for (uint32_t r = 0; r < b->wide_count; r += MM_WIDE) {
        uint32_t count = b->wide_count - r < MM_WIDE ? b->wide_count - r : MM_WIDE;
        room->wide->gather(b->rows + r, count, cols, halves,
                           room->tiles + r / MM_WIDE * room->tile_bytes);
    }
}

/* Panels [mine.first, mine.end), counted over all parts, for one block. */
static void run_block(const struct cpu_run *x, const struct mm_op *m, const struct mm_room *room,
                      uint32_t expert, struct range mine, struct mm_block *b) {
    uint32_t before = 0, dst_col = 0;
    if (mine.first == mine.end || b->count == 0) return;
    if (room->wide && !b->gathered) gather_block(m, room, b);
    for (uint32_t i = 0; i < m->part_count; i++) {
        const struct packed *w = m->parts[i].weight->prepared;
        struct range panels = span_in_part(mine, before, w);
        const float *bias = vector_floats(m->parts[i].bias);
        struct mm_part part = {w, bias, expert, dst_col, m->add};
        if (panels.first < panels.end) run_panels(x->table->kernels, room, &part, panels, b);
        before += w->panel_count;
        dst_col += w->rows;
    }
}

/* An op with rows, on one thread. */
struct mm_job {
    const struct cpu_run *x;
    struct mm_op m;
    struct mm_room room;
    struct mat src, dst;
    bool quantised;
    uint32_t op_idx, panels, ith, nth;
    const struct op *act; /* that follows piece by piece, or NULL */
};

/* Fill a block with the next live rows from *next on, before `end`; false if none is left. */
static bool next_block(const struct mm_job *j, uint32_t *next, uint32_t end, struct mm_block *b) {
    block_clear(b);
    for (; *next < end && b->count < MM_BLOCK; (*next)++)
        if (run_row_is_live(j->x, j->src.kind, *next))
            block_push(b, &j->src, *next, 0, j->quantised, mat_f32(&j->dst, *next));
    return b->count > 0;
}

/* Panels [piece.first, piece.end), counted over all parts, are done. */
static void follow(const struct mm_job *j, struct range piece) {
    uint32_t before = 0, col = j->dst.col;
    for (uint32_t i = 0; i < j->m.part_count; i++) {
        const struct packed *w = j->m.parts[i].weight->prepared;
        struct range panels = span_in_part(piece, before, w);
        uint32_t end = panels.end * PANEL_ROWS < w->rows ? panels.end * PANEL_ROWS : w->rows;
        if (panels.first < panels.end)
            op_act_follow(j->x, j->act, (struct range){col + panels.first * PANEL_ROWS, col + end});
        before += w->panel_count;
        col += w->rows;
    }
}

/* Few rows fit in one block: the thread's own share, then what is left of the others'. */
static void run_shares(const struct mm_job *j) {
    struct mm_block block;
    uint32_t next = 0, shares = j->panels < j->nth ? j->panels : j->nth;
    if (!next_block(j, &next, j->src.row_count, &block)) return;
    for (uint32_t i = 0; i < j->nth && workspace_has_left(j->x->workspace, j->op_idx, shares);
         i++) {
        uint32_t owner = (j->ith + i) % j->nth;
        struct range share = range_share(j->panels, owner, j->nth);
        uint32_t count = share.end - share.first;
        uint32_t pieces = count < TAKES_PER_THREAD ? count : TAKES_PER_THREAD;
        for (;;) {
            uint32_t piece = workspace_take(j->x->workspace, j->op_idx, owner, pieces);
            if (piece == pieces) break;
            struct range part = range_share(count, piece, pieces);
            part.first += share.first;
            part.end += share.first;
            run_block(j->x, &j->m, &j->room, 0, part, &block);
            if (j->act) follow(j, part);
        }
    }
}

/* All panels cut into chunks of whole pairs. */
struct mm_chunks {
    uint32_t pairs, count;
};

static struct mm_chunks chunks_of(const struct mm_job *j, uint32_t count) {
    uint32_t pairs = (j->panels + 1) / MM_PAIR;
    return (struct mm_chunks){pairs, count < pairs ? count : pairs};
}

/* Chunk i of the panels times a block of rows. */
static void run_chunk(const struct mm_job *j, struct mm_chunks c, uint32_t i, struct mm_block *b) {
    struct range mine = range_share(c.pairs, i, c.count);
    mine.first *= MM_PAIR;
    mine.end = mine.end == c.pairs ? j->panels : mine.end * MM_PAIR;
    run_block(j->x, &j->m, &j->room, 0, mine, b);
}

/* Each thread counts off the same units, all chunks for one block of rows after the other. Threads
 * that are not disturbed take turns. */
static void run_claims(const struct mm_job *j) {
    struct mm_block block;
    struct mm_chunks chunks = chunks_of(j, j->nth * PAIR_CLAIMS);
    uint32_t unit = workspace_claim(j->x->workspace, j->op_idx), next = 0;
    for (uint32_t i = 0; next_block(j, &next, j->src.row_count, &block); i++)
        for (; unit / chunks.count == i; unit = workspace_claim(j->x->workspace, j->op_idx))
            run_chunk(j, chunks, unit % chunks.count, &block);
}

/* A thread's rows, those that it has in the row ops around, too, go through all panels: they stay
 * in its own caches. A thread that is done helps the others. */
static void run_own_rows(const struct mm_job *j) {
    struct mm_block block;
    struct mm_chunks chunks = chunks_of(j, CLAIMS_PER_THREAD);
    for (uint32_t i = 0; i < j->nth && workspace_has_left(j->x->workspace, j->op_idx, j->nth);
         i++) {
        uint32_t owner = (j->ith + i) % j->nth, at = UINT32_MAX;
        struct range rows = range_share(j->src.row_count, owner, j->nth);
        uint32_t blocks = (rows.end - rows.first + MM_BLOCK - 1) / MM_BLOCK;
        uint32_t pieces = blocks * chunks.count, piece;
        while ((piece = workspace_take(j->x->workspace, j->op_idx, owner, pieces)) < pieces) {
            if (piece / chunks.count != at) {
                at = piece / chunks.count;
                struct range some = range_share(rows.end - rows.first, at, blocks);
                uint32_t next = rows.first + some.first;
                next_block(j, &next, rows.first + some.end, &block);
            }
            run_chunk(j, chunks, piece % chunks.count, &block);
        }
    }
}

/* Every owner of rows reads all weights. A block of rows is always worth that; with few threads,
 * whose reading the memory stands, so are fewer: 16 rows of each of two, 32 of each of four. */
static bool rows_are_owned(uint32_t row_count, uint32_t nth) {
    enum { ROWS_PER_READER = 8 };
    uint32_t rows = row_count / nth;
    return rows >= MM_BLOCK || rows >= nth * ROWS_PER_READER;
}

void op_matmul_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_matmul *o = &op->matmul;
    struct mm_job j = {
        .x = x,
        .m = {o->parts, o->part_count, o->add},
        .src = mat_of(x, o->src),
        .dst = mat_of(x, o->dst),
        .quantised = dtype_has_integers(o->parts[0].weight->type),
        .op_idx = (uint32_t)(op - tape_op(x->tape, 0)),
        .ith = ith,
        .nth = nth,
    };
    j.room = room_of(x, o->parts, j.src.row_count, ith);
    j.panels = panel_total(&j.m);
    if (j.op_idx + 1 < tape_op_count(x->tape) &&
        workspace_follows(x->workspace, op + 1, j.src.row_count))
        j.act = op + 1;
    if (j.room.wide) j.room.wide->enter();
    if (j.src.row_count < CLAIM_ROWS_MIN)
        run_shares(&j);
    else if (rows_are_owned(j.src.row_count, nth))
        run_own_rows(&j);
    else
        run_claims(&j);
    if (j.room.wide) j.room.wide->leave();
}

/* The rows that use expert e, gathered so that its weights are read once for all of them. */
static void run_expert(const struct cpu_run *x, const struct op_expert_matmul *o, uint32_t e,
                       const struct mm_room *room, struct range mine) {
    struct mm_op m = {o->parts, o->part_count, false};
    struct mat src = mat_of(x, o->src), ids = mat_of(x, o->ids), dst = mat_of(x, o->dst);
    bool quantised = dtype_has_integers(o->parts[0].weight->type);
    uint32_t width = dst.cols / o->used, src_width = o->parts[0].weight->cols;
    struct mm_block block;
    block_clear(&block);
    for (uint32_t i = 0; i < src.row_count * o->used; i++) {
        uint32_t r = i / o->used, j = i % o->used;
        if (!run_row_is_live(x, src.kind, r) || mat_i32(&ids, r)[j] != (int32_t)e) continue;
        block_push(&block, &src, r, o->src_per_expert ? j * src_width : 0, quantised,
                   mat_f32(&dst, r) + (size_t)j * width);
        if (block.count < MM_BLOCK) continue;
        run_block(x, &m, room, e, mine, &block);
        block_clear(&block);
    }
    run_block(x, &m, room, e, mine, &block);
}

void op_expert_matmul_run(const struct cpu_run *x, const struct op *op, uint32_t ith,
                          uint32_t nth) {
    const struct op_expert_matmul *o = &op->expert_matmul;
    struct mm_op m = {o->parts, o->part_count, false};
    struct range mine = range_share(panel_total(&m), ith, nth);
    struct mm_room room = room_of(x, o->parts, mat_of(x, o->src).row_count, ith);
    if (room.wide) room.wide->enter();
    for (uint32_t e = 0; e < o->parts[0].weight->experts; e++) run_expert(x, o, e, &room, mine);
    if (room.wide) room.wide->leave();
}
