/* Goal:   the cost model finds the weights that made the steps it saw, follows a machine that
 *         changes, is not upset by outliers, and never predicts nonsense.
 * Method: steps drawn from known weights, with and without noise; the inverse question
 *         (tokens within a time) against a search by hand. */
#include <math.h>

#include "sched/cost_rows.h"
#include "unit/sched/world.h"

static struct cost_model start(void) {
    struct cost_model m;
    cost_init(&m, cost_profile_find("this-cpu"));
    return m;
}

/* A step of a mixed load, at 1,000 + 200 * tokens + 0.1 * attended. */
static double draw_step(struct rng *rng, double times, uint32_t *tokens, uint64_t *attended) {
    *tokens = 1 + (uint32_t)rng_below(rng, rng_below(rng, 4) ? 32 : 512);
    *attended = *tokens * rng_below(rng, 2000);
    return times * (1000 + 200.0 * *tokens + 0.1 * (double)*attended);
}

static void near(double got, double want, double share) {
    if (!(fabs(got - want) <= share * want)) fail_msg("%g is not near %g", got, want);
}

static void test_weights_are_found_from_mixed_steps(void **state) {
    (void)state;
    struct cost_model m = start();
    struct rng rng = {.seed = 1};
    for (int n = 0; n < 2000; n++) {
        uint32_t tokens;
        uint64_t attended;
        double us = draw_step(&rng, 1, &tokens, &attended);
        cost_observe(&m, tokens, attended, us * (0.95 + 0.1 * rng_unit(&rng)));
    }
    near(m.weight[0], 1000, 0.1);
    near(m.weight[1], 200, 0.05);
    near(m.weight[2], 0.1, 0.1);
    near(cost_predict_us(&m, 100, 50000), 26000, 0.03);
}

static void test_a_machine_that_slows_down_is_followed(void **state) {
    (void)state;
    struct cost_model m = start();
    struct rng rng = {.seed = 2};
    for (int n = 0; n < 2000; n++) {
        uint32_t tokens;
        uint64_t attended;
        double us = draw_step(&rng, n < 1000 ? 1 : 2, &tokens, &attended);
        cost_observe(&m, tokens, attended, us);
    }
    near(cost_predict_us(&m, 100, 50000), 52000, 0.05);
}

static void test_one_stalled_step_changes_predictions_little(void **state) {
    (void)state;
    struct cost_model m = start();
    for (int n = 0; n < 500; n++) cost_observe(&m, 8, 4000, 3000);
    double before = cost_predict_us(&m, 8, 4000);
    near(before, 3000, 0.02);
    cost_observe(&m, 8, 4000, 10e6);
    assert_true(cost_predict_us(&m, 8, 4000) < 1.5 * before);
    for (int n = 0; n < 300; n++) cost_observe(&m, 8, 4000, 3000);
    near(cost_predict_us(&m, 8, 4000), 3000, 0.02);
}

/* The same step for hours, then another: doubt must not have grown without limit meanwhile. */
static void test_a_long_monotonous_load_keeps_predictions_sane(void **state) {
    (void)state;
    struct cost_model m = start();
    for (int n = 0; n < 200000; n++) cost_observe(&m, 16, 16000, 20000 + (n % 7) * 100);
    for (uint32_t tokens = 1; tokens <= 512; tokens *= 2) {
        double us = cost_predict_us(&m, tokens, tokens * 1000);
        assert_true(isfinite(us));
        assert_true(us > 0);
    }
    for (int i = 0; i < 3; i++) assert_true(m.weight[i] > 0);
    near(cost_predict_us(&m, 16, 16000), 20300, 0.02);
}

static void test_nothing_is_learned_from_no_time(void **state) {
    (void)state;
    struct cost_model m = start(), before = m;
    cost_observe(&m, 8, 0, 0);
    cost_observe(&m, 8, 0, -5);
    cost_observe(&m, 8, 0, NAN);
    assert_memory_equal(&m, &before, sizeof(m));
}

static void test_tokens_within_is_the_largest_that_fits(void **state) {
    (void)state;
    struct cost_model m = start();
    struct rng rng = {.seed = 3};
    for (int n = 0; n < 2000; n++) {
        uint32_t held = (uint32_t)rng_below(&rng, 64), context = (uint32_t)rng_below(&rng, 3000);
        uint64_t attended = held * rng_below(&rng, 2000);
        double target = (double)rng_below(&rng, 1000000);
        uint32_t fit = cost_tokens_within(&m, target, held, attended, context, 512);
        uint32_t want = 0;
        while (want < 512 && cost_predict_us(&m, held + want + 1,
                                             attended + cost_attended(context, want + 1)) <= target)
            want++;
        assert_in_range(fit, want > 0 ? want - 1 : 0, want + 1);
    }
}

static void test_attended_counts_every_token_read(void **state) {
    (void)state;
    uint64_t sum = 0;
    for (uint32_t p = 10; p < 17; p++) sum += p + 1;
    assert_int_equal(cost_attended(10, 7), sum);
    assert_int_equal(cost_attended(0, 1), 1);
    assert_int_equal(cost_attended(5, 0), 0);
    assert_true(cost_attended(0, 65536) == 2147516416u); /* longer than 32 bits hold */
    assert_true(cost_attended(0, 1000000) == 500000500000u);
    assert_true(cost_attended(1000000, 1000000) == 1500000500000u);
}

static void test_the_cost_of_moves_is_learned(void **state) {
    (void)state;
    struct cost_model m = start();
    for (int n = 0; n < 200; n++) cost_observe_moves(&m, 10, 10 * 25);
    near(m.per_move_us, 25, 0.02);
    cost_observe_moves(&m, 0, 100);
    near(m.per_move_us, 25, 0.02);
}

static void test_profiles_are_found_by_name(void **state) {
    (void)state;
    assert_non_null(cost_profile_find("h200-8b"));
    assert_non_null(cost_profile_find("this-cpu"));
    assert_null(cost_profile_find("h200"));
}

/* ---- the table of rows ---- */

/* A device that computes rows in groups of four. */
static double grouped_us(uint32_t rows) { return 2000 + 500 * ((rows + 3) / 4); }

static void test_the_table_of_rows_learns_groups_that_the_model_cannot(void **state) {
    (void)state;
    struct cost_model m = start();
    struct cost_rows c = {0};
    struct rng rng = {.seed = 4};
    for (int n = 0; n < 20000; n++) {
        uint32_t rows = 1 + (uint32_t)rng_below(&rng, 40);
        uint64_t attended = rows * rng_below(&rng, 1000);
        double noise = n < 15000 && rng_below(&rng, 100) == 0 ? 5 : 0.95 + 0.1 * rng_unit(&rng);
        double us = grouped_us(rows) * noise + m.weight[2] * (double)attended;
        cost_rows_observe(&c, &m, rows, attended, us);
        if (n % 100 == 0) cost_rows_verify(&c);
    }
    for (uint32_t rows = 1; rows <= 40; rows++)
        near(cost_rows_predict_us(&c, &m, rows, 0), grouped_us(rows), 0.06);
    double first = cost_rows_predict_us(&c, &m, 4, 0), next = cost_rows_predict_us(&c, &m, 5, 0);
    near(next - first, 500, 0.4);
}

/* As if another program had taken the processor: seen once, and far longer than its neighbours. */
static void test_the_first_step_of_a_size_is_weighed_by_its_neighbours(void **state) {
    (void)state;
    struct cost_model m = start();
    struct cost_rows c = {0};
    for (uint32_t n = 0; n < 100; n++) cost_rows_observe(&c, &m, 8, 0, 6000);
    double expected = cost_rows_predict_us(&c, &m, 9, 0);
    cost_rows_observe(&c, &m, 9, 0, 100000);
    assert_true(cost_rows_predict_us(&c, &m, 9, 0) <= 2 * expected);
    cost_rows_verify(&c);
}

/* A time above the target is never measured again: it must come down by itself. */
static void test_a_wrong_time_of_more_rows_is_forgotten(void **state) {
    (void)state;
    struct cost_model m = start();
    struct cost_rows c = {0};
    for (uint32_t n = 0; n < 100; n++) cost_rows_observe(&c, &m, 3, 0, 4000);
    for (uint32_t n = 0; n < 100; n++) cost_rows_observe(&c, &m, 4, 0, 11000);
    double wrong = cost_rows_predict_us(&c, &m, 4, 0), by_model = 4000 + m.weight[1];
    assert_true(wrong > 10000);
    for (uint32_t n = 0; n < 1000; n++) cost_rows_observe(&c, &m, 3, 0, 4000);
    near(cost_rows_predict_us(&c, &m, 4, 0), by_model, 0.05);
    cost_rows_verify(&c);
}

/* Single steps are longer than they should be, never shorter. */
static void test_interrupted_steps_count_little_in_the_table_of_rows(void **state) {
    (void)state;
    struct cost_model m = start();
    struct cost_rows c = {0};
    for (uint32_t n = 0; n < 2000; n++) cost_rows_observe(&c, &m, 4, 0, n % 10 ? 5000 : 30000);
    near(cost_rows_predict_us(&c, &m, 4, 0), 5000, 0.1);
    for (uint32_t n = 0; n < 200; n++) cost_rows_observe(&c, &m, 4, 0, 9000); /* slow from now on */
    near(cost_rows_predict_us(&c, &m, 4, 0), 9000, 0.05);
}

static void test_the_table_of_rows_fills_its_gaps(void **state) {
    (void)state;
    struct cost_model m = start();
    struct cost_rows c = {0};
    double by_model = cost_predict_us(&m, 8, 0);
    near(cost_rows_predict_us(&c, &m, 8, 0), by_model, 1e-9); /* nothing was measured */
    cost_rows_observe(&c, &m, 0, 0, 100);
    cost_rows_observe(&c, &m, COST_ROWS_MAX + 1, 0, 1e6); /* neither is kept */
    near(cost_rows_predict_us(&c, &m, 8, 0), by_model, 1e-9);
    cost_rows_observe(&c, &m, 4, 0, 1000);
    cost_rows_observe(&c, &m, 8, 0, 3000);
    near(cost_rows_predict_us(&c, &m, 6, 0), 2000, 1e-9);
    near(cost_rows_predict_us(&c, &m, 10, 0), 3000 + 2 * m.weight[1], 1e-9);
    near(cost_rows_predict_us(&c, &m, COST_ROWS_MAX + 5, 0),
         3000 + (COST_ROWS_MAX - 3) * m.weight[1], 1e-9);
    cost_rows_observe(&c, &m, 96, 0, 8000); /* rows of 32 sequences with two drafts each */
    near(cost_rows_predict_us(&c, &m, 96, 0), 8000, 1e-9);
    cost_rows_observe(&c, &m, 2, 0, 9000); /* more rows do not take less */
    cost_rows_verify(&c);
    assert_true(cost_rows_predict_us(&c, &m, 8, 0) >= cost_rows_predict_us(&c, &m, 2, 0));
    cost_rows_observe(&c, &m, 1, 0, -5); /* a time below the price of attention */
    assert_true(cost_rows_predict_us(&c, &m, 1, 0) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_are_found_from_mixed_steps),
        cmocka_unit_test(test_a_machine_that_slows_down_is_followed),
        cmocka_unit_test(test_one_stalled_step_changes_predictions_little),
        cmocka_unit_test(test_a_long_monotonous_load_keeps_predictions_sane),
        cmocka_unit_test(test_nothing_is_learned_from_no_time),
        cmocka_unit_test(test_tokens_within_is_the_largest_that_fits),
        cmocka_unit_test(test_attended_counts_every_token_read),
        cmocka_unit_test(test_the_cost_of_moves_is_learned),
        cmocka_unit_test(test_profiles_are_found_by_name),
        cmocka_unit_test(test_the_table_of_rows_learns_groups_that_the_model_cannot),
        cmocka_unit_test(test_the_first_step_of_a_size_is_weighed_by_its_neighbours),
        cmocka_unit_test(test_a_wrong_time_of_more_rows_is_forgotten),
        cmocka_unit_test(test_interrupted_steps_count_little_in_the_table_of_rows),
        cmocka_unit_test(test_the_table_of_rows_fills_its_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
