/* Goal:   ops that work row by row give the CPU's bits.
 * Method: one op at a time over odd sizes, every third row skipped. */
#include <stdio.h>

#include "rig.h"

static const enum dtype types[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16,   DTYPE_Q4_0,   DTYPE_Q4_1,
                                   DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0,   DTYPE_Q2_K,   DTYPE_Q3_K,
                                   DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,   DTYPE_IQ4_NL, DTYPE_IQ4_XS,
                                   DTYPE_INT4, DTYPE_INT8, DTYPE_INT8_Z, DTYPE_NF4,    DTYPE_FP4};
enum { TYPES = sizeof(types) / sizeof(types[0]), ROWS = 7 };

static struct step_sizes sizes_of(uint32_t rows) {
    return (struct step_sizes){.rows_max = rows, .outputs_max = rows, .seqs_max = 2};
}

static struct rig rig_of(uint64_t seed, uint32_t rows) {
    return (struct rig){.seed = seed, .op_count = 1, .sizes = sizes_of(rows), .spread = 3.0f};
}

static void check_embed(struct checks *c, enum dtype type, bool add) {
    char what[64];
    struct weight w = rig_weight(type, 37, 512, 1, 5);
    struct rig r = rig_of(type, ROWS);
    w.use = add ? WEIGHT_MATRIX : WEIGHT_TABLE;
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, 512, 0};
    r.value_count = 1;
    r.weights[0] = &w;
    r.ops[0] = (struct op){.kind = OP_EMBED,
                           .embed = {.table = &w,
                                     .source = add ? EMBED_POSITION : EMBED_TOKEN,
                                     .add = add,
                                     .scale = 1.7f,
                                     .dst = rig_operand(&r, 0)}};
    snprintf(what, sizeof(what), "embed %s%s", dtype_info(type)->name, add ? " added" : "");
    rig_check(c, &r, ROWS, 3, 0, what);
    rig_weight_free(&w);
}

static void check_norm(struct checks *c, enum norm_kind kind, uint32_t group, uint32_t cols,
                       bool q8_alone) {
    char what[64];
    struct weight w = rig_vector(group, 1.0f, 5), b = rig_vector(group, 0.0f, 6);
    struct rig r = rig_of(group + cols, ROWS);
    r.values[0] = r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_F32, cols, 0};
    r.values[2] = (struct rig_value){ROWS_TOKENS, VALUE_Q8, cols, 0};
    r.value_count = cols % 32 == 0 ? 3 : 2;
    r.weights[0] = &w;
    r.weights[1] = &b;
    struct op_norm n = {.kind = kind,
                        .group = group,
                        .eps = 1e-5f,
                        .weight = &w,
                        .bias = kind == NORM_LAYER ? &b : NULL,
                        .src = rig_operand(&r, 0),
                        .dst = q8_alone ? operand_none : rig_operand(&r, 1),
                        .q8 = r.value_count == 3 ? rig_operand(&r, 2) : operand_none};
    r.ops[0] = (struct op){.kind = OP_NORM, .norm = n};
    if (q8_alone) r.ops[0].norm.q8 = rig_operand(&r, 2);
    snprintf(what, sizeof(what), "norm %d of %u in %u", kind, group, cols);
    rig_check(c, &r, ROWS, 3, 0, what);
    rig_weight_free(&w);
    rig_weight_free(&b);
}

static void check_rope(struct checks *c, enum rope_style style, uint32_t head_dim, uint32_t rot) {
    struct weight f = rig_vector(rot / 2, 0.6f, 9);
    struct rig r = rig_of(head_dim, ROWS);
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, 3 * head_dim, 0};
    r.value_count = 1;
    r.weights[0] = &f;
    r.ops[0] = (struct op){.kind = OP_ROPE,
                           .rope = {.style = style,
                                    .heads = 3,
                                    .head_dim = head_dim,
                                    .rot_dims = rot,
                                    .freqs = &f,
                                    .factor = 1.25f,
                                    .x = rig_operand(&r, 0)}};
    rig_check(c, &r, ROWS, 3, 0, "rope");
    rig_weight_free(&f);
}

static void check_act(struct checks *c, enum act_kind kind, uint32_t segments, bool has_up) {
    uint32_t cols = 96, stride = has_up ? 2 * cols : cols;
    struct rig r = rig_of(kind, ROWS);
    r.spread = 9.0f;
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, stride * segments, 0};
    r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_F32, cols * segments, 0};
    r.values[2] = (struct rig_value){ROWS_TOKENS, VALUE_Q8, cols * segments, 0};
    r.value_count = 3;
    struct operand all = rig_operand(&r, 0);
    r.ops[0] = (struct op){.kind = OP_ACT,
                           .act = {.kind = kind,
                                   .segments = segments,
                                   .stride = stride,
                                   .gate = operand_slice(all, 0, cols),
                                   .up = has_up ? operand_slice(all, cols, cols) : operand_none,
                                   .dst = has_up ? rig_operand(&r, 1) : operand_none,
                                   .q8 = rig_operand(&r, 2)}};
    rig_check(c, &r, ROWS, 3, 0, "act");
}

static void check_small(struct checks *c) {
    struct rig r = rig_of(77, ROWS);
    r.values[0] = r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_F32, 1030, 0};
    r.value_count = 2;
    r.ops[0] =
        (struct op){.kind = OP_ADD, .add = {.src = rig_operand(&r, 0), .dst = rig_operand(&r, 1)}};
    rig_check(c, &r, ROWS, 3, 0, "add");
    r.ops[0] = (struct op){.kind = OP_SOFTCAP, .softcap = {.cap = 1.5f, .x = rig_operand(&r, 0)}};
    r.value_count = 1;
    rig_check(c, &r, ROWS, 3, 0, "softcap");
    r.values[1] = (struct rig_value){ROWS_OUTPUTS, VALUE_F32, 1030, 0};
    r.value_count = 2;
    r.output = 1;
    r.ops[0] = (struct op){.kind = OP_GATHER,
                           .gather = {.src = rig_operand(&r, 0), .dst = rig_operand(&r, 1)}};
    rig_check(c, &r, ROWS, 3, 0, "gather");
    r.output = 0;
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, 96, 0};
    r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_Q8, 96, 0};
    r.ops[0] = (struct op){.kind = OP_QUANT,
                           .quant = {.src = rig_operand(&r, 0), .q8 = rig_operand(&r, 1)}};
    rig_check(c, &r, ROWS, 3, 0, "quant");
}

static void check_pool(struct checks *c, enum pool_kind kind, bool unit_length) {
    struct rig r = rig_of(kind, ROWS);
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, 100, 0};
    r.values[1] = (struct rig_value){ROWS_SEQS, VALUE_F32, 100, 0};
    r.value_count = 2;
    r.output = 1;
    r.ops[0] = (struct op){.kind = OP_POOL,
                           .pool = {.kind = kind,
                                    .unit_length = unit_length,
                                    .src = rig_operand(&r, 0),
                                    .dst = rig_operand(&r, 1)}};
    rig_check(c, &r, ROWS, 3, 0, "pool");
}

static void check_route(struct checks *c, uint32_t experts, uint32_t used, bool normalise) {
    struct rig r = rig_of(experts, ROWS);
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, experts, 0};
    r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_I32, used, experts};
    r.values[2] = (struct rig_value){ROWS_TOKENS, VALUE_F32, used, 0};
    r.value_count = 3;
    r.ops[0] = (struct op){.kind = OP_ROUTE,
                           .route = {.experts = experts,
                                     .used = used,
                                     .normalise = normalise,
                                     .logits = rig_operand(&r, 0),
                                     .ids = rig_operand(&r, 1),
                                     .weights = rig_operand(&r, 2)}};
    rig_check(c, &r, ROWS, 3, 0, "route");
}

static void check_expert_sum(struct checks *c, bool add) {
    struct rig r = rig_of(add, ROWS);
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, 3 * 100, 0};
    r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_F32, 3, 0};
    r.values[2] = (struct rig_value){ROWS_TOKENS, VALUE_F32, 100, 0};
    r.value_count = 3;
    r.ops[0] = (struct op){.kind = OP_EXPERT_SUM,
                           .expert_sum = {.used = 3,
                                          .add = add,
                                          .src = rig_operand(&r, 0),
                                          .weights = rig_operand(&r, 1),
                                          .dst = rig_operand(&r, 2)}};
    rig_check(c, &r, ROWS, 3, 0, "expert_sum");
}

void suite_rows(struct checks *c) {
    static const uint32_t norms[][2] = {{16, 64},       {24, 72},      {128, 4096},  {128, 384},
                                        {32, 32},       {512, 512},    {576, 576},   {1000, 1000},
                                        {896, 896},     {4096, 4096},  {5120, 5120}, {12288, 12288},
                                        {16384, 16384}, {20480, 20480}};
    for (int i = 0; i < TYPES; i++) {
        check_embed(c, types[i], false);
        check_embed(c, types[i], true);
    }
    for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++)
        for (int kind = NORM_RMS; kind <= NORM_LAYER; kind++) {
            check_norm(c, (enum norm_kind)kind, norms[i][0], norms[i][1], false);
            if (norms[i][1] % 32 == 0)
                check_norm(c, (enum norm_kind)kind, norms[i][0], norms[i][1], true);
        }
    for (int style = ROPE_NEOX; style <= ROPE_ADJACENT; style++) {
        check_rope(c, (enum rope_style)style, 128, 128);
        check_rope(c, (enum rope_style)style, 96, 48);
        check_rope(c, (enum rope_style)style, 16, 16);
    }
    for (int kind = ACT_SILU; kind <= ACT_GELU_ERF; kind++) {
        check_act(c, (enum act_kind)kind, 1, true);
        check_act(c, (enum act_kind)kind, 1, false);
        check_act(c, (enum act_kind)kind, 3, true);
    }
    check_small(c);
    for (int kind = POOL_MEAN; kind <= POOL_LAST; kind++) {
        check_pool(c, (enum pool_kind)kind, false);
        check_pool(c, (enum pool_kind)kind, true);
    }
    check_route(c, 8, 2, true);
    check_route(c, 60, 4, false);
    check_route(c, 128, 8, true);
    check_expert_sum(c, false);
    check_expert_sum(c, true);
}
