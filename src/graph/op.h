/* graph/op.h - the operations a forward pass is made of.
 *
 * An op reads and writes operands: column ranges of values, which are matrices with one row
 * per token (T), per wanted output (R) or per sequence (S). A row of a result depends only on
 * its own row, on its own sequence's KV and on step tables, and every sum has an order fixed
 * by absolute position (docs/identity.md); so batch, chunk and thread count change no bits. The
 * order is each device's own; what they have in common is in op_args.h.
 *
 * To add an op: its struct and its mathematics in op_args.h (if it computes); its kind below;
 * a row in op_list.c; and in each device its function. On the CPU these are a driver in
 * kernels/cpu/ops_*.c, its declaration in kernels/cpu/cpu_int.h and a line in
 * kernels/cpu/ops_list.c. Nothing else in graph/ has a list of ops (graph/op_info.h).
 */
#ifndef GRAPH_OP_H
#define GRAPH_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/op_args.h"

/* dst row r = row r of the step's `input`: numbers that the host gives for each token. */
struct op_input {
    struct operand dst; /* f32; as many columns as step_sizes.input_floats */
};

enum op_kind {
    OP_EMBED,
    OP_NORM,
    OP_QUANT,
    OP_MATMUL,
    OP_ROPE,
    OP_KV_WRITE,
    OP_ATTENTION,
    OP_SELF_ATTENTION,
    OP_ACT,
    OP_ADD,
    OP_SOFTCAP,
    OP_ROUTE,
    OP_EXPERT_MATMUL,
    OP_EXPERT_SUM,
    OP_GATHER,
    OP_PERMUTE,
    OP_POOL,
    OP_INPUT,
    OP_COUNT
};

struct op {
    enum op_kind kind;
    int32_t layer; /* for people: -1 outside the layers */
    union {
        struct op_embed embed;
        struct op_norm norm;
        struct op_quant quant;
        struct op_matmul matmul;
        struct op_rope rope;
        struct op_kv_write kv_write;
        struct op_attention attention;
        struct op_self_attention self_attention;
        struct op_act act;
        struct op_add add;
        struct op_softcap softcap;
        struct op_route route;
        struct op_expert_matmul expert_matmul;
        struct op_expert_sum expert_sum;
        struct op_gather gather;
        struct op_permute permute;
        struct op_pool pool;
        struct op_input input;
    };
};

const char *op_name(enum op_kind kind);

/* The operands of an op, for checking and planning: pointers into it. An in-place operand and
 * one that is added to is listed in both. */
enum { OP_OPERANDS_MAX = 4 };
struct op_access {
    struct operand *reads[OP_OPERANDS_MAX], *writes[OP_OPERANDS_MAX];
    uint32_t read_count, write_count;
};
struct op_access op_access(struct op *op);

#endif
