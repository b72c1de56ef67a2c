/* Goal:   products give the CPU's bits for f32 and quantised weights, stay near it for 16-bit ones,
 *         and a row's bits do not depend on how many rows there are.
 * Method: every number format over odd shapes, with bias, addition, several parts and experts;
 *         codes of 4 bits with 1 to 300 rows; then one product with 1 to 64 rows, whose first row
 *         must not change, with and without cuBLASLt.
 *
 * Tolerance for 16-bit weights: each activation is rounded by up to 2^-9 (bf16) of its size, in
 * sums of 32 to 2,048 terms: 1 % of a row's largest number is over three times what is seen. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "rig.h"

static const enum dtype types[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16,   DTYPE_Q4_0,   DTYPE_Q4_1,
                                   DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0,   DTYPE_Q2_K,   DTYPE_Q3_K,
                                   DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,   DTYPE_IQ4_NL, DTYPE_IQ4_XS,
                                   DTYPE_INT4, DTYPE_INT8, DTYPE_INT8_Z, DTYPE_NF4,    DTYPE_FP4};
enum { TYPES = sizeof(types) / sizeof(types[0]), PARTS = 3 };

struct shape {
    uint32_t n[PARTS], k, rows;
    bool bias, add;
    uint32_t experts, used;
    bool src_per_expert;
};

/* The weights of a case. */
struct parts {
    struct weight w[PARTS], bias[PARTS];
    uint32_t count, rows;
};

static double tolerance_of(enum dtype type) {
    return type == DTYPE_F16 || type == DTYPE_BF16 ? 0.01 : 0;
}

static void parts_init(const struct shape *s, enum dtype type, struct rig *r, struct parts *p) {
    *p = (struct parts){.count = 0};
    for (uint32_t i = 0; i < PARTS && s->n[i] > 0; i++, p->count++) {
        p->w[i] = rig_weight(type, s->n[i], s->k, s->experts ? s->experts : 1, 11 + i);
        p->bias[i] = rig_vector(s->n[i], 0.5f, 21 + i);
        r->weights[i] = &p->w[i];
        r->weights[PARTS + i] = &p->bias[i];
        p->rows += s->n[i];
    }
}

static void parts_free(struct parts *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        rig_weight_free(&p->w[i]);
        rig_weight_free(&p->bias[i]);
    }
}

static struct rig rig_of(const struct shape *s, enum dtype type) {
    struct rig r = {.seed = s->k + type, .op_count = 1};
    r.sizes = (struct step_sizes){.rows_max = s->rows, .outputs_max = s->rows, .seqs_max = 1};
    enum value_type src = dtype_has_integers(type) ? VALUE_Q8 : VALUE_F32;
    uint32_t segments = s->src_per_expert ? s->used : 1;
    r.values[0] = (struct rig_value){ROWS_TOKENS, src, s->k * segments, 0};
    r.value_count = 2;
    return r;
}

static void set_matmul(const struct shape *s, const struct parts *p, struct rig *r) {
    r->values[1] = (struct rig_value){ROWS_TOKENS, VALUE_F32, p->rows, 0};
    struct op_matmul m = {
        .part_count = p->count, .add = s->add, .src = rig_operand(r, 0), .dst = rig_operand(r, 1)};
    for (uint32_t i = 0; i < p->count; i++)
        m.parts[i] = (struct matmul_part){&p->w[i], s->bias ? &p->bias[i] : NULL};
    r->ops[0] = (struct op){.kind = OP_MATMUL, .matmul = m};
}

static void set_experts(const struct shape *s, const struct parts *p, struct rig *r) {
    r->values[1] = (struct rig_value){ROWS_TOKENS, VALUE_F32, p->rows * s->used, 0};
    r->values[2] = (struct rig_value){ROWS_TOKENS, VALUE_I32, s->used, s->experts};
    r->value_count = 3;
    struct op_expert_matmul m = {.part_count = p->count,
                                 .used = s->used,
                                 .src_per_expert = s->src_per_expert,
                                 .src = rig_operand(r, 0),
                                 .ids = rig_operand(r, 2),
                                 .dst = rig_operand(r, 1)};
    for (uint32_t i = 0; i < p->count; i++) m.parts[i] = (struct matmul_part){&p->w[i], NULL};
    r->ops[0] = (struct op){.kind = OP_EXPERT_MATMUL, .expert_matmul = m};
}

static void check_shape(struct checks *c, const struct shape *s, enum dtype type) {
    char what[96];
    struct parts p;
    struct rig r = rig_of(s, type);
    if (s->k % dtype_info(type)->block_elems != 0) return;
    parts_init(s, type, &r, &p);
    if (s->experts)
        set_experts(s, &p, &r);
    else
        set_matmul(s, &p, &r);
    snprintf(what, sizeof(what), "product %s %ux%u, %u rows%s%s%s", dtype_info(type)->name, s->k,
             p.rows, s->rows, s->bias ? ", bias" : "", s->add ? ", added" : "",
             s->experts ? ", experts" : "");
    rig_check(c, &r, s->rows, 4, tolerance_of(type), what);
    parts_free(&p);
}

static const struct shape shapes[] = {
    {.n = {1}, .k = 32, .rows = 1},
    {.n = {33}, .k = 64, .rows = 2, .bias = true},
    {.n = {64}, .k = 256, .rows = 3},
    {.n = {100}, .k = 512, .rows = 8, .add = true},
    {.n = {64, 32, 31}, .k = 768, .rows = 9, .bias = true, .add = true},
    {.n = {129}, .k = 256, .rows = 15},
    {.n = {96, 32}, .k = 512, .rows = 16, .add = true},
    {.n = {70}, .k = 2048, .rows = 17, .bias = true},
    {.n = {48}, .k = 96, .rows = 40, .bias = true, .add = true},
    {.n = {40, 40}, .k = 256, .rows = 5, .experts = 4, .used = 2},
    {.n = {64}, .k = 64, .rows = 6, .experts = 5, .used = 3, .src_per_expert = true},
};

/* ---- one row among more and more ---- */

static void check_rows(struct checks *c, enum dtype type, const char *device) {
    enum { ROWS = 64 };
    struct shape s = {.n = {200, 56}, .k = 1024, .rows = ROWS, .add = true};
    struct parts p;
    struct rig r = rig_of(&s, type);
    struct rig_run run;
    float first[256];
    parts_init(&s, type, &r, &p);
    set_matmul(&s, &p, &r);
    CHECK(p.rows == 256);
    rig_open(&r, device, &run);
    for (uint32_t rows = 1; rows <= ROWS; rows += c->is_quick && rows > 20 ? 11 : 1) {
        rig_one_seq(&run, rows, 0, 0);
        rig_step(&run);
        if (rows == 1) memcpy(first, rig_row(&run, 1, 0), sizeof(first));
        check_that(c, memcmp(first, rig_row(&run, 1, 0), sizeof(first)) == 0,
                   "%s: %s: the first of %u rows has other bits than alone", device,
                   dtype_info(type)->name, rows);
    }
    rig_close(&run);
    parts_free(&p);
}

/* Our own kernels and cuBLASLt, 24 rows. */
static void check_paths(struct checks *c, enum dtype type) {
    enum { ROWS = 24 };
    char own[256];
    struct shape s = {.n = {192}, .k = 1536, .rows = ROWS, .add = true};
    struct parts p;
    struct rig r = rig_of(&s, type);
    struct rig_run a, b;
    snprintf(own, sizeof(own), "%s,cublaslt=off", c->device);
    parts_init(&s, type, &r, &p);
    set_matmul(&s, &p, &r);
    rig_open(&r, c->device, &a);
    rig_one_seq(&a, ROWS, 0, 0);
    rig_step(&a);
    p.w[0].prepared = p.bias[0].prepared = NULL;
    rig_open(&r, own, &b);
    rig_one_seq(&b, ROWS, 0, 0);
    rig_step(&b);
    rig_compare(c, &a, &b, 0, "cuBLASLt and our own kernel");
    rig_close(&b);
    rig_close(&a);
    parts_free(&p);
}

/* Codes of 4 bits, one format of each kind: sizes beside those of tiles and stages, and up to
 * 300 rows. Columns of 128 go to the kernels for few rows, others do not. */
static void check_codes(struct checks *c) {
    static const enum dtype kinds[] = {DTYPE_INT4, DTYPE_Q4_0, DTYPE_IQ4_NL, DTYPE_NF4};
    static const uint32_t weights[] = {1, 31, 32, 33, 97}, cols[] = {32, 128, 160, 1152};
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 65, 131, 300};
    enum { WEIGHTS = sizeof(weights) / sizeof(weights[0]), COLS = sizeof(cols) / sizeof(cols[0]) };
    for (size_t t = 0; t < sizeof(kinds) / sizeof(kinds[0]); t++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            uint32_t n = (uint32_t)(i + t) % WEIGHTS;
            for (size_t k = 0; k < (rows[i] > 64 && c->is_quick ? 3 : COLS); k++) {
                struct shape s = {
                    .n = {weights[n]}, .k = cols[k], .rows = rows[i], .bias = true, .add = i % 2};
                check_shape(c, &s, kinds[t]);
            }
        }
}

/* What a weight takes on a card, which the emulated one counts to the byte: so many bytes for 32
 * numbers, codes with a scale and perhaps a minimum, both floats. */
static void check_memory(struct checks *c, enum dtype type, uint64_t bytes_of_32) {
    enum { ROWS = 512, COLS = 1024, SLACK = 4096 };
    struct shape s = {.n = {ROWS}, .k = COLS, .rows = 1};
    struct parts p;
    struct rig r = rig_of(&s, type);
    struct rig_run run;
    struct err err = {{0}};
    parts_init(&s, type, &r, &p);
    set_matmul(&s, &p, &r);
    rig_open(&r, c->device, &run);
    struct weight more = p.w[0];
    more.prepared = NULL;
    uint64_t before = run.dev.memory(run.dev.self).free_bytes;
    CHECK(run.dev.prepare(run.dev.self, &more, &err) == ST_OK);
    uint64_t taken = before - run.dev.memory(run.dev.self).free_bytes;
    uint64_t wanted = (uint64_t)ROWS * COLS / 32 * bytes_of_32;
    check_that(c, taken >= wanted && taken <= wanted + SLACK,
               "%s takes %llu bytes of the card, not %llu", dtype_info(type)->name,
               (unsigned long long)taken, (unsigned long long)wanted);
    rig_close(&run);
    parts_free(&p);
}

static void check_memories(struct checks *c) {
    check_memory(c, DTYPE_Q4_0, 20);
    check_memory(c, DTYPE_IQ4_NL, 20);
    check_memory(c, DTYPE_IQ4_XS, 20);
    check_memory(c, DTYPE_NF4, 20);
    check_memory(c, DTYPE_FP4, 20);
    check_memory(c, DTYPE_Q4_K, 24);
    check_memory(c, DTYPE_INT4, 24);
    check_memory(c, DTYPE_Q8_0, 36);
}

/* So large that several threads unpack them. */
static void check_large(struct checks *c) {
    static const struct shape large[] = {
        {.n = {1100}, .k = 2048, .rows = 1},
        {.n = {600}, .k = 1024, .rows = 2, .experts = 4, .used = 2},
    };
    static const enum dtype quantised[] = {DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q4_0,
                                           DTYPE_IQ4_XS};
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
        for (size_t t = 0; t < sizeof(quantised) / sizeof(quantised[0]); t++)
            check_shape(c, &large[i], quantised[t]);
}

void suite_products(struct checks *c) {
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int t = 0; t < TYPES; t++) check_shape(c, &shapes[i], types[t]);
    check_codes(c);
    if (c->is_quick) check_memories(c);
    check_large(c);
    static const enum dtype some[] = {DTYPE_BF16, DTYPE_F16,  DTYPE_F32,   DTYPE_Q4_K,
                                      DTYPE_Q6_K, DTYPE_Q4_0, DTYPE_IQ4_NL};
    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) check_rows(c, some[i], c->device);
    if (c->is_quick) return; /* an emulated card has no cuBLASLt */
    check_paths(c, DTYPE_BF16);
    check_paths(c, DTYPE_F16);
}
