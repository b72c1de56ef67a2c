/* Goal:   json: calls are found, other text stays text, malformed calls come as they were
 *         written, and the events do not depend on how the text is cut.
 * Method: a table of texts and their events, each cut in every way (unit/api/tool_cases.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/api/tool_cases.h"

static const struct tool_case cases[] = {
    {"{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "{f|{\"a\": 1}}"},
    {" \n{\"name\": \"f\", \"parameters\": {}}\n", "{f|{}}"},
    {"[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"add\", \"arguments\": {}}]",
     "{f|{}}{add|{}}"},
    {"```json\n{\"name\": \"f\", \"arguments\": {}}\n```", "{f|{}}"},
    {"```\n[ {\"name\": \"f\", \"arguments\": {}} ]\n```\nDone.", "{f|{}}\nDone."},
    {"```json\n{\"name\": \"f\", \"arguments\": {}}\n``", "{f|{}}"},
    {"{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"add\", \"arguments\": {}}",
     "{f|{}}{add|{}}"},
    {"{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"add\", \"arguments\": {}}; ok",
     "{f|{}}{add|{}}; ok"},
    {"{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}", "{f|{\"x\": 1}}"},
    {"{\"answer\": 42}", "{\"answer\": 42}"},
    {"{\"name\": \"Bob\", \"arguments\": {}}", "{\"name\": \"Bob\", \"arguments\": {}}"},
    {"{\"name\": \"f\", \"arguments\": 3}", "{\"name\": \"f\", \"arguments\": 3}"},
    {"{\"name\": \"f\", \"type\": \"x\"}", "{\"name\": \"f\", \"type\": \"x\"}"},
    {"{\"arguments\": {\"a\": 1}}", "{\"arguments\": {\"a\": 1}}"},
    {"[1, 2, 3]", "[1, 2, 3]"},
    {"[{\"x\": 1}]", "[{\"x\": 1}]"},
    {"```python\nprint({\"name\": \"f\", \"arguments\": {}})\n```",
     "```python\nprint({\"name\": \"f\", \"arguments\": {}})\n```"},
    {"``` ``", "``` ``"},
    {"So: {\"name\": \"f\", \"arguments\": {}}", "So: {\"name\": \"f\", \"arguments\": {}}"},
    {"[{\"name\": \"f\", \"arguments\": {}}, {\"x\": 1}]", "{f|{}}{\"x\": 1}]"},
    {"```json\n{\"a\": 1}\n```", "```json\n{\"a\": 1}\n```"},
    {"{", "{"},
    {"{\"na\\u006de\": \"f\", \"arguments\": {}}", "{\"na\\u006de\": \"f\", \"arguments\": {}}"},
    {"{\"name\": \"f\", \"arguments\": {\"a\": \"b", "{f|{\"a\": \"b}"},
    {"{\"name\": \"f\", \"arguments\"", "{\"name\": \"f\", \"arguments\""},
    {"{\"name\": \"f\" \"arguments\": {}}", "{\"name\": \"f\" \"arguments\": {}}"},
    {"{\"name\": \"f\", \"arguments\": [1]}", "{\"name\": \"f\", \"arguments\": [1]}"},
    {"{\"name\": \"f\", \"arguments\": \"none\"}", "{\"name\": \"f\", \"arguments\": \"none\"}"},
    {"{\"name\": \"f\", \"arguments\": {} 7} x", "{f|{}}7} x"},
    {"{\"name\": \"f\", \"arguments\": {}, \"more\": 1}", "{f|{}}"},
    {"{\"name\": \"f\", \"more\": 1, \"arguments\": {}}",
     "{\"name\": \"f\", \"more\": 1, \"arguments\": {}}"},
    {"{\"arguments\": {\"a\": [1, {\"b\": \"]}\"}]}, \"name\": \"add\"}",
     "{add|{\"a\": [1, {\"b\": \"]}\"}]}}"},
    {"[{\"name\": \"f\", \"arguments\": {}}", "{f|{}}"},
    {"[ ", "[ "},
    {"```json\n[{\"name\": \"f\", \"arguments\": {}},\n {\"name\": \"add\", \"arguments\": {\"x\": "
     "1}}]\n``` done",
     "{f|{}}{add|{\"x\": 1}} done"},
    {"```tool_call\n{\"name\": \"f\", \"arguments\": {}}\n```", "{f|{}}"},
    {"{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": "
     "\\\"\\u00e9\\\"}\"}}",
     "{f|{\"a\": \"\303\251\"}}"},
    {"{\"id\": \"x1\", \"name\": \"f\", \"parameters\": {\"\344\270\226\": \"\347\225\214\"}}",
     "{f|{\"\344\270\226\": \"\347\225\214\"}}"},
    {"{\"name\": \"f\", \"arguments\": {\"a\": \"\\\\\\\"}\"}}", "{f|{\"a\": \"\\\\\\\"}\"}}"},
    {"{\"name\": \"\", \"arguments\": {}}", "{\"name\": \"\", \"arguments\": {}}"},
    {"{\"name\": {\"x\": 1}, \"arguments\": {}}", "{\"name\": {\"x\": 1}, \"arguments\": {}}"},
    {"", ""},
    {"Plain [text] {here}", "Plain [text] {here}"},
};

static void test_calls_are_found_in_any_cut(void **state) {
    (void)state;
    tool_cases_check("json", cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_a_long_argument_is_passed_on(void **state) {
    (void)state;
    tool_case_check_long("json", "{\"name\": \"f\", \"arguments\": {\"s\": \"", "\"}}");
}

static void test_many_calls_are_passed_on(void **state) {
    (void)state;
    tool_case_check_many("json", "[", "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", ", ", "]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_found_in_any_cut),
        cmocka_unit_test(test_a_long_argument_is_passed_on),
        cmocka_unit_test(test_many_calls_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
