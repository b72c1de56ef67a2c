/* Goal:   creating a row sampler survives the failure of any one allocation: ST_NOMEM, no leak.
 * Method: the first time with the first allocation failing, then the second, until no more are
 *         needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/fail_alloc.h"
#include "kernels/cpu/row_sampler.h"

enum { VOCAB = 100, ALLOCATIONS_MAX = 1000 };

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    long n = 0;
    for (;; n++) {
        struct row_sampler *c = NULL;
        fail_alloc_at(n);
        enum status st = row_sampler_create(VOCAB, &c);
        bool failed = fail_alloc_stop();
        row_sampler_destroy(c);
        if (!failed) break;
        assert_int_equal(st, ST_NOMEM);
        assert_null(c);
        assert_true(n < ALLOCATIONS_MAX);
    }
    assert_true(n > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
