/* Goal:   sizes are written for people: decimal units, three significant digits.
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

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_sizes_are_written_for_people),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
