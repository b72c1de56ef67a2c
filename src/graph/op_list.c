/* graph/op_list.c - every op: one row each, and the functions that its row names.
 *
 * The functions come first, op by op in the order of enum op_kind; the table is at the end.
 * To add an op: see graph/op.h. Most ops need a row and no function.
 */
#include <stddef.h>

#include "base/buf.h"
#include "graph/graph_int.h"
#include "graph/op_info.h"
#include "tensor/q8.h"

/* What products share. */

static uint32_t list_parts(const struct matmul_part *parts, uint32_t count,
                           const struct weight **out) {
    for (uint32_t i = 0; i < count; i++) out[i] = parts[i].weight;
    return count;
}

static void put_part(const struct weight *w, bool has_bias, struct buf *out) {
    buf_printf(out, " %.*s(%u,%u)%s", STR_ARG(w->name), w->rows, w->cols,
               dtype_info(w->type)->name);
    if (w->experts > 1) buf_printf(out, "x%u", w->experts);
    if (has_bias) buf_put_text(out, "+bias");
}

static void put_parts(const struct matmul_part *parts, uint32_t count, struct buf *out) {
    for (uint32_t i = 0; i < count; i++) put_part(parts[i].weight, parts[i].bias != NULL, out);
}

/* Returns the rows of all parts together: the columns of a result. */
static uint32_t check_parts(struct op_check *c, const struct matmul_part *parts, uint32_t count,
                            struct operand src, uint32_t src_cols) {
    uint32_t rows = 0;
    if (count == 0 || count > OP_PARTS_MAX)
        check_fail(c, "count of parts (1 to 3)", count, OP_PARTS_MAX);
    for (uint32_t i = 0; i < count && c->st == ST_OK; i++) {
        const struct weight *w = parts[i].weight;
        bool quantised = dtype_has_integers(w->type);
        check_equal(c, "columns of the weight", w->cols, src_cols);
        check_type(c, "src", src, quantised ? VALUE_Q8 : VALUE_F32);
        if (quantised) check_equal(c, "first column of src mod 32", src.col % Q8_BLOCK, 0);
        rows += w->rows;
    }
    return rows;
}

static uint64_t weight_bytes(const struct matmul_part *parts, uint32_t count, uint32_t experts) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += parts[i].weight->bytes / parts[i].weight->experts * experts;
    return bytes;
}

static uint64_t product_flops(const struct matmul_part *parts, uint32_t count, uint64_t rows) {
    uint64_t flops = 0;
    for (uint32_t i = 0; i < count; i++)
        flops += 2 * rows * parts[i].weight->rows * parts[i].weight->cols;
    return flops;
}

/* Embed. */

static void embed_check(struct op_check *c, const struct op *op) {
    check_results(c, op->embed.table->cols);
}

static struct op_cost embed_cost(const struct op *op, uint64_t rows, uint64_t ctx) {
    const struct weight *w = op->embed.table;
    (void)ctx;
    return (struct op_cost){.flops = rows * w->cols, .bytes = rows * (w->bytes / w->rows)};
}

static uint32_t embed_matrices(const struct op *op, const struct weight **out) {
    out[0] = op->embed.table;
    return 1;
}

static void embed_detail(const struct op *op, struct buf *out) {
    put_part(op->embed.table, false, out);
}

/* Norm. */

static void norm_check(struct op_check *c, const struct op *op) {
    const struct op_norm *n = &op->norm;
    if (n->group == 0 || n->src.cols % n->group)
        check_fail(c, "group, a divisor of the columns,", n->group, n->src.cols);
    check_same_cols(c);
}

static void norm_detail(const struct op *op, struct buf *out) {
    buf_printf(out, " %s over %u", op->norm.kind == NORM_RMS ? "rms" : "layer", op->norm.group);
}

/* Matmul. */

static void matmul_check(struct op_check *c, const struct op *op) {
    const struct op_matmul *m = &op->matmul;
    check_results(c, check_parts(c, m->parts, m->part_count, m->src, m->src.cols));
}

static struct op_cost matmul_cost(const struct op *op, uint64_t rows, uint64_t ctx) {
    const struct op_matmul *m = &op->matmul;
    (void)ctx;
    return (struct op_cost){.flops = product_flops(m->parts, m->part_count, rows),
                            .bytes = weight_bytes(m->parts, m->part_count, 1)};
}

static uint32_t matmul_matrices(const struct op *op, const struct weight **out) {
    return list_parts(op->matmul.parts, op->matmul.part_count, out);
}

static void matmul_detail(const struct op *op, struct buf *out) {
    put_parts(op->matmul.parts, op->matmul.part_count, out);
}

/* Rope. */

static void rope_check(struct op_check *c, const struct op *op) {
    const struct op_rope *r = &op->rope;
    check_results(c, r->heads * r->head_dim);
    check_equal(c, "rotated dimensions mod 2", r->rot_dims % 2, 0);
    if (r->rot_dims > r->head_dim) check_fail(c, "rotated dimensions", r->rot_dims, r->head_dim);
}

static void rope_detail(const struct op *op, struct buf *out) {
    buf_printf(out, " %u heads, %u of %u dims, %s", op->rope.heads, op->rope.rot_dims,
               op->rope.head_dim, op->rope.style == ROPE_NEOX ? "halves" : "pairs");
}

/* KV write. KV is counted at two bytes a number: the format is the engine's choice, not the
 * tape's. */

static struct op_cost kv_write_cost(const struct op *op, uint64_t rows, uint64_t ctx) {
    (void)ctx;
    return (struct op_cost){.flops = 0, .bytes = 2 * 2 * rows * op->kv_write.k.cols};
}

static uint32_t kv_write_elements(const struct op *op) {
    return op->kv_write.k.cols + op->kv_write.v.cols;
}

/* Attention. */

static void attention_check(struct op_check *c, const struct op *op) {
    const struct op_attention *a = &op->attention;
    if (a->kv_heads == 0 || a->heads % a->kv_heads)
        check_fail(c, "heads, a multiple of the KV heads,", a->heads, a->kv_heads);
    check_equal(c, "q", a->q.cols, a->heads * a->head_dim);
    check_same_cols(c);
}

static struct op_cost attention_cost(const struct op *op, uint64_t rows, uint64_t ctx) {
    const struct op_attention *a = &op->attention;
    uint64_t seen = a->window && a->window < ctx ? a->window : ctx;
    return (struct op_cost){.flops = 4 * rows * seen * a->heads * a->head_dim,
                            .bytes = 2 * seen * a->kv_heads * a->head_dim * 2};
}

static void attention_detail(const struct op *op, struct buf *out) {
    const struct op_attention *a = &op->attention;
    buf_printf(out, " %u heads on %u of %u", a->heads, a->kv_heads, a->head_dim);
    if (a->window) buf_printf(out, ", window %u", a->window);
    if (a->softcap > 0) buf_printf(out, ", cap %g", (double)a->softcap);
}

/* Self-attention. */

static void self_attention_check(struct op_check *c, const struct op *op) {
    const struct op_self_attention *a = &op->self_attention;
    check_equal(c, "q", a->q.cols, a->heads * a->head_dim);
    check_same_cols(c);
}

static struct op_cost self_attention_cost(const struct op *op, uint64_t rows, uint64_t ctx) {
    (void)ctx;
    return (struct op_cost){.flops = 4 * rows * rows * op->self_attention.q.cols, .bytes = 0};
}

static void self_attention_detail(const struct op *op, struct buf *out) {
    buf_printf(out, " %u heads of %u", op->self_attention.heads, op->self_attention.head_dim);
}

/* Act. */

static void act_check(struct op_check *c, const struct op *op) {
    const struct op_act *a = &op->act;
    uint32_t value_cols = tape_value_at(c->t, a->gate.value)->cols;
    if (a->up.value != VALUE_NONE) check_equal(c, "up", a->up.cols, a->gate.cols);
    if (a->segments == 0) check_fail(c, "segments", 0, 1);
    if (a->segments > 1) {
        uint64_t end = a->up.col + (uint64_t)(a->segments - 1) * a->stride + a->gate.cols;
        if (end > value_cols) check_fail(c, "last column of the segments", end, value_cols);
    }
    check_results(c, a->gate.cols * a->segments);
}

static uint32_t act_elements(const struct op *op) { return op->act.gate.cols * op->act.segments; }

static void act_detail(const struct op *op, struct buf *out) {
    static const char *const kinds[] = {"silu", "gelu (tanh)", "gelu (erf)"};
    buf_printf(out, " %s", kinds[op->act.kind]);
}

/* Route. */

static void route_check(struct op_check *c, const struct op *op) {
    const struct op_route *r = &op->route;
    if (r->used == 0 || r->used > r->experts) check_fail(c, "used experts", r->used, r->experts);
    check_equal(c, "logits", r->logits.cols, r->experts);
    check_results(c, r->used);
}

static uint32_t route_elements(const struct op *op) { return op->route.experts * op->route.used; }

static void route_detail(const struct op *op, struct buf *out) {
    buf_printf(out, " %u of %u", op->route.used, op->route.experts);
}

/* Expert matmul. */

static void expert_matmul_check(struct op_check *c, const struct op *op) {
    const struct op_expert_matmul *m = &op->expert_matmul;
    if (m->used == 0) {
        check_fail(c, "used experts", 0, 1);
        return;
    }
    uint32_t src_cols = m->src_per_expert ? m->src.cols / m->used : m->src.cols;
    uint32_t rows = check_parts(c, m->parts, m->part_count, m->src, src_cols);
    check_equal(c, "ids", m->ids.cols, m->used);
    check_results(c, rows * m->used);
}

static struct op_cost expert_matmul_cost(const struct op *op, uint64_t rows, uint64_t ctx) {
    const struct op_expert_matmul *m = &op->expert_matmul;
    uint64_t touched = rows * m->used; /* at most every expert once */
    uint32_t experts = m->parts[0].weight->experts;
    (void)ctx;
    if (touched > experts) touched = experts;
    return (struct op_cost){.flops = product_flops(m->parts, m->part_count, rows * m->used),
                            .bytes = weight_bytes(m->parts, m->part_count, (uint32_t)touched)};
}

static uint32_t expert_matmul_matrices(const struct op *op, const struct weight **out) {
    return list_parts(op->expert_matmul.parts, op->expert_matmul.part_count, out);
}

static void expert_matmul_detail(const struct op *op, struct buf *out) {
    put_parts(op->expert_matmul.parts, op->expert_matmul.part_count, out);
}

/* Expert sum. */

static void expert_sum_check(struct op_check *c, const struct op *op) {
    const struct op_expert_sum *s = &op->expert_sum;
    check_equal(c, "columns of src", s->src.cols, (uint64_t)s->dst.cols * s->used);
    check_equal(c, "weights", s->weights.cols, s->used);
}

/* Permute. */

static void permute_check(struct op_check *c, const struct op *op) {
    check_equal(c, "order", op->permute.order->cols, op->permute.src.cols);
    check_same_cols(c);
}

/* Where member `field` of member `args` of struct op is; the type of `args` is struct op_ARGS. */
#define OFFSET(args, field) (offsetof(struct op, args) + offsetof(struct op_##args, field))
#define OPERAND(args, field) .name = #field, .offset = OFFSET(args, field)
#define READS(args, field)                                                                         \
    { OPERAND(args, field), .use = USE_READ, .type = VALUE_F32 }
#define READS_I32(args, field)                                                                     \
    { OPERAND(args, field), .use = USE_READ, .type = VALUE_I32 }
#define READS_IF_THERE(args, field)                                                                \
    { OPERAND(args, field), .use = USE_READ, .type = VALUE_F32, .is_optional = true }
#define READS_AS_WEIGHTS(args, field)                                                              \
    { OPERAND(args, field), .use = USE_READ, .is_typed_by_weights = true }
#define WRITES(args, field)                                                                        \
    { OPERAND(args, field), .use = USE_WRITE, .type = VALUE_F32 }
#define WRITES_I32(args, field)                                                                    \
    { OPERAND(args, field), .use = USE_WRITE, .type = VALUE_I32 }
#define UPDATES(args, field)                                                                       \
    { OPERAND(args, field), .use = USE_UPDATE, .type = VALUE_F32 }
/* Adds to it if args.add is set, else writes it. */
#define WRITES_OR_ADDS(args, field)                                                                \
    { OPERAND(args, field), .use = USE_ADD_IF, .flag = OFFSET(args, add), .type = VALUE_F32 }
/* A result as floats, quantised, or both: the operands dst and q8. */
#define GIVES_F32(args)                                                                            \
    { OPERAND(args, dst), .use = USE_WRITE, .type = VALUE_F32, .is_optional = true }
#define GIVES_Q8(args)                                                                             \
    { OPERAND(args, q8), .use = USE_WRITE, .type = VALUE_Q8, .is_optional = true }

const struct op_info op_infos[OP_COUNT] = {
    [OP_EMBED] = {.name = "embed",
                  .operands = {WRITES_OR_ADDS(embed, dst)},
                  .rows = ROWS_EACH_TOKEN,
                  .grain = GRAIN_ROW,
                  .family = FAMILY_LOOKUP,
                  .check = embed_check,
                  .cost = embed_cost,
                  .matrices = embed_matrices,
                  .put_detail = embed_detail},
    [OP_NORM] = {.name = "norm",
                 .operands = {READS(norm, src), GIVES_F32(norm), GIVES_Q8(norm)},
                 .rows = ROWS_EACH,
                 .grain = GRAIN_ROW,
                 .family = FAMILY_ROW,
                 .check = norm_check,
                 .put_detail = norm_detail},
    [OP_QUANT] = {.name = "quant",
                  .operands = {READS(quant, src), GIVES_Q8(quant)},
                  .rows = ROWS_EACH,
                  .grain = GRAIN_ROW},
    [OP_MATMUL] = {.name = "matmul",
                   .operands = {READS_AS_WEIGHTS(matmul, src), WRITES_OR_ADDS(matmul, dst)},
                   .rows = ROWS_EACH,
                   .grain = GRAIN_SUM,
                   .family = FAMILY_PRODUCT,
                   .check = matmul_check,
                   .cost = matmul_cost,
                   .matrices = matmul_matrices,
                   .put_detail = matmul_detail},
    [OP_ROPE] = {.name = "rope",
                 .operands = {UPDATES(rope, x)},
                 .rows = ROWS_EACH_TOKEN,
                 .grain = GRAIN_ROW,
                 .check = rope_check,
                 .put_detail = rope_detail},
    [OP_KV_WRITE] = {.name = "kv_write",
                     .operands = {READS(kv_write, k), READS(kv_write, v)},
                     .rows = ROWS_EACH_TOKEN,
                     .grain = GRAIN_ROW,
                     .kv = KV_WRITTEN,
                     .kv_group = offsetof(struct op, kv_write.group),
                     .family = FAMILY_ATTENTION,
                     .cost = kv_write_cost,
                     .row_elements = kv_write_elements},
    [OP_ATTENTION] = {.name = "attention",
                      .operands = {READS(attention, q), GIVES_F32(attention), GIVES_Q8(attention)},
                      .rows = ROWS_EACH_TOKEN,
                      .grain = GRAIN_SUM,
                      .kv = KV_READ,
                      .kv_group = offsetof(struct op, attention.group),
                      .family = FAMILY_ATTENTION,
                      .check = attention_check,
                      .cost = attention_cost,
                      .put_detail = attention_detail},
    [OP_SELF_ATTENTION] = {.name = "self_attention",
                           .operands = {READS(self_attention, q), READS(self_attention, k),
                                        READS(self_attention, v), GIVES_F32(self_attention),
                                        GIVES_Q8(self_attention)},
                           .rows = ROWS_EACH_TOKEN,
                           .grain = GRAIN_SUM,
                           .family = FAMILY_ATTENTION,
                           .check = self_attention_check,
                           .cost = self_attention_cost,
                           .put_detail = self_attention_detail},
    [OP_ACT] = {.name = "act",
                .operands = {READS(act, gate), READS_IF_THERE(act, up), GIVES_F32(act),
                             GIVES_Q8(act)},
                .rows = ROWS_EACH,
                .grain = GRAIN_ELEMENT,
                .family = FAMILY_ROW,
                .check = act_check,
                .row_elements = act_elements,
                .put_detail = act_detail},
    [OP_ADD] = {.name = "add",
                .operands = {READS(add, src), UPDATES(add, dst)},
                .rows = ROWS_EACH,
                .grain = GRAIN_ROW},
    [OP_SOFTCAP] = {.name = "softcap",
                    .operands = {UPDATES(softcap, x)},
                    .rows = ROWS_EACH,
                    .grain = GRAIN_ROW},
    [OP_ROUTE] = {.name = "route",
                  .operands = {READS(route, logits), WRITES_I32(route, ids),
                               WRITES(route, weights)},
                  .rows = ROWS_EACH,
                  .grain = GRAIN_ROW,
                  .check = route_check,
                  .row_elements = route_elements,
                  .put_detail = route_detail},
    [OP_EXPERT_MATMUL] = {.name = "expert_matmul",
                          .operands = {READS_AS_WEIGHTS(expert_matmul, src),
                                       READS_I32(expert_matmul, ids), WRITES(expert_matmul, dst)},
                          .rows = ROWS_EACH,
                          .grain = GRAIN_SUM,
                          .family = FAMILY_PRODUCT,
                          .check = expert_matmul_check,
                          .cost = expert_matmul_cost,
                          .matrices = expert_matmul_matrices,
                          .put_detail = expert_matmul_detail},
    [OP_EXPERT_SUM] = {.name = "expert_sum",
                       .operands = {READS(expert_sum, src), READS(expert_sum, weights),
                                    WRITES_OR_ADDS(expert_sum, dst)},
                       .rows = ROWS_EACH,
                       .grain = GRAIN_ROW,
                       .check = expert_sum_check},
    [OP_GATHER] = {.name = "gather",
                   .operands = {READS(gather, src), WRITES(gather, dst)},
                   .rows = ROWS_PICKED,
                   .grain = GRAIN_ROW,
                   .family = FAMILY_LOOKUP},
    [OP_PERMUTE] = {.name = "permute",
                    .operands = {READS(permute, src), WRITES(permute, dst)},
                    .rows = ROWS_EACH,
                    .grain = GRAIN_ROW,
                    .family = FAMILY_ROW,
                    .check = permute_check},
    [OP_POOL] = {.name = "pool",
                 .operands = {READS(pool, src), WRITES(pool, dst)},
                 .rows = ROWS_JOINED,
                 .grain = GRAIN_SUM,
                 .family = FAMILY_LOOKUP},
    [OP_INPUT] = {.name = "input",
                  .operands = {WRITES(input, dst)},
                  .rows = ROWS_EACH_TOKEN,
                  .grain = GRAIN_ROW,
                  .family = FAMILY_LOOKUP},
};
