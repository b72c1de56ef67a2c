/* kernels/cuda/resident_match.c - which layers of a tape resident.cu can compute; see
 * kernels/cuda/resident.h.
 *
 * Entry point: cuda_layers_match.
 */
#include "base/check.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/resident.h"

static bool is_same(struct operand a, struct operand b) {
    return a.value == b.value && a.col == b.col && a.cols == b.cols;
}

static const struct op *op_at(const struct tape *t, uint32_t i, enum op_kind kind) {
    if (i >= tape_op_count(t) || tape_op(t, i)->kind != kind) return NULL;
    return tape_op(t, i);
}

/* ---- parts of a layer ---- */

/* An RMS norm of whole rows, for op `to` alone. */
static bool is_norm(const struct tape *t, uint32_t i, struct operand src, struct operand dst) {
    const struct op *op = op_at(t, i, OP_NORM);
    if (!op || op->norm.kind != NORM_RMS || op->norm.bias) return false;
    const struct op_norm *n = &op->norm;
    return n->group == n->src.cols && n->q8.value == VALUE_NONE && is_same(n->src, src) &&
           is_same(n->dst, dst) && n->dst.value != n->src.value &&
           !cuda_is_read_from(t, i + 2, dst);
}

/* The matrix of a product whose parts lie side by side; NULL: they do not. */
static const struct cuda_matrix *matrix_of(const struct op *product) {
    const struct op_matmul *m = &product->matmul;
    const struct cuda_joint *joint = cuda_joint_of(m->parts, m->part_count);
    if (joint) return &joint->matrix;
    return m->part_count == 1 ? cuda_matrix_of(m->parts[0].weight) : NULL;
}

static const char *why_not_product(const struct op *product, enum cuda_form form) {
    const struct cuda_matrix *w = matrix_of(product);
    if (!w) return "the weights of a product are not adjacent in memory";
    if (w->form != CUDA_BF16 && w->form != CUDA_F16) return "weights are not of 16 bits";
    if (w->form != form) return "some weights are bf16, others f16";
    if (w->rows % 8 != 0 || w->cols % 8 != 0)
        return "the rows or columns of a matrix are not a multiple of 8";
    return NULL;
}

/* Attention over what the ops in front of it rotate and put into the cache. */
static const char *why_not_attention(const struct tape *t, const struct cuda_layer_ops *o,
                                     const struct program_options *options) {
    const struct op_attention *a = &tape_op(t, o->attention)->attention;
    const struct op_kv_write *w = &tape_op(t, o->attention - 1)->kv_write;
    const struct op *q = tape_op(t, o->attention - 3);
    const struct op_matmul *made = &tape_op(t, o->products[CUDA_PRODUCT_QKV])->matmul;
    CHECK(a->group < options->kv_group_count);
    const struct kv_shape *kv = &options->kv[a->group].shape;
    bool fits = cuda_is_attended(t, o->turn, o->attention - o->turn) && a->q8.value == VALUE_NONE &&
                !cuda_is_read_from(t, o->attention + 2, a->dst) &&
                w->k.cols == a->kv_heads * a->head_dim && w->v.cols == w->k.cols &&
                q->rope.x.cols == a->heads * a->head_dim && a->q.value == made->dst.value &&
                w->k.value == made->dst.value && w->v.value == made->dst.value;
    if (!fits) return "queries, keys or values come from another op, or another op reads them";
    if (!cuda_attends_mma(kv->type, a->head_dim))
        return "attention does not run on tensor cores (they need a cache of f16 or fp8, heads of "
               "64 or 128)";
    if (a->heads / a->kv_heads > CUDA_SHORT_QUERIES) return "too many heads share a KV head";
    return NULL;
}

/* ---- a layer ---- */

/* The numbers of its ops, if it begins at op `i`. */
static bool find_ops(const struct tape *t, uint32_t i, struct cuda_layer_ops *o) {
    const struct op *norm = op_at(t, i, OP_NORM), *qkv = op_at(t, i + 1, OP_MATMUL);
    uint32_t turns = norm && qkv ? cuda_match_qkv(t, i + 2) : 0, at = i + 2 + turns;
    if (turns == 0 || !op_at(t, at, OP_ATTENTION) || !op_at(t, at + 1, OP_MATMUL) ||
        !op_at(t, at + 2, OP_NORM) || !op_at(t, at + 3, OP_MATMUL) || !op_at(t, at + 4, OP_ACT) ||
        !op_at(t, at + 5, OP_MATMUL))
        return false;
    *o = (struct cuda_layer_ops){.norm = i,
                                 .turn = i + 2,
                                 .attention = at,
                                 .products = {i + 1, at + 1, at + 3, at + 5},
                                 .end = at + 6};
    return true;
}

static const struct op_matmul *product_of(const struct tape *t, const struct cuda_layer_ops *o,
                                          enum cuda_resident_kind kind) {
    return &tape_op(t, o->products[kind])->matmul;
}

/* Does each op take what the one before makes, and nothing else? */
static bool is_chain(const struct tape *t, const struct cuda_layer_ops *o) {
    struct operand x = tape_op(t, o->norm)->norm.src;
    const struct op_matmul *qkv = product_of(t, o, CUDA_PRODUCT_QKV);
    const struct op_matmul *out = product_of(t, o, CUDA_PRODUCT_OUT);
    const struct op_matmul *gates = product_of(t, o, CUDA_PRODUCT_GATES);
    const struct op_matmul *down = product_of(t, o, CUDA_PRODUCT_DOWN);
    uint32_t ffn_norm = o->products[CUDA_PRODUCT_GATES] - 1;
    const struct op_act *act = &tape_op(t, o->products[CUDA_PRODUCT_DOWN] - 1)->act;
    return is_norm(t, o->norm, x, qkv->src) && !qkv->add && qkv->dst.value != x.value &&
           is_same(out->src, tape_op(t, o->attention)->attention.dst) && out->add &&
           is_same(out->dst, x) && is_norm(t, ffn_norm, x, gates->src) &&
           cuda_feeds_act(t, o->products[CUDA_PRODUCT_GATES]) && act->q8.value == VALUE_NONE &&
           is_same(down->src, act->dst) && !cuda_is_read_from(t, o->end, act->dst) && down->add &&
           is_same(down->dst, x) && tape_value_at(t, x.value)->rows == ROWS_TOKENS &&
           x.col % 4 == 0 && x.cols % 8 == 0 && tape_value_at(t, x.value)->row_bytes % 16 == 0;
}

static const char *why_not_layer(const struct tape *t, const struct cuda_layer_ops *o,
                                 const struct program_options *options) {
    enum cuda_form form = cuda_matrix_of(product_of(t, o, CUDA_PRODUCT_QKV)->parts[0].weight)->form;
    if (!is_chain(t, o)) return "a layer has other ops than expected";
    for (int k = 0; k < CUDA_RESIDENT_PRODUCTS; k++) {
        const char *why_not = why_not_product(tape_op(t, o->products[k]), form);
        if (why_not) return why_not;
    }
    return why_not_attention(t, o, options);
}

/* Are they so alike that one set of arguments serves both? */
static bool is_alike(const struct tape *t, const struct cuda_layer_ops *a,
                     const struct cuda_layer_ops *b) {
    const struct op_norm *m = &tape_op(t, a->norm)->norm, *n = &tape_op(t, b->norm)->norm;
    const struct op_norm *m2 = &tape_op(t, a->products[CUDA_PRODUCT_GATES] - 1)->norm;
    const struct op_norm *n2 = &tape_op(t, b->products[CUDA_PRODUCT_GATES] - 1)->norm;
    const struct op_attention *p = &tape_op(t, a->attention)->attention;
    const struct op_attention *q = &tape_op(t, b->attention)->attention;
    const struct op_rope *r = &tape_op(t, a->attention - 3)->rope;
    const struct op_rope *s = &tape_op(t, b->attention - 3)->rope;
    const struct op_kv_write *w = &tape_op(t, a->attention - 1)->kv_write;
    const struct op_kv_write *v = &tape_op(t, b->attention - 1)->kv_write;
    const struct op *turn = tape_op(t, a->turn), *other = tape_op(t, b->turn);
    const struct tape_value *c = tape_value_at(t, product_of(t, a, CUDA_PRODUCT_QKV)->dst.value);
    const struct tape_value *d = tape_value_at(t, product_of(t, b, CUDA_PRODUCT_QKV)->dst.value);
    const struct cuda_matrix *e = matrix_of(tape_op(t, a->products[CUDA_PRODUCT_DOWN]));
    const struct cuda_matrix *f = matrix_of(tape_op(t, b->products[CUDA_PRODUCT_DOWN]));
    if (!e || !f || e->form != f->form || e->cols != f->cols) return false;
    if (turn->kind != other->kind) return false;
    if (turn->kind == OP_NORM && turn->norm.eps != other->norm.eps) return false;
    return is_same(m->src, n->src) && m->eps == n->eps && m->eps == m2->eps && m->eps == n2->eps &&
           p->heads == q->heads && p->kv_heads == q->kv_heads && p->head_dim == q->head_dim &&
           p->group == q->group && p->window == q->window && p->scale == q->scale &&
           p->softcap == q->softcap && p->q.col == q->q.col && w->k.col == v->k.col &&
           w->v.col == v->v.col && r->style == s->style && r->freqs == s->freqs &&
           r->rot_dims == s->rot_dims && r->factor == s->factor && c->row_bytes == d->row_bytes &&
           product_of(t, a, CUDA_PRODUCT_QKV)->dst.col ==
               product_of(t, b, CUDA_PRODUCT_QKV)->dst.col &&
           tape_op(t, a->products[CUDA_PRODUCT_DOWN] - 1)->act.kind ==
               tape_op(t, b->products[CUDA_PRODUCT_DOWN] - 1)->act.kind;
}

static void widen(const struct tape *t, const struct cuda_layer_ops *o, struct cuda_layers *out) {
    for (int k = 0; k < CUDA_RESIDENT_PRODUCTS; k++) {
        uint32_t elems = matrix_of(tape_op(t, o->products[k]))->row_elems;
        bool is_normed = k == CUDA_PRODUCT_QKV || k == CUDA_PRODUCT_GATES;
        uint32_t *most = is_normed ? &out->normed : &out->widest;
        if (*most < elems) *most = elems;
    }
}

/* ---- entry point ---- */

void cuda_layers_match(const struct tape *t, const struct program_options *options,
                       struct cuda_layers *out) {
    struct cuda_layer_ops o;
    uint32_t i = 0;
    *out = (struct cuda_layers){.why_not = "there is no layer of attention, gates and ups"};
    for (; i < tape_op_count(t) && !find_ops(t, i, &o);) i++;
    while (i < tape_op_count(t) && out->count < CUDA_RESIDENT_LAYERS && find_ops(t, i, &o)) {
        const char *why_not = why_not_layer(t, &o, options);
        if (!why_not && !is_alike(t, out->count > 0 ? &out->ops[0] : &o, &o))
            why_not = "layers differ";
        if (why_not && out->count == 0) out->why_not = why_not;
        if (why_not) return;
        widen(t, &o, out);
        out->ops[out->count++] = o;
        out->why_not = NULL;
        i = o.end;
    }
}
