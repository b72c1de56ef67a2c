/* Goal:   the progress bar shows true numbers within the width of the terminal.
 * Method: the line for given states and widths; reports of two transfers in a row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "cli/progress_bar.h"

static void test_the_bar_shows_share_rate_and_time_left_within_the_width(void **state) {
    (void)state;
    struct progress_bar p = {.label = "tiny", .total_bytes = 1000000, .done_bytes = 250000};
    char line[512];
    progress_bar_render(&p, 1000000, 80, line, sizeof(line));
    assert_non_null(strstr(line, "[######---"));
    assert_non_null(strstr(line, " 25%  250 kB of 1.00 MB  250 kB/s  3 s left"));
    for (uint32_t columns = 1; columns < 120; columns++) {
        progress_bar_render(&p, 1000000, columns, line, sizeof(line));
        assert_true(strlen(line) < columns);
    }
    p.total_bytes = 0;
    progress_bar_render(&p, 1000000, 80, line, sizeof(line));
    assert_string_equal(line, "tiny  250 kB  250 kB/s");
    p.total_bytes = 10000000000;
    progress_bar_render(&p, 1000000, 0, line, sizeof(line));
    assert_non_null(strstr(line, "11 h 06 min left"));
    p = (struct progress_bar){.bar = true};
    progress_bar_begin_share(&p, "loading");
    p.shown_us = INT64_MAX / 2; /* never the time to draw */
    progress_bar_on_load(&p, "weights", 0.425);
    progress_bar_render(&p, p.began_us, 0, line, sizeof(line));
    assert_string_equal(line, "loading  42%");
}

static void test_work_that_counts_lines_shows_its_own_text(void **state) {
    (void)state;
    struct progress_bar p = {.bar = true};
    char line[512];
    progress_bar_begin(&p, "batch", 200, 50);
    p.shown_us = INT64_MAX / 2; /* never the time to draw */
    progress_bar_update_text(&p, 100, "100 of 200 lines  5.0 lines/s");
    progress_bar_render(&p, p.began_us, 80, line, sizeof(line));
    assert_non_null(strstr(line, "###-"));
    assert_non_null(strstr(line, "]   50%  100 of 200 lines  5.0 lines/s"));
    for (uint32_t columns = 1; columns < 120; columns++) {
        progress_bar_render(&p, p.began_us, columns, line, sizeof(line));
        assert_true(strlen(line) < columns);
    }
    progress_bar_begin(&p, "other", 10, 0); /* the text is not that of later work */
    progress_bar_render(&p, p.began_us, 0, line, sizeof(line));
    assert_string_equal(line, "other  0%  0 B of 10 B");
}

/* A transfer that continues an earlier one must not count the earlier bytes in its rate. */
static void test_each_transfer_begins_its_own_bar(void **state) {
    (void)state;
    struct progress_bar bar = {.lines = true};
    struct progress p = {.report = progress_bar_on_transfer, .ctx = &bar};
    progress_begin(&p, "first", 100);
    assert_string_equal(bar.label, "first");
    progress_update(&p, 40);
    assert_int_equal(bar.done_bytes, 40);
    assert_int_equal(bar.total_bytes, 100);
    progress_set_total(&p, 200);
    progress_update(&p, 50);
    assert_int_equal(bar.total_bytes, 200);
    progress_end(&p);
    progress_begin(&p, "second", 0);
    assert_string_equal(bar.label, "second");
    assert_int_equal(bar.done_bytes, 0);
    assert_int_equal(bar.total_bytes, 0);
    progress_end(&p);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_the_bar_shows_share_rate_and_time_left_within_the_width),
        cmocka_unit_test(test_work_that_counts_lines_shows_its_own_text),
        cmocka_unit_test(test_each_transfer_begins_its_own_bar),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
