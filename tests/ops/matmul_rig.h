/* tests/ops/matmul_rig.h - products with random weights, on the rig of ops_rig.h. */
#ifndef TESTS_OPS_MATMUL_RIG_H
#define TESTS_OPS_MATMUL_RIG_H

#include <math.h>

#include "ops/ops_rig.h"

struct matmul_case {
    enum dtype type;
    const enum dtype *types; /* of each part; NULL: all are `type` */
    uint32_t rows, n[3], k, parts;
    bool bias, add;
    uint32_t skip; /* every skip-th row is skipped; 0: none */
    uint32_t experts, used;
    bool src_per_expert;
    bool edges; /* weights and activations at the ends of their ranges */
    uint64_t seed;
};

/* The parts of a case in memory. */
struct matmul_parts {
    struct weight w[3];
    float *bias[3];
    struct weight bias_vectors[3];
};

/* Random bytes with every f16 and f32 number at least tame: exponents of the scale fields are
 * forced into 2^-6 .. 2^-3 by rewriting each 16-bit field that a format uses as a number. */
static inline void tame_half(uint8_t *at, uint64_t random) {
    uint16_t half = (uint16_t)((random & 0x83FF) | ((9 + (random >> 16) % 4) << 10));
    memcpy(at, &half, sizeof(half));
}

/* A block of these begins with an f32. */
static inline bool has_wide_scale(enum dtype type) {
    return type == DTYPE_INT8 || type == DTYPE_NF4 || type == DTYPE_FP4 || type == DTYPE_F8;
}

static inline void tame_float(uint8_t *at, uint64_t random) {
    float value = ldexpf(1.0f + (float)(random & 0xFFFF) / 65536.0f, -6 + (int)(random >> 16) % 4);
    if (random >> 40 & 1) value = -value;
    memcpy(at, &value, sizeof(value));
}

/* Byte offsets of the f16 numbers in one block; -1 ends the list. */
static inline const int *half_fields(enum dtype type) {
    static const int none[] = {-1}, first[] = {0, -1}, two[] = {0, 2, -1}, q2k[] = {80, 82, -1};
    static const int q3k[] = {108, -1}, q6k[] = {208, -1};
    switch (type) {
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        return two;
    case DTYPE_Q2_K:
        return q2k;
    case DTYPE_Q3_K:
        return q3k;
    case DTYPE_Q6_K:
        return q6k;
    case DTYPE_INT8:
    case DTYPE_NF4:
    case DTYPE_FP4:
    case DTYPE_F8:
        return none;
    default:
        return first;
    }
}

/* A zero point of -255 to 255. */
static inline void tame_zero(uint8_t *at, uint64_t random) {
    int16_t zero = (int16_t)((int)(random % 511) - 255);
    memcpy(at, &zero, sizeof(zero));
}

static inline void fill_block(enum dtype type, struct rng *rng, uint8_t *block) {
    const struct dtype_info *info = dtype_info(type);
    float value = (float)(rng_unit(rng) - 0.5);
    uint16_t half = type == DTYPE_F16 ? f16_from_f32(value) : bf16_from_f32(value);
    if (type == DTYPE_F32) {
        memcpy(block, &value, sizeof(value));
    } else if (info->block_elems == 1) {
        memcpy(block, &half, sizeof(half));
    } else {
        for (uint32_t i = 0; i < info->block_bytes; i++) block[i] = (uint8_t)rng_next(rng);
        for (const int *field = half_fields(type); *field >= 0; field++)
            tame_half(block + *field, rng_next(rng));
        if (has_wide_scale(type)) tame_float(block, rng_next(rng));
        if (type == DTYPE_INT8_Z) tame_zero(block + 2, rng_next(rng));
    }
}

/* The same byte everywhere, mostly one that has the least or the largest codes, and scales that
 * are zero of either sign, the least, the largest or negative. */
static inline void edge_block(enum dtype type, struct rng *rng, uint8_t *block) {
    static const uint8_t bytes[] = {0x00, 0xFF, 0x0F, 0xF0, 0x80, 0x7F, 0x55, 0xAA};
    static const uint16_t halves[] = {0x0000, 0x8000, 0x0001, 0x83FF,
                                      0x7BFF, 0xFBFF, 0x3C00, 0xBC00};
    const struct dtype_info *info = dtype_info(type);
    uint64_t random = rng_next(rng);
    memset(block, random & 8 ? (int)(random >> 8 & 255) : bytes[random & 7], info->block_bytes);
    for (const int *field = half_fields(type); *field >= 0; field++)
        memcpy(block + *field, &halves[rng_next(rng) & 7], sizeof(halves[0]));
    if (type == DTYPE_INT8_Z) tame_zero(block + 2, rng_next(rng) * 510);
    if (!has_wide_scale(type)) return;
    float wide = f16_to_f32(halves[rng_next(rng) & 7]);
    memcpy(block, &wide, sizeof(wide));
}

/* The blocks of F8 in a run of columns have one scale. */
static inline void join_scales(uint8_t *data, uint64_t blocks, uint32_t cols) {
    const struct dtype_info *info = dtype_info(DTYPE_F8);
    uint32_t row = cols / info->block_elems, run = F8_RUN / info->block_elems;
    for (uint64_t i = 0; i < blocks; i++)
        memcpy(data + i * info->block_bytes, data + (i - i % row % run) * info->block_bytes,
               sizeof(float));
}

static inline struct weight weight_of(enum dtype type, uint32_t rows, uint32_t cols,
                                      uint32_t experts, bool edges, uint64_t seed) {
    struct rng rng = {.seed = seed};
    struct weight w = {.type = type, .rows = rows, .cols = cols, .experts = experts};
    assert_true(dtype_bytes(type, (uint64_t)rows * cols * experts, &w.bytes));
    uint8_t *data = mem_alloc(w.bytes);
    uint32_t step = dtype_info(type)->block_bytes;
    for (size_t at = 0; at < w.bytes; at += step)
        if (edges && dtype_is_quantised(type))
            edge_block(type, &rng, data + at);
        else
            fill_block(type, &rng, data + at);
    if (type == DTYPE_F8) join_scales(data, w.bytes / step, cols);
    w.data = data;
    return w;
}

static inline struct weight random_weight(enum dtype type, uint32_t rows, uint32_t cols,
                                          uint32_t experts, uint64_t seed) {
    return weight_of(type, rows, cols, experts, false, seed);
}

static inline void parts_init(const struct matmul_case *c, struct matmul_parts *p) {
    memset(p, 0, sizeof(*p));
    for (uint32_t i = 0; i < c->parts; i++) {
        p->w[i] = weight_of(c->types ? c->types[i] : c->type, c->n[i], c->k,
                            c->experts ? c->experts : 1, c->edges, c->seed * 10 + i + 1);
        if (!c->bias) continue;
        p->bias[i] = mem_alloc_array(c->n[i], sizeof(float));
        for (uint32_t j = 0; j < c->n[i]; j++) p->bias[i][j] = (float)j * 0.25f - 1.0f;
        p->bias_vectors[i] = weight_vector(STR("bias"), p->bias[i], c->n[i]);
    }
}

static inline void parts_deinit(struct matmul_parts *p) {
    for (int i = 0; i < 3; i++) {
        mem_free((void *)(uintptr_t)p->w[i].data);
        mem_free(p->bias[i]);
    }
}

/* Value 0 is the source, 1 the result. */
static inline struct rig matmul_rig(const struct matmul_case *c, struct matmul_parts *p,
                                    struct rig_steps *steps) {
    bool quantised = dtype_has_integers(c->type);
    struct rig r = {.seed = c->seed,
                    .edges = c->edges,
                    .value_count = 2,
                    .step = rig_one_seq(steps, c->rows, 0)};
    uint32_t total = 0;
    r.op.kind = OP_MATMUL;
    struct op_matmul *m = &r.op.matmul;
    m->part_count = c->parts;
    m->add = c->add;
    for (uint32_t i = 0; i < c->parts; i++) {
        m->parts[i] = (struct matmul_part){&p->w[i], c->bias ? &p->bias_vectors[i] : NULL};
        r.weights[i] = &p->w[i];
        total += c->n[i];
    }
    r.values[0] = (struct rig_value){ROWS_TOKENS, quantised ? VALUE_Q8 : VALUE_F32, c->k, 0};
    r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_F32, total, 0};
    m->src = rig_operand(&r, 0);
    m->dst = rig_operand(&r, 1);
    for (uint32_t i = 0; c->skip && i < c->rows; i += c->skip) steps->pos[i] = -1;
    return r;
}

static inline void check_matmul(const struct matmul_case *c) {
    struct matmul_parts p;
    struct rig_steps steps;
    parts_init(c, &p);
    struct rig r = matmul_rig(c, &p, &steps);
    char what[100];
    snprintf(what, sizeof(what), "%s rows %u n %u k %u parts %u seed %u", dtype_info(c->type)->name,
             c->rows, c->n[0], c->k, c->parts, (unsigned)c->seed);
    struct rig_result ref = rig_check(&r, what);
    for (uint32_t i = 0; c->skip && i < c->rows; i += c->skip)
        assert_true(rig_row(&ref, 1, i)[0] == rig_float(&r, 1, i, 0));
    rig_free(&ref);
    parts_deinit(&p);
}

static inline void check_matmul_row(const struct matmul_case *c, const char *isa, uint32_t row) {
    struct matmul_parts p;
    struct rig_steps steps, one;
    parts_init(c, &p);
    struct rig r = matmul_rig(c, &p, &steps);
    struct rig_result all = rig_run(&r, isa, 2);
    r.step = rig_one_seq(&one, 1, 0);
    r.row_base = row;
    struct rig_result alone = rig_run(&r, isa, 1);
    assert_memory_equal(rig_row(&all, 1, row), rig_row(&alone, 1, 0), c->n[0] * sizeof(float));
    rig_free(&all);
    rig_free(&alone);
    parts_deinit(&p);
}

/* Activations are rounded to 1/254 of a block's largest, so the product of k terms may be off
 * by the sum of |w| times that; plain formats are off by rounding alone. */
static inline void check_matmul_value(const struct matmul_case *c) {
    struct matmul_parts p;
    struct rig_steps steps;
    parts_init(c, &p);
    struct rig r = matmul_rig(c, &p, &steps);
    struct rig_result ref = rig_run(&r, "ref", 1);
    float *w = mem_alloc_array((size_t)c->n[0] * c->k, sizeof(float));
    dtype_dequant(c->type, p.w[0].data, (size_t)c->n[0] * c->k, w);
    for (uint32_t row = 0; row < c->rows; row++)
        for (uint32_t n = 0; n < c->n[0]; n++) {
            double sum = 0, weight = 0;
            for (uint32_t k = 0; k < c->k; k++) {
                sum += (double)w[n * c->k + k] * (double)rig_float(&r, 0, row, k);
                weight += fabs((double)w[n * c->k + k]);
            }
            double limit = weight * (dtype_has_integers(c->type) ? 1.0 / 254 : 1e-6);
            double error = fabs(sum - (double)rig_row(&ref, 1, row)[n]);
            if (!(error <= limit))
                fail_msg("%s: row %u output %u is off by %g, more than %g",
                         dtype_info(c->type)->name, row, n, error, limit);
        }
    mem_free(w);
    rig_free(&ref);
    parts_deinit(&p);
}

/* Value 0 is the source, 1 the result, 2 the experts of each row. */
static inline void check_expert_matmul(const struct matmul_case *c) {
    struct matmul_parts p;
    struct rig_steps steps;
    parts_init(c, &p);
    struct rig r = matmul_rig(c, &p, &steps);
    uint32_t width = r.values[1].cols;
    r.op.kind = OP_EXPERT_MATMUL;
    struct op_expert_matmul m = {
        .part_count = c->parts, .used = c->used, .src_per_expert = c->src_per_expert};
    for (uint32_t i = 0; i < c->parts; i++) m.parts[i] = (struct matmul_part){&p.w[i], NULL};
    r.value_count = 3;
    if (c->src_per_expert) r.values[0].cols = c->k * c->used;
    r.values[1].cols = width * c->used;
    r.values[2] = (struct rig_value){ROWS_TOKENS, VALUE_I32, c->used, c->experts};
    m.src = rig_operand(&r, 0);
    m.dst = rig_operand(&r, 1);
    m.ids = rig_operand(&r, 2);
    r.op.expert_matmul = m;
    char what[100];
    snprintf(what, sizeof(what), "experts %s rows %u per expert %d", dtype_info(c->type)->name,
             c->rows, c->src_per_expert);
    rig_check_only(&r, what);
    parts_deinit(&p);
}

#endif
