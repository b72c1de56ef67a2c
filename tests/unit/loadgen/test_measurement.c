/* Goal:   times and rates are those of their definitions; percentiles keep to their error bound;
 *         JSON and table have the same numbers.
 * Method: percentiles of seeded values against sorting them; a few results with round numbers whose
 *         sums are known. */
#include <setjmp.h> /* cmocka */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "loadgen/measurement.h"

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void test_percentiles_are_within_a_hundredth_of_sorting(void **state) {
    (void)state;
    enum { VALUES = 5000 };
    static const double shares[] = {0.0, 0.01, 0.5, 0.9, 0.99, 1.0};
    static int64_t values[VALUES];
    struct rng rng = {.seed = 3};
    for (uint32_t scale = 4; scale < 40; scale += 5) {
        struct hist *h = mem_zalloc(sizeof(*h));
        for (uint32_t i = 0; i < VALUES; i++) {
            values[i] = (int64_t)rng_below(&rng, (uint64_t)1 << scale);
            hist_add(h, values[i]);
        }
        qsort(values, VALUES, sizeof(values[0]), by_value);
        for (uint32_t k = 0; k < sizeof(shares) / sizeof(shares[0]); k++) {
            double rank = shares[k] * VALUES;
            uint32_t at = rank < 1.0 ? 0 : (uint32_t)rank - 1;
            double exact = (double)values[at] / 1000.0, got = hist_at_ms(h, shares[k]);
            assert_true(got >= exact);
            assert_true(got <= exact * 1.008 + 1e-9);
        }
        mem_free(h);
    }
}

static void test_an_empty_histogram_is_zero(void **state) {
    (void)state;
    struct hist *h = mem_zalloc(sizeof(*h));
    assert_true(hist_mean_ms(h) == 0.0);
    assert_true(hist_at_ms(h, 0.99) == 0.0);
    hist_add(h, -5);
    hist_add(h, INT64_MAX);
    assert_int_equal(h->min_us, 0);
    assert_int_equal(h->count, 2);
    mem_free(h);
}

/* Two requests of 11 and 1 tokens, one without usage, in two seconds. */
static struct measurement *some_measure(void) {
    struct measurement *m = mem_zalloc(sizeof(*m));
    m->clients = 2;
    m->begun_us = 1000000;
    m->ended_us = 3000000;
    m->cpu_s = 0.1;
    measurement_add(m, &(struct request_result){.status = 200,
                                                .has_usage = true,
                                                .prompt_tokens = 100,
                                                .output_tokens = 11,
                                                .text_events = 9,
                                                .begun_us = 1000000,
                                                .first_us = 1010000,
                                                .last_us = 1110000});
    measurement_add(m, &(struct request_result){.status = 200,
                                                .text_events = 1,
                                                .begun_us = 1000000,
                                                .first_us = 1030000,
                                                .last_us = 1030000});
    return m;
}

static void test_tpot_leaves_the_first_token_out(void **state) {
    (void)state;
    struct measurement *m = some_measure();
    assert_int_equal(m->tpot.count, 1); /* one token has no time between tokens */
    assert_true(hist_mean_ms(&m->tpot) == 10.0);
    assert_true(hist_mean_ms(&m->ttft) == 20.0);
    assert_true(hist_mean_ms(&m->e2e) == 70.0);
    assert_int_equal(m->output_tokens, 12);
    assert_int_equal(m->uncounted, 1);
    mem_free(m);
}

static void test_json_has_the_measured_numbers(void **state) {
    (void)state;
    struct measurement *m = some_measure();
    struct buf b;
    struct json *doc = NULL;
    struct err err = {0};
    buf_init(&b, 1 << 16);
    measurement_add_failure(m, &(struct request_result){.status = 429}, "slow \"down\"");
    measurement_add_failure(m, &(struct request_result){.status = 429}, "again");
    measurement_add_failure(m, &(struct request_result){0}, "no connection");
    measurement_put_json(m, &b);
    assert_int_equal(json_parse(buf_str(&b), &json_limits_request, &doc, &err), ST_OK);
    assert_int_equal(json_int(json_get(doc, "completed"), 0), 2);
    assert_int_equal(json_int(json_get(doc, "failed"), 0), 3);
    assert_true(json_num(json_get(doc, "output_throughput"), 0) == 6.0);
    assert_true(json_num(json_get(doc, "client_cpu_share"), 0) == 0.05);
    const struct json *first = json_at(json_get(doc, "failures"), 0);
    assert_int_equal(json_int(json_get(first, "count"), 0), 2);
    assert_true(str_is(json_str(json_get(first, "why")), "slow \"down\""));
    json_destroy(doc);
    buf_deinit(&b);
    mem_free(m);
}

static void test_more_statuses_than_rows_are_still_counted(void **state) {
    (void)state;
    struct measurement *m = mem_zalloc(sizeof(*m));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 50; i++)
        measurement_add_failure(m, &(struct request_result){.status = 400 + i}, "why");
    for (uint32_t i = 0; i < m->reasons; i++) sum += m->failures[i].count;
    assert_int_equal(m->reasons, MEASUREMENT_REASONS);
    assert_int_equal(sum, 50);
    mem_free(m);
}

static void test_the_table_has_the_lines_that_scripts_look_for(void **state) {
    (void)state;
    static const char *const lines[] = {
        "Successful requests:                     2 ",
        "Benchmark duration (s):                  2.00",
        "Total generated tokens:                  12",
        "Output token throughput (tok/s):         6.00",
        "Mean TTFT (ms):                          20.00",
        "Mean TPOT (ms):                          10.00",
        "Median ITL (ms):                         0.00",
        "P99 E2EL (ms):                           110.00",
    };
    struct measurement *m = some_measure();
    struct buf b;
    buf_init(&b, 1 << 16);
    measurement_put_table(m, &b);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        assert_non_null(strstr(buf_text(&b), lines[i]));
    buf_deinit(&b);
    mem_free(m);
}

static void test_a_run_in_which_all_failed_prints_no_times(void **state) {
    (void)state;
    struct measurement *m = mem_zalloc(sizeof(*m));
    struct buf b;
    buf_init(&b, 1 << 16);
    measurement_add_failure(m, &(struct request_result){.status = 400}, "too long");
    measurement_put_table(m, &b);
    assert_non_null(strstr(buf_text(&b), "1 x status 400: too long"));
    assert_null(strstr(buf_text(&b), "TTFT"));
    buf_deinit(&b);
    mem_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles_are_within_a_hundredth_of_sorting),
        cmocka_unit_test(test_an_empty_histogram_is_zero),
        cmocka_unit_test(test_tpot_leaves_the_first_token_out),
        cmocka_unit_test(test_json_has_the_measured_numbers),
        cmocka_unit_test(test_more_statuses_than_rows_are_still_counted),
        cmocka_unit_test(test_the_table_has_the_lines_that_scripts_look_for),
        cmocka_unit_test(test_a_run_in_which_all_failed_prints_no_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
