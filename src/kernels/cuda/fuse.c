/* kernels/cuda/fuse.c - which ops of a tape share a launch. See struct cuda_plan in cuda_int.h.
 *
 *     [norm q] [norm k] rope q, rope k, kv_write     one kernel; with attention where rows are few
 *     norm, act or attention before a product        writes the product's input in 16 bits, too
 *     product of gates and ups, act                  one kernel where there are few rows
 *     norm, product                                  likewise
 *     attention, product of quantised weights        the product quantises, likewise
 *
 * Entry points: cuda_plan_make, and what cuda_int.h has of fuse.c.
 */
#include "base/check.h"
#include "kernels/cuda/cuda_int.h"
#include "kernels/cuda/ops.h"

static bool is_same(struct operand a, struct operand b) {
    return a.value == b.value && a.col == b.col && a.cols == b.cols;
}

/* ---- queries, keys and values ---- */

static const struct op *op_at(const struct tape *t, uint32_t i, enum op_kind kind) {
    if (i >= tape_op_count(t) || tape_op(t, i)->kind != kind) return NULL;
    return tape_op(t, i);
}

/* A norm of heads in place, which the rotation `r` of the same heads follows. */
static bool is_head_norm(const struct op *op, const struct op *r) {
    const struct op_norm *n = &op->norm;
    return n->kind == NORM_RMS && n->group == r->rope.head_dim && n->q8.value == VALUE_NONE &&
           is_same(n->src, n->dst) && is_same(n->dst, r->rope.x);
}

static bool is_rope_pair(const struct op *q, const struct op *k) {
    const struct op_rope *a = &q->rope, *b = &k->rope;
    return a->style == b->style && a->head_dim == b->head_dim && a->rot_dims == b->rot_dims &&
           a->freqs == b->freqs && a->factor == b->factor && a->head_dim <= CUDA_QKV_HEAD_MAX;
}

uint32_t cuda_match_qkv(const struct tape *t, uint32_t i) {
    uint32_t norms = op_at(t, i, OP_NORM) && op_at(t, i + 1, OP_NORM) ? 2 : 0;
    const struct op *q = op_at(t, i + norms, OP_ROPE), *k = op_at(t, i + norms + 1, OP_ROPE);
    const struct op *write = op_at(t, i + norms + 2, OP_KV_WRITE);
    if (!q || !k || !write || !is_rope_pair(q, k)) return 0;
    if (!is_same(write->kv_write.k, k->rope.x)) return 0;
    if (norms == 0) return 3;
    const struct op *nq = tape_op(t, i), *nk = tape_op(t, i + 1);
    bool fits = is_head_norm(nq, q) && is_head_norm(nk, k) && nq->norm.eps == nk->norm.eps;
    return fits ? 5 : 0;
}

/* ---- inputs of products ---- */

/* The form in which product `op` wants its whole input, if it is one; NULL: it is not. */
static const struct cuda_matrix *wanted_form(const struct op *op, struct operand made) {
    const struct op_matmul *m = &op->matmul;
    if (made.value == VALUE_NONE || !is_same(m->src, made)) return NULL;
    const struct cuda_matrix *first = cuda_matrix_of(m->parts[0].weight);
    if (first->form != CUDA_BF16 && first->form != CUDA_F16 && first->form != CUDA_FP8) return NULL;
    for (uint32_t i = 1; i < m->part_count; i++)
        if (cuda_matrix_of(m->parts[i].weight)->form != first->form) return NULL;
    return first->row_elems == made.cols ? first : NULL;
}

static struct operand floats_made(const struct op *op) {
    if (op->kind == OP_NORM && cuda_norm_rounds(op->norm.src.cols, op->norm.group))
        return op->norm.dst;
    if (op->kind == OP_ACT) return op->act.dst;
    return op->kind == OP_ATTENTION ? op->attention.dst : operand_none;
}

/* Rows become fp8 where they are made only if one block has all of a row, and floats alone are
 * wanted beside it. */
static bool can_make(const struct op *op, const struct cuda_matrix *half) {
    if (!half || half->form != CUDA_FP8) return true;
    if (op->kind == OP_NORM) return op->norm.q8.value == VALUE_NONE;
    return op->kind == OP_ACT && op->act.q8.value == VALUE_NONE && op->act.segments == 1 &&
           op->act.gate.cols <= CUDA_FP8_COLS_MAX;
}

/* ---- gates ---- */

static bool is_of(const struct operand *list[], uint32_t count, value_id value) {
    for (uint32_t i = 0; i < count; i++)
        if (list[i]->value == value) return true;
    return false;
}

bool cuda_is_read_from(const struct tape *t, uint32_t i, struct operand o) {
    uint32_t cols = tape_value_at(t, o.value)->cols;
    for (; i < tape_op_count(t); i++) {
        struct op copy = *tape_op(t, i);
        struct op_access use = op_access(&copy);
        if (is_of((const struct operand **)use.reads, use.read_count, o.value)) return true;
        for (uint32_t w = 0; w < use.write_count; w++)
            if (use.writes[w]->value == o.value && use.writes[w]->cols == cols) return false;
    }
    return o.value == tape_output(t);
}

bool cuda_feeds_act(const struct tape *t, uint32_t i) {
    const struct op *product = op_at(t, i, OP_MATMUL), *op = op_at(t, i + 1, OP_ACT);
    if (!product || !op) return false;
    const struct op_matmul *m = &product->matmul;
    const struct op_act *act = &op->act;
    if (m->part_count != 2 || m->add || m->parts[0].bias || m->parts[1].bias) return false;
    const struct cuda_matrix *gate = cuda_matrix_of(m->parts[0].weight);
    const struct cuda_matrix *up = cuda_matrix_of(m->parts[1].weight);
    if (gate->rows != up->rows || gate->rows % 8 != 0 || gate->form != up->form) return false;
    if (act->segments != 1 || act->up.value == VALUE_NONE) return false;
    return is_same(act->gate, operand_slice(m->dst, 0, gate->rows)) &&
           is_same(act->up, operand_slice(m->dst, gate->rows, gate->rows)) &&
           !cuda_is_read_from(t, i + 2, m->dst);
}

/* What the act behind such a product makes goes into the product behind that in 16 bits, and
 * nowhere else. */
static bool makes_gates(const struct tape *t, uint32_t i, const struct cuda_plan *plan) {
    if (!plan[i].has_x || !plan[i + 1].half || !cuda_feeds_act(t, i)) return false;
    const struct op_act *act = &tape_op(t, i + 1)->act;
    return act->q8.value == VALUE_NONE && !cuda_is_read_from(t, i + 3, act->dst);
}

/* Likewise of quantised weights: what the act makes is wanted in quantised form alone. */
static bool makes_quantised(const struct tape *t, uint32_t i) {
    if (!cuda_feeds_act(t, i)) return false;
    const struct op_act *act = &tape_op(t, i + 1)->act;
    const struct cuda_matrix *gate = cuda_matrix_of(tape_op(t, i)->matmul.parts[0].weight);
    return gate->form == CUDA_CODES && gate->rows % CUDA_TILE_ROWS == 0 &&
           act->dst.value == VALUE_NONE && act->q8.value != VALUE_NONE && act->q8.col == 0;
}

/* ---- what a product can do first ---- */

/* Norm `i` makes the rows of the product behind it, in the form that its weights want, and nothing
 * else; and the product does not write what the norm reads. */
static bool is_first(const struct tape *t, uint32_t i, const struct cuda_plan *plan) {
    const struct op *op = op_at(t, i, OP_NORM), *product = op_at(t, i + 1, OP_MATMUL);
    if (!op || !product) return false;
    const struct op_norm *n = &op->norm;
    const struct op_matmul *m = &product->matmul;
    bool is_plain = n->kind == NORM_RMS && !n->bias && n->group == n->src.cols;
    if (!is_plain || m->dst.value == n->src.value) return false;
    if (n->q8.value == VALUE_NONE) return plan[i].half && plan[i].is_half_only;
    return n->dst.value == VALUE_NONE && is_same(n->q8, m->src) &&
           !cuda_is_read_from(t, i + 2, n->q8);
}

/* Attention `i` makes quantised rows for the product behind it, and nothing else. */
static bool is_quantised_later(const struct tape *t, uint32_t i) {
    const struct op *op = op_at(t, i, OP_ATTENTION), *product = op_at(t, i + 1, OP_MATMUL);
    if (!op || !product) return false;
    const struct op_attention *o = &op->attention;
    return o->dst.value == VALUE_NONE && o->q8.value != VALUE_NONE &&
           is_same(o->q8, product->matmul.src) && !cuda_is_read_from(t, i + 2, o->q8);
}

bool cuda_is_attended(const struct tape *t, uint32_t i, uint32_t count) {
    const struct op *op = op_at(t, i + count, OP_ATTENTION);
    if (!op) return false;
    const struct op_kv_write *w = &tape_op(t, i + count - 1)->kv_write;
    const struct op_rope *q = &tape_op(t, i + count - 3)->rope;
    return is_same(op->attention.q, q->x) && op->attention.group == w->group &&
           op->attention.layer == w->layer && op->attention.head_dim == q->head_dim &&
           !cuda_is_read_from(t, i + count + 1, q->x) && !cuda_is_read_from(t, i + count + 1, w->k);
}

/* ---- entry point ---- */

void cuda_plan_make(const struct tape *t, bool is_fused, struct cuda_plan *out) {
    uint32_t count = tape_op_count(t);
    for (uint32_t i = 0; i < count; i++) out[i] = (struct cuda_plan){.op_count = 1};
    for (uint32_t i = 0; is_fused && i < count; i += out[i].op_count) {
        uint32_t qkv = cuda_match_qkv(t, i);
        const struct op *product = op_at(t, i + 1, OP_MATMUL);
        if (qkv > 0) {
            out[i].op_count = qkv;
            out[i].attends = cuda_is_attended(t, i, qkv);
        } else if (product) {
            out[i].half = wanted_form(product, floats_made(tape_op(t, i)));
        }
        if (makes_quantised(t, i)) out[i].gates = true;
        if (!can_make(tape_op(t, i), out[i].half)) out[i].half = NULL;
        if (is_quantised_later(t, i)) out[i].has_product = out[i + 1].has_floats = true;
        if (!out[i].half) continue;
        bool is_act = tape_op(t, i)->kind == OP_ACT;
        out[i].is_half_only = !cuda_is_read_from(t, i + 2, floats_made(tape_op(t, i)));
        out[i].half_to = out[i + 1].x_from = is_act ? 1 : 0;
        out[i + 1].has_x = true;
        if (is_act && i > 0) out[i - 1].gates = makes_gates(t, i - 1, out);
    }
    for (uint32_t i = 0; is_fused && i < count; i++) out[i].goes_first = is_first(t, i, out);
}
