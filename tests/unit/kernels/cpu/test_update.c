/* Goal:   a prepared weight whose numbers have changed is what a new one would be; a weight that is
 *         read where it lies needs nothing.
 * Method: weights of every format from random bytes, prepared, changed and updated, beside weights
 *         that were prepared from the changed bytes: the panels are compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "graph/device.h"
#include "graph/weight.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pack.h"

enum { ROWS = 21, COLS = 512 };

static uint8_t bytes[ROWS * COLS * 4];

static void fill_bytes(uint64_t seed) {
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)rng_at(seed, 0, i);
}

static struct weight weight_of(enum dtype type) {
    size_t row = 0;
    assert_true(dtype_bytes(type, COLS, &row));
    return (struct weight){
        .type = type, .rows = ROWS, .cols = COLS, .experts = 1, .data = bytes, .bytes = ROWS * row};
}

static void check_type(const char *isa, enum dtype type) {
    struct device dev;
    struct weight w = weight_of(type), fresh = weight_of(type);
    assert_int_equal(cpu_device_open(isa, 2, &dev, NULL), ST_OK);
    fill_bytes(1);
    assert_int_equal(dev.prepare(dev.self, &w, NULL), ST_OK);
    const void *prepared = w.prepared;
    fill_bytes(2);
    dev.update(dev.self, &w);
    assert_int_equal(dev.prepare(dev.self, &fresh, NULL), ST_OK);
    assert_ptr_equal(w.prepared, prepared);
    if (prepared) {
        const struct packed *a = w.prepared, *b = fresh.prepared;
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    dev.close(dev.self);
}

static void test_an_updated_weight_is_as_a_new_one(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) check_type("auto", (enum dtype)type);
    check_type("ref", DTYPE_F32); /* it packs nothing */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_updated_weight_is_as_a_new_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
