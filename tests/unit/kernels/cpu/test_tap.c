/* Goal:   the tap sees every live row that a product reads, once for each expert of the row, and
 *         changes no result; without it nothing is called.
 * Method: a product of experts on float rows and one on rows of 8 bits, on two threads; the sums of
 *         squares that the tap got against those of the rows themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "graph/device.h"
#include "graph/step.h"
#include "graph/tape.h"
#include "graph/weight.h"
#include "kernels/cpu/cpu.h"

enum { COLS = 320, OUT = 32, ROWS = 5, EXPERTS = 4, USED = 2, THREADS = 2, SKIPPED = 3 };

static uint8_t q8_weights[OUT * COLS / 32 * 34];
static float expert_weights[EXPERTS * OUT * COLS], ones[COLS];

struct rig {
    struct device dev;
    struct weight product, experts, norm;
    struct tape *tape;
    value_id x, ids, y;
    struct device_program *program;
    struct step *step;
    /* What the tap got. */
    double product_sums[COLS], expert_sums[COLS];
    uint32_t product_rows, expert_rows;
};

static void take(void *ctx, const struct device_input *input) {
    struct rig *r = ctx;
    bool is_product = input->weight == &r->product;
    assert_true(is_product || input->weight == &r->experts);
    assert_true(input->col + input->count <= COLS);
    double *sums = is_product ? r->product_sums : r->expert_sums;
    if (input->col == 0) (*(is_product ? &r->product_rows : &r->expert_rows))++;
    for (uint32_t i = 0; i < input->count; i++)
        sums[input->col + i] += (double)input->x[i] * (double)input->x[i];
}

static void make_tape(struct rig *r) {
    struct tape *t;
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand x = tape_all(t, tape_value(t, "x", ROWS_TOKENS, VALUE_F32, COLS));
    struct operand ids = tape_all(t, tape_value(t, "ids", ROWS_TOKENS, VALUE_I32, USED));
    struct operand e = tape_all(t, tape_value(t, "e", ROWS_TOKENS, VALUE_F32, USED * OUT));
    struct operand q = tape_all(t, tape_value(t, "q", ROWS_TOKENS, VALUE_Q8, COLS));
    struct operand y = tape_all(t, tape_value(t, "y", ROWS_TOKENS, VALUE_F32, OUT));
    struct op experts = {.kind = OP_EXPERT_MATMUL}, norm = {.kind = OP_NORM},
              product = {.kind = OP_MATMUL};
    experts.expert_matmul = (struct op_expert_matmul){.parts = {{&r->experts, NULL}},
                                                      .part_count = 1,
                                                      .used = USED,
                                                      .src = x,
                                                      .ids = ids,
                                                      .dst = e};
    norm.norm = (struct op_norm){NORM_RMS, COLS, 1e-5f, &r->norm, NULL, x, operand_none, q};
    product.matmul =
        (struct op_matmul){.parts = {{&r->product, NULL}}, .part_count = 1, .src = q, .dst = y};
    tape_push(t, &experts);
    tape_push(t, &norm);
    tape_push(t, &product);
    tape_set_output(t, y.value);
    struct err err = {0};
    if (tape_finish(t, &(struct tape_sizes){ROWS, ROWS, 1}, &err) != ST_OK)
        fail_msg("%s", err.text);
    r->tape = t;
    r->x = x.value, r->ids = ids.value, r->y = y.value;
}

static void make_weights(struct rig *r) {
    for (size_t i = 0; i < sizeof(q8_weights); i++)
        q8_weights[i] = (uint8_t)(rng_at(3, 0, i) & 0x3f);
    for (size_t i = 0; i < EXPERTS * OUT * COLS; i++)
        expert_weights[i] = (float)rng_unit_at(4, 0, i) - 0.5f;
    for (int i = 0; i < COLS; i++) ones[i] = 1.0f;
    r->product = (struct weight){.type = DTYPE_Q8_0,
                                 .rows = OUT,
                                 .cols = COLS,
                                 .experts = 1,
                                 .data = q8_weights,
                                 .bytes = sizeof(q8_weights)};
    r->experts = (struct weight){.type = DTYPE_F32,
                                 .rows = OUT,
                                 .cols = COLS,
                                 .experts = EXPERTS,
                                 .data = expert_weights,
                                 .bytes = sizeof(expert_weights)};
    r->norm = weight_vector(STR("norm"), ones, COLS);
}

static void rig_open(struct rig *r, const char *isa) {
    struct step_sizes sizes = {.rows_max = ROWS, .outputs_max = ROWS, .seqs_max = 1};
    memset(r, 0, sizeof(*r));
    make_weights(r);
    assert_int_equal(cpu_device_open(isa, THREADS, &r->dev, NULL), ST_OK);
    assert_int_equal(r->dev.prepare(r->dev.self, &r->product, NULL), ST_OK);
    assert_int_equal(r->dev.prepare(r->dev.self, &r->experts, NULL), ST_OK);
    make_tape(r);
    struct program_options options = {.tape = r->tape, .sizes = sizes};
    assert_int_equal(r->dev.program_create(r->dev.self, &options, &r->program, NULL), ST_OK);
    assert_int_equal(step_create(&r->step, &r->dev, &sizes, NULL), ST_OK);
    for (int i = 0; i < ROWS; i++) r->step->pos[i] = i == SKIPPED ? -1 : i;
    r->step->row_count = ROWS;
    r->step->seq_count = 1;
    r->step->seqs[0].row_count = ROWS;
}

static void rig_close(struct rig *r) {
    step_destroy(r->step, &r->dev);
    r->dev.program_destroy(r->dev.self, r->program);
    r->dev.close(r->dev.self);
    tape_destroy(r->tape);
}

static uint8_t *row_of(struct rig *r, value_id v, uint32_t row) {
    const struct tape_value *value = tape_value_at(r->tape, v);
    return cpu_program_slab(r->program) + value->offset + row * value->row_bytes;
}

static float x_at(uint32_t row, uint32_t col) { return (float)rng_unit_at(5, row, col) - 0.3f; }

static void run_once(struct rig *r, float out[ROWS][OUT]) {
    struct device_result result;
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t c = 0; c < COLS; c++)
            ((float *)(void *)row_of(r, r->x, row))[c] = x_at(row, c);
        for (uint32_t j = 0; j < USED; j++)
            ((int32_t *)(void *)row_of(r, r->ids, row))[j] = (int32_t)((row + j) % EXPERTS);
    }
    assert_int_equal(r->dev.submit(r->dev.self, r->program, r->step, NULL), ST_OK);
    assert_int_equal(r->dev.collect(r->dev.self, r->program, &result, NULL), ST_OK);
    for (uint32_t row = 0; row < ROWS; row++)
        memcpy(out[row], row_of(r, r->y, row), sizeof(out[row]));
}

/* Squares of a column in the live rows: of x, and of x with a root mean square of 1. */
static void expected(uint32_t col, double *of_x, double *of_norm) {
    *of_x = *of_norm = 0;
    for (uint32_t row = 0; row < ROWS; row++) {
        double sum = 0, own = (double)x_at(row, col) * (double)x_at(row, col);
        if (row == SKIPPED) continue;
        for (uint32_t c = 0; c < COLS; c++) sum += (double)x_at(row, c) * (double)x_at(row, c);
        *of_x += own;
        *of_norm += own / (sum / COLS);
    }
}

static void check_isa(const char *isa) {
    struct rig r;
    float alone[ROWS][OUT] = {{0}}, tapped[ROWS][OUT] = {{0}};
    rig_open(&r, isa);
    run_once(&r, alone);
    assert_int_equal(r.product_rows, 0);
    r.dev.profiler->tap(r.dev.self, take, &r);
    run_once(&r, tapped);
    for (int i = 0; i < ROWS; i++)
        if (i != SKIPPED) assert_memory_equal(alone[i], tapped[i], sizeof(alone[i]));
    assert_int_equal(r.product_rows, ROWS - 1);
    assert_int_equal(r.expert_rows, (ROWS - 1) * USED);
    for (uint32_t c = 0; c < COLS; c++) {
        double of_x, of_norm;
        expected(c, &of_x, &of_norm);
        assert_true(fabs(r.expert_sums[c] - USED * of_x) < 1e-6);
        assert_true(fabs(r.product_sums[c] - of_norm) < 0.02 * of_norm + 0.02); /* 8 bits */
    }
    r.dev.profiler->tap(r.dev.self, NULL, NULL);
    run_once(&r, tapped);
    assert_int_equal(r.product_rows, ROWS - 1);
    rig_close(&r);
}

static void test_the_tap_sees_the_rows_that_products_read(void **state) {
    (void)state;
    check_isa("auto");
    check_isa("ref");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_tap_sees_the_rows_that_products_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
