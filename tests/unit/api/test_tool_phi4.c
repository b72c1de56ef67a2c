/* Goal:   phi4: calls are found, other text stays text, malformed calls come as they were
 *         written, and the events do not depend on how the text is cut.
 * Method: a table of texts and their events, each cut in every way (unit/api/tool_cases.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/api/tool_cases.h"

static const struct tool_case cases[] = {
    {"", ""},
    {"Plain < text <| and <|tool_", "Plain < text <| and <|tool_"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|/tool_call|>", "{f|{\"a\": 1}}"},
    {"<|tool_call|> [ {\"name\": \"f\", \"arguments\": {}} , {\"name\": \"add\", \"arguments\": "
     "{\"x\": 1.5}} ] <|/tool_call|>",
     "{f|{}}{add|{\"x\": 1.5}}"},
    {"Sure.\n<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|> Bye.",
     "Sure.\n{f|{}} Bye."},
    {"<|tool_call|>{\"name\": \"f\", \"arguments\": {}}<|/tool_call|>", "{f|{}}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>\n<|tool_call|>[{\"name\": "
     "\"add\", \"arguments\": {}}]<|/tool_call|>",
     "{f|{}}{add|{}}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"s\": \"<|/tool_call|> ] "
     "}\"}}]<|/tool_call|>",
     "{f|{\"s\": \"<|/tool_call|> ] }\"}}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"s\": "
     "\"\303\251\\u00e9\\n\360\237\230\200\"}}]",
     "{f|{\"s\": \"\303\251\\u00e9\\n\360\237\230\200\"}}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": {\"b\": [1, {\"c\": "
     "\"]\"}]}}}]<|/tool_call|>",
     "{f|{\"a\": {\"b\": [1, {\"c\": \"]\"}]}}}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}]<|/tool_call|>",
     "{f|{\"a\": 1}}"},
    {"<|tool_call|>[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
     "{}}}]<|/tool_call|>",
     "{f|{}}"},
    {"<|tool_call|>[{\"arguments\": {\"q\": 1}, \"name\": \"f\"}]<|/tool_call|>", "{f|{\"q\": 1}}"},
    {"<|tool_call|>[{\"name\": \"f\"}]<|/tool_call|>", "{f|{}}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": null}]<|/tool_call|>", "{f|{}}"},
    {"<|tool_call|>[{\"name\": \"f\", \"parameters\": {\"a\": 1}}]<|/tool_call|>",
     "{f|{\"a\": 1}}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": \"b", "{f|{\"a\": \"b}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arg", "{f|}"},
    {"<|tool_call|>[{\"name\": \"f", "<|tool_call|>[{\"name\": \"f"},
    {"<|tool_call|>[{\"nam", "<|tool_call|>[{\"nam"},
    {"<|tool_call|>[", "<|tool_call|>["},
    {"<|tool_call|>", "<|tool_call|>"},
    {"<|tool_call|>[]<|/tool_call|>", "<|tool_call|>[]<|/tool_call|>"},
    {"<|tool_call|>[5]<|/tool_call|>", "<|tool_call|>[5]<|/tool_call|>"},
    {"<|tool_call|>text<|/tool_call|>", "<|tool_call|>text<|/tool_call|>"},
    {"<|tool_call|>[{\"name\": 7}]", "<|tool_call|>[{\"name\": 7}]"},
    {"<|tool_call|>[{\"name\": \"rm\", \"arguments\": {}}]<|/tool_call|>",
     "<|tool_call|>[{\"name\": \"rm\", \"arguments\": {}}]<|/tool_call|>"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"rm\", \"arguments\": "
     "{}}]<|/tool_call|>",
     "{f|{}}{\"name\": \"rm\", \"arguments\": {}}]<|/tool_call|>"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}; {\"name\": \"add\", \"arguments\": "
     "{}}]<|/tool_call|>",
     "{f|{}}; {\"name\": \"add\", \"arguments\": {}}]<|/tool_call|>"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": [1]}]<|/tool_call|>", "{f|[1]}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": \"x\"}]<|/tool_call|>", "{f|\"x\"}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": -1.5e3}]<|/tool_call|>", "{f|-1.5e3}"},
    {"<|tool_call|><|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "<|tool_call|>{f|{}}"},
    {"<<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "<{f|{}}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}", "{f|{}}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}, ", "{f|{}}"},
    {"\n\n<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "{f|{}}"},
    {"{\"name\": \"f\", \"arguments\": {}}", "{\"name\": \"f\", \"arguments\": {}}"},
    {"[{\"name\": \"f\", \"arguments\": {}}]", "[{\"name\": \"f\", \"arguments\": {}}]"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}", "{f|{\"a\": 1}}"},
    {"<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": [1, "
     "2, 3]}}]",
     "{get_weather|{\"city\": \"Paris\", \"days\": [1, 2, 3]}}"},
    {"functools[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"add\", \"arguments\": "
     "{}}]",
     "{f|{\"a\": 1}}{add|{}}"},
    {"functools[{\"name\": \"f\", \"arguments\": {}}] ok", "{f|{}} ok"},
    {"functools is a module", "functools is a module"},
    {"functoo", "functoo"},
    {"use functools[{\"name\": \"f\", \"arguments\": {}}]",
     "use functools[{\"name\": \"f\", \"arguments\": {}}]"},
    {"functools[{\"name\": \"f\" 1}] x", "{f|1}] x}"},
    {"<|tool_call|>[{\"name\": \"f\" x}]<|/tool_call|>ok", "{f|x}]}ok"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": [1}]<|/tool_call|>ok",
     "{f|{\"a\": [1}]}ok"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": \"b\n}]<|/tool_call|>ok",
     "{f|{\"a\": \"b\n}]}ok"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {}]<|/tool_call|>ok", "{f|{}}ok"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool", "{f|{}}"},
    {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|tool_call|>[{\"name\": \"add\", "
     "\"arguments\": {}}]<|/tool_call|>",
     "{f|{}}{add|{}}"},
};

static void test_calls_are_found_in_any_cut(void **state) {
    (void)state;
    tool_cases_check("phi4", cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_a_long_argument_is_passed_on(void **state) {
    (void)state;
    tool_case_check_long("phi4", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"s\": \"",
                         "\"}}]<|/tool_call|>");
}

static void test_many_calls_are_passed_on(void **state) {
    (void)state;
    tool_case_check_many("phi4", "<|tool_call|>[", "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
                         ", ", "]<|/tool_call|>");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_found_in_any_cut),
        cmocka_unit_test(test_a_long_argument_is_passed_on),
        cmocka_unit_test(test_many_calls_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
