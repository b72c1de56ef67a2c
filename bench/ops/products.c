/* bench/ops/products.c - matrix products of every format, with weights that no cache holds. */
#include <stdio.h>

#include "ops/rig.h"

enum { COPIES_MAX = 512, EXPERTS = 8, EXPERTS_USED = 2, ROW_COUNTS = 4, NAME_BYTES = 80 };

static const uint32_t row_counts[ROW_COUNTS] = {1, 4, 32, 256};

/* A product of one format and shape. */
struct shape {
    const char *op;
    enum dtype type;
    uint32_t n, k;
};

static void put_name(const struct shape *s, uint32_t rows, char out[NAME_BYTES]) {
    snprintf(out, NAME_BYTES, "%s %s %ux%u M=%u", s->op, dtype_info(s->type)->name, s->n, s->k,
             rows);
}

static bool is_wanted(const struct bench *b, const struct shape *s) {
    char name[NAME_BYTES];
    for (size_t i = 0; i < ROW_COUNTS; i++) {
        put_name(s, row_counts[i], name);
        if (bench_wants(b, name)) return true;
    }
    return false;
}

static void measure_rows(struct bench *b, const struct pass *p, const struct shape *s) {
    char name[NAME_BYTES];
    for (size_t i = 0; i < ROW_COUNTS; i++) {
        put_name(s, row_counts[i], name);
        bench_set_rows(b, row_counts[i], ROWS_MAX);
        bench_measure(b, p, name);
    }
}

/* Products one after the other, each with its own weight, until COLD_BYTES are there: a forward
 * pass finds its weights in memory, never in a cache. */
static void bench_matmul(struct bench *b, enum dtype type, uint32_t n, uint32_t k) {
    static struct weight w[COPIES_MAX];
    const struct shape shape = {"matmul", type, n, k};
    if (!is_wanted(b, &shape)) return;
    bench_open(b);
    struct tape *t = tape_begin();
    bool quantised = dtype_has_integers(type);
    struct operand src = quantised ? new_q8(t, "src", k) : new_f32(t, "src", k);
    struct operand dst = new_f32(t, "dst", n);
    uint32_t copies = 0;
    for (size_t total = 0; total < COLD_BYTES && copies < COPIES_MAX; total += w[copies++].bytes) {
        w[copies] = weight_make(b, type, n, k, 1);
        struct op op = {.kind = OP_MATMUL};
        op.matmul = (struct op_matmul){
            .parts = {{&w[copies], NULL}}, .part_count = 1, .src = src, .dst = dst};
        tape_push(t, &op);
    }
    tape_set_output(t, dst.value);
    struct pass p = pass_make(b, t, NULL);
    measure_rows(b, &p, &shape);
    pass_free(b, &p);
    for (uint32_t i = 0; i < copies; i++) weight_free(b, &w[i]);
    bench_close(b);
}

void bench_matmuls(struct bench *b) {
    static const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q8_0,   DTYPE_Q4_K,
                                       DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS,
                                       DTYPE_INT4, DTYPE_INT8, DTYPE_NF4,    DTYPE_F8,
                                       DTYPE_F16,  DTYPE_BF16, DTYPE_F32};
    bench_matmul(b, DTYPE_Q4_1, 1536, 576); /* SmolLM2's feed-forward and head */
    bench_matmul(b, DTYPE_Q4_1, 576, 1536);
    bench_matmul(b, DTYPE_Q8_0, 49152, 576);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        bench_matmul(b, types[i], 4096, 4096);
}

static void bench_expert_matmul(struct bench *b, enum dtype type, uint32_t n, uint32_t k) {
    const struct shape shape = {"expert_matmul 2 of 8", type, n, k};
    if (!is_wanted(b, &shape)) return;
    bench_open(b);
    struct weight w = weight_make(b, type, n, k, EXPERTS);
    struct tape *t = tape_begin();
    struct operand src = new_q8(t, "src", k), dst = new_f32(t, "dst", EXPERTS_USED * n);
    struct operand ids = tape_all(t, tape_value(t, "ids", ROWS_TOKENS, VALUE_I32, EXPERTS_USED));
    struct op op = {.kind = OP_EXPERT_MATMUL};
    op.expert_matmul = (struct op_expert_matmul){.parts = {{&w, NULL}},
                                                 .part_count = 1,
                                                 .used = EXPERTS_USED,
                                                 .src = src,
                                                 .ids = ids,
                                                 .dst = dst};
    tape_push(t, &op);
    tape_set_output(t, dst.value);
    struct pass p = pass_make(b, t, NULL);
    measure_rows(b, &p, &shape);
    pass_free(b, &p);
    weight_free(b, &w);
    bench_close(b);
}

void bench_experts(struct bench *b) {
    bench_expert_matmul(b, DTYPE_Q4_K, 4096, 4096);
    bench_expert_matmul(b, DTYPE_Q8_0, 4096, 4096);
}
