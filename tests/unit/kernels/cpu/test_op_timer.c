/* Goal:   a profiled run reports where its time went and computes the same bits; without a
 *         callback nothing is called. What an op has to do is counted from its step, and the
 *         ceiling that binds it is the one that takes longest.
 * Method: a tape of three ops on two threads, with the device's own clock; amounts of work against
 *         sums done by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "graph/device.h"
#include "graph/step.h"
#include "graph/tape.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/peaks.h"

enum { COLS = 64, OUT = 40, ROWS = 6, OPS = 2, THREADS = 2 };

static const float zeros[COLS];
static uint8_t weights[OUT * COLS / 32 * 34];

struct rig {
    struct device dev;
    struct weight weight, norm;
    struct tape *tape;
    struct device_program *program;
    struct step *step;
    struct device_run run; /* as the callback gets it */
    /* What the callback got. */
    uint32_t calls;
    struct device_run told_run;
    struct device_times times;
};

static void take(void *ctx, const struct device_run *run, const struct device_times *times) {
    struct rig *r = ctx;
    r->calls++;
    r->told_run = *run;
    r->times = *times;
}

/* A norm that quantises, and a product. */
static struct tape *make_tape(const struct weight *w, const struct weight *weight) {
    struct tape *t;
    assert_int_equal(tape_create(&t), ST_OK);
    struct operand x = tape_all(t, tape_value(t, "x", ROWS_TOKENS, VALUE_F32, COLS));
    struct operand q = tape_all(t, tape_value(t, "q", ROWS_TOKENS, VALUE_Q8, COLS));
    struct operand y = tape_all(t, tape_value(t, "y", ROWS_TOKENS, VALUE_F32, OUT));
    struct op norm = {.kind = OP_NORM}, product = {.kind = OP_MATMUL};
    norm.norm = (struct op_norm){NORM_RMS, COLS, 1e-5f, weight, NULL, x, operand_none, q};
    product.matmul = (struct op_matmul){.parts = {{w, NULL}}, .part_count = 1, .src = q, .dst = y};
    tape_push(t, &norm);
    tape_push(t, &product);
    tape_set_output(t, y.value);
    assert_int_equal(tape_finish(t, &(struct tape_sizes){ROWS, ROWS, 1}, NULL), ST_OK);
    return t;
}

static void rig_open(struct rig *r) {
    *r = (struct rig){.weight = {.type = DTYPE_Q8_0,
                                 .rows = OUT,
                                 .cols = COLS,
                                 .experts = 1,
                                 .data = weights,
                                 .bytes = sizeof(weights)}};
    for (size_t i = 0; i < sizeof(weights); i++) weights[i] = (uint8_t)(rng_at(3, 0, i) & 0x3f);
    assert_int_equal(cpu_device_open("auto", THREADS, &r->dev, NULL), ST_OK);
    assert_int_equal(r->dev.prepare(r->dev.self, &r->weight, NULL), ST_OK);
    r->norm = weight_vector(STR("norm"), zeros, COLS);
    r->tape = make_tape(&r->weight, &r->norm);
    assert_int_equal(tape_op_count(r->tape), OPS);
    struct step_sizes sizes = {.rows_max = ROWS, .outputs_max = ROWS, .seqs_max = 1};
    struct program_options options = {.tape = r->tape, .sizes = sizes};
    assert_int_equal(r->dev.program_create(r->dev.self, &options, &r->program, NULL), ST_OK);
    assert_int_equal(step_create(&r->step, &r->dev, &sizes, NULL), ST_OK);
    for (int i = 0; i < ROWS; i++) r->step->pos[i] = i;
    r->step->row_count = ROWS;
    r->step->seq_count = 1;
    r->step->seqs[0].row_count = ROWS;
    r->run = (struct device_run){.tape = r->tape, .step = r->step};
}

static void rig_close(struct rig *r) {
    step_destroy(r->step, &r->dev);
    r->dev.program_destroy(r->dev.self, r->program);
    r->dev.close(r->dev.self);
    tape_destroy(r->tape);
}

static void run_once(struct rig *r, float out[ROWS][OUT]) {
    const struct tape_value *x = tape_value_at(r->tape, 0), *y = tape_value_at(r->tape, 2);
    uint8_t *slab = cpu_program_slab(r->program);
    struct device_result result;
    for (uint32_t row = 0; row < ROWS; row++)
        for (uint32_t c = 0; c < COLS; c++)
            ((float *)(void *)(slab + x->offset + row * x->row_bytes))[c] =
                (float)rng_unit_at(5, row, c);
    assert_int_equal(r->dev.submit(r->dev.self, r->program, r->step, NULL), ST_OK);
    assert_int_equal(r->dev.collect(r->dev.self, r->program, &result, NULL), ST_OK);
    for (uint32_t row = 0; row < ROWS; row++)
        memcpy(out[row], slab + y->offset + row * y->row_bytes, sizeof(out[row]));
}

static void test_a_watched_run_says_where_its_time_went(void **state) {
    (void)state;
    struct rig r;
    float out[ROWS][OUT];
    rig_open(&r);
    assert_int_equal(r.dev.profiler->watch(r.dev.self, take, &r), ST_OK);
    run_once(&r, out);
    assert_int_equal(r.calls, 1);
    assert_memory_equal(&r.told_run, &r.run, sizeof(r.run));
    assert_int_equal(r.times.thread_count, THREADS);
    assert_int_equal(r.times.op_count, OPS);
    assert_true(r.times.run_ns > 0);
    for (uint32_t t = 0; t < THREADS; t++) {
        int64_t sum_ns = 0;
        for (uint32_t op = 0; op < OPS; op++) {
            int64_t work_ns = r.times.work_ns[t * OPS + op],
                    wait_ns = r.times.wait_ns[t * OPS + op];
            assert_true(work_ns >= 0);
            assert_true(wait_ns >= 0);
            sum_ns += work_ns + wait_ns;
        }
        assert_true(sum_ns > 0);
        assert_true(sum_ns <= r.times.run_ns);
    }
    rig_close(&r);
}

static void test_without_a_callback_nothing_is_called(void **state) {
    (void)state;
    struct rig r;
    float out[ROWS][OUT];
    rig_open(&r);
    run_once(&r, out);
    assert_int_equal(r.calls, 0);
    assert_int_equal(r.dev.profiler->watch(r.dev.self, take, &r), ST_OK);
    assert_int_equal(r.dev.profiler->watch(r.dev.self, take, &r),
                     ST_OK); /* the second replaces the first */
    run_once(&r, out);
    assert_int_equal(r.calls, 1);
    assert_int_equal(r.dev.profiler->watch(r.dev.self, NULL, NULL), ST_OK);
    run_once(&r, out);
    assert_int_equal(r.calls, 1);
    rig_close(&r);
}

static void test_watching_changes_no_bit(void **state) {
    (void)state;
    struct rig r;
    float alone[ROWS][OUT], watched[ROWS][OUT];
    rig_open(&r);
    run_once(&r, alone);
    r.dev.profiler->watch(r.dev.self, take, &r);
    run_once(&r, watched);
    assert_memory_equal(alone, watched, sizeof(alone));
    rig_close(&r);
}

static void test_a_product_reads_each_packed_weight_once(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r);
    const struct device_profiler *profiler = r.dev.profiler;
    struct work w = profiler->op_work(r.dev.self, &r.run, tape_op(r.tape, 1));
    const struct packed *p = r.weight.prepared;
    if (p) assert_true(w.memory_bytes == (double)p->bytes);
    assert_true(w.int8_ops == 2.0 * ROWS * OUT * COLS);
    assert_true(w.f32_ops == 0);
    struct work norm = profiler->op_work(r.dev.self, &r.run, tape_op(r.tape, 0));
    assert_true(norm.memory_bytes == 0);
    assert_true(norm.cache_bytes >= ROWS * COLS * 5.0); /* floats in, bytes out */
    rig_close(&r);
}

static void test_attention_reads_what_its_rows_see(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r);
    const struct device_profiler *profiler = r.dev.profiler;
    struct kv_space kv = {
        .shape = {.type = KV_F16, .layers = 3, .heads = 2, .head_dim = 32, .block_tokens = 32},
        .block_count = 4};
    kv.block_bytes = r.dev.kv_block_bytes(r.dev.self, &kv.shape);
    struct op op = {.kind = OP_ATTENTION};
    op.attention = (struct op_attention){.heads = 4, .kv_heads = 2, .head_dim = 32};
    r.run.kv = &kv;
    for (int i = 0; i < ROWS; i++) r.step->pos[i] = 10 + i;
    r.step->pos[0] = -1; /* skipped */
    struct work all = profiler->op_work(r.dev.self, &r.run, &op);
    assert_true(all.f32_ops == 4.0 * 4 * 32 * (12 + 13 + 14 + 15 + 16));
    assert_true(all.memory_bytes == 16.0 * 2 * 2 * 32 * 2);
    op.attention.window = 3;
    struct work windowed = profiler->op_work(r.dev.self, &r.run, &op);
    assert_true(windowed.f32_ops == 4.0 * 4 * 32 * 15);
    assert_true(windowed.memory_bytes == 3.0 * 2 * 2 * 32 * 2);
    rig_close(&r);
}

static void test_the_ceiling_that_takes_longest_binds(void **state) {
    (void)state;
    const struct peaks peaks = {.read_gbs = 10, .cache_gbs = 100, .int8_gops = 1000, .f32_gops = 0};
    struct work w = {.memory_bytes = 1e6, .int8_ops = 50e6};
    struct least_time least = work_least(&w, &peaks);
    assert_int_equal(least.bound, BOUND_MEMORY);
    assert_true(least.us == 100);
    w.int8_ops = 500e6;
    least = work_least(&w, &peaks);
    assert_int_equal(least.bound, BOUND_INT8);
    assert_true(least.us == 500);
    w.f32_ops = 1e12; /* a rate that is not known bounds nothing */
    assert_int_equal(work_least(&w, &peaks).bound, BOUND_INT8);
    w = (struct work){0};
    assert_int_equal(work_least(&w, &peaks).bound, BOUND_NONE);
    assert_string_equal(bound_name(BOUND_INT8), "int8");
}

static void test_ceilings_are_measured_on_the_devices_threads(void **state) {
    (void)state;
    struct device dev;
    struct peaks peaks;
    struct err err = {{0}};
    assert_int_equal(cpu_device_open("auto", 1, &dev, NULL), ST_OK);
    assert_int_equal(dev.profiler->peaks(dev.self, &peaks, &err), ST_OK);
    assert_true(peaks.read_gbs > 0.1);
    assert_true(peaks.cache_gbs > 0.1);
    assert_true(peaks.read_gbs < 1e4);
    for (const struct cpu_peak *p = cpu_peak_list; p->name; p++)
        if (strcmp(p->name, peaks.int8_name) == 0) assert_true(peaks.int8_gops > 0.1);
    dev.close(dev.self);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_watched_run_says_where_its_time_went),
        cmocka_unit_test(test_without_a_callback_nothing_is_called),
        cmocka_unit_test(test_watching_changes_no_bit),
        cmocka_unit_test(test_a_product_reads_each_packed_weight_once),
        cmocka_unit_test(test_attention_reads_what_its_rows_see),
        cmocka_unit_test(test_the_ceiling_that_takes_longest_binds),
        cmocka_unit_test(test_ceilings_are_measured_on_the_devices_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
