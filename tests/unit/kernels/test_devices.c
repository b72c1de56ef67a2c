/* Goal:   a device that cannot have fp8 weights says so, and what to do, before anything is loaded.
 * Method: devices of the host, by their names and by "auto"; with the flag and without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "graph/device.h"
#include "kernels/devices.h"

static void test_fp8_weights_are_refused_on_the_host(void **state) {
    (void)state;
    static const char *const names[] = {"cpu", "delayed"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct device_options o = {.name = names[i], .threads = 1, .fp8_weights = true};
        struct device dev;
        struct err err = {{0}};
        assert_int_equal(device_open(&o, &dev, &err), ST_BAD);
        assert_non_null(strstr(err.text, "--weights fp8 needs an NVIDIA H100 or H200"));
        assert_non_null(strstr(err.text, names[i]));
        assert_non_null(strstr(err.text, "--weights auto"));
    }
}

static void test_the_host_opens_without_fp8_weights(void **state) {
    (void)state;
    struct device_options o = {.name = "cpu", .threads = 1};
    struct device dev;
    struct err err = {{0}};
    assert_int_equal(device_open(&o, &dev, &err), ST_OK);
    dev.close(dev.self);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp8_weights_are_refused_on_the_host),
        cmocka_unit_test(test_the_host_opens_without_fp8_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
