/* Goal:   the pace is the 95th percentile of TPOT without lines, whatever lines have added to the
 *         requests that were measured.
 * Method: random times against a sorted copy; requests that share a processor, as a formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "sched/line_pace.h"

static void observe(struct line_pace *p, double us) {
    line_pace_observe(p, us, 0, 1000);
    line_pace_verify(p);
}

static int compare(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void test_one_request_in_twenty_exceeds_the_pace(void **state) {
    (void)state;
    struct line_pace p = {0};
    struct rng rng = {.seed = 1};
    double all[500];
    for (uint32_t n = 0; n < 500; n++) {
        all[n] = 1000 + (double)rng_below(&rng, 5000);
        observe(&p, all[n]);
        uint32_t count = n + 1 < LINE_PACE_REQUESTS ? n + 1 : LINE_PACE_REQUESTS;
        if (count < LINE_PACE_MIN) continue;
        double last[LINE_PACE_REQUESTS];
        memcpy(last, all + n + 1 - count, count * sizeof(last[0]));
        qsort(last, count, sizeof(last[0]), compare);
        assert_true(line_pace_us(&p) == last[count - 1 - count / LINE_PACE_TAIL]);
    }
}

static void test_few_requests_have_no_pace(void **state) {
    (void)state;
    struct line_pace p = {0};
    for (uint32_t n = 1; n < LINE_PACE_MIN; n++) observe(&p, 5000);
    assert_true(line_pace_us(&p) == 0);
    observe(&p, 5000);
    assert_true(line_pace_us(&p) == 5000);
}

static void test_requests_of_long_ago_do_not_count(void **state) {
    (void)state;
    struct line_pace p = {0};
    for (uint32_t n = 0; n < LINE_PACE_REQUESTS; n++) observe(&p, 9000);
    for (uint32_t n = 0; n < LINE_PACE_REQUESTS; n++) observe(&p, 2000);
    assert_true(line_pace_us(&p) == 2000);
}

static void test_one_slow_request_does_not_set_the_pace(void **state) {
    (void)state;
    struct line_pace p = {0};
    for (uint32_t n = 0; n < LINE_PACE_MIN; n++) observe(&p, n == 7 ? 1e9 : 3000);
    assert_true(line_pace_us(&p) == 3000);
}

/* A token takes `alone`, lines add to it, and others take a share of all time. */
static void test_what_lines_add_does_not_raise_the_pace(void **state) {
    (void)state;
    for (double others = 0; others < 0.9; others += 0.2) {
        for (double added = 0; added < 10000; added += 700) {
            struct line_pace p = {0};
            const double alone = 2000, us = (alone + added) / (1 - others);
            for (uint32_t n = 0; n < LINE_PACE_MIN; n++) line_pace_observe(&p, us, added, alone);
            const double error = line_pace_us(&p) * (1 - others) / alone - 1;
            assert_true(error < 1e-9);
            assert_true(error > -1e-9);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_request_in_twenty_exceeds_the_pace),
        cmocka_unit_test(test_few_requests_have_no_pace),
        cmocka_unit_test(test_requests_of_long_ago_do_not_count),
        cmocka_unit_test(test_one_slow_request_does_not_set_the_pace),
        cmocka_unit_test(test_what_lines_add_does_not_raise_the_pace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
