/* graph/op_check.c - the shapes of every op, checked once before anything runs.
 *
 * Kernels rely on what is checked here and do not look again. A failure is a bug in an
 * architecture file or a model whose weights have a shape that its facts do not promise.
 */
#include <stdbool.h>

#include "base/check.h"
#include "graph/graph_int.h"
#include "tensor/q8.h"

struct checker {
    struct tape *t;
    const struct op *op;
    uint32_t idx;
    struct err *err;
    enum status st;
};

static void complain(struct checker *c, const char *what, uint64_t got, uint64_t expected) {
    if (c->st != ST_OK) return;
    c->st = err_set(c->err, ST_BAD, "tape: op %u (%s, layer %d): %s is %llu, expected %llu", c->idx,
                    op_name(c->op->kind), c->op->layer, what, (unsigned long long)got,
                    (unsigned long long)expected);
}

static void same(struct checker *c, const char *what, uint64_t got, uint64_t expected) {
    if (got != expected) complain(c, what, got, expected);
}

static const struct tape_value *value_of(const struct checker *c, struct operand o) {
    return &c->t->values[o.value];
}

/* A present operand: inside its value, of the right type and width. */
static void is(struct checker *c, const char *what, struct operand o, enum value_type type,
               uint32_t cols) {
    if (c->st != ST_OK) return;
    if (o.value >= c->t->value_count) {
        complain(c, what, o.value, c->t->value_count);
        return;
    }
    const struct tape_value *v = value_of(c, o);
    if (v->type != type) complain(c, what, v->type, type);
    if (o.cols != cols) complain(c, what, o.cols, cols);
    if (o.col > v->cols || o.cols > v->cols - o.col) complain(c, what, o.col + o.cols, v->cols);
}

static void is_rows(struct checker *c, const char *what, struct operand o, enum rows_kind rows) {
    if (c->st != ST_OK) return;
    if (value_of(c, o)->rows != rows) complain(c, what, value_of(c, o)->rows, rows);
}

/* The result of an op that may give floats, a quantised row, or both. */
static void is_result(struct checker *c, struct operand dst, struct operand q8, uint32_t cols) {
    if (dst.value == VALUE_NONE && q8.value == VALUE_NONE) complain(c, "count of results", 0, 1);
    if (dst.value != VALUE_NONE) is(c, "dst", dst, VALUE_F32, cols);
    if (q8.value == VALUE_NONE) return;
    is(c, "q8", q8, VALUE_Q8, cols);
    same(c, "first column of q8", q8.col, 0);
    if (c->st == ST_OK) same(c, "columns of the q8 value", value_of(c, q8)->cols, cols);
    same(c, "columns of q8 mod 32", cols % Q8_BLOCK, 0);
}

static void check_parts(struct checker *c, const struct matmul_part *parts, uint32_t count,
                        struct operand src, uint32_t src_cols, uint32_t *rows) {
    *rows = 0;
    if (count == 0 || count > OP_PARTS_MAX) complain(c, "count of parts", count, 1);
    for (uint32_t i = 0; i < count && c->st == ST_OK; i++) {
        const struct weight *w = parts[i].weight;
        bool quantised = dtype_is_quantised(w->type);
        same(c, "columns of the weight", w->cols, src_cols);
        is(c, "src", src, quantised ? VALUE_Q8 : VALUE_F32, src.cols);
        if (quantised) same(c, "first column of src mod 32", src.col % Q8_BLOCK, 0);
        *rows += w->rows;
    }
}

static void check_matmul(struct checker *c) {
    const struct op_matmul *m = &c->op->matmul;
    uint32_t rows;
    check_parts(c, m->parts, m->part_count, m->src, m->src.cols, &rows);
    is(c, "dst", m->dst, VALUE_F32, rows);
}

static void check_attention(struct checker *c) {
    const struct op_attention *a = &c->op->attention;
    if (a->kv_heads == 0 || a->heads % a->kv_heads) complain(c, "heads", a->heads, a->kv_heads);
    is(c, "q", a->q, VALUE_F32, a->heads * a->head_dim);
    is_result(c, a->dst, a->q8, a->heads * a->head_dim);
}

static void check_self_attention(struct checker *c) {
    const struct op_self_attention *a = &c->op->self_attention;
    uint32_t cols = a->heads * a->head_dim;
    is(c, "q", a->q, VALUE_F32, cols);
    is(c, "k", a->k, VALUE_F32, cols);
    is(c, "v", a->v, VALUE_F32, cols);
    is_result(c, a->dst, a->q8, cols);
}

static void check_rope(struct checker *c) {
    const struct op_rope *r = &c->op->rope;
    is(c, "x", r->x, VALUE_F32, r->heads * r->head_dim);
    same(c, "rotated dimensions mod 2", r->rot_dims % 2, 0);
    if (r->rot_dims > r->head_dim) complain(c, "rotated dimensions", r->rot_dims, r->head_dim);
}

static void check_norm(struct checker *c) {
    const struct op_norm *n = &c->op->norm;
    if (n->group == 0 || n->src.cols % n->group) complain(c, "group", n->group, n->src.cols);
    is(c, "src", n->src, VALUE_F32, n->src.cols);
    is_result(c, n->dst, n->q8, n->src.cols);
}

static void check_act(struct checker *c) {
    const struct op_act *a = &c->op->act;
    is(c, "gate", a->gate, VALUE_F32, a->gate.cols);
    if (a->up.value != VALUE_NONE) is(c, "up", a->up, VALUE_F32, a->gate.cols);
    if (a->segments == 0) complain(c, "segments", 0, 1);
    if (c->st == ST_OK && a->segments > 1) {
        uint64_t end = a->up.col + (uint64_t)(a->segments - 1) * a->stride + a->gate.cols;
        if (end > value_of(c, a->gate)->cols) complain(c, "end", end, value_of(c, a->gate)->cols);
    }
    is_result(c, a->dst, a->q8, a->gate.cols * a->segments);
}

static void check_experts(struct checker *c) {
    const struct op_expert_matmul *m = &c->op->expert_matmul;
    uint32_t rows;
    if (m->used == 0) complain(c, "used experts", 0, 1);
    if (c->st != ST_OK) return;
    uint32_t src_cols = m->src_per_expert ? m->src.cols / m->used : m->src.cols;
    check_parts(c, m->parts, m->part_count, m->src, src_cols, &rows);
    is(c, "ids", m->ids, VALUE_I32, m->used);
    is(c, "dst", m->dst, VALUE_F32, rows * m->used);
}

static void check_route(struct checker *c) {
    const struct op_route *r = &c->op->route;
    if (r->used == 0 || r->used > r->experts) complain(c, "used experts", r->used, r->experts);
    is(c, "logits", r->logits, VALUE_F32, r->experts);
    is(c, "ids", r->ids, VALUE_I32, r->used);
    is(c, "weights", r->weights, VALUE_F32, r->used);
}

static void check_pair(struct checker *c, struct operand src, struct operand dst) {
    is(c, "src", src, VALUE_F32, src.cols);
    is(c, "dst", dst, VALUE_F32, src.cols);
}

static void check_simple(struct checker *c) {
    const struct op *op = c->op;
    switch (op->kind) {
    case OP_EMBED:
        is(c, "dst", op->embed.dst, VALUE_F32, op->embed.table->cols);
        break;
    case OP_QUANT:
        is(c, "src", op->quant.src, VALUE_F32, op->quant.src.cols);
        is_result(c, operand_none, op->quant.q8, op->quant.src.cols);
        break;
    case OP_KV_WRITE:
        check_pair(c, op->kv_write.k, op->kv_write.v);
        break;
    case OP_ADD:
        check_pair(c, op->add.src, op->add.dst);
        break;
    case OP_SOFTCAP:
        is(c, "x", op->softcap.x, VALUE_F32, op->softcap.x.cols);
        break;
    case OP_EXPERT_SUM:
        same(c, "columns of src", op->expert_sum.src.cols,
             (uint64_t)op->expert_sum.dst.cols * op->expert_sum.used);
        is(c, "weights", op->expert_sum.weights, VALUE_F32, op->expert_sum.used);
        break;
    case OP_GATHER:
        check_pair(c, op->gather.src, op->gather.dst);
        is_rows(c, "rows of src", op->gather.src, ROWS_TOKENS);
        is_rows(c, "rows of dst", op->gather.dst, ROWS_OUTPUTS);
        break;
    default:
        CHECK(op->kind == OP_POOL);
        check_pair(c, op->pool.src, op->pool.dst);
        is_rows(c, "rows of src", op->pool.src, ROWS_TOKENS);
        is_rows(c, "rows of dst", op->pool.dst, ROWS_SEQS);
        break;
    }
}

/* Ops that look up what the step says of their rows: token, position, sequence. */
static bool wants_tokens(enum op_kind kind) {
    return kind == OP_EMBED || kind == OP_ROPE || kind == OP_KV_WRITE || kind == OP_ATTENTION ||
           kind == OP_SELF_ATTENTION;
}

/* Row r of one operand is row r of all, but where an op picks rows or joins them. */
static void check_rows(struct checker *c) {
    struct op copy = *c->op;
    if (c->st != ST_OK || copy.kind == OP_GATHER || copy.kind == OP_POOL) return;
    struct op_access a = op_access(&copy);
    enum rows_kind rows = value_of(c, *(a.read_count ? a.reads : a.writes)[0])->rows;
    if (wants_tokens(copy.kind)) rows = ROWS_TOKENS;
    for (uint32_t i = 0; i < a.read_count; i++) is_rows(c, "rows of src", *a.reads[i], rows);
    for (uint32_t i = 0; i < a.write_count; i++) is_rows(c, "rows of dst", *a.writes[i], rows);
}

enum status tape_check(struct tape *t, struct err *err) {
    for (uint32_t i = 0; i < t->op_count; i++) {
        struct checker c = {.t = t, .op = &t->ops[i], .idx = i, .err = err, .st = ST_OK};
        switch (t->ops[i].kind) {
        case OP_MATMUL:
            check_matmul(&c);
            break;
        case OP_ATTENTION:
            check_attention(&c);
            break;
        case OP_SELF_ATTENTION:
            check_self_attention(&c);
            break;
        case OP_ROPE:
            check_rope(&c);
            break;
        case OP_NORM:
            check_norm(&c);
            break;
        case OP_ACT:
            check_act(&c);
            break;
        case OP_EXPERT_MATMUL:
            check_experts(&c);
            break;
        case OP_ROUTE:
            check_route(&c);
            break;
        default:
            check_simple(&c);
            break;
        }
        check_rows(&c);
        TRY(c.st);
    }
    if (t->output >= t->value_count) return err_set(err, ST_BAD, "tape: no output was set");
    return ST_OK;
}
