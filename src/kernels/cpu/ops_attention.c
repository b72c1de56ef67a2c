/* kernels/cpu/ops_attention.c - drivers of attention.
 *
 * The work is a list of items (row, unit): a unit is the fewest heads whose results are whole
 * blocks of Q8_BLOCK, mostly one. A thread takes a run of items of about equal cost, a row
 * costing as much as it attends to. Of its run, neighbouring rows of one sequence go together:
 * the queries of all their heads that share a KV head pass through the kernel a batch at a
 * time, so that keys and values are read once for a batch. Where there are many rows, threads
 * claim such rows with the heads of a KV head, first of the rows that are theirs in the ops around
 * this one, then of the others', so that a disturbed processor delays no other.
 * Where there are too few items for the threads and the context is long, the items are (rows,
 * segment, batch) instead; each leaves its parts, and once all are there the parts of a head
 * are joined in rising order. The bits are the same every way.
 *
 * Entry points: op_attention_run, op_self_attention_run.
 */
#include <string.h>

#include "base/check.h"
#include "base/pool.h"
#include "graph/key_smoothing.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/key_sums.h"
#include "kernels/cpu/workspace.h"

enum {
    ROW_COST = 32,        /* what a row costs beside its attended tokens, in tokens */
    ITEMS_PER_THREAD = 8, /* with fewer, threads wait for each other for too long */
};

/* Neighbouring rows of one sequence whose positions lie in the same segments. */
struct attn_rows {
    uint32_t row[ATTN_ROWS];
    const float *q[ATTN_ROWS];
    float *out[ATTN_ROWS];
    uint32_t first[ATTN_ROWS], end[ATTN_ROWS]; /* attended positions; both rise */
    uint32_t count;
    uint32_t heads_per_kv, head_dim;
    float scale, softcap;
    /* The cache, or for an encoder (kv NULL) tiles of the keys of `head0` and those after. */
    const struct kv_tiles *kv;
    const uint32_t *blocks;
    uint32_t layer;
    const float *tiles;
    size_t tiles_per_head; /* floats */
    uint32_t head0;
    const uint8_t *v_rows;
    size_t v_stride;
    float *transformed; /* scratch for the queries of a batch; of KV_I4 */
    const struct key_smoothing *smoothing;
};

/* Some tiles of the segment that begins with tile `base` of the sequence. */
static void find_tiles(const struct attn_rows *a, uint32_t kv_head, uint32_t base,
                       struct range tiles, const uint8_t **k, const uint8_t **v) {
    if (a->kv) {
        const uint8_t *first = kv_tile(a->kv, a->layer, 0, kv_head);
        size_t tile_bytes = kv_tile_bytes(a->kv);
        size_t side_bytes = kv_side_bytes(a->kv->type, a->kv->head_dim);
        for (uint32_t t = tiles.first; t < tiles.end; t++) {
            uint32_t tile = kv_tile_index(a->kv, a->blocks, base + t);
            CHECK(tile < a->kv->tile_count);
            k[t] = first + tile * tile_bytes;
            v[t] = k[t] + side_bytes;
        }
        return;
    }
    const float *keys = a->tiles + (kv_head - a->head0) * a->tiles_per_head;
    const uint8_t *values = a->v_rows + (size_t)kv_head * a->head_dim * sizeof(float);
    for (uint32_t t = tiles.first; t < tiles.end; t++) {
        size_t token = (size_t)(base + t) * KV_TILE_TOKENS;
        k[t] = (const uint8_t *)(keys + token * a->head_dim);
        v[t] = values + token * a->v_stride;
    }
}

/* Tiles that tokens [first, end) of a segment lie in. */
static struct range tiles_of(uint32_t first, uint32_t end) {
    return (struct range){first / KV_TILE_TOKENS, (end - 1) / KV_TILE_TOKENS + 1};
}

/* Heads [head, head + heads) share a KV head. Their queries are counted row by row; these are
 * the queries [first, end), and whose they are. */
struct attn_batch {
    uint32_t head, heads;
    uint32_t first, end;
    struct attn_owner {
        uint32_t row, head;
    } owner[ATTN_QUERIES];
};

/* Counted on from the first one: two divisions a query would cost more than all else here. */
static void find_owners(struct attn_batch *b) {
    struct attn_owner at = {b->first / b->heads, b->head + b->first % b->heads};
    for (uint32_t i = 0; i < b->end - b->first; i++) {
        b->owner[i] = at;
        if (++at.head == b->head + b->heads) at = (struct attn_owner){at.row + 1, b->head};
    }
}

/* The batch after `b`, in which nothing but `head` is set before the first. What is left of a KV
 * head's queries behind whole batches is cut into a few each, of about equal size. */
static bool batch_next(const struct attn_rows *a, struct range heads, struct attn_batch *b) {
    b->first = b->end;
    if (b->first == a->count * b->heads) {
        b->head += b->heads;
        if (b->head == heads.end) return false;
        uint32_t edge = (b->head / a->heads_per_kv + 1) * a->heads_per_kv;
        b->heads = (edge < heads.end ? edge : heads.end) - b->head;
        b->first = 0;
    }
    uint32_t left = a->count * b->heads - b->first;
    CHECK(left > 0);
    uint32_t calls = (left + ATTN_FEW - 1) / ATTN_FEW;
    b->end = b->first + (left < ATTN_QUERIES ? (left + calls - 1) / calls : ATTN_QUERIES);
    find_owners(b);
    return true;
}

static bool is_int4(const struct attn_rows *a) { return a->kv && a->kv->type == KV_I4; }

/* The queries become those that KV_I4 wants. */
static void transform_queries(const struct cpu_kernels *k, const struct attn_rows *a,
                              uint32_t kv_head, struct attn_segment *s) {
    size_t first = (size_t)kv_head * a->head_dim;
    for (uint32_t i = 0; i < s->query_count; i++)
        transform_query(k, a->smoothing, first, a->head_dim,
                        a->transformed + i * int4_query_floats(a->head_dim), &s->query[i]);
}

/* All but the tiles, and what the queries attend to. */
static void begin_segment(const struct cpu_kernels *k, const struct attn_rows *a,
                          const struct attn_batch *b, struct attn_segment *s) {
    s->v_stride = a->v_stride;
    s->type = a->kv ? a->kv->type : KV_F32;
    s->head_dim = a->head_dim;
    s->scale = a->scale;
    s->softcap = a->softcap;
    s->query_count = b->end - b->first;
    for (uint32_t i = 0; i < s->query_count; i++)
        s->query[i].q = a->q[b->owner[i].row] + (size_t)b->owner[i].head * a->head_dim;
    s->codes_stride = int4_query_floats(a->head_dim) * sizeof(float);
    if (is_int4(a)) transform_queries(k, a, b->head / a->heads_per_kv, s);
    memset(s->next, 0, sizeof(s->next));
}

/* What the batch's queries attend to of one segment of the sequence. */
static void fill_segment(const struct attn_rows *a, const struct attn_batch *b, uint32_t segment,
                         struct attn_segment *s) {
    uint32_t start = segment * ATTN_SEGMENT, edge = start + ATTN_SEGMENT;
    s->early = segment == 0 && is_int4(a) && a->smoothing ? KEY_MEAN_FIRST : 0;
    for (uint32_t i = 0; i < s->query_count; i++) {
        uint32_t row = b->owner[i].row;
        s->query[i].first = a->first[row] > start ? a->first[row] - start : 0;
        s->query[i].end = (a->end[row] < edge ? a->end[row] : edge) - start;
    }
    struct range tiles = tiles_of(s->query[0].first, s->query[s->query_count - 1].end);
    find_tiles(a, b->head / a->heads_per_kv, start / KV_TILE_TOKENS, tiles, s->k, s->v);
}

static struct range segments_of(uint32_t first, uint32_t end) {
    return (struct range){first / ATTN_SEGMENT, (end - 1) / ATTN_SEGMENT + 1};
}

/* A head's segment that comes after what is being computed. */
struct attn_next {
    const struct attn_rows *rows; /* NULL: not known */
    uint32_t head, segment;
};

static struct attn_next next_head(const struct attn_rows *a, uint32_t head) {
    return (struct attn_next){a, head, segments_of(a->first[0], a->end[0]).first};
}

/* The keys of `next` are fetched while `s` is computed, as far as there is room: for as many tiles
 * as `s` reads itself, of which `used` are taken; the new number is returned. For rows alone, and
 * parts of them: what neighbouring rows read has been read for those before them. */
static uint32_t fetch_next(struct attn_next next, uint32_t used, struct attn_segment *s) {
    const struct attn_rows *a = next.rows;
    const uint8_t *k[ATTN_TILES], *v[ATTN_TILES];
    struct range own = tiles_of(s->query[0].first, s->query[s->query_count - 1].end);
    if (!a || !a->kv) return used;
    uint32_t start = next.segment * ATTN_SEGMENT, edge = start + ATTN_SEGMENT;
    struct range tiles = tiles_of(a->first[0] > start ? a->first[0] - start : 0,
                                  (a->end[0] < edge ? a->end[0] : edge) - start);
    find_tiles(a, next.head / a->heads_per_kv, start / KV_TILE_TOKENS, tiles, k, v);
    for (uint32_t t = tiles.first; t < tiles.end && own.first + used < own.end; t++)
        s->next[own.first + used++] = k[t];
    return used;
}

/* Neighbouring rows have read most of what comes next. New to this thread are the last tile of
 * those after them, and their queries, which another may have written. */
static void fetch_last_tile(struct attn_next next, struct attn_segment *s) {
    const struct attn_rows *a = next.rows;
    if (!a || !a->kv) return;
    const uint8_t *k[ATTN_TILES], *v[ATTN_TILES];
    uint32_t tile = (a->end[a->count - 1] - 1) / KV_TILE_TOKENS, at = tile % ATTN_TILES;
    find_tiles(a, next.head / a->heads_per_kv, tile - at, (struct range){at, at + 1}, k, v);
    uint32_t own = s->query[0].first / KV_TILE_TOKENS;
    s->next[own] = k[at];
    if (own + 1 < ATTN_TILES) s->next[own + 1] = v[at];
}

static void fetch_queries(struct attn_next next) {
    enum { LINE_FLOATS = 16, SECOND_CACHE = 2 };
    const struct attn_rows *a = next.rows;
    if (!a) return;
    uint32_t heads = a->heads_per_kv - next.head % a->heads_per_kv; /* to the KV head's last */
    for (uint32_t i = 0; i < a->count; i++) {
        const float *q = a->q[i] + (size_t)next.head * a->head_dim;
        for (uint32_t c = 0; c < heads * a->head_dim; c += LINE_FLOATS)
            __builtin_prefetch(q + c, 0, SECOND_CACHE);
    }
}

/* After segment n of a batch comes n + 1, and after the last one `after`. */
static void fetch_after(const struct attn_rows *a, const struct attn_batch *b, uint32_t n,
                        struct attn_next after, struct attn_segment *s) {
    uint32_t end = segments_of(a->first[0], a->end[0]).end, used = 0;
    memset(s->next, 0, sizeof(s->next));
    if (n + 1 < end) used = fetch_next((struct attn_next){a, b->head, n + 1}, used, s);
    if (n + 2 >= end) fetch_next(after, used, s);
}

static void attend_batch(const struct cpu_kernels *k, const struct attn_rows *a,
                         const struct attn_batch *b, struct attn_next after, float *scratch) {
    struct attn_segment s;
    struct attn_part all[ATTN_QUERIES], part[ATTN_QUERIES];
    struct range segments = segments_of(a->first[0], a->end[0]);
    begin_segment(k, a, b, &s);
    for (uint32_t i = 0; i < s.query_count; i++) {
        all[i].out = a->out[b->owner[i].row] + (size_t)b->owner[i].head * a->head_dim;
        part[i].out = scratch + (size_t)i * a->head_dim;
    }
    for (uint32_t n = segments.first; n < segments.end; n++) {
        fill_segment(a, b, n, &s);
        if (a->count == 1)
            fetch_after(a, b, n, after, &s);
        else if (n + 1 == segments.end)
            fetch_last_tile(after, &s);
        k->attend(&s, n == segments.first ? all : part);
        for (uint32_t i = 0; n != segments.first && i < s.query_count; i++)
            k->attn_merge(&all[i], &part[i], a->head_dim);
    }
    for (uint32_t i = 0; i < s.query_count; i++) {
        k->attn_finish(&all[i], a->head_dim);
        if (is_int4(a)) k->kv_hadamard(all[i].out, a->head_dim);
    }
}

static void attend_rows(const struct cpu_kernels *k, const struct attn_rows *a, struct range heads,
                        struct attn_next after, float *scratch) {
    struct attn_batch b = {.head = heads.first}, next = b;
    bool more = batch_next(a, heads, &next);
    fetch_queries(after);
    while (more) {
        b = next;
        more = batch_next(a, heads, &next);
        attend_batch(k, a, &b, more ? next_head(a, next.head) : after, scratch);
    }
}

/* Where rows' results go, and the quantising of those that are done. */
struct attn_results {
    struct mat dst, q8;
    float *rows; /* scratch for ATTN_ROWS, where no floats are wanted */
    uint32_t cols;
};

static float *results_row(const struct attn_results *o, uint32_t row, uint32_t nth_of_rows) {
    return o->dst.base ? mat_f32(&o->dst, row) : o->rows + (size_t)nth_of_rows * o->cols;
}

static void quantise_heads(const struct cpu_kernels *k, const struct attn_results *o,
                           const struct attn_rows *a, struct range heads) {
    uint32_t col = heads.first * a->head_dim;
    for (uint32_t i = 0; o->q8.base && i < a->count; i++)
        k->quantise(a->out[i] + col, (heads.end - heads.first) * a->head_dim,
                    mat_q8_write(&o->q8, a->row[i], col));
}

/* An attention op, as all threads see it. */
struct attn_op {
    const struct cpu_run *x;
    const struct op_attention *a;
    struct mat q;
    uint32_t unit, units; /* heads in a unit, units in a row */
    uint32_t together;    /* rows that go together at most */
    float *transformed;   /* the thread's, for struct attn_rows */
};

/* As few rows as give whole batches, so that threads find enough to claim; but no row alone. */
static uint32_t rows_together(uint32_t heads_per_kv) {
    uint32_t rows = 2;
    while (rows < ATTN_ROWS && rows * heads_per_kv % ATTN_QUERIES != 0) rows++;
    return rows;
}

/* The positions that a live row attends to. */
static struct range positions_of(const struct attn_op *o, uint32_t row) {
    uint32_t end = (uint32_t)o->x->step->pos[row] + 1, window = o->a->window;
    return (struct range){window > 0 && end > window ? end - window : 0, end};
}

static bool same_segments(struct range a, struct range b) {
    return a.first / ATTN_SEGMENT == b.first / ATTN_SEGMENT &&
           (a.end - 1) / ATTN_SEGMENT == (b.end - 1) / ATTN_SEGMENT;
}

/* Of rows.first, which is live, and those after it that go with it: the end. */
static uint32_t rows_end(const struct attn_op *o, struct range rows) {
    const struct step *step = o->x->step;
    struct range at = positions_of(o, rows.first);
    uint32_t r = rows.first + 1;
    while (r < rows.end && r - rows.first < o->together && step->pos[r] >= 0 &&
           step->seq[r] == step->seq[rows.first] && same_segments(at, positions_of(o, r)))
        r++;
    return r;
}

/* Rows that go together; `results` NULL: their results stay parts. */
static struct attn_rows gather_rows(const struct attn_op *o, const struct attn_results *results,
                                    struct range rows) {
    const struct step *step = o->x->step;
    const struct kv_tiles *kv = &o->x->kv[o->a->group];
    struct attn_rows a = {
        .heads_per_kv = o->a->heads / o->a->kv_heads,
        .head_dim = o->a->head_dim,
        .scale = o->a->scale,
        .softcap = o->a->softcap,
        .kv = kv,
        .blocks = step_blocks(step, step->seq[rows.first], o->a->group),
        .layer = o->a->layer,
        .v_stride = kv_row_bytes(kv->type, o->a->head_dim),
        .transformed = o->transformed,
        .smoothing = o->a->smoothing,
    };
    for (uint32_t r = rows.first; r < rows.end; r++, a.count++) {
        struct range own = positions_of(o, r);
        a.row[a.count] = r;
        a.q[a.count] = mat_f32(&o->q, r);
        a.out[a.count] = results ? results_row(results, r, a.count) : NULL;
        a.first[a.count] = own.first;
        a.end[a.count] = own.end;
    }
    return a;
}

/* The first of `rows` that go together, which are cut off; false if none is left. */
static bool next_rows(const struct attn_op *o, struct range *rows, struct range *out) {
    while (rows->first < rows->end && o->x->step->pos[rows->first] < 0) rows->first++;
    if (rows->first == rows->end) return false;
    *out = (struct range){rows->first, rows_end(o, *rows)};
    rows->first = out->end;
    return true;
}

static uint64_t row_cost(const struct attn_op *o, uint32_t row) {
    if (o->x->step->pos[row] < 0) return 0;
    struct range at = positions_of(o, row);
    return at.end - at.first + ROW_COST;
}

/* The first unit that starts at `cost` or later, all units laid out one after the other. */
struct attn_place {
    uint32_t row, unit;
};
static struct attn_place place_at(const struct attn_op *o, uint64_t cost) {
    uint64_t at = 0;
    uint32_t r = 0;
    for (; r < o->q.row_count; r++) {
        uint64_t each = row_cost(o, r);
        uint64_t unit = each > 0 && cost > at ? (cost - at + each - 1) / each : 0;
        if (each > 0 && unit < o->units) return (struct attn_place){r, (uint32_t)unit};
        at += each * o->units;
    }
    return (struct attn_place){r, 0};
}

/* Rows that are computed together, and which of their heads. */
struct attn_piece {
    struct attn_rows rows;
    struct range heads;
};

static struct attn_next next_piece(const struct attn_piece *p) {
    return next_head(&p->rows, p->heads.first);
}

static void attend_piece(const struct cpu_kernels *k, const struct attn_results *results,
                         const struct attn_piece *p, struct attn_next after, float *scratch) {
    attend_rows(k, &p->rows, p->heads, after, scratch);
    quantise_heads(k, results, &p->rows, p->heads);
}

/* The first piece of the units from `from` to `to`, which it is cut off; false if none is left. */
static bool cut_piece(const struct attn_op *o, const struct attn_results *results,
                      struct attn_place *from, struct attn_place to, struct attn_piece *out) {
    for (; from->row < to.row || (from->row == to.row && to.unit > 0);
         *from = (struct attn_place){from->row + 1, 0}) {
        uint32_t r = from->row, first = from->unit, end = r == to.row ? to.unit : o->units;
        if (o->x->step->pos[r] < 0 || first >= end) continue;
        bool whole = first == 0 && end == o->units;
        struct range rows = {r, whole ? rows_end(o, (struct range){r, to.row}) : r + 1};
        out->rows = gather_rows(o, results, rows);
        out->heads = (struct range){first * o->unit, end * o->unit};
        *from = (struct attn_place){rows.end, 0};
        return true;
    }
    return false;
}

static void run_whole_rows(const struct attn_op *o, const struct attn_results *results,
                           float *scratch, uint32_t ith, uint32_t nth) {
    uint64_t total = 0;
    for (uint32_t r = 0; r < o->q.row_count; r++) total += row_cost(o, r) * o->units;
    struct attn_place from = place_at(o, total * ith / nth);
    struct attn_place to = place_at(o, total * (ith + 1) / nth);
    struct attn_piece now, then;
    bool more = cut_piece(o, results, &from, to, &then);
    while (more) {
        now = then;
        more = cut_piece(o, results, &from, to, &then);
        struct attn_next after = more ? next_piece(&then) : (struct attn_next){.rows = NULL};
        attend_piece(o->x->table->kernels, results, &now, after, scratch);
    }
}

/* Heads that are claimed together: those of a KV head, if that gives whole units. */
static uint32_t claimed_heads(const struct attn_op *o) {
    uint32_t heads_per_kv = o->a->heads / o->a->kv_heads;
    return heads_per_kv % o->unit == 0 ? heads_per_kv : o->a->heads;
}

/* The claims of some rows, up to `most` of them. */
static uint32_t count_claims(const struct attn_op *o, struct range rows, uint32_t most) {
    uint32_t count = 0, each = o->a->heads / claimed_heads(o);
    for (struct range some; count < most && next_rows(o, &rows, &some);) count += each;
    return count;
}

/* With fewer claims, the shares of run_whole_rows are more equal. */
static bool wants_claims(const struct attn_op *o, uint32_t nth) {
    uint32_t wanted = nth * CLAIMS_PER_THREAD, rows = o->q.row_count / nth + 1;
    if (nth == 1 || o->q.row_count < CLAIM_ROWS_MIN) return false;
    if (rows > WORKSPACE_PIECES_MAX / (o->a->heads / claimed_heads(o))) return false;
    return count_claims(o, (struct range){0, o->q.row_count}, wanted) >= wanted;
}

/* Where a thread stands among the claims of a thread's rows, which all count off alike: rows that
 * go together, heads by heads. */
struct attn_walk {
    uint32_t ith, nth, op_idx;
    uint32_t passed;     /* threads whose rows are all claimed, itself first */
    struct range left;   /* rows behind those that are being claimed */
    struct range rows;   /* those, which go together */
    uint32_t first, end; /* their claims */
    uint32_t claims;     /* of all rows of the thread */
};

static uint32_t walk_owner(const struct attn_walk *at) { return (at->ith + at->passed) % at->nth; }

static void walk_begin(const struct attn_op *o, struct attn_walk *at) {
    at->left = range_share(o->q.row_count, walk_owner(at), at->nth);
    at->first = at->end = 0;
    at->claims = count_claims(o, at->left, UINT32_MAX);
}

static bool claim_piece(const struct attn_op *o, const struct attn_results *results,
                        struct attn_walk *at, struct attn_piece *out) {
    const struct workspace *workspace = o->x->workspace;
    uint32_t width = claimed_heads(o), claim;
    while ((claim = workspace_take(workspace, at->op_idx, walk_owner(at), at->claims)) ==
           at->claims) {
        if (++at->passed == at->nth || !workspace_has_left(workspace, at->op_idx, at->nth))
            return false;
        walk_begin(o, at);
    }
    while (claim >= at->end) {
        CHECK(next_rows(o, &at->left, &at->rows));
        at->first = at->end;
        at->end += o->a->heads / width;
    }
    out->rows = gather_rows(o, results, at->rows);
    out->heads = (struct range){(claim - at->first) * width, (claim - at->first + 1) * width};
    return true;
}

/* A thread claims its own rows first, which it has written and will read. It claims ahead to have
 * what it needs next fetched meanwhile; but not the last rows, for which others would wait. */
static void run_claimed_rows(const struct attn_op *o, const struct attn_results *results,
                             float *scratch, struct attn_walk at) {
    struct attn_piece now, then;
    walk_begin(o, &at);
    bool more = claim_piece(o, results, &at, &then);
    while (more) {
        now = then;
        struct attn_next after = {.rows = NULL};
        bool ahead = now.rows.count == 1 || at.left.end - at.left.first > at.nth * o->together;
        if (ahead) more = claim_piece(o, results, &at, &then);
        if (ahead && more) after = next_piece(&then);
        attend_piece(o->x->table->kernels, results, &now, after, scratch);
        if (!ahead) more = claim_piece(o, results, &at, &then);
    }
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
        struct range at = positions_of(o, r), segments = segments_of(at.first, at.end);
        uint64_t count = segments.end - segments.first;
        parts->count += count * o->a->heads;
        if (count > longest) longest = count;
        live++;
    }
    parts->numbers = o->x->workspace->parts;
    parts->out = parts->numbers + 2 * parts->count;
    bool fits = parts->count * (o->a->head_dim + 2) <= WORKSPACE_PARTS_FLOATS;
    return nth > 1 && longest > 1 && live * o->units < (uint64_t)nth * ITEMS_PER_THREAD && fits;
}

/* The part of (row, segment, head), the rows' own parts starting at `base`. */
static uint64_t part_index(const struct attn_op *o, const struct attn_rows *a, uint64_t base,
                           uint32_t row, uint32_t segment, uint32_t head) {
    struct range segments = segments_of(a->first[0], a->end[0]);
    uint64_t row_segment =
        (uint64_t)row * (segments.end - segments.first) + segment - segments.first;
    return base + row_segment * o->a->heads + head;
}

/* A batch's queries on one segment. */
struct attn_item {
    struct attn_batch batch;
    uint32_t segment;
};

static void leave_part(const struct attn_op *o, const struct attn_rows *a,
                       const struct attn_item *item, struct attn_next after,
                       const struct attn_parts *parts, uint64_t base) {
    const struct attn_batch *b = &item->batch;
    uint32_t segment = item->segment;
    struct attn_part part[ATTN_QUERIES];
    uint64_t idx[ATTN_QUERIES] = {0};
    struct attn_segment s;
    begin_segment(o->x->table->kernels, a, b, &s);
    fill_segment(a, b, segment, &s);
    fetch_next(after, 0, &s);
    for (uint32_t i = 0; i < s.query_count; i++) {
        idx[i] = part_index(o, a, base, b->owner[i].row, segment, b->owner[i].head);
        part[i].out = parts->out + idx[i] * a->head_dim;
    }
    o->x->table->kernels->attend(&s, part);
    for (uint32_t i = 0; i < s.query_count; i++) {
        parts->numbers[2 * idx[i]] = part[i].max;
        parts->numbers[2 * idx[i] + 1] = part[i].sum;
    }
}

/* The next of the rows' items, segment by segment; nothing but the segment is set before the
 * first. */
static bool item_next(const struct attn_rows *a, struct range heads, struct attn_item *item) {
    if (batch_next(a, heads, &item->batch)) return true;
    item->batch = (struct attn_batch){.head = 0};
    return ++item->segment < segments_of(a->first[0], a->end[0]).end &&
           batch_next(a, heads, &item->batch);
}

/* Items go round the threads; a segment's begin one thread further than those of the segment
 * before, for where a KV head's queries make a large item and a small one. */
static void leave_parts(const struct attn_op *o, const struct attn_parts *parts, uint32_t ith,
                        uint32_t nth) {
    uint64_t base = 0, count = 0;
    struct range heads = {0, o->a->heads};
    struct range left = {0, o->q.row_count};
    for (struct range some; next_rows(o, &left, &some);) {
        struct attn_rows rows = gather_rows(o, NULL, some);
        struct range segments = segments_of(rows.first[0], rows.end[0]);
        struct attn_item item = {.segment = segments.first}, own = item;
        bool waits = false;
        while (item_next(&rows, heads, &item)) {
            if ((count++ + item.segment) % nth != ith) continue;
            struct attn_next after = {&rows, item.batch.head, item.segment};
            if (waits) leave_part(o, &rows, &own, after, parts, base);
            own = item;
            waits = true;
        }
        if (waits) leave_part(o, &rows, &own, (struct attn_next){.rows = NULL}, parts, base);
        base += (uint64_t)rows.count * (segments.end - segments.first) * o->a->heads;
    }
}

static struct attn_part part_at(const struct attn_parts *parts, uint64_t idx, uint32_t head_dim) {
    return (struct attn_part){parts->numbers[2 * idx], parts->numbers[2 * idx + 1],
                              parts->out + idx * head_dim};
}

static void join_head(const struct attn_op *o, const struct attn_rows *a, uint32_t head,
                      const struct attn_parts *parts, uint64_t base) {
    const struct cpu_kernels *k = o->x->table->kernels;
    struct range segments = segments_of(a->first[0], a->end[0]);
    struct attn_part all = part_at(parts, base + head, a->head_dim);
    for (uint32_t n = segments.first + 1; n < segments.end; n++) {
        struct attn_part next = part_at(parts, part_index(o, a, base, 0, n, head), a->head_dim);
        k->attn_merge(&all, &next, a->head_dim);
    }
    k->attn_finish(&all, a->head_dim);
    if (is_int4(a)) k->kv_hadamard(all.out, a->head_dim);
    memcpy(a->out[0] + (size_t)head * a->head_dim, all.out, a->head_dim * sizeof(float));
}

static void join_parts(const struct attn_op *o, const struct attn_results *results,
                       const struct attn_parts *parts, uint32_t ith, uint32_t nth) {
    uint64_t base = 0, item = 0;
    for (uint32_t r = 0; r < o->q.row_count; r++) {
        if (o->x->step->pos[r] < 0) continue;
        struct attn_rows row = gather_rows(o, results, (struct range){r, r + 1});
        for (uint32_t u = 0; u < o->units; u++) {
            struct range heads = {u * o->unit, (u + 1) * o->unit};
            if (item++ % nth != ith) continue;
            for (uint32_t h = heads.first; h < heads.end; h++) join_head(o, &row, h, parts, base);
            quantise_heads(o->x->table->kernels, results, &row, heads);
        }
        struct range segments = segments_of(row.first[0], row.end[0]);
        base += (uint64_t)(segments.end - segments.first) * o->a->heads;
    }
}

void op_attention_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_attention *a = &op->attention;
    float *scratch = workspace_scratch(x->workspace, ith);
    struct attn_scratch places = attn_scratch(a->heads, a->head_dim, 0);
    struct attn_results results = {mat_of(x, a->dst), mat_of(x, a->q8), scratch + places.row,
                                   a->heads * a->head_dim};
    struct attn_op o = {.x = x, .a = a, .q = mat_of(x, a->q)};
    struct attn_parts parts;
    o.unit = attn_unit(a->heads, a->head_dim);
    o.units = a->heads / o.unit;
    o.together = rows_together(a->heads / a->kv_heads);
    o.transformed = scratch + places.transformed;
    CHECK(x->kv);
    CHECK(x->kv[a->group].head_dim == a->head_dim);
    CHECK(x->kv[a->group].heads == a->kv_heads);
    attention_add_sums(x, a, ith, nth);
    if (wants_parts(&o, nth, &parts)) {
        leave_parts(&o, &parts, ith, nth);
        pool_barrier(x->pool);
        join_parts(&o, &results, &parts, ith, nth);
    } else if (wants_claims(&o, nth)) {
        uint32_t op_idx = (uint32_t)(op - tape_op(x->tape, 0));
        struct attn_walk walk = {.ith = ith, .nth = nth, .op_idx = op_idx};
        run_claimed_rows(&o, &results, scratch + places.part, walk);
    } else {
        run_whole_rows(&o, &results, scratch + places.part, ith, nth);
    }
}

/* The keys of `count` heads of a sequence as tiles, the last one padded with zeros. */
static void tile_keys(const struct mat *k, const struct step_seq *seq, struct range heads,
                      uint32_t head_dim, float *tiles) {
    uint32_t tile_count = (seq->row_count + KV_TILE_TOKENS - 1) / KV_TILE_TOKENS;
    for (uint32_t h = heads.first; h < heads.end; h++) {
        for (uint32_t j = 0; j < tile_count * KV_TILE_TOKENS; j++) {
            bool real = j < seq->row_count;
            const float *key = real ? mat_f32(k, seq->first_row + j) + (size_t)h * head_dim : NULL;
            float *to = tiles + (size_t)(j / KV_TILE_TOKENS) * KV_TILE_TOKENS * head_dim +
                        j % KV_TILE_TOKENS;
            for (uint32_t d = 0; d < head_dim; d++) to[d * KV_TILE_TOKENS] = real ? key[d] : 0.0f;
        }
        tiles += (size_t)tile_count * KV_TILE_TOKENS * head_dim;
    }
}

/* Rows [rows.first, rows.end) of a sequence, one unit of heads. */
static void encode_unit(const struct cpu_run *x, const struct op_self_attention *a,
                        const struct step_seq *seq, struct range heads, struct range rows,
                        uint32_t ith) {
    struct mat q = mat_of(x, a->q), k = mat_of(x, a->k), v = mat_of(x, a->v);
    float *scratch = workspace_scratch(x->workspace, ith);
    struct attn_scratch places = attn_scratch(a->heads, a->head_dim, 0);
    struct attn_results results = {mat_of(x, a->dst), mat_of(x, a->q8), scratch + places.row,
                                   a->heads * a->head_dim};
    uint32_t tile_count = (seq->row_count + KV_TILE_TOKENS - 1) / KV_TILE_TOKENS;
    struct attn_rows some = {
        .heads_per_kv = 1,
        .head_dim = a->head_dim,
        .scale = a->scale,
        .tiles = scratch + places.tiles,
        .tiles_per_head = (size_t)tile_count * KV_TILE_TOKENS * a->head_dim,
        .head0 = heads.first,
        .v_rows = (const uint8_t *)mat_f32(&v, seq->first_row),
        .v_stride = v.row_bytes,
    };
    tile_keys(&k, seq, heads, a->head_dim, scratch + places.tiles);
    for (uint32_t r = rows.first; r < rows.end; r++) {
        uint32_t row = seq->first_row + r;
        if (run_row_is_live(x, q.kind, row)) {
            some.row[some.count] = row;
            some.q[some.count] = mat_f32(&q, row);
            some.out[some.count] = results_row(&results, row, some.count);
            some.end[some.count++] = seq->row_count;
        }
        if (some.count == 0 || (some.count < ATTN_ROWS && r + 1 < rows.end)) continue;
        struct attn_next after = {.rows = NULL};
        attend_rows(x->table->kernels, &some, heads, after, scratch + places.part);
        quantise_heads(x->table->kernels, &results, &some, heads);
        some.count = 0;
    }
}

/* The part of `count` rows, laid out from `at`, that lies inside [from, to). */
static struct range rows_within(uint64_t at, uint32_t count, uint64_t from, uint64_t to) {
    uint64_t first = from > at ? from - at : 0, end = to > at ? to - at : 0;
    return (struct range){(uint32_t)(first < count ? first : count),
                          (uint32_t)(end < count ? end : count)};
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
            struct range rows = rows_within(at, seq->row_count, from, to);
            struct range heads = {u * unit, (u + 1) * unit};
            if (rows.first < rows.end) encode_unit(x, a, seq, heads, rows, ith);
        }
    }
}
