/* Goal:   what is printed is Prometheus' text format and says what was counted.
 * Method: a strict little reader of that format, which refuses what the format does not allow,
 *         on pages with every kind of metric; then exact texts for the edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "metrics/metrics.h"
#include "unit/metrics/exposition.h"

static void print(const struct metrics *m, struct buf *out) {
    buf_init(out, 1 << 16);
    metrics_print(m, out);
    assert_int_equal(buf_status(out), ST_OK);
}

static void test_counters_and_gauges_have_help_type_and_values(void **state) {
    (void)state;
    struct metrics *m;
    struct buf out;
    assert_int_equal(metrics_create(&m), ST_OK);
    struct counter *a = metrics_counter(m, "a_total", "", "Counts a.");
    struct gauge *g = metrics_gauge(m, "g", "x=\"1\"", "Says g.");
    struct counter *b = metrics_counter(m, "a_total", "k=\"v\"", "ignored");
    counter_add(a, 2);
    counter_add(a, 0.5);
    counter_set(b, 1e15);
    gauge_set(g, -3);
    print(m, &out);
    assert_string_equal(buf_text(&out), "# HELP a_total Counts a.\n"
                                        "# TYPE a_total counter\n"
                                        "a_total 2.5\n"
                                        "a_total{k=\"v\"} 1e+15\n"
                                        "# HELP g Says g.\n"
                                        "# TYPE g gauge\n"
                                        "g{x=\"1\"} -3\n");
    exposition_check(buf_text(&out));
    buf_deinit(&out);
    metrics_destroy(m);
}

static void test_a_value_on_a_bound_is_in_its_bucket(void **state) {
    (void)state;
    struct metrics *m;
    struct buf out;
    const double bounds[] = {0.1, 1, 10};
    assert_int_equal(metrics_create(&m), ST_OK);
    struct histogram *h = metrics_histogram(m, "h", "m=\"x\"", "H.", bounds, 3);
    histogram_observe(h, 0.1, 1);
    histogram_observe(h, 0.5, 3);
    histogram_observe(h, 10, 1);
    histogram_observe(h, 11, 1);
    print(m, &out);
    assert_string_equal(buf_text(&out), "# HELP h H.\n"
                                        "# TYPE h histogram\n"
                                        "h_bucket{m=\"x\",le=\"0.1\"} 1\n"
                                        "h_bucket{m=\"x\",le=\"1\"} 4\n"
                                        "h_bucket{m=\"x\",le=\"10\"} 5\n"
                                        "h_bucket{m=\"x\",le=\"+Inf\"} 6\n"
                                        "h_sum{m=\"x\"} 22.6\n"
                                        "h_count{m=\"x\"} 6\n");
    exposition_check(buf_text(&out));
    const uint64_t counts[] = {1, 0, 2, 4};
    histogram_set(h, counts, 99);
    buf_clear(&out);
    metrics_print(m, &out);
    assert_true(exposition_value(buf_text(&out), "h_bucket{m=\"x\",le=\"10\"}") == 3);
    assert_true(exposition_value(buf_text(&out), "h_count{m=\"x\"}") == 7);
    assert_true(exposition_value(buf_text(&out), "h_sum{m=\"x\"}") == 99);
    buf_deinit(&out);
    metrics_destroy(m);
}

static void test_numbers_keep_every_bit(void **state) {
    (void)state;
    struct metrics *m;
    struct buf out;
    const double values[] = {0.1, 1.0 / 3, 123456789.125, 9007199254740991.0, 5e-324, -0.0};
    assert_int_equal(metrics_create(&m), ST_OK);
    struct gauge *g = metrics_gauge(m, "g", "", "G.");
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        gauge_set(g, values[i]);
        print(m, &out);
        exposition_check(buf_text(&out));
        assert_true(exposition_value(buf_text(&out), "g") == values[i]);
        buf_deinit(&out);
    }
    gauge_set(g, INFINITY);
    print(m, &out);
    assert_non_null(strstr(buf_text(&out), "\ng +Inf\n"));
    buf_deinit(&out);
    gauge_set(g, NAN);
    print(m, &out);
    assert_non_null(strstr(buf_text(&out), "\ng NaN\n"));
    buf_deinit(&out);
    metrics_destroy(m);
}

static void test_labels_and_help_are_escaped(void **state) {
    (void)state;
    struct buf label;
    buf_init(&label, 1000);
    metrics_put_label(&label, "model_name", "a\"b\\c\nd\xFF\xC3\xA9");
    assert_string_equal(buf_text(&label), "model_name=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\xC3\xA9\"");
    struct metrics *m;
    struct buf out;
    assert_int_equal(metrics_create(&m), ST_OK);
    metrics_gauge(m, "g", buf_text(&label), "A \\ and\na line.");
    print(m, &out);
    assert_non_null(strstr(buf_text(&out), "# HELP g A \\\\ and\\na line.\n"));
    exposition_check(buf_text(&out));
    buf_deinit(&out);
    buf_deinit(&label);
    metrics_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters_and_gauges_have_help_type_and_values),
        cmocka_unit_test(test_a_value_on_a_bound_is_in_its_bucket),
        cmocka_unit_test(test_numbers_keep_every_bit),
        cmocka_unit_test(test_labels_and_help_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
