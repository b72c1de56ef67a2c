/* Goal:   every drafter, and the pools, survive the failure of any one allocation: ST_NOMEM, and
 *         nothing is lost. Nothing but create allocates.
 * Method: create one of each and use it, the first time with the first allocation failing, then the
 *         second, until no more are needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/fail_alloc.h"
#include "spec/drafter.h"
#include "spec/suffix_pools.h"

enum { TOKENS = 400, ALLOCATIONS_MAX = 100 };

static int32_t text[TOKENS];

static enum status use(const struct drafter *d, struct suffix_pools *pools) {
    struct drafter_setup setup = {.tokens_max = TOKENS,
                                  .vocab = 100,
                                  .prompt = text,
                                  .prompt_tokens = 50,
                                  .ngram_min = 2,
                                  .ngram_max = 4,
                                  .prediction = text + 50,
                                  .prediction_tokens = TOKENS - 50,
                                  .pools = pools};
    struct err err = {0};
    void *self = NULL;
    int32_t out[8];
    enum status st = d->create(&setup, &self, &err);
    if (st != ST_OK) {
        assert_true(err.text[0]);
        return st;
    }
    fail_alloc_stop();
    fail_alloc_at(0); /* from here on no allocation is allowed */
    for (uint32_t count = 50; count <= TOKENS; count += 5)
        d->propose(self, text, count, count, 8, out);
    if (d->end) d->end(self, text, TOKENS, 50);
    d->propose(self, text, TOKENS, TOKENS, 8, out);
    d->verify(self);
    assert_false(fail_alloc_stop());
    d->destroy(self);
    return ST_OK;
}

static void test_every_allocation_of_a_drafter_may_fail(void **state) {
    (void)state;
    struct suffix_pools *pools = NULL;
    for (uint32_t i = 0; i < TOKENS; i++) text[i] = (int32_t)(i * i % 17);
    assert_int_equal(suffix_pools_create(&pools, 2, TOKENS), ST_OK);
    for (const struct drafter *const *d = drafters; *d; d++) {
        long n = 0;
        for (;; n++) {
            fail_alloc_at(n);
            enum status st = use(*d, pools);
            fail_alloc_stop();
            if (st == ST_OK) break;
            assert_int_equal(st, ST_NOMEM);
            assert_true(n < ALLOCATIONS_MAX);
        }
        assert_true(n > 0);
    }
    suffix_pools_verify(pools);
    suffix_pools_destroy(pools);
}

static void test_every_allocation_of_the_pools_may_fail(void **state) {
    (void)state;
    long n = 0;
    for (;; n++) {
        struct suffix_pools *pools = NULL;
        fail_alloc_at(n);
        enum status st = suffix_pools_create(&pools, 3, 100);
        bool did_fail = fail_alloc_stop();
        suffix_pools_destroy(pools);
        if (!did_fail) break;
        assert_int_equal(st, ST_NOMEM);
        assert_true(n < ALLOCATIONS_MAX);
    }
    assert_true(n > 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_of_a_drafter_may_fail),
        cmocka_unit_test(test_every_allocation_of_the_pools_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
