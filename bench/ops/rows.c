/* bench/ops/rows.c - ops on single rows: what they read and write stays in the caches. */
#include <stdio.h>

#include "ops/rig.h"

enum {
    COLS = 1536,
    HEADS = 9,
    KV_HEADS = 3,
    DIM = 64,
    VOCAB = 49152,
    EXPERTS = 64,
    EXPERTS_USED = 8,
    NAME_BYTES = 80,
};

static float zeros[COLS];

/* Measures the one op for a row and for many, and drops the tape. */
static void measure_op(struct bench *b, struct tape *t, struct op op, struct operand out,
                       const char *name, const struct kv_space *kv) {
    static const uint32_t row_counts[] = {1, 64};
    tape_push(t, &op);
    tape_set_output(t, out.value);
    struct pass p = pass_make(b, t, kv);
    for (int i = 0; i < 2; i++) {
        bench_set_rows(b, row_counts[i], row_counts[i]);
        char full[NAME_BYTES];
        snprintf(full, sizeof(full), "%s T=%u", name, row_counts[i]);
        bench_measure(b, &p, full);
    }
    pass_free(b, &p);
}

static void bench_norms(struct bench *b) {
    struct operand none = operand_none;
    struct weight row = weight_vector(STR("row"), zeros, COLS);
    struct weight head = weight_vector(STR("head"), zeros, DIM);
    for (int layer = 0; layer < 2; layer++) {
        struct tape *t = tape_begin();
        struct operand x = new_f32(t, "x", COLS), q8 = new_q8(t, "q8", COLS);
        struct op op = {.kind = OP_NORM};
        op.norm = (struct op_norm){layer ? NORM_LAYER : NORM_RMS, COLS, 1e-5f, &row,
                                   layer ? &row : NULL,           x,    none,  q8};
        measure_op(b, t, op, q8, layer ? "norm layer 1536 to q8" : "norm rms 1536 to q8", NULL);
    }
    struct tape *t = tape_begin();
    struct operand x = new_f32(t, "x", HEADS * DIM);
    struct op op = {.kind = OP_NORM};
    op.norm = (struct op_norm){NORM_RMS, DIM, 1e-5f, &head, NULL, x, x, none};
    measure_op(b, t, op, x, "norm rms 9x64 in place", NULL);
}

static void bench_acts(struct bench *b) {
    static const char *const names[] = {"act silu 1536 to q8", "act gelu_tanh 1536 to q8",
                                        "act gelu_erf 1536 to q8"};
    for (int kind = 0; kind < 3; kind++) {
        struct tape *t = tape_begin();
        struct operand x = new_f32(t, "x", 2 * COLS), q8 = new_q8(t, "q8", COLS);
        struct op op = {.kind = OP_ACT};
        op.act = (struct op_act){
            (enum act_kind)kind, 1, 0, operand_slice(x, 0, COLS), operand_slice(x, COLS, COLS),
            operand_none,        q8};
        measure_op(b, t, op, q8, names[kind], NULL);
    }
}

static void bench_simple(struct bench *b) {
    struct tape *t = tape_begin();
    struct operand x = new_f32(t, "x", COLS), q8 = new_q8(t, "q8", COLS);
    struct op op = {.kind = OP_QUANT};
    op.quant = (struct op_quant){x, q8};
    measure_op(b, t, op, q8, "quant 1536", NULL);

    t = tape_begin();
    x = new_f32(t, "x", HEADS * DIM);
    struct weight freqs = weight_vector(STR("freqs"), zeros, DIM / 2);
    op = (struct op){.kind = OP_ROPE};
    op.rope = (struct op_rope){ROPE_NEOX, HEADS, DIM, DIM, &freqs, 1.0f, x};
    measure_op(b, t, op, x, "rope 9x64", NULL);

    t = tape_begin();
    x = new_f32(t, "x", COLS);
    struct operand y = new_f32(t, "y", COLS);
    op = (struct op){.kind = OP_ADD};
    op.add = (struct op_add){x, y};
    measure_op(b, t, op, y, "add 1536", NULL);

    t = tape_begin();
    x = new_f32(t, "x", COLS);
    y = tape_all(t, tape_value(t, "y", ROWS_OUTPUTS, VALUE_F32, COLS));
    op = (struct op){.kind = OP_GATHER};
    op.gather = (struct op_gather){x, y};
    measure_op(b, t, op, y, "gather 1536", NULL);

    t = tape_begin();
    x = new_f32(t, "x", VOCAB);
    op = (struct op){.kind = OP_SOFTCAP};
    op.softcap = (struct op_softcap){30.0f, x};
    measure_op(b, t, op, x, "softcap 49152", NULL);
}

static void bench_moe(struct bench *b) {
    struct tape *t = tape_begin();
    struct operand logits = new_f32(t, "logits", EXPERTS), weights = new_f32(t, "w", EXPERTS_USED);
    struct operand ids = tape_all(t, tape_value(t, "ids", ROWS_TOKENS, VALUE_I32, EXPERTS_USED));
    struct op op = {.kind = OP_ROUTE};
    op.route = (struct op_route){EXPERTS, EXPERTS_USED, true, logits, ids, weights};
    measure_op(b, t, op, weights, "route 8 of 64", NULL);

    t = tape_begin();
    struct operand src = new_f32(t, "src", EXPERTS_USED * COLS), dst = new_f32(t, "dst", COLS);
    weights = new_f32(t, "w", EXPERTS_USED);
    op = (struct op){.kind = OP_EXPERT_SUM};
    op.expert_sum = (struct op_expert_sum){EXPERTS_USED, true, src, weights, dst};
    measure_op(b, t, op, dst, "expert_sum 8x1536", NULL);
}

static void bench_kv_write(struct bench *b, enum kv_type type, const char *name) {
    struct kv_space kv = kv_make(b, type, KV_HEADS, DIM, ROWS_MAX);
    struct tape *t = tape_begin();
    struct operand k = new_f32(t, "k", KV_HEADS * DIM), v = new_f32(t, "v", KV_HEADS * DIM);
    struct op op = {.kind = OP_KV_WRITE};
    op.kv_write = (struct op_kv_write){.k = k, .v = v};
    measure_op(b, t, op, k, name, &kv);
    kv_free(b, &kv);
}

static void bench_embed(struct bench *b) {
    struct weight w = weight_make(b, DTYPE_Q8_0, VOCAB, COLS, 1);
    struct tape *t = tape_begin();
    struct operand x = new_f32(t, "x", COLS);
    struct op op = {.kind = OP_EMBED};
    op.embed = (struct op_embed){&w, EMBED_TOKEN, false, 1.0f, x};
    for (uint32_t i = 0; i < ROWS_MAX; i++) b->step->token[i] = (int32_t)(i * 97);
    measure_op(b, t, op, x, "embed Q8_0 1536", NULL);
    weight_free(b, &w);
}

void bench_row_ops(struct bench *b) {
    bench_open(b);
    bench_norms(b);
    bench_acts(b);
    bench_simple(b);
    bench_moe(b);
    bench_kv_write(b, KV_F16, "kv_write f16 3x64");
    bench_kv_write(b, KV_I8, "kv_write int8 3x64");
    bench_embed(b);
    bench_close(b);
}
