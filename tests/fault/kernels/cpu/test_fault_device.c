/* Goal:   opening the CPU device, preparing a weight and checking a tape survive the failure of
 *         any one allocation: ST_NOMEM with a sentence, nothing lost.
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

static const float freqs[COLS / 2];
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
                                 .freqs = freqs,
                                 .factor = 1.0f,
                                 .x = tape_all(t, x)};
    quant.quant = (struct op_quant){tape_all(t, x), tape_all(t, q)};
    product.matmul = (struct op_matmul){
        .parts = {{w, NULL}}, .part_count = 1, .src = tape_all(t, q), .dst = tape_all(t, y)};
    tape_push(t, &rope);
    tape_push(t, &quant);
    tape_push(t, &product);
    tape_set_output(t, y);
    assert_int_equal(tape_finish(t, &(struct tape_sizes){4, 4, 1}, NULL), ST_OK);
    return t;
}

static void ignore(void *ctx, const struct device_run *run, const struct device_times *times) {
    (void)ctx;
    (void)run;
    (void)times;
}

static enum status open_and_check(struct weight *w, const struct tape *t, struct err *err) {
    struct device dev;
    TRY(cpu_device_open("portable", 2, &dev, err));
    w->prepared = NULL;
    enum status st = dev.prepare(dev.self, w, err);
    if (st == ST_OK) st = dev.check(dev.self, t, err);
    if (st == ST_OK) st = dev.check(dev.self, t, err); /* again: the first plan is replaced */
    if (st == ST_OK && dev.watch(dev.self, ignore, NULL) != ST_OK)
        st = err_set(err, ST_NOMEM, "no memory for the watch");
    if (st == ST_OK) {
        void *slab = dev.alloc(dev.self, tape_slab_bytes(t));
        if (!slab) st = err_set(err, ST_NOMEM, "no memory for the slab");
        dev.free(dev.self, slab, tape_slab_bytes(t));
    }
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
    struct tape *t = make_tape(&w);
    long n = 0;
    for (;; n++) {
        struct err err = {{0}};
        fail_alloc_at(n);
        enum status st = open_and_check(&w, t, &err);
        if (!fail_alloc_stop()) break;
        assert_int_equal(st, ST_NOMEM);
        assert_true(strlen(err.text) > 0);
        assert_true(n < ALLOCATIONS_MAX);
    }
    assert_true(n >= 8);
    tape_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
