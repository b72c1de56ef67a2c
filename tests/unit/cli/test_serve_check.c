/* Goal:   only addresses of this machine pass as loopback.
 * Method: every way of writing one, and what looks like one and is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cli/serve_check.h"

static void test_loopback_in_every_spelling(void **state) {
    (void)state;
    static const char *const local[] = {
        "127.0.0.1",        "127.1.2.3",         "::1", "[::1]", "localhost",
        "::ffff:127.0.0.1", "[::ffff:127.5.5.5]"};
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        if (!host_is_loopback(local[i])) fail_msg("%s", local[i]);
}

static void test_all_else_is_open(void **state) {
    (void)state;
    static const char *const open[] = {"0.0.0.0",       "::",        "[::]",
                                       "192.168.0.1",   "128.0.0.1", "1.127.0.0",
                                       "127.0.0.1.com", "example",   "localhost.evil",
                                       "::2",           "",          "127",
                                       "0177.0.0.1",    "[",         "::ffff:10.0.0.1",
                                       "fe80::1",       "127.0.0.1 "};
    for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++)
        if (host_is_loopback(open[i])) fail_msg("%s", open[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loopback_in_every_spelling),
        cmocka_unit_test(test_all_else_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
