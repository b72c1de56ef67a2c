/* Goal:   sizes are written for people: decimal units, three significant digits; and
 *         read as they write them.
 * Method: a table with both sides of each rounding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/size_text.h"

static void test_sizes_are_written_for_people(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {{0, "0 B"},           {999, "999 B"},         {1000, "1.00 kB"},
                {999499, "999 kB"},   {999500, "1.00 MB"},    {98362432, "98.4 MB"},
                {99950000, "100 MB"}, {UINT64_MAX, "18.4 EB"}};
    char text[SIZE_TEXT_BYTES];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(size_text(rows[i].bytes, text), rows[i].text);
}

static void test_sizes_are_read_as_people_write_them(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {{"0", 0},
                {"73400320", 73400320},
                {"70MB", 70000000},
                {"70 mb", 70000000},
                {"1.5GiB", 1610612736},
                {" 2kb ", 2000},
                {"2KiB", 2048},
                {"0.5TB", 500000000000},
                {"7.B", 7},
                {"9007199254740993", 9007199254740993},
                {"9223372036854775808", (uint64_t)1 << 63}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t bytes;
        if (!size_parse(str_of(rows[i].text), &bytes)) fail_msg("\"%s\"", rows[i].text);
        assert_int_equal(bytes, rows[i].bytes);
    }
}

static void test_what_is_no_size_is_refused(void **state) {
    (void)state;
    static const char *const rows[] = {
        "",      " ",      "MB",        "-1",  "+1",   "1e6",
        "70M",   "70 M B", "1.2.3MB",   "inf", "nan",  "0x10",
        "7,5MB", ".5GB",   "70MBs",     "1 2", "\xff", "9223372036854775809",
        "1..",   "9e99MB", "99999999TB"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t bytes;
        if (size_parse(str_of(rows[i]), &bytes)) fail_msg("\"%s\"", rows[i]);
    }
    uint64_t bytes;
    assert_false(size_parse((struct str){"7\0B", 3}, &bytes));
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_sizes_are_written_for_people),
        cmocka_unit_test(test_sizes_are_read_as_people_write_them),
        cmocka_unit_test(test_what_is_no_size_is_refused),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
