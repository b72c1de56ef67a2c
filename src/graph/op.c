/* graph/op.c - names of ops, and which operands each reads and writes. */
#include "graph/op.h"

#include "base/check.h"

static const char *const names[OP_COUNT] = {
    [OP_EMBED] = "embed",
    [OP_NORM] = "norm",
    [OP_QUANT] = "quant",
    [OP_MATMUL] = "matmul",
    [OP_ROPE] = "rope",
    [OP_KV_WRITE] = "kv_write",
    [OP_ATTENTION] = "attention",
    [OP_SELF_ATTENTION] = "self_attention",
    [OP_ACT] = "act",
    [OP_ADD] = "add",
    [OP_SOFTCAP] = "softcap",
    [OP_ROUTE] = "route",
    [OP_EXPERT_MATMUL] = "expert_matmul",
    [OP_EXPERT_SUM] = "expert_sum",
    [OP_GATHER] = "gather",
    [OP_POOL] = "pool",
};

const char *op_name(enum op_kind kind) {
    CHECK(kind < OP_COUNT);
    return names[kind];
}

static void reads(struct op_access *a, struct operand *o) {
    if (o->value == VALUE_NONE) return;
    CHECK(a->read_count < OP_OPERANDS_MAX);
    a->reads[a->read_count++] = o;
}

static void writes(struct op_access *a, struct operand *o) {
    if (o->value == VALUE_NONE) return;
    CHECK(a->write_count < OP_OPERANDS_MAX);
    a->writes[a->write_count++] = o;
}

static void changes(struct op_access *a, struct operand *o, bool keeps_old) {
    if (keeps_old) reads(a, o);
    writes(a, o);
}

static void expert_access(struct op *op, struct op_access *a) {
    switch (op->kind) {
    case OP_ROUTE:
        reads(a, &op->route.logits);
        writes(a, &op->route.ids);
        writes(a, &op->route.weights);
        break;
    case OP_EXPERT_MATMUL:
        reads(a, &op->expert_matmul.src);
        reads(a, &op->expert_matmul.ids);
        writes(a, &op->expert_matmul.dst);
        break;
    default:
        CHECK(op->kind == OP_EXPERT_SUM);
        reads(a, &op->expert_sum.src);
        reads(a, &op->expert_sum.weights);
        changes(a, &op->expert_sum.dst, op->expert_sum.add);
        break;
    }
}

static void attention_access(struct op *op, struct op_access *a) {
    switch (op->kind) {
    case OP_KV_WRITE:
        reads(a, &op->kv_write.k);
        reads(a, &op->kv_write.v);
        break;
    case OP_ATTENTION:
        reads(a, &op->attention.q);
        writes(a, &op->attention.dst);
        writes(a, &op->attention.q8);
        break;
    default:
        CHECK(op->kind == OP_SELF_ATTENTION);
        reads(a, &op->self_attention.q);
        reads(a, &op->self_attention.k);
        reads(a, &op->self_attention.v);
        writes(a, &op->self_attention.dst);
        writes(a, &op->self_attention.q8);
        break;
    }
}

static void row_access(struct op *op, struct op_access *a) {
    switch (op->kind) {
    case OP_NORM:
        reads(a, &op->norm.src);
        writes(a, &op->norm.dst);
        writes(a, &op->norm.q8);
        break;
    case OP_ACT:
        reads(a, &op->act.gate);
        reads(a, &op->act.up);
        writes(a, &op->act.dst);
        writes(a, &op->act.q8);
        break;
    case OP_QUANT:
        reads(a, &op->quant.src);
        writes(a, &op->quant.q8);
        break;
    case OP_ADD:
        reads(a, &op->add.src);
        changes(a, &op->add.dst, true);
        break;
    case OP_GATHER:
        reads(a, &op->gather.src);
        writes(a, &op->gather.dst);
        break;
    default:
        CHECK(op->kind == OP_POOL);
        reads(a, &op->pool.src);
        writes(a, &op->pool.dst);
        break;
    }
}

struct op_access op_access(struct op *op) {
    struct op_access a = {.read_count = 0};
    switch (op->kind) {
    case OP_EMBED:
        changes(&a, &op->embed.dst, op->embed.add);
        break;
    case OP_MATMUL:
        reads(&a, &op->matmul.src);
        changes(&a, &op->matmul.dst, op->matmul.add);
        break;
    case OP_ROPE:
        changes(&a, &op->rope.x, true);
        break;
    case OP_SOFTCAP:
        changes(&a, &op->softcap.x, true);
        break;
    case OP_KV_WRITE:
    case OP_ATTENTION:
    case OP_SELF_ATTENTION:
        attention_access(op, &a);
        break;
    case OP_ROUTE:
    case OP_EXPERT_MATMUL:
    case OP_EXPERT_SUM:
        expert_access(op, &a);
        break;
    default:
        row_access(op, &a);
        break;
    }
    return a;
}
