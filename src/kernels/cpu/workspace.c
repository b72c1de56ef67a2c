/* kernels/cpu/workspace.c - see kernels/cpu/workspace.h for the contract. */
#include "kernels/cpu/workspace.h"

#include <stdatomic.h>

#include "base/check.h"
#include "base/fmath.h"
#include "base/mem.h"
#include "base/size.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/key_sums.h"
#include "kernels/cpu/page.h"
#include "kernels/cpu/stage.h"

enum { ALIGN_FLOATS = 16, CACHE_LINE = 64, PIECE_BITS = 16 };

_Static_assert((int)WORKSPACE_PIECES_MAX == (1 << PIECE_BITS) - 1,
               "a taker's word has room for them");

/* Units of an op's work that threads have taken in this run, and shares of which the last piece is
 * taken. */
struct workspace_claims {
    atomic_uint taken, spent;
};

/* How far a thread's share of one op is taken: which op of which run, then PIECE_BITS of the next
 * piece. A word of another op means that nothing of this op is taken yet, so no thread has
 * to reset it, and a late thread finds what others did for it. */
struct workspace_taker {
    _Alignas(CACHE_LINE) atomic_ullong at;
};

/* Columns of a chunk that are done, in the op that is under way. */
struct workspace_chunk {
    atomic_uint cols;
};

static size_t round_floats(size_t count) {
    return (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

uint32_t attn_unit(uint32_t heads, uint32_t head_dim) {
    uint32_t unit = 1;
    while (unit < heads && (heads % unit != 0 || unit * head_dim % Q8_BLOCK != 0)) unit++;
    return unit;
}

struct attn_scratch attn_scratch(uint32_t heads, uint32_t head_dim, uint32_t tile_rows) {
    struct attn_scratch s = {.row = 0};
    s.part = round_floats((size_t)ATTN_ROWS * heads * head_dim);
    s.transformed = s.part + round_floats((size_t)ATTN_QUERIES * head_dim);
    s.tiles = s.transformed + round_floats(ATTN_QUERIES * int4_query_floats(head_dim));
    size_t tiles = (tile_rows + KV_TILE_TOKENS - 1) / KV_TILE_TOKENS;
    s.total = s.tiles + tiles * KV_TILE_TOKENS * head_dim * attn_unit(heads, head_dim);
    return s;
}

/* In floats. */
static size_t scratch_of(const struct op *op, const struct cpu_kernels *k, uint32_t rows_max) {
    switch (op->kind) {
    case OP_EMBED:
        return op->embed.dst.cols;
    case OP_NORM:
        return op->norm.src.cols;
    case OP_KV_WRITE:
        return (size_t)op->kv_write.k.cols + op->kv_write.v.cols + 2 * (size_t)KV_CODES_RUN;
    case OP_ACT:
        return (size_t)op->act.gate.cols * op->act.segments;
    case OP_ATTENTION:
        return attn_scratch(op->attention.heads, op->attention.head_dim, 0).total;
    case OP_SELF_ATTENTION:
        return attn_scratch(op->self_attention.heads, op->self_attention.head_dim, rows_max).total;
    case OP_MATMUL:
        return mm_scratch_bytes(k, op->matmul.parts[0].weight->cols) / sizeof(float);
    case OP_EXPERT_MATMUL:
        return mm_scratch_bytes(k, op->expert_matmul.parts[0].weight->cols) / sizeof(float);
    default:
        return 0;
    }
}

static const struct workspace_rope *find_rope(const struct workspace *p, const struct op_rope *r) {
    for (uint32_t i = 0; i < p->rope_count; i++) {
        const struct workspace_rope *known = &p->ropes[i];
        bool same_kind = known->factor == r->factor && known->pair_count == r->rot_dims / 2;
        if (known->freqs == vector_floats(r->freqs) && same_kind) return known;
    }
    return NULL;
}

static enum status note_rope(struct workspace *p, const struct op_rope *r, uint32_t rows_max,
                             struct err *err) {
    if (find_rope(p, r)) return ST_OK;
    if (p->rope_count == WORKSPACE_ROPES_MAX)
        return err_set(err, ST_BAD, "cpu: rope: more than %d kinds of frequencies",
                       WORKSPACE_ROPES_MAX);
    p->ropes[p->rope_count++] = (struct workspace_rope){
        .freqs = vector_floats(r->freqs),
        .factor = r->factor,
        .pair_count = r->rot_dims / 2,
        .first = p->tables_bytes / sizeof(float),
    };
    p->tables_bytes += (size_t)rows_max * r->rot_dims * sizeof(float);
    return ST_OK;
}

static enum status measure(struct workspace *p, const struct cpu_kernels *k, struct err *err) {
    uint32_t rows_max = tape_sizes(p->tape)->rows_max;
    for (uint32_t i = 0; i < tape_op_count(p->tape); i++) {
        const struct op *op = tape_op(p->tape, i);
        size_t floats = round_floats(scratch_of(op, k, rows_max));
        if (floats > p->scratch_floats) p->scratch_floats = floats;
        if (op->kind == OP_ROPE) TRY(note_rope(p, &op->rope, rows_max, err));
    }
    return ST_OK;
}

static bool has_op(const struct tape *t, enum op_kind kind) {
    for (uint32_t i = 0; i < tape_op_count(t); i++)
        if (tape_op(t, i)->kind == kind) return true;
    return false;
}

/* Chunks of the widest act. */
static uint32_t chunks_of(const struct tape *t) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < tape_op_count(t); i++)
        if (tape_op(t, i)->kind == OP_ACT && tape_op(t, i)->act.gate.cols > most)
            most = tape_op(t, i)->act.gate.cols;
    return most / WORKSPACE_CHUNK_COLS + 1;
}

static enum status allocate(struct workspace *p, uint32_t threads, struct err *err) {
    bool attends = has_op(p->tape, OP_ATTENTION);
    size_t bytes = p->scratch_floats * sizeof(float);
    p->stages = mem_zalloc_array(tape_op_count(p->tape), sizeof(*p->stages));
    p->follows = mem_zalloc_array(tape_op_count(p->tape), sizeof(*p->follows));
    p->chunks = mem_zalloc_array(chunks_of(p->tape), sizeof(*p->chunks));
    p->claims = mem_zalloc_array(tape_op_count(p->tape), sizeof(*p->claims));
    p->takers = mem_alloc_aligned(CACHE_LINE, threads * sizeof(*p->takers));
    for (uint32_t i = 0; p->takers && i < threads; i++) atomic_init(&p->takers[i].at, 0);
    p->tables = page_alloc(p->tables_bytes);
    if (size_mul(bytes, threads, &p->scratch_bytes)) p->scratch = page_alloc(p->scratch_bytes);
    if (attends) p->parts = page_alloc(WORKSPACE_PARTS_FLOATS * sizeof(float));
    bool has_words = p->stages && p->follows && p->chunks && p->claims && p->takers;
    if (has_words && p->tables && p->scratch && (p->parts || !attends)) return ST_OK;
    return err_set(err, ST_NOMEM, "cpu: out of memory for scratch of %u threads", threads);
}

enum status workspace_create(struct workspace **out, const struct tape *t,
                             const struct cpu_kernels *k, uint32_t threads, struct err *err) {
    struct workspace *p = mem_zalloc(sizeof(*p));
    if (!p) return err_set(err, ST_NOMEM, "cpu: out of memory for the workspace of a tape");
    p->tape = t;
    enum status st = measure(p, k, err);
    if (st == ST_OK) st = allocate(p, threads, err);
    if (st != ST_OK) {
        workspace_destroy(p);
        return st;
    }
    for (uint32_t i = 1; k->panel && i < tape_op_count(t); i++)
        p->follows[i] = stage_may_follow(t, i);
    p->stage_count = stages_make(t, p->follows, p->stages);
    *out = p;
    return ST_OK;
}

void workspace_destroy(struct workspace *p) {
    if (!p) return;
    mem_free(p->stages);
    mem_free(p->follows);
    mem_free(p->chunks);
    mem_free(p->claims);
    mem_free(p->takers);
    page_free(p->tables, p->tables_bytes);
    page_free(p->scratch, p->scratch_bytes);
    page_free(p->parts, WORKSPACE_PARTS_FLOATS * sizeof(float));
    mem_free(p);
}

void workspace_reset_claims(struct workspace *p) {
    p->run++;
    for (uint32_t i = 0; i < tape_op_count(p->tape); i++) {
        atomic_store_explicit(&p->claims[i].taken, 0, memory_order_relaxed);
        atomic_store_explicit(&p->claims[i].spent, 0, memory_order_relaxed);
    }
}

uint32_t workspace_claim(const struct workspace *p, uint32_t op_idx) {
    return atomic_fetch_add_explicit(&p->claims[op_idx].taken, 1, memory_order_relaxed);
}

uint32_t workspace_take(const struct workspace *p, uint32_t op_idx, uint32_t owner,
                        uint32_t pieces) {
    const unsigned long long piece_mask = (1u << PIECE_BITS) - 1;
    CHECK(pieces <= piece_mask);
    unsigned long long tag = (p->run * tape_op_count(p->tape) + op_idx) << PIECE_BITS;
    unsigned long long seen = atomic_load_explicit(&p->takers[owner].at, memory_order_relaxed);
    for (;;) {
        unsigned long long next = (seen & ~piece_mask) == tag ? seen & piece_mask : 0;
        if (next >= pieces) return pieces;
        if (!atomic_compare_exchange_weak_explicit(&p->takers[owner].at, &seen, tag | (next + 1),
                                                   memory_order_relaxed, memory_order_relaxed))
            continue;
        if (next + 1 == pieces)
            atomic_fetch_add_explicit(&p->claims[op_idx].spent, 1, memory_order_relaxed);
        return (uint32_t)next;
    }
}

bool workspace_has_left(const struct workspace *p, uint32_t op_idx, uint32_t shares) {
    return atomic_load_explicit(&p->claims[op_idx].spent, memory_order_relaxed) < shares;
}

bool workspace_follows(const struct workspace *p, const struct op *act, uint32_t rows) {
    return rows < CLAIM_ROWS_MIN && p->follows[act - tape_op(p->tape, 0)];
}

/* The order makes what others wrote in the chunk's columns visible to the last thread. The reset
 * needs none: the next op that counts comes after a barrier. */
bool workspace_finishes(const struct workspace *p, uint32_t chunk, uint32_t cols, uint32_t all) {
    atomic_uint *done = &p->chunks[chunk].cols;
    if (atomic_fetch_add_explicit(done, cols, memory_order_acq_rel) + cols < all) return false;
    atomic_store_explicit(done, 0, memory_order_relaxed);
    return true;
}

static void fill_rope_row(const struct workspace_rope *r, int32_t pos, float *row) {
    for (uint32_t i = 0; i < r->pair_count; i++) {
        float angle = (float)pos * r->freqs[i];
        double sine, cosine;
        fm_sincos_d(angle, &sine, &cosine);
        row[i] = (float)cosine * r->factor;
        row[r->pair_count + i] = (float)sine * r->factor;
    }
}

static float *rope_row(const struct workspace *p, const struct workspace_rope *r, uint32_t row) {
    return p->tables + r->first + (size_t)row * 2 * r->pair_count;
}

void workspace_fill_ropes(const struct cpu_run *x, uint32_t ith, uint32_t nth) {
    struct range rows = range_share(x->step->row_count, ith, nth);
    for (uint32_t i = 0; i < x->workspace->rope_count; i++) {
        const struct workspace_rope *r = &x->workspace->ropes[i];
        for (uint32_t row = rows.first; row < rows.end; row++)
            if (x->step->pos[row] >= 0)
                fill_rope_row(r, x->step->pos[row], rope_row(x->workspace, r, row));
    }
}

const float *workspace_rope_row(const struct workspace *p, const struct op_rope *r, uint32_t row) {
    const struct workspace_rope *known = find_rope(p, r);
    CHECK(known);
    return rope_row(p, known, row);
}
