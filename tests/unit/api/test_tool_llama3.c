/* Goal:   llama3: calls are found, other text stays text, malformed calls come as they were
 *         written, and the events do not depend on how the text is cut.
 * Method: a table of texts and their events, each cut in every way (unit/api/tool_cases.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/api/tool_cases.h"

static const struct tool_case cases[] = {
    {"{\"name\": \"f\", \"parameters\": {\"a\": \"1\"}}", "{f|{\"a\": \"1\"}}"},
    {"<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "{f|{}}"},
    {"Sure. <|python_tag|> {\"name\": \"f\", \"parameters\": {}}", "Sure. {f|{}}"},
    {"{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"add\", \"parameters\": {\"x\": 1}}",
     "{f|{}}{add|{\"x\": 1}}"},
    {"{\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"add\", \"parameters\": {}}\n",
     "{f|{}}{add|{}}"},
    {"<|python_tag|>{\"name\": \"f\", \"parameters\": {}};<|python_tag|>{\"name\": \"add\", "
     "\"parameters\": {}}",
     "{f|{}}{add|{}}"},
    {"{\"name\": \"f\", \"parameters\": {}}; then", "{f|{}}; then"},
    {"{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "{f|{}}"},
    {"{\"type\": \"function\", \"function\": \"f\", \"parameters\": {}}", "{f|{}}"},
    {"{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"k\": {}}}}",
     "{f|{\"k\": {}}}"},
    {"{\"function\": {\"parameters\": {\"k\": 1}, \"name\": \"f\"}, \"id\": null}",
     "{f|{\"k\": 1}}"},
    {"<|python_tag|>{\"name\": \"f\"}", "{f|{}}"},
    {"Here: {\"name\": \"f\", \"parameters\": {}}", "Here: {\"name\": \"f\", \"parameters\": {}}"},
    {"{\"name\": \"f\"}", "{\"name\": \"f\"}"},
    {"{\"name\": \"Bob\", \"parameters\": {}}", "{\"name\": \"Bob\", \"parameters\": {}}"},
    {"{\"name\": \"f\", \"age\": 3}", "{\"name\": \"f\", \"age\": 3}"},
    {"{\"name\": \"f\", \"parameters\": \"none\"}", "{\"name\": \"f\", \"parameters\": \"none\"}"},
    {"<|python_tag|>print(1)", "<|python_tag|>print(1)"},
    {"a <|python b", "a <|python b"},
    {"{\"name\": \"f\", \"parameters\": {}} and more", "{f|{}} and more"},
    {"; {", "; {"},
    {"<|python_tag|>{\"name\": \"f\", \"parameters\": [1]}", "{f|[1]}"},
    {"<|python_tag|>{\"name\": \"f\", \"parameters\"", "{f|}"},
    {"{\"name\": \"f\", \"parameters\"", "{\"name\": \"f\", \"parameters\""},
    {"<|python_tag|>{\"name\": \"f\" x} y", "{f|x} y}"},
    {"<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": \"b", "{f|{\"a\": \"b}"},
    {"{\"name\": \"f\", \"parameters\": {\"a\": \"b", "{f|{\"a\": \"b}"},
    {"<|python_tag|>{\"name\": \"f\", \"parameters\": {}} x", "{f|{}} x"},
    {"<|python_tag|>{\"name\": \"f\", \"parameters\": {} x", "{f|{}}x"},
    {"<|python_tag|>{\"name\": \"rm\", \"parameters\": {}}",
     "<|python_tag|>{\"name\": \"rm\", \"parameters\": {}}"},
    {"<|python_tag|><|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "<|python_tag|>{f|{}}"},
    {"<|python_tag|>", "<|python_tag|>"},
    {"<|python_tag|> \n", "<|python_tag|> \n"},
    {"<|python_tag", "<|python_tag"},
    {"<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; <|python_tag|>{\"name\": \"add\", "
     "\"parameters\": {}}; x",
     "{f|{}}{add|{}}; x"},
    {"{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"a\": {\"b\": [1, \"}\"]}}}",
     "{f|{\"a\": {\"b\": [1, \"}\"]}}}"},
    {"{\"parameters\": {\"a\": 1}, \"type\": \"function\", \"name\": \"get_weather\"}",
     "{get_weather|{\"a\": 1}}"},
    {"{\"name\": \"f\", \"parameters\": null}", "{\"name\": \"f\", \"parameters\": null}"},
    {"{\"name\": \"f\", \"parameters\": [1]}", "{\"name\": \"f\", \"parameters\": [1]}"},
    {"<|python_tag|>{\"name\": \"f\", \"parameters\": null}", "{f|{}}"},
    {"{\"name\": \"f\", \"parameters\": {\"s\": \"\303\251 \\u00e9 \\n\"}}",
     "{f|{\"s\": \"\303\251 \\u00e9 \\n\"}}"},
    {"{\"type\": \"function\", \"function\": {\"name\": \"f\"}}",
     "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}"},
    {"<|python_tag|>{\"type\": \"function\", \"function\": {\"name\": \"f\"}}", "{f|{}}"},
    {"  {\"name\": \"f\", \"parameters\": {}}", "{f|{}}"},
    {"<|python_tag|>brave_search.call(query=\"x\")",
     "<|python_tag|>brave_search.call(query=\"x\")"},
};

static void test_calls_are_found_in_any_cut(void **state) {
    (void)state;
    tool_cases_check("llama3", cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_a_long_argument_is_passed_on(void **state) {
    (void)state;
    tool_case_check_long("llama3", "{\"name\": \"f\", \"parameters\": {\"s\": \"", "\"}}");
}

static void test_many_calls_are_passed_on(void **state) {
    (void)state;
    tool_case_check_many("llama3", "", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "; ", "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_found_in_any_cut),
        cmocka_unit_test(test_a_long_argument_is_passed_on),
        cmocka_unit_test(test_many_calls_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
