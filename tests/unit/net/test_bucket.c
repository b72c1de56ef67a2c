/* Goal:   what a peer may do so often a second is counted exactly, however it is spread over time.
 * Method: a bucket and a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/http_int.h"

enum { PER_S = 20, BURST = 200 };

static void test_a_burst_fills_it_and_the_next_one_overflows(void **state) {
    (void)state;
    struct bucket b = {.at_ms = 1000};
    for (int i = 0; i < BURST; i++) assert_false(bucket_add(&b, 1000, PER_S, BURST));
    assert_true(bucket_add(&b, 1000, PER_S, BURST));
}

static void test_it_leaks_with_time_and_never_below_empty(void **state) {
    (void)state;
    struct bucket b = {.at_ms = 0};
    for (int i = 0; i < BURST; i++) assert_false(bucket_add(&b, 0, PER_S, BURST));
    for (int i = 0; i < PER_S; i++) assert_false(bucket_add(&b, 1000, PER_S, BURST));
    assert_true(bucket_add(&b, 1000, PER_S, BURST));
    for (int i = 0; i < BURST; i++) assert_false(bucket_add(&b, 1000000, PER_S, BURST));
    assert_true(bucket_add(&b, 1000000, PER_S, BURST));
}

/* Below the rate it never overflows, above it does: adds come in groups of four, 10 ms apart. Time
 * that is too short for one to leak is not lost. */
static void test_groups_are_counted_by_their_mean_rate(void **state) {
    (void)state;
    static const struct {
        int64_t pause_ms;
        bool overflows;
    } cases[] = {{171, false}, {168, true}}; /* 19.9 and 20.2 a second */
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct bucket b = {.at_ms = 0};
        bool has_overflown = false;
        int64_t now_ms = 0;
        for (int i = 0; i < 100000; i++) {
            now_ms += i % 4 == 0 ? cases[c].pause_ms : 10;
            has_overflown |= bucket_add(&b, now_ms, PER_S, BURST);
        }
        assert_int_equal(has_overflown, cases[c].overflows);
    }
}

static void test_what_is_removed_does_not_count(void **state) {
    (void)state;
    struct bucket b = {.at_ms = 0};
    for (int i = 0; i < 10 * BURST; i++) {
        assert_false(bucket_add(&b, 0, PER_S, BURST));
        bucket_remove(&b);
    }
    bucket_remove(&b); /* of an empty one: nothing */
    for (int i = 0; i < BURST; i++) assert_false(bucket_add(&b, 0, PER_S, BURST));
    assert_true(bucket_add(&b, 0, PER_S, BURST));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_burst_fills_it_and_the_next_one_overflows),
        cmocka_unit_test(test_it_leaks_with_time_and_never_below_empty),
        cmocka_unit_test(test_groups_are_counted_by_their_mean_rate),
        cmocka_unit_test(test_what_is_removed_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
