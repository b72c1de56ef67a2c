/* Goal:   KL, perplexities and agreement are what their definitions say.
 * Method: distributions whose results are known by hand; random logits against the definition,
 *         written out with the C library's functions in long double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "quant/divergence.h"

enum { SEED = 7, VOCAB = 1000 };

static void assert_near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%.17g, expected %.17g", got, want);
}

static void test_distributions_by_hand(void **state) {
    (void)state;
    struct divergence d;
    struct divergence_result r;
    /* a: 1/2, 1/4, 1/4. b: 1/4, 1/2, 1/4. KL = 1/2 log 2 - 1/4 log 2. */
    const float a[3] = {0.0f, -0.69314718f, -0.69314718f};
    const float b[3] = {4.30685282f, 5.0f, 4.30685282f}; /* any constant may be added */
    divergence_init(&d);
    assert_int_equal(divergence_add(&d, a, b, 3, 0), ST_OK);
    divergence_result(&d, &r);
    assert_int_equal(r.positions, 1);
    assert_near(r.kl_mean, 0.25 * log(2), 1e-7);
    assert_near(r.kl_p99, r.kl_mean, 0);
    assert_near(r.top1_agree, 0, 0);
    assert_near(r.ppl_a, 2, 1e-6);
    assert_near(r.ppl_b, 4, 1e-6);
    divergence_deinit(&d);
}

static void test_equal_logits_have_no_divergence(void **state) {
    (void)state;
    struct divergence d;
    struct divergence_result r;
    const float a[4] = {1.0f, -INFINITY, 3.0f, 3.0f};
    divergence_init(&d);
    for (int i = 0; i < 3; i++) assert_int_equal(divergence_add(&d, a, a, 4, 2), ST_OK);
    divergence_result(&d, &r);
    assert_near(r.kl_mean, 0, 0);
    assert_near(r.kl_max, 0, 0);
    assert_near(r.top1_agree, 1, 0);
    assert_near(r.ppl_a, r.ppl_b, 0);
    divergence_deinit(&d);
}

static void test_logits_that_are_no_numbers_are_infinitely_far(void **state) {
    (void)state;
    struct divergence d;
    struct divergence_result r;
    const float a[2] = {1.0f, 2.0f}, bad[3][2] = {{NAN, 1.0f}, {1.0f, NAN}, {INFINITY, 0.0f}};
    for (int i = 0; i < 3; i++) {
        assert_true(isinf(divergence_kl(a, bad[i], 2)));
        assert_true(isinf(divergence_kl(bad[i], a, 2)));
        assert_true(isinf(divergence_kl(bad[i], bad[i], 2)));
    }
    divergence_init(&d);
    assert_int_equal(divergence_add(&d, a, a, 2, 1), ST_OK);
    assert_int_equal(divergence_add(&d, a, bad[0], 2, 1), ST_OK);
    divergence_result(&d, &r);
    assert_true(isinf(r.kl_mean) && isinf(r.kl_max));
    divergence_deinit(&d);
}

static long double log_sum(const float *x) {
    long double sum = 0;
    for (int i = 0; i < VOCAB; i++) sum += expl((long double)x[i]);
    return logl(sum);
}

static void test_random_logits_against_the_definition(void **state) {
    (void)state;
    enum { ROUNDS = 300 };
    struct divergence d;
    struct divergence_result r;
    struct rng rng = {.seed = SEED};
    float a[VOCAB], b[VOCAB];
    double kl_max = 0, kl_sum = 0, loss = 0;
    divergence_init(&d);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < VOCAB; i++) {
            a[i] = (float)(16 * rng_unit(&rng) - 8);
            b[i] = a[i] + (float)(rng_unit(&rng) * round * 1e-3);
        }
        int32_t next = (int32_t)rng_below(&rng, VOCAB);
        assert_int_equal(divergence_add(&d, a, b, VOCAB, next), ST_OK);
        long double za = log_sum(a), zb = log_sum(b), kl = 0;
        for (int i = 0; i < VOCAB; i++) {
            long double la = (long double)a[i] - za, lb = (long double)b[i] - zb;
            kl += expl(la) * (la - lb);
        }
        assert_near(d.kl[round], (double)kl, 1e-12);
        kl_max = fmax(kl_max, (double)kl);
        kl_sum += (double)kl;
        loss += (double)(zb - (long double)b[next]);
    }
    divergence_result(&d, &r);
    assert_int_equal(r.positions, ROUNDS);
    assert_near(r.kl_mean, kl_sum / ROUNDS, 1e-12);
    assert_near(r.kl_max, kl_max, 1e-12);
    assert_near(r.ppl_b / exp(loss / ROUNDS), 1, 1e-9);
    /* Of 300 values 297 are at most p99. */
    size_t at_most = 0, below = 0;
    for (size_t i = 0; i < ROUNDS; i++) {
        at_most += d.kl[i] <= r.kl_p99;
        below += d.kl[i] < r.kl_p99;
    }
    assert_int_equal(at_most, 297);
    assert_int_equal(below, 296);
    divergence_deinit(&d);
}

int main(void) {
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributions_by_hand),
        cmocka_unit_test(test_equal_logits_have_no_divergence),
        cmocka_unit_test(test_logits_that_are_no_numbers_are_infinitely_far),
        cmocka_unit_test(test_random_logits_against_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
