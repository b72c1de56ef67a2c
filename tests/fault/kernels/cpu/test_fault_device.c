/* Goal:   opening the CPU device, preparing a weight, making programs and the tables of a step, and
 *         running one, survive the failure of any one allocation: ST_NOMEM with a sentence, nothing
 *         lost.
 * Method: the whole way once with the first allocation failing, then the second, until no more
 *         are needed; leaks show under the address sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "fault/fail_alloc.h"
#include "graph/device.h"
#include "graph/tape.h"
#include "kernels/cpu/cpu.h"

enum { COLS = 64, ROWS = 20, ALLOCATIONS_MAX = 1000 };

enum { TAPE_ROWS = 4, SLOTS = 3 };

static const float freqs_floats[COLS / 2];
static struct weight freqs;
static const uint8_t zeros[ROWS * COLS / 32 * 34];

/* A rope and a product: a plan with tables and scratch, and a packed weight. */
static struct tape *make_tape(const struct weight *w) {
    struct tape *t;
    assert_int_equal(tape_create(&t), ST_OK);
    value_id x = tape_value(t, "x", ROWS_TOKENS, VALUE_F32, COLS);
    value_id q = tape_value(t, "q", ROWS_TOKENS, VALUE_Q8, COLS);
    value_id y = tape_value(t, "y", ROWS_TOKENS, VALUE_F32, ROWS);
    struct op rope = {.kind = OP_ROPE}, quant = {.kind = OP_QUANT}, product = {.kind = OP_MATMUL};
    rope.rope = (struct op_rope){.heads = 1,
                                 .head_dim = COLS,
                                 .rot_dims = COLS,
                                 .freqs = &freqs,
                                 .factor = 1.0f,
                                 .x = tape_all(t, x)};
    quant.quant = (struct op_quant){tape_all(t, x), tape_all(t, q)};
    product.matmul = (struct op_matmul){
        .parts = {{w, NULL}}, .part_count = 1, .src = tape_all(t, q), .dst = tape_all(t, y)};
    tape_push(t, &rope);
    tape_push(t, &quant);
    tape_push(t, &product);
    tape_set_output(t, y);
    assert_int_equal(tape_finish(t, &(struct tape_sizes){TAPE_ROWS, TAPE_ROWS, 1}, NULL), ST_OK);
    return t;
}

static void ignore(void *ctx, const struct device_run *run, const struct device_times *times) {
    (void)ctx;
    (void)run;
    (void)times;
}

static const struct step_sizes sizes = {.rows_max = TAPE_ROWS,
                                        .outputs_max = TAPE_ROWS,
                                        .seqs_max = 1,
                                        .edits_max = 2,
                                        .deny_words_max = 2};

/* A step of one row that draws a token, on a program whose step is made last. */
static enum status run_step(struct device *dev, struct device_program *p, struct err *err) {
    struct step *s;
    struct device_result result;
    TRY(step_create(&s, dev, &sizes, err));
    s->row_count = s->output_count = s->seq_count = s->seqs[0].row_count = 1;
    s->samplings[0] = (struct sampling){.kind = SAMPLING_DRAW,
                                        .slot = SLOTS - 1,
                                        .top_p = 1,
                                        .typical_p = 1,
                                        .deny_first = SAMPLING_NONE};
    enum status st = dev->submit(dev->self, p, s, err);
    if (st == ST_OK) st = dev->collect(dev->self, p, &result, err);
    if (st == ST_OK) assert_int_equal(result.output_count, 1);
    step_destroy(s, dev);
    return st;
}

/* One program that hands rows over, and beside it one that samples. */
static enum status use_programs(struct device *dev, const struct tape *t, struct err *err) {
    struct program_options options = {.tape = t, .sizes = sizes};
    struct device_program *plain, *samples = NULL;
    TRY(dev->program_create(dev->self, &options, &plain, err));
    options.slot_count = SLOTS;
    enum status st = dev->program_create(dev->self, &options, &samples, err);
    if (st == ST_OK && dev->profiler->watch(dev->self, ignore, NULL) != ST_OK)
        st = err_set(err, ST_NOMEM, "no memory for the watch");
    if (st == ST_OK) st = run_step(dev, samples, err);
    dev->program_destroy(dev->self, samples);
    dev->program_destroy(dev->self, plain);
    return st;
}

static enum status use_memory(struct device *dev, struct err *err) {
    enum { BYTES = 1000 };
    device_addr addr = dev->alloc(dev->self, BYTES);
    void *host = dev->host_alloc(dev->self, BYTES, -1);
    enum status st = addr && host ? ST_OK : err_set(err, ST_NOMEM, "no memory for a buffer");
    dev->host_free(dev->self, host, BYTES);
    dev->free(dev->self, addr, BYTES);
    return st;
}

static enum status open_and_run(struct weight *w, const struct tape *t, struct err *err) {
    struct device dev;
    TRY(cpu_device_open("portable", 2, &dev, err));
    w->prepared = NULL;
    enum status st = dev.prepare(dev.self, w, err);
    if (st == ST_OK) st = use_programs(&dev, t, err);
    if (st == ST_OK) st = use_memory(&dev, err);
    dev.close(dev.self);
    return st;
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    struct weight w = {.type = DTYPE_Q8_0,
                       .rows = ROWS,
                       .cols = COLS,
                       .experts = 1,
                       .data = zeros,
                       .bytes = sizeof(zeros)};
    freqs = weight_vector(STR("freqs"), freqs_floats, COLS / 2);
    struct tape *t = make_tape(&w);
    long n = 0;
    for (;; n++) {
        struct err err = {{0}};
        fail_alloc_at(n);
        enum status st = open_and_run(&w, t, &err);
        if (!fail_alloc_stop()) break;
        assert_int_equal(st, ST_NOMEM);
        assert_true(strlen(err.text) > 0);
        assert_true(n < ALLOCATIONS_MAX);
    }
    assert_true(n >= 20);
    tape_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
