/* Goal:   a file of tools gives names, commands and the list for requests; the example of this tree
 *         is one; a file cut at any byte is refused with its name and leaks nothing.
 * Method: the example read through the public functions; then every beginning of it. What each kind
 *         of mistake is answered with is tested from outside (tests/e2e/test_chat_tools.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/tools_file.h"

#define EXAMPLE TEST_SOURCE_DIR "/../examples/tools.json"

static void test_the_example_is_read(void **state) {
    (void)state;
    struct tool_set *set = NULL;
    struct err err = {0};
    assert_int_equal(tools_file_load(EXAMPLE, &set, &err), ST_OK);
    assert_int_equal(tool_set_count(set), 2);
    assert_null(tool_set_at(set, 2));
    assert_null(tool_set_find(set, STR("no")));
    const struct tool *now = tool_set_find(set, STR("now"));
    assert_ptr_equal(now, tool_set_at(set, 0));
    assert_string_equal(now->command[0], "date");
    assert_string_equal(now->command[1], "-u");
    assert_null(now->command[3]);
    assert_false(now->is_allowed);

    struct json *wire = NULL;
    assert_int_equal(json_parse(tool_set_json(set), &json_limits_request, &wire, &err), ST_OK);
    assert_int_equal(json_count(wire), 2);
    const struct json *function = json_get(json_at(wire, 1), "function");
    assert_true(str_is(json_str(json_get(function, "name")), "calculate"));
    assert_int_equal(json_kind(json_path(function, "parameters.properties.expression")), JS_MAP);
    assert_null(json_get(function, "command"));
    json_destroy(wire);
    tool_set_destroy(set);
}

static void test_every_beginning_of_a_file_is_refused(void **state) {
    (void)state;
    char path[] = "/tmp/jitney_tools_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct buf text;
    buf_init(&text, 1 << 20);
    assert_int_equal(file_read(EXAMPLE, &text, NULL), ST_OK);
    const size_t last = str_trim(buf_str(&text)).len;
    for (size_t len = 0; len < last; len++) {
        struct tool_set *set = NULL;
        struct err err = {0};
        assert_int_equal(file_write_atomic(path, str_take(buf_str(&text), len), &err), ST_OK);
        assert_int_equal(tools_file_load(path, &set, &err), ST_BAD);
        assert_null(set);
        assert_ptr_equal(strstr(err.text, path), err.text);
    }
    buf_deinit(&text);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_example_is_read),
        cmocka_unit_test(test_every_beginning_of_a_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
