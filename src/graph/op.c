/* graph/op.c - what the rows of op_list.c say of one op. */
#include "graph/op.h"

#include "base/check.h"
#include "graph/op_info.h"
#include "graph/show.h"

const struct op_info *op_info(enum op_kind kind) {
    CHECK(kind < OP_COUNT);
    return &op_infos[kind];
}

const char *op_name(enum op_kind kind) { return op_info(kind)->name; }

static struct operand *operand_at(struct op *op, const struct op_operand *o) {
    return (struct operand *)(void *)((char *)op + o->offset);
}

static void add_read(struct op_access *a, struct operand *o) {
    CHECK(a->read_count < OP_OPERANDS_MAX);
    a->reads[a->read_count++] = o;
}

static void add_write(struct op_access *a, struct operand *o) {
    CHECK(a->write_count < OP_OPERANDS_MAX);
    a->writes[a->write_count++] = o;
}

static bool is_read(const struct op *op, const struct op_operand *o) {
    if (o->use == USE_ADD_IF) return *(const bool *)((const char *)op + o->flag);
    return o->use == USE_READ || o->use == USE_UPDATE;
}

struct op_access op_access(struct op *op) {
    struct op_access a = {.read_count = 0};
    for (const struct op_operand *o = op_info(op->kind)->operands; o->use != USE_NONE; o++) {
        struct operand *at = operand_at(op, o);
        if (at->value == VALUE_NONE) continue;
        if (is_read(op, o)) add_read(&a, at);
        if (o->use != USE_READ) add_write(&a, at);
    }
    return a;
}

struct op_results op_results(struct op *op) {
    struct op_results r = {NULL, NULL};
    for (const struct op_operand *o = op_info(op->kind)->operands; o->use != USE_NONE; o++) {
        if (o->use == USE_READ) continue;
        if (o->type == VALUE_F32) r.f32 = operand_at(op, o);
        if (o->type == VALUE_Q8) r.q8 = operand_at(op, o);
    }
    return r;
}

uint32_t op_row_elements(const struct op *op) {
    const struct op_info *info = op_info(op->kind);
    struct op copy = *op;
    if (info->grain == GRAIN_SUM) return 0;
    if (info->row_elements) return info->row_elements(op);
    return operand_at(&copy, &info->operands[0])->cols;
}

uint32_t op_matrices(const struct op *op, const struct weight *out[OP_PARTS_MAX]) {
    const struct op_info *info = op_info(op->kind);
    return info->matrices ? info->matrices(op, out) : 0;
}

uint32_t op_kv_group(const struct op *op) {
    const struct op_info *info = op_info(op->kind);
    CHECK(info->kv != KV_UNUSED);
    return *(const uint32_t *)(const void *)((const char *)op + info->kv_group);
}

void op_put_detail(const struct op *op, struct buf *out) {
    const struct op_info *info = op_info(op->kind);
    if (info->put_detail) info->put_detail(op, out);
}
