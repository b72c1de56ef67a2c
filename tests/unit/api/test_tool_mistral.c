/* Goal:   mistral: calls are found, other text stays text, malformed calls come as they were
 *         written, and the events do not depend on how the text is cut.
 * Method: a table of texts and their events, each cut in every way (unit/api/tool_cases.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/api/tool_cases.h"

static const struct tool_case cases[] = {
    {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "{f|{\"a\": 1}}"},
    {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"arguments\": {\"b\": []}, \"name\": "
     "\"add\", \"id\": \"abc123def\"}]",
     "{f|{}}{add|{\"b\": []}}"},
    {"Wait. [TOOL_CALLS]f[ARGS]{\"a\": \"[\"}", "Wait. {f|{\"a\": \"[\"}}"},
    {"[TOOL_CALLS]f{\"a\": {\"b\": 1}}", "{f|{\"a\": {\"b\": 1}}}"},
    {"[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{}", "{f|{}}"},
    {"[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{\"c\": 2}",
     "{f|{}}{get_weather|{\"c\": 2}}"},
    {"[TOOL_CALLS]f [ARGS] {}\n", "{f|{}}"},
    {"[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}", "{f|{}}"},
    {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}] bye", "{f|{}} bye"},
    {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, 5]", "{f|{}}5]"},
    {"[TOOL_CALLS][]", "[TOOL_CALLS][]"},
    {"[TOOL_CALLS]bob[ARGS]{}", "[TOOL_CALLS]bob[ARGS]{}"},
    {"[TOOL_CALLS]f[ARG]{}", "{f|[ARG]{}}"},
    {"[TOOL_CALLS]f[ARGS]{\"a\": tr", "{f|{\"a\": tr}"},
    {"[TOOL_CALLS]f[AR", "{f|}"},
    {"see [1] and [2], [TOOL", "see [1] and [2], [TOOL"},
    {"[[TOOL_CALLS]f{}", "[{f|{}}"},
    {"[TOOL_CALLS]?", "[TOOL_CALLS]?"},
    {"[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{\"a\": "
     "1}[TOOL_CALLS]add[CALL_ID]abc123dee[ARGS]{\"x\": 2}",
     "{f|{\"a\": 1}}{add|{\"x\": 2}}"},
    {"[TOOL_CALLS]f[CALL_ID]abc{\"a\": 1}", "{f|{\"a\": 1}}"},
    {"[TOOL_CALLS]f[CALL_ID]abc", "{f|}"},
    {"[TOOL_CALLS]f[CALL_ID]abc x", "{f|x}"},
    {"[TOOL_CALLS]f[ARGS]null", "{f|null}"},
    {"[TOOL_CALLS]f[ARGS][1, \"]\"] x", "{f|[1, \"]\"]} x"},
    {"[TOOL_CALLS]f[ARGS]\"a\" x", "{f|\"a\"} x"},
    {"[TOOL_CALLS]f[ARGS]{\"a\": [1, 2", "{f|{\"a\": [1, 2}"},
    {"[TOOL_CALLS]f[ARGS", "{f|}"},
    {"[TOOL_CALLS]f[ARGS]", "{f|}"},
    {"[TOOL_CALLS]f", "[TOOL_CALLS]f"},
    {"[TOOL_CALLS]f is a tool", "[TOOL_CALLS]f is a tool"},
    {"[TOOL_CALLS]get_weather-2[ARGS]{}", "[TOOL_CALLS]get_weather-2[ARGS]{}"},
    {"[TOOL_CALLS][{\"name\": \"f\"", "{f|}"},
    {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": [1]}]", "{f|[1]}"},
    {"[TOOL_CALLS][{\"name\": \"f\" }, {\"name\": \"add\", \"arguments\": {}}]", "{f|{}}{add|{}}"},
    {"[TOOL_CALLS][{\"name\": \"f\": 1}] x", "{f|: 1}] x}"},
    {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {} 5}] x", "{f|{}}5}] x"},
    {"[TOOL_CALLS][{\"name\": \"rm\", \"arguments\": {}}]",
     "[TOOL_CALLS][{\"name\": \"rm\", \"arguments\": {}}]"},
    {"[TOOL_CALLS][ {\"name\": \"f\", \"arguments\": {\"a\": \"\303\251\\\"]\"}, \"id\": "
     "\"123456789\"} ]",
     "{f|{\"a\": \"\303\251\\\"]\"}}"},
    {"Hi. [TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]\n[TOOL_CALLS][{\"name\": \"add\", "
     "\"arguments\": {}}] bye",
     "Hi. {f|{}}{add|{}} bye"},
    {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}},", "{f|{}}"},
    {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}", "{f|{}}"},
    {"a [TOOL_CALL] b [TOOL_CALLS ] c", "a [TOOL_CALL] b [TOOL_CALLS ] c"},
    {"[TOOL_CALLS][TOOL_CALLS]f{}", "[TOOL_CALLS][TOOL_CALLS]f{}"},
};

static void test_calls_are_found_in_any_cut(void **state) {
    (void)state;
    tool_cases_check("mistral", cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_a_long_argument_is_passed_on(void **state) {
    (void)state;
    tool_case_check_long("mistral", "[TOOL_CALLS]f[ARGS]{\"s\": \"", "\"}");
}

static void test_many_calls_are_passed_on(void **state) {
    (void)state;
    tool_case_check_many("mistral", "[TOOL_CALLS][", "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
                         ", ", "]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_found_in_any_cut),
        cmocka_unit_test(test_a_long_argument_is_passed_on),
        cmocka_unit_test(test_many_calls_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
