/* Goal:   choose does with a row what its description says and nothing else: edits and masks where
 *         the tables have them, the pending token, no look at the slot.
 * Method: descriptions written by hand, and seeded ones against logits that were changed
 *         beforehand. tests/unit/sample compares the draws themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "graph/sampling.h"
#include "kernels/cpu/row_sampler.h"

enum { VOCAB_MAX = 200, MASK_WORDS = (VOCAB_MAX + 63) / 64, ROUNDS = 3000 };

static struct sampling greedy(void) {
    return (struct sampling){.kind = SAMPLING_DRAW,
                             .slot = SAMPLING_NONE,
                             .top_p = 1.0f,
                             .typical_p = 1.0f,
                             .fresh_scale = 1.0f,
                             .deny_first = SAMPLING_NONE};
}

static struct sampling random_sampling(struct rng *r) {
    struct sampling s = greedy();
    s.temperature = (float)rng_below(r, 4) * 0.5f;
    s.top_k = (uint32_t)rng_below(r, 3) * 7;
    s.top_p = rng_below(r, 2) ? 0.9f : 1.0f;
    s.typical_p = rng_below(r, 4) ? 1.0f : 0.8f;
    s.min_p = rng_below(r, 2) ? 0.01f : 0.0f;
    s.seed = rng_next(r);
    s.position = rng_below(r, 1000);
    return s;
}

/* The same logits with minus infinity where the mask has a bit, and bits behind the vocabulary. */
static void test_a_mask_forbids_what_minus_infinity_forbids(void **state) {
    (void)state;
    struct rng r = {.seed = 51};
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t vocab = 1 + (uint32_t)rng_below(&r, VOCAB_MAX);
        float logits[VOCAB_MAX], denied[VOCAB_MAX];
        uint64_t deny[2 + MASK_WORDS];
        struct sampling_tables tables = {.deny = deny};
        struct sampling plain = random_sampling(&r), masked = plain;
        struct sample_result wanted, got;
        struct row_sampler *c;
        assert_int_equal(row_sampler_create(vocab, &c), ST_OK);
        for (uint32_t i = 0; i < 2 + MASK_WORDS; i++) deny[i] = rng_next(&r) | rng_next(&r);
        masked.deny_first = 2;
        masked.slot = (uint32_t)rng_next(&r);
        for (uint32_t t = 0; t < vocab; t++) {
            logits[t] = (float)(rng_unit(&r) * 20.0 - 10.0);
            denied[t] = deny[2 + t / 64] >> t % 64 & 1 ? -HUGE_VALF : logits[t];
        }
        enum status st = row_sampler_run(c, &plain, NULL, -1, denied, &wanted);
        assert_int_equal(row_sampler_run(c, &masked, &tables, -1, logits, &got), st);
        if (st == ST_OK) assert_int_equal(got.chosen.token, wanted.chosen.token);
        row_sampler_destroy(c);
    }
}

static int32_t chosen(struct row_sampler *c, const struct sampling *s,
                      const struct sampling_tables *tables, int32_t pending) {
    static const float logits[] = {4.0f, 3.0f, 2.0f, 1.0f};
    struct sample_result got;
    return row_sampler_run(c, s, tables, pending, logits, &got) == ST_OK ? got.chosen.token : -1;
}

/* Two rows' edits in one table. Token 0 is forbidden by one, and no bias brings it back. */
static void test_edits_are_those_of_the_rows_range(void **state) {
    (void)state;
    struct logit_edit edits[] = {{0, 1.0f, -HUGE_VALF, -HUGE_VALF},
                                 {0, 1.0f, 50.0f, 50.0f},
                                 {3, 1.0f, 10.0f, -10.0f},
                                 {1, 0.5f, 0.0f, 0.0f}};
    const struct sampling_tables tables = {.edits = edits, .edit_count = 4, .edit_cap = 4};
    struct sampling s = greedy();
    struct row_sampler *c;
    assert_int_equal(row_sampler_create(4, &c), ST_OK);
    assert_int_equal(chosen(c, &s, &tables, -1), 0);
    s.edit_count = 2;
    assert_int_equal(chosen(c, &s, &tables, -1), 1);
    s.edit_first = 2;
    assert_int_equal(chosen(c, &s, &tables, -1), 3);
    s.seen_count = 2; /* means nothing while no token is pending */
    assert_int_equal(chosen(c, &s, &tables, 3), 3);
    s.slot = 12345;
    s.edit_first = 3;
    s.edit_count = s.seen_count = 1;
    assert_int_equal(chosen(c, &s, &tables, -1), 1);
    row_sampler_destroy(c);
}

static void test_a_pending_token_is_edited_once(void **state) {
    (void)state;
    struct logit_edit edits[] = {{0, 1.0f, -2.5f, -5.0f}, {1, 1.0f, 0.0f, 9.0f}};
    const struct sampling_tables tables = {.edits = edits, .edit_count = 2, .edit_cap = 2};
    struct sampling s = greedy();
    struct row_sampler *c;
    assert_int_equal(row_sampler_create(4, &c), ST_OK);
    s.is_pending = true;
    s.edit_count = 2;
    s.seen_count = 1; /* the second is no penalty: its add_again does not count */
    s.fresh_add = 2.5f;
    assert_int_equal(chosen(c, &s, &tables, 0), 1); /* -1, 3, 2, 1 */
    assert_int_equal(chosen(c, &s, &tables, 1), 1); /* 1.5, 5.5, 2, 1 */
    assert_int_equal(chosen(c, &s, &tables, 2), 2); /* 1.5, 3, 4.5, 1 */
    assert_int_equal(chosen(c, &s, &tables, 3), 3); /* 1.5, 3, 2, 3.5 */
    s.fresh_add = 1.0f;
    s.fresh_scale = 0.25f;
    assert_int_equal(chosen(c, &s, &tables, 2), 2); /* 1.5, 3, 9, 1 */
    row_sampler_destroy(c);
}

static void test_a_pending_token_that_never_came_fails_the_row(void **state) {
    (void)state;
    struct sampling s = greedy();
    struct row_sampler *c;
    assert_int_equal(row_sampler_create(4, &c), ST_OK);
    assert_int_equal(chosen(c, &s, NULL, -1), 0);
    s.is_pending = true;
    assert_int_equal(chosen(c, &s, NULL, -1), -1);
    assert_int_equal(chosen(c, &s, NULL, 4), -1);
    assert_int_equal(chosen(c, &s, NULL, 3), 0);
    row_sampler_destroy(c);
}

/* Neither settings nor edits change how likely the model itself finds a token. */
static void test_a_score_is_the_models_own(void **state) {
    (void)state;
    const float logits[] = {1.0f, 3.0f, -HUGE_VALF, 2.0f};
    struct sampling s = greedy();
    struct sample_result got;
    struct row_sampler *c;
    assert_int_equal(row_sampler_create(4, &c), ST_OK);
    s.kind = SAMPLING_SCORE;
    s.temperature = 3.0f;
    s.wants_logprob = true;
    s.top_count = 2;
    double log_sum = log(exp(1.0) + exp(3.0) + exp(2.0));
    for (int32_t t = 0; t < 4; t++) {
        s.token = t;
        assert_int_equal(row_sampler_run(c, &s, NULL, -1, logits, &got), ST_OK);
        assert_int_equal(got.chosen.token, t);
        if (t == 2)
            assert_true(got.chosen.logprob == -HUGE_VALF);
        else
            assert_true(fabs((double)got.chosen.logprob - ((double)logits[t] - log_sum)) < 1e-6);
        assert_int_equal(got.top_count, 2);
        assert_int_equal(got.top[0].token, 1);
        assert_int_equal(got.top[1].token, 3);
    }
    row_sampler_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_mask_forbids_what_minus_infinity_forbids),
        cmocka_unit_test(test_edits_are_those_of_the_rows_range),
        cmocka_unit_test(test_a_pending_token_is_edited_once),
        cmocka_unit_test(test_a_pending_token_that_never_came_fails_the_row),
        cmocka_unit_test(test_a_score_is_the_models_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
