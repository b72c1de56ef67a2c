/* Goal:   fp8 weights compute what kernels/cuda/launch_fp8.h defines, and a row's bits do not
 *         depend on how many rows there are, nor on what made it e4m3.
 * Method: numbers that e4m3 has without rounding, against the CPU's floats, also with weights that
 *         a file has in fp8, whose scales are any floats; numbers that are rounded, against sums in
 *         double of the codes; a norm and an act in front of a product, fused and not; one product
 *         with 1 to 64 rows, and with and without cuBLASLt; codes that the card's own instruction
 *         makes, of numbers of all sizes, against those that we make.
 *
 * Tolerances, as a share of a row's largest number: after each step of 32 columns Hopper's tensor
 * cores cut the accumulator to about 14 bits, by up to 2^-13 of it and always towards zero, so n
 * columns are allowed n / 32 of these; on an H200 less than a third was seen up to 384. An emulated
 * card has f32 sums. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cuda/fp8_scale.h"
#include "rig.h"
#include "tensor/dtype.h"
#include "tensor/fp8.h"

static double tolerance_of(uint32_t cols) { return ((cols + 31) / 32 + 1) / 8192.0; }

enum { PARTS = 3 };

struct shape {
    uint32_t n[PARTS], k, rows;
    bool bias, add;
    bool is_stored; /* the file has the weights in fp8 */
};

/* A matrix as a file has it in fp8. */
struct stored {
    struct row_source base;
    uint32_t cols;
    uint64_t seed;
};

struct parts {
    struct weight w[PARTS], bias[PARTS];
    struct stored stored[PARTS];
    uint32_t count, rows;
};

/* ---- weights ---- */

/* bf16, of e4m3's numbers times a power of two for each row if `is_coarse`. */
static struct weight fp8_weight(uint32_t rows, uint32_t cols, bool is_coarse, uint64_t seed) {
    struct weight w = rig_weight(DTYPE_BF16, rows, cols, 1, seed);
    uint16_t *data = (uint16_t *)(uintptr_t)w.data;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < cols; k++) {
            uint16_t *at = &data[(size_t)r * cols + k];
            float x = bf16_to_f32(*at);
            if (is_coarse) x = fp8_to_f32(fp8_from_f32(x));
            *at = bf16_from_f32(ldexpf(x, (int)(r % 7) - 3));
        }
    return w;
}

/* Any codes but NaN's, and a scale for each row. */
static void read_stored(const struct row_source *self, const struct row_piece *piece,
                        uint8_t *out) {
    const struct stored *s = (const struct stored *)(const void *)self;
    uint32_t block = dtype_info(DTYPE_F8)->block_elems;
    for (uint32_t r = piece->first_row; r < piece->first_row + piece->row_count; r++)
        for (uint32_t b = piece->first_block; b < piece->first_block + piece->block_count; b++) {
            float scale = ldexpf(1.0f + (float)rng_unit_at(s->seed, 1, r), (int)(r % 7) - 12);
            memcpy(out, &scale, sizeof(scale));
            out += sizeof(scale);
            for (uint32_t i = 0; i < block; i++) {
                uint64_t at = (uint64_t)r * s->cols + b * block + i;
                uint8_t code = (uint8_t)rng_at(s->seed, 0, at);
                *out++ = (code & 0x7f) == 0x7f ? 0 : code;
            }
        }
}

static struct weight stored_weight(uint32_t rows, uint32_t cols, struct stored *s, uint64_t seed) {
    *s = (struct stored){
        .base = {.read = read_stored, .has_row_scales = true}, .cols = cols, .seed = seed};
    return (struct weight){.name = STR("stored"),
                           .use = WEIGHT_MATRIX,
                           .type = DTYPE_F8,
                           .rows = rows,
                           .cols = cols,
                           .experts = 1,
                           .data = &s->base,
                           .bytes = (size_t)rows * cols,
                           .source = &s->base};
}

static void parts_init(const struct shape *s, bool is_coarse, struct rig *r, struct parts *p) {
    *p = (struct parts){.count = 0};
    for (uint32_t i = 0; i < PARTS && s->n[i] > 0; i++, p->count++) {
        p->w[i] = s->is_stored ? stored_weight(s->n[i], s->k, &p->stored[i], 31 + i)
                               : fp8_weight(s->n[i], s->k, is_coarse, 31 + i);
        p->bias[i] = rig_vector(s->n[i], 0.5f, 41 + i);
        r->weights[i] = &p->w[i];
        r->weights[PARTS + i] = &p->bias[i];
        p->rows += s->n[i];
    }
}

static void parts_free(struct parts *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        if (!p->w[i].source) rig_weight_free(&p->w[i]);
        rig_weight_free(&p->bias[i]);
    }
}

/* value 0 times the parts is value 1. */
static struct rig rig_of(const struct shape *s, bool is_coarse, struct parts *p) {
    struct rig r = {.seed = s->k, .op_count = 1, .is_coarse = is_coarse, .is_fp8 = !s->is_stored};
    r.sizes = (struct step_sizes){.rows_max = s->rows, .outputs_max = s->rows, .seqs_max = 1};
    r.value_count = 2;
    parts_init(s, is_coarse, &r, p);
    r.values[0] = (struct rig_value){ROWS_TOKENS, VALUE_F32, s->k, 0};
    r.values[1] = (struct rig_value){ROWS_TOKENS, VALUE_F32, p->rows, 0};
    struct op_matmul m = {.part_count = p->count,
                          .add = s->add,
                          .src = rig_operand(&r, 0),
                          .dst = rig_operand(&r, 1)};
    for (uint32_t i = 0; i < p->count; i++)
        m.parts[i] = (struct matmul_part){&p->w[i], s->bias ? &p->bias[i] : NULL};
    r.ops[0] = (struct op){.kind = OP_MATMUL, .matmul = m};
    return r;
}

/* ---- numbers that are not rounded ---- */

static void check_exact(struct checks *c, const struct shape *s) {
    char what[96];
    struct parts p;
    struct rig r = rig_of(s, true, &p);
    snprintf(what, sizeof(what), "fp8 product %ux%u, %u rows%s%s%s", s->k, p.rows, s->rows,
             s->bias ? ", bias" : "", s->add ? ", added" : "", s->is_stored ? ", stored" : "");
    rig_check(c, &r, s->rows, 4, tolerance_of(s->k), what);
    parts_free(&p);
}

/* Each column alone, with activations that are powers of two: the results are the file's own
 * numbers, code times scale, to the bit. With stored=off, they are those rounded to bf16. */
static void put_units(struct rig_run *run) {
    uint32_t cols = run->rig->values[0].cols;
    for (uint32_t row = 0; row < rig_rows(run, 0); row++) {
        float *x = (float *)(uintptr_t)rig_row(run, 0, row);
        for (uint32_t i = 0; i < cols; i++) x[i] = i == row ? 4.0f : 0.0f;
    }
}

static uint32_t count_others(const struct rig_run *run, const struct weight *w, bool is_bf16) {
    float *row = mem_alloc_array(w->cols, sizeof(float));
    uint8_t *blocks = mem_alloc(w->cols / 32 * 36);
    uint32_t others = 0;
    CHECK(row && blocks);
    for (uint32_t n = 0; n < w->rows; n++) {
        const struct row_piece piece = {n, 1, 0, w->cols / 32};
        w->source->read(w->source, &piece, blocks);
        dtype_dequant(DTYPE_F8, blocks, w->cols, row);
        for (uint32_t k = 0; k < w->cols; k++) {
            float want = 4.0f * (is_bf16 ? bf16_to_f32(bf16_from_f32(row[k])) : row[k]);
            float got = ((const float *)(const void *)rig_row(run, 1, k))[n];
            others += got != want;
        }
    }
    mem_free(blocks);
    mem_free(row);
    return others;
}

static void check_kept(struct checks *c) {
    enum { COLS = 64, ROWS = 40 };
    struct shape s = {.n = {ROWS}, .k = COLS, .rows = COLS, .is_stored = true};
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        char device[256];
        struct parts p;
        struct rig r = rig_of(&s, true, &p);
        struct rig_run run;
        snprintf(device, sizeof(device), "%s%s", c->device, is_bf16 ? ",stored=off" : "");
        r.prepare_bytes = put_units;
        rig_open(&r, device, &run);
        rig_one_seq(&run, COLS, 0, 0);
        rig_step(&run);
        uint32_t others = count_others(&run, &p.w[0], is_bf16);
        check_that(c, others == 0, "fp8 of a file%s: %u of %u numbers are others",
                   is_bf16 ? ", as bf16" : "", others, COLS * ROWS);
        rig_close(&run);
        parts_free(&p);
    }
}

/* ---- numbers that are ---- */

/* A row as the definition has it, back in doubles. */
static void round_row(const float *x, uint32_t count, double *out) {
    float most = 0;
    for (uint32_t i = 0; i < count; i++) most = fmaxf(most, fabsf(x[i]));
    double scale = (double)cuda_fp8_scale(most);
    for (uint32_t i = 0; i < count; i++)
        out[i] = (double)fp8_to_f32(fp8_from_f32(x[i] * cuda_fp8_inverse(most))) * scale;
}

static double product_of(const struct weight *w, uint32_t n, const double *x) {
    const uint16_t *data = (const uint16_t *)w->data + (size_t)n * w->cols;
    float *row = mem_alloc_array(w->cols, sizeof(float));
    double *rounded = mem_alloc_array(w->cols, sizeof(double)), sum = 0;
    CHECK(row && rounded);
    for (uint32_t i = 0; i < w->cols; i++) row[i] = bf16_to_f32(data[i]);
    round_row(row, w->cols, rounded);
    for (uint32_t i = 0; i < w->cols; i++) sum += rounded[i] * x[i];
    mem_free(row);
    mem_free(rounded);
    return sum;
}

static void check_rounded(struct checks *c, const struct shape *s) {
    struct parts p;
    struct rig r = rig_of(s, false, &p);
    struct rig_run run;
    double *x = mem_alloc_array(s->k, sizeof(double)), most = 0, error = 0;
    CHECK(x);
    rig_open(&r, c->device, &run);
    rig_one_seq(&run, s->rows, 0, 0);
    rig_step(&run);
    for (uint32_t row = 0; row < s->rows; row++) {
        const float *y = (const float *)(const void *)rig_row(&run, 1, row);
        round_row((const float *)(const void *)rig_row(&run, 0, row), s->k, x);
        for (uint32_t n = 0; n < p.w[0].rows; n++) {
            double expected = product_of(&p.w[0], n, x);
            most = fmax(most, fabs(expected));
            error = fmax(error, fabs(expected - (double)y[n]));
        }
    }
    check_that(c, error <= tolerance_of(s->k) * most,
               "fp8 product %ux%u: off by %g, the largest is %g", s->k, p.rows, error, most);
    printf("  fp8 %ux%u: largest error %.2g of the largest number\n", s->k, p.rows, error / most);
    rig_close(&run);
    mem_free(x);
    parts_free(&p);
}

/* ---- a norm or an act in front ---- */

static bool same_value(const struct rig_run *a, const struct rig_run *b, uint32_t value) {
    for (uint32_t row = 0; row < rig_rows(a, value); row++)
        if (rig_row_is_live(a, value, row) &&
            memcmp(rig_row(a, value, row), rig_row(b, value, row),
                   a->rig->values[value].cols * sizeof(float)) != 0)
            return false;
    return true;
}

static void run_on(const struct rig *r, const char *device, uint32_t rows, struct rig_run *out) {
    rig_open(r, device, out);
    rig_one_seq(out, rows, 0, 5);
    rig_step(out);
}

/* The product (value 2) has the same bits where what is in front of it makes e4m3 and where it does
 * that itself, whether or not the floats (value 1) are wanted as well. */
static void check_front(struct checks *c, struct rig *r, uint32_t rows, const char *what) {
    char plain[256];
    struct rig_run a, b, kept;
    snprintf(plain, sizeof(plain), "%s,fusion=off,dense=off,acts=blocks,e4m3=own", c->device);
    r->output = 2;
    run_on(r, c->device, rows, &a);
    for (int i = 0; i < RIG_WEIGHTS_MAX; i++)
        if (r->weights[i]) r->weights[i]->prepared = NULL;
    run_on(r, plain, rows, &b);
    check_that(c, same_value(&a, &b, 2), "%s: other bits where it makes e4m3", what);
    for (int i = 0; i < RIG_WEIGHTS_MAX; i++)
        if (r->weights[i]) r->weights[i]->prepared = NULL;
    r->output = 1;
    run_on(r, c->device, rows, &kept);
    check_that(c, same_value(&b, &kept, 1) && same_value(&b, &kept, 2),
               "%s: other bits where it makes floats, too", what);
    rig_close(&kept);
    rig_close(&b);
    rig_close(&a);
}

static void check_norm(struct checks *c, uint32_t cols, enum norm_kind kind, uint32_t rows) {
    struct shape s = {.n = {64}, .k = cols, .rows = rows};
    struct parts p;
    struct rig r = rig_of(&s, false, &p);
    struct weight w = rig_vector(cols, 1.0f, 5), bias = rig_vector(cols, 0.1f, 6);
    r.values[2] = r.values[1];
    r.values[1] = r.values[0];
    r.value_count = 3;
    r.ops[1] = r.ops[0];
    r.ops[1].matmul.src = rig_operand(&r, 1);
    r.ops[1].matmul.dst = rig_operand(&r, 2);
    r.ops[0] = (struct op){.kind = OP_NORM,
                           .norm = {.kind = kind,
                                    .group = cols,
                                    .eps = 1e-5f,
                                    .weight = &w,
                                    .bias = kind == NORM_LAYER ? &bias : NULL,
                                    .src = rig_operand(&r, 0),
                                    .dst = rig_operand(&r, 1),
                                    .q8 = operand_none}};
    r.op_count = 2;
    r.weights[6] = &w;
    r.weights[7] = &bias;
    check_front(c, &r, rows, "norm before fp8");
    rig_weight_free(&w);
    rig_weight_free(&bias);
    parts_free(&p);
}

static void check_act(struct checks *c, uint32_t cols, bool has_up, uint32_t rows) {
    struct shape s = {.n = {48}, .k = cols, .rows = rows};
    struct parts p;
    struct rig r = rig_of(&s, false, &p);
    r.values[2] = r.values[1];
    r.values[1] = r.values[0];
    r.values[0].cols = has_up ? 2 * cols : cols;
    r.value_count = 3;
    r.spread = 6.0f;
    r.ops[1] = r.ops[0];
    r.ops[1].matmul.src = rig_operand(&r, 1);
    r.ops[1].matmul.dst = rig_operand(&r, 2);
    struct operand all = rig_operand(&r, 0);
    r.ops[0] = (struct op){.kind = OP_ACT,
                           .act = {.kind = has_up ? ACT_SILU : ACT_GELU_TANH,
                                   .segments = 1,
                                   .stride = r.values[0].cols,
                                   .gate = operand_slice(all, 0, cols),
                                   .up = has_up ? operand_slice(all, cols, cols) : operand_none,
                                   .dst = rig_operand(&r, 1),
                                   .q8 = operand_none}};
    r.op_count = 2;
    check_front(c, &r, rows, "act before fp8");
    parts_free(&p);
}

/* ---- codes ---- */

/* Rows of any bits with magnitudes up to 448, which their first number has: their scale is 1. Half
 * of them have few bits of mantissa, so that many lie in the middle between two codes. */
static void put_numbers(struct rig_run *run) {
    const struct rig *r = run->rig;
    uint32_t cols = r->values[0].cols;
    for (uint32_t row = 0; row < rig_rows(run, 0); row++) {
        struct rng rng = {.seed = r->seed * 1000 + row};
        float *x = (float *)(uintptr_t)rig_row(run, 0, row);
        for (uint32_t i = 0; i < cols; i++) {
            uint64_t random = rng_next(&rng);
            uint32_t exponent = 127 - 14 + (uint32_t)(random >> 40) % 23;
            uint32_t mantissa = (uint32_t)random & (i % 2 ? 0x7fffffu : 0x780000u);
            uint32_t bits = (uint32_t)(random >> 32 & 1) << 31 | exponent << 23 | mantissa;
            if (i % 61 == 7) bits = (uint32_t)random & 0x807fffffu; /* a denormal, or zero */
            if (i % 67 == 9) bits = 0x7fc00000u | (uint32_t)(random >> 32 & 1) << 31;
            memcpy(&x[i], &bits, sizeof(bits));
            if (fabsf(x[i]) > 448.0f) x[i] = copysignf(448.0f, x[i]);
        }
        x[0] = 448.0f;
    }
}

/* Each column alone, so that the results are the codes: `times` steps of 64 rows. */
static void check_codes(struct checks *c, uint32_t times) {
    enum { COLS = 256, ROWS = 64 };
    struct shape s = {.n = {COLS}, .k = COLS, .rows = ROWS};
    char own[256], card[256];
    struct parts p;
    struct rig r = rig_of(&s, true, &p);
    struct rig_run a, b;
    bool is_same = true;
    uint16_t *w = (uint16_t *)(uintptr_t)p.w[0].data;
    for (uint32_t i = 0; i < COLS * COLS; i++) w[i] = bf16_from_f32(i % (COLS + 1) == 0);
    snprintf(own, sizeof(own), "%s,e4m3=own", c->device);
    snprintf(card, sizeof(card), "%s,e4m3=card", c->device);
    r.prepare_bytes = put_numbers;
    rig_open(&r, own, &a);
    p.w[0].prepared = p.bias[0].prepared = NULL;
    rig_open(&r, card, &b);
    for (uint32_t i = 0; i < times; i++) {
        r.seed = i + 1;
        rig_one_seq(&a, ROWS, 0, 0);
        rig_one_seq(&b, ROWS, 0, 0);
        rig_step(&a);
        rig_step(&b);
        is_same = is_same && same_value(&a, &b, 1);
    }
    check_that(c, is_same, "fp8: the card's own instruction makes other codes");
    rig_close(&b);
    rig_close(&a);
    parts_free(&p);
}

/* ---- one row among more and more ---- */

static void check_rows(struct checks *c, bool is_stored) {
    enum { ROWS = 64, WIDTH = 256 };
    struct shape s = {.n = {208, 48}, .k = 1152, .rows = ROWS, .add = true, .is_stored = is_stored};
    struct parts p;
    struct rig r = rig_of(&s, false, &p);
    struct rig_run run;
    float first[WIDTH];
    CHECK(p.rows == WIDTH);
    rig_open(&r, c->device, &run);
    for (uint32_t rows = 1; rows <= ROWS; rows += c->is_quick && rows > 20 ? 11 : 1) {
        rig_one_seq(&run, rows, 0, 0);
        rig_step(&run);
        if (rows == 1) memcpy(first, rig_row(&run, 1, 0), sizeof(first));
        check_that(c, memcmp(first, rig_row(&run, 1, 0), sizeof(first)) == 0,
                   "fp8: the first of %u rows has other bits than alone", rows);
    }
    rig_close(&run);
    parts_free(&p);
}

/* How many of a product's results differ in their bits between our own kernel and cuBLASLt. */
static void check_paths(struct checks *c, uint32_t k, uint32_t n, uint32_t rows, bool is_stored) {
    char own[256], theirs[256];
    struct shape s = {.n = {n}, .k = k, .rows = rows, .add = true, .is_stored = is_stored};
    struct parts p;
    struct rig r = rig_of(&s, false, &p);
    struct rig_run a, b;
    uint32_t differ = 0;
    snprintf(own, sizeof(own), "%s,cublaslt=off", c->device);
    snprintf(theirs, sizeof(theirs), "%s,few=off", c->device);
    rig_open(&r, own, &a);
    rig_one_seq(&a, rows, 0, 0);
    rig_step(&a);
    p.w[0].prepared = p.bias[0].prepared = NULL;
    rig_open(&r, theirs, &b);
    rig_one_seq(&b, rows, 0, 0);
    rig_step(&b);
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t i = 0; i < n; i++)
            differ += memcmp(rig_row(&a, 1, row) + i * sizeof(float),
                             rig_row(&b, 1, row) + i * sizeof(float), sizeof(float)) != 0;
    printf("  fp8 %ux%u, %u rows: %u of %u results differ from cuBLASLt's\n", k, n, rows, differ,
           rows * n);
    check_that(c, differ == 0, "fp8: our own kernel and cuBLASLt have other bits");
    rig_close(&b);
    rig_close(&a);
    parts_free(&p);
}

void suite_fp8(struct checks *c) {
    static const struct shape shapes[] = {
        {.n = {16}, .k = 128, .rows = 1},
        {.n = {33}, .k = 96, .rows = 2, .bias = true},
        {.n = {64}, .k = 256, .rows = 3},
        {.n = {100}, .k = 640, .rows = 8, .add = true},
        {.n = {64, 32, 32}, .k = 768, .rows = 9, .bias = true, .add = true},
        {.n = {304}, .k = 384, .rows = 15},
        {.n = {96, 32}, .k = 512, .rows = 16, .add = true},
        {.n = {80}, .k = 4096, .rows = 17, .bias = true},
        {.n = {700}, .k = 1000, .rows = 40, .add = true},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check_exact(c, &shapes[i]);
        if (!shapes[i].bias && !shapes[i].add) check_rounded(c, &shapes[i]);
        struct shape stored = shapes[i];
        stored.k = (stored.k + 31) / 32 * 32;
        stored.is_stored = true;
        check_exact(c, &stored);
    }
    check_kept(c);
    check_codes(c, c->is_quick ? 1 : 64);
    check_norm(c, 640, NORM_RMS, 11);
    check_norm(c, 640, NORM_RMS, 515);
    check_norm(c, 1024, NORM_LAYER, 3);
    check_norm(c, 12288, NORM_RMS, 2);
    check_act(c, 640, true, 11);
    check_act(c, 640, true, 70);
    check_act(c, 5120, true, 2);
    check_act(c, 14336, true, 1);
    check_act(c, 1152, true, 8);
    check_act(c, 384, false, 4);
    check_rows(c, false);
    check_rows(c, true);
    if (c->is_quick) return; /* an emulated card has no cuBLASLt */
    static const uint32_t rows[] = {1, 2, 8, 9, 16, 24, 100, 256};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_paths(c, 4096, 4096, rows[i], false);
        check_paths(c, 14336, 1024, rows[i], false);
        check_paths(c, 1024, 6144, rows[i], false);
        check_paths(c, 4096, 4096, rows[i], true);
    }
}
