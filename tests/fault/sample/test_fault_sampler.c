/* Goal:   a sampler survives the failure of any one allocation: ST_NOMEM, nothing lost.
 * Method: create and fork one with everything switched on, the first time with the first
 *         allocation failing, then the second, until no more are needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault/fail_alloc.h"
#include "sample/sampler.h"
#include "unit/text/byte_tokenizer.h"

enum { VOCAB = 100, ALLOCATIONS_MAX = 1000 };

static struct tokenizer *tokenizer; /* made outside the failures */

static enum status create_and_fork(void) {
    const struct logit_bias bias = {3, 1.0f};
    struct sample_params p = sample_params_default();
    p.repetition_penalty = 1.2f;
    p.bias = &bias;
    p.bias_count = 1;
    p.min_tokens = 1;
    p.ends = &bias.token;
    p.end_count = 1;
    p.thinking = (struct sample_thinking){.has_budget = true,
                                          .open = "<t>",
                                          .close = "</t>",
                                          .tokenizer = tokenizer,
                                          .closing = &bias.token,
                                          .closing_count = 1};
    struct sampler *s, *fork = NULL;
    const struct sample_bounds bounds = {VOCAB, VOCAB};
    struct err err = {0};
    TRY(sampler_create(&p, &bounds, &s, &err));
    enum status st = sampler_fork(s, &fork);
    sampler_destroy(fork);
    sampler_destroy(s);
    return st;
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    long n = 0;
    tokenizer = byte_tokenizer(STR(""));
    for (;; n++) {
        fail_alloc_at(n);
        enum status st = create_and_fork();
        if (!fail_alloc_stop()) break;
        assert_int_equal(st, ST_NOMEM);
        assert_true(n < ALLOCATIONS_MAX);
    }
    assert_true(n > 10);
    tokenizer_destroy(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
