/* graph/fuse.c - neighbours become one op where that saves a pass over memory and a barrier.
 *
 *   norm, act, attention -> quant   the producer writes the quantised row itself, and the
 *                                   floats only if another op reads them
 *   matmul -> add                   the product is added straight into the residual
 *
 * No fusion changes a bit: the same numbers are rounded at the same places.
 */
#include <stddef.h>

#include "graph/graph_int.h"
#include "graph/op_info.h"

/* How many ops after `from` read the value before it is wholly written again. Reads by the op
 * `except` do not count. Every use counts as one: partial overlap is not looked at. */
static uint32_t count_readers(struct tape *t, uint32_t from, value_id v, uint32_t except) {
    uint32_t readers = t->output == v || t->kept == v;
    for (uint32_t i = from + 1; i < t->op_count; i++) {
        struct op_access a = op_access(&t->ops[i]);
        for (uint32_t r = 0; r < a.read_count; r++)
            if (a.reads[r]->value == v && i != except) readers++;
    }
    return readers;
}

static bool operand_same(struct operand a, struct operand b) {
    return a.value == b.value && a.col == b.col && a.cols == b.cols;
}

static bool touches(struct tape *t, uint32_t i, value_id v) {
    struct op_access a = op_access(&t->ops[i]);
    for (uint32_t r = 0; r < a.read_count; r++)
        if (a.reads[r]->value == v) return true;
    for (uint32_t w = 0; w < a.write_count; w++)
        if (a.writes[w]->value == v) return true;
    return false;
}

static void remove_op(struct tape *t, uint32_t i) {
    for (uint32_t j = i + 1; j < t->op_count; j++) t->ops[j - 1] = t->ops[j];
    t->op_count--;
}

/* ops[i] made x, ops[i + 1] quantises x. */
static bool fuse_quant(struct tape *t, uint32_t i) {
    struct op *maker = &t->ops[i], *quant = &t->ops[i + 1];
    struct op_results r = op_results(maker);
    if (!r.f32 || !r.q8 || quant->kind != OP_QUANT) return false;
    if (r.q8->value != VALUE_NONE || !operand_same(*r.f32, quant->quant.src)) return false;
    bool in_place = maker->kind == OP_NORM && maker->norm.src.value == r.f32->value;
    *r.q8 = quant->quant.q8;
    if (!in_place && count_readers(t, i, r.f32->value, i + 1) == 0) *r.f32 = operand_none;
    remove_op(t, i + 1);
    return true;
}

/* ops[i] made y by a product, ops[i + 1] adds y to the residual and is its only reader. */
static bool fuse_add(struct tape *t, uint32_t i) {
    struct op *product = &t->ops[i], *add = &t->ops[i + 1];
    if (product->kind != OP_MATMUL || product->matmul.add || add->kind != OP_ADD) return false;
    if (!operand_same(product->matmul.dst, add->add.src)) return false;
    if (count_readers(t, i, product->matmul.dst.value, i + 1) > 0) return false;
    if (touches(t, i, add->add.dst.value)) return false;
    product->matmul.dst = add->add.dst;
    product->matmul.add = true;
    remove_op(t, i + 1);
    return true;
}

void tape_fuse(struct tape *t) {
    uint32_t i = 0;
    while (i + 1 < t->op_count)
        if (!fuse_quant(t, i) && !fuse_add(t, i)) i++;
}
