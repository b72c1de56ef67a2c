/* graph/cost.c - what each op costs, for the cost model, for people and for share-of-ceiling
 * figures. Scratch memory is taken to stay in cache; weights and KV are what moves.
 */
#include "base/check.h"
#include "graph/graph_int.h"

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

static struct op_cost expert_cost(const struct op_expert_matmul *m, uint64_t rows) {
    uint64_t touched = rows * m->used; /* at most every expert once */
    uint32_t experts = m->parts[0].weight->experts;
    if (touched > experts) touched = experts;
    return (struct op_cost){.flops = product_flops(m->parts, m->part_count, rows * m->used),
                            .bytes = weight_bytes(m->parts, m->part_count, (uint32_t)touched)};
}

/* KV is counted at two bytes a number: the format is the engine's choice, not the tape's. */
static struct op_cost attention_cost(const struct op_attention *a, uint64_t rows, uint64_t ctx) {
    uint64_t seen = a->window && a->window < ctx ? a->window : ctx;
    return (struct op_cost){.flops = 4 * rows * seen * a->heads * a->head_dim,
                            .bytes = 2 * seen * a->kv_heads * a->head_dim * 2};
}

static uint64_t rows_of(const struct tape *t, uint32_t i, uint32_t rows) {
    struct op copy = t->ops[i];
    struct op_access a = op_access(&copy);
    if (a.write_count == 0) return rows;
    return t->values[a.writes[0]->value].rows == ROWS_TOKENS ? rows : 1;
}

/* Ops over single rows: a few operations a number, nothing from memory. */
static struct op_cost row_cost(const struct tape *t, uint32_t i, uint64_t rows) {
    struct op copy = t->ops[i];
    struct op_access a = op_access(&copy);
    uint64_t cols = a.read_count ? a.reads[0]->cols : 0;
    return (struct op_cost){.flops = 4 * rows * cols, .bytes = 0};
}

struct op_cost tape_op_cost(const struct tape *t, uint32_t i, uint32_t rows, uint32_t ctx) {
    CHECK(i < t->op_count);
    const struct op *op = &t->ops[i];
    uint64_t n = rows_of(t, i, rows);
    switch (op->kind) {
    case OP_MATMUL:
        return (struct op_cost){.flops = product_flops(op->matmul.parts, op->matmul.part_count, n),
                                .bytes = weight_bytes(op->matmul.parts, op->matmul.part_count, 1)};
    case OP_EXPERT_MATMUL:
        return expert_cost(&op->expert_matmul, n);
    case OP_ATTENTION:
        return attention_cost(&op->attention, n, ctx);
    case OP_SELF_ATTENTION:
        return (struct op_cost){.flops = 4 * n * n * op->self_attention.q.cols, .bytes = 0};
    case OP_KV_WRITE:
        return (struct op_cost){.flops = 0, .bytes = 2 * 2 * n * op->kv_write.k.cols};
    case OP_EMBED: {
        const struct weight *w = op->embed.table;
        return (struct op_cost){.flops = n * w->cols, .bytes = n * (w->bytes / w->rows)};
    }
    default:
        return row_cost(t, i, n);
    }
}
