/* Goal:   hermes: calls are found, other text stays text, malformed calls come as they were
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
    {"Plain answer, 1 < 2, <b>bold</b>.", "Plain answer, 1 < 2, <b>bold</b>."},
    {"  \n", "  \n"},
    {"\n\nHello", "\n\nHello"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "{f|{\"a\": 1}}"},
    {"<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "{f|{}}"},
    {"\n \n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n", "{f|{}}"},
    {"Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
     "{}}\n</tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"x\": [1, {\"y\": "
     "\"}\"}]}}\n</tool_call> Done.",
     "Let me see.\n{f|{}}{add|{\"x\": [1, {\"y\": \"}\"}]}} Done."},
    {"<tool_call>\n{\"arguments\": {\"q\": \"x\"}, \"name\": \"f\"}\n</tool_call>",
     "{f|{\"q\": \"x\"}}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\\\"}\\\\\", \"t\": "
     "\"</tool_call>\"}}\n</tool_call>x",
     "{f|{\"s\": \"a\\\"}\\\\\", \"t\": \"</tool_call>\"}}x"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": "
     "\\\"\\u00e9\\ud83d\\ude00\\n\\\"}\"}\n</tool_call>",
     "{f|{\"a\": \"\303\251\360\237\230\200\n\"}}"},
    {"<tool_call>\n{\"arguments\": \"{\\\"a\\\":1}\", \"name\": \"f\"}\n</tool_call>",
     "{f|{\"a\":1}}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\ud800x\\udc00}\"}\n</tool_call>",
     "{f|{\357\277\275x\357\277\275}}"},
    {"<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "{f|{}}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": null}\n</tool_call>", "{f|{}}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": \"\"}\n</tool_call>", "{f|{}}"},
    {"<tool_call>\n{\"id\": 7, \"thought\": [\"x\", {\"name\": 1}], \"name\": \"\\u0066\", "
     "\"arguments\": {}, \"more\": true}\n</tool_call>",
     "{f|{}}"},
    {"<tool_call>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": "
     "2}}}\n</tool_call>",
     "{f|{\"a\": 2}}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b", "{f|{\"a\": \"b}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\"", "{f|}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool", "{f|{}}"},
    {"Hi <tool_ca", "Hi <tool_ca"},
    {"<tool_call>\nnot json\n</tool_call>", "<tool_call>\nnot json\n</tool_call>"},
    {"<tool_call>\n{\"name\": 5, \"arguments\": {}}\n</tool_call>",
     "<tool_call>\n{\"name\": 5, \"arguments\": {}}\n</tool_call>"},
    {"<tool_call>\n{\"name\": \"f\" \"arguments\": {}}\n</tool_call>", "{f|\"arguments\": {}}\n}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": [1]}\n</tool_call>", "{f|[1]}"},
    {"<tool_call>\n{}\n</tool_call>", "<tool_call>\n{}\n</tool_call>"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>ok",
     "{f|{\"a\": 1}}ok"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {}} }\n</tool_call>ok",
     "{f|{}} }\n</tool_call>ok"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {} oh < </ </tool_ </tool_call>ok", "{f|{}}ok"},
    {"<tool_call><tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
     "<tool_call>{f|{}}"},
    {"<<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "<{f|{}}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n<tool_call>\n{\"name\": \"add\", "
     "\"arguments\": {}}\n</tool_call>",
     "{f|{}}{add|{}}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {} ]<tool_call>\n{\"name\": \"add\", "
     "\"arguments\": {}}\n</tool_call>",
     "{f|{}}{add|{}}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}</tool>x", "{f|{}}</tool>x"},
    {"<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>"},
    {"<tool_call>\n{\"name\": \"\", \"arguments\": {}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"\", \"arguments\": {}}\n</tool_call>"},
    {"<tool_call>\n[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"add\", "
     "\"arguments\": {}}]\n</tool_call> ok",
     "{f|{\"a\": 1}}{add|{}} ok"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"add\", \"arguments\": "
     "{}}\n</tool_call>",
     "{f|{}}{add|{}}"},
    {"<tool_call>\n[{\"name\": \"f\", \"arguments\": {}},", "{f|{}}"},
    {"<tool_call>\n[{\"name\": \"f\", \"arguments\": {}}\n</tool_call>x", "{f|{}}x"},
    {"<tool_call>\n[]\n</tool_call>", "<tool_call>\n[]\n</tool_call>"},
    {"<tool_call>\n[[{\"name\": \"f\", \"arguments\": {}}]]\n</tool_call>",
     "<tool_call>\n[[{\"name\": \"f\", \"arguments\": {}}]]\n</tool_call>"},
    {"<tool_call>\n[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"rm\", \"arguments\": "
     "{}}]\n</tool_call>",
     "{f|{}}{\"name\": \"rm\", \"arguments\": {}}]\n</tool_call>"},
    {"<tool_call>\n{\"name\": \"f\"", "{f|}"},
    {"<tool_call>\n{\"name\": \"f", "<tool_call>\n{\"name\": \"f"},
    {"<tool_call>\n{\"name\": \"f\", \"argum", "{f|}"},
    {"<tool_call>\n{\"name\": \"f\", arguments: {\"a\": 1}}\n</tool_call>x",
     "{f|arguments: {\"a\": 1}}\n}x"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": 5}\n</tool_call>", "{f|5}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": nul", "{f|nul}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": nullx}\n</tool_call>", "{f|nullx}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": 12</tool_call>x", "{f|12}x"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": \"none\"}\n</tool_call>", "{f|\"none\"}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": \"  no \\\"x\\\"\"}\n</tool_call>y",
     "{f|\"  no \\\"x\\\"\"}y"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\u00zz\"}\n</tool_call>y",
     "{f|{\"a\": \\u00zz\"}\n}y"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, 2\n</tool_call>ok",
     "{f|{\"a\": [1, 2\n}ok"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b\n</tool_call>ok",
     "{f|{\"a\": \"b\n}ok"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\", \"b\": "
     "\"</tool_call>\"}}\n</tool_call>ok",
     "{f|{\"a\": \"x\ny\", \"b\": \"</tool_call>\"}}ok"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1 < 2, </tool}\n</tool_call>ok",
     "{f|{\"a\": 1 < 2, </tool}}ok"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1</tool", "{f|{\"a\": 1</tool}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {'a': True}}\n</tool_call>", "{f|{'a': True}}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": (1)}\n</tool_call>", "{f|(1)}\n}"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"k\": "
     "\"\303\251\344\270\226\360\237\230\200\"}}\n</tool_call>",
     "{f|{\"k\": \"\303\251\344\270\226\360\237\230\200\"}}"},
    {"<tool_call>\n{\"arguments\": [1], \"name\": \"f\"}\n</tool_call>",
     "<tool_call>\n{\"arguments\": [1], \"name\": \"f\"}\n</tool_call>"},
    {"<tool_call>\n{\"arguments\": {\"a\": 1}, \"name\": \"f\", x\n</tool_call>ok",
     "{f|{\"a\": 1}}ok"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": {\"b\": {\"c\": [[[{}]]]}}}}</tool_call>",
     "{f|{\"a\": {\"b\": {\"c\": [[[{}]]]}}}}"},
};

static void test_calls_are_found_in_any_cut(void **state) {
    (void)state;
    tool_cases_check("hermes", cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_a_long_argument_is_passed_on(void **state) {
    (void)state;
    tool_case_check_long("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"",
                         "\"}}</tool_call>");
}

static void test_many_calls_are_passed_on(void **state) {
    (void)state;
    tool_case_check_many("hermes", "",
                         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
                         "\n", "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_found_in_any_cut),
        cmocka_unit_test(test_a_long_argument_is_passed_on),
        cmocka_unit_test(test_many_calls_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
