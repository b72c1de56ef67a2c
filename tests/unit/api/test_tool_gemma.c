/* Goal:   gemma: calls are found, other text stays text, malformed calls come as they were
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
    {"Plain `code` < x ```python\nf(a=1)\n``` y", "Plain `code` < x ```python\nf(a=1)\n``` y"},
    {"```tool_code\nf(a=1)\n```", "{f|{\"a\": 1}}"},
    {"Sure:\n```tool_code\nget_weather(city=\"Paris\", n=3)\n```\nDone.",
     "Sure:\n{get_weather|{\"city\": \"Paris\", \"n\": 3}}\nDone."},
    {"```tool_code\nf(a=1)\nadd(x=2)\n```", "{f|{\"a\": 1}}{add|{\"x\": 2}}"},
    {"```tool_code\n[f(a=1), add(x=2)]\n```", "{f|{\"a\": 1}}{add|{\"x\": 2}}"},
    {"```tool_code\nf()\n``````tool_code\nadd()\n```", "{f|{}}{add|{}}"},
    {"```tool_code\nf(s='```', t=\"a'b\")\n```", "{f|{\"s\": \"```\", \"t\": \"a'b\"}}"},
    {"```tool_code f(a=True) ```", "{f|{\"a\": true}}"},
    {"```tool_code\nf(a=1)", "{f|{\"a\": 1}}"},
    {"```tool_code\nf(a=1)\n``", "{f|{\"a\": 1}}"},
    {"```tool_code\nf(a=\"\303\251\\u00e9\\n\")\n```", "{f|{\"a\": \"\303\251\303\251\\n\"}}"},
    {"```tool_code\nrm(a=1)\n```", "```tool_code\nrm(a=1)\n```"},
    {"```tool_code\nx = 1\n```", "```tool_code\nx = 1\n```"},
    {"```tool_code\nf\n```", "```tool_code\nf\n```"},
    {"```tool_code\n", "```tool_code\n"},
    {"```tool_co", "```tool_co"},
    {"```tool_code\nf(a=1) + 2\n```", "{f|{\"a\": 1}} + 2\n```"},
    {"```tool_code\nf(\"x\")\n```y", "{f|\"x\")\n}y"},
    {"```tool_code\nf(a=b)\n```y", "{f|{\"a\": b)\n}y"},
    {"```tool_code\nf(a=\"b\n```y", "{f|{\"a\": \"b\\n}y"},
    {"```tool_code\nf(a=[1, 2\n```y", "{f|{\"a\": [1, 2}y"},
    {"```tool_code\nf(a=1", "{f|{\"a\": 1}"},
    {"```tool_call\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```", "{f|{\"a\": 1}}"},
    {"Ok ```tool_call\n[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"add\", \"arguments\": "
     "{}}]\n``` x",
     "Ok {f|{}}{add|{}} x"},
    {"```tool_call\n{\"name\": \"f\", \"arguments\": 5}\n```", "{f|5}"},
    {"```tool_call\n{\"name\": \"f\" x\n```y", "{f|x\n}y"},
    {"```tool_call\n{\"name\": \"rm\"}\n```", "```tool_call\n{\"name\": \"rm\"}\n```"},
    {"```tool_call\n{\"name\": \"f\", \"arguments\": {\"a\": 1}\n```y", "{f|{\"a\": 1}}y"},
    {"```json\n{\"name\": \"f\", \"parameters\": {\"a\": \"```\"}}\n```", "{f|{\"a\": \"```\"}}"},
    {"```json\n{\"a\": 1}\n```", "```json\n{\"a\": 1}\n```"},
    {"Here: ```json\n{\"name\": \"f\", \"arguments\": {}}\n```",
     "Here: ```json\n{\"name\": \"f\", \"arguments\": {}}\n```"},
    {"```json\n{\"name\": \"f\", \"arguments\": [1]}\n```",
     "```json\n{\"name\": \"f\", \"arguments\": [1]}\n```"},
    {"<start_function_call>call:f{a:1}<end_function_call>", "{f|{\"a\": 1}}"},
    {"<start_function_call>call:f{}<end_function_call>", "{f|{}}"},
    {"Ok. <start_function_call>call:get_weather{city:<escape>Paris<escape>,n:3}<end_function_call> "
     "Done",
     "Ok. {get_weather|{\"city\": \"Paris\", \"n\": 3}} Done"},
    {"<start_function_call>call:f{a:1}<end_function_call><start_function_call>call:add{x:-2.5e3,y:"
     "true,z:null}<end_function_call>",
     "{f|{\"a\": 1}}{add|{\"x\": -2.5e3, \"y\": true, \"z\": null}}"},
    {"<start_function_call>call:f{s:<escape>a\"b\\c,{}:[]\n\344\270\226<escape>}<end_function_"
     "call>",
     "{f|{\"s\": \"a\\\"b\\\\c,{}:[]\\n\344\270\226\"}}"},
    {"<start_function_call>call:f{l:[<escape>a<escape>,2,[true]],d:{k:{j:<escape>v<escape>},<"
     "escape>q r<escape>:1}}<end_function_call>",
     "{f|{\"l\": [\"a\", 2, [true]], \"d\": {\"k\": {\"j\": \"v\"}, \"q r\": 1}}}"},
    {"<start_function_call>call:f{s:<escape>1 < 2 <esc <end<escape>}<end_function_call>",
     "{f|{\"s\": \"1 < 2 <esc <end\"}}"},
    {"<start_function_call>call:f{a:1}", "{f|{\"a\": 1}}"},
    {"<start_function_call>call:f{a:1}<end_fun", "{f|{\"a\": 1}}"},
    {"<start_function_call>call:f{a:1", "{f|{\"a\": 1}"},
    {"<start_function_call>call:f{s:<escape>ab", "{f|{\"s\": \"ab}"},
    {"<start_function_call>call:f{s:<escape>ab<esc", "{f|{\"s\": \"ab}"},
    {"<start_function_call>call:f{a:text}<end_function_call>y", "{f|{\"a\": text}}y"},
    {"<start_function_call>call:f{a:<escape>b<end_function_call>y", "{f|{\"a\": \"b}y"},
    {"<start_function_call>call:f{\"a\":1}<end_function_call>y", "{f|\"a\":1}}y"},
    {"<start_function_call>call:rm{a:1}<end_function_call>",
     "<start_function_call>call:rm{a:1}<end_function_call>"},
    {"<start_function_call>call:f(a=1)<end_function_call>",
     "<start_function_call>call:f(a=1)<end_function_call>"},
    {"<start_function_call>f{}<end_function_call>", "<start_function_call>f{}<end_function_call>"},
    {"<start_function_call>call:f", "<start_function_call>call:f"},
    {"<start_function_call>call:f{a:1}\n<end_function_call>\n<start_function_call>call:add{}<end_"
     "function_call>",
     "{f|{\"a\": 1}}{add|{}}"},
    {"<start_function_call>call:f{a:1}</x>", "{f|{\"a\": 1}}</x>"},
    {"<start_func", "<start_func"},
    {"<|tool_call>call:f{a:1}<tool_call|>", "{f|{\"a\": 1}}"},
    {"Ok. <|tool_call>call:get_weather{city:<|\"|>Par\"is<|\"|>,n:3}<tool_call|> Done",
     "Ok. {get_weather|{\"city\": \"Par\\\"is\", \"n\": 3}} Done"},
    {"<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:add{x:true}<tool_call|>",
     "{f|{\"a\": 1}}{add|{\"x\": true}}"},
    {"<|tool_call>call:f{a:1}<|tool_call>call:add{}", "{f|{\"a\": 1}}{add|{}}"},
    {"<|tool_call>call:f{l:[<|\"|>a<|\"|>,2],d:{k:<|\"|>< <| <|\"| <|\"|>}}<tool_call|>",
     "{f|{\"l\": [\"a\", 2], \"d\": {\"k\": \"< <| <|\\\"| \"}}}"},
    {"<|tool_call>call:f{a:x}<tool_call|>y", "{f|{\"a\": x}}y"},
    {"<|tool_call>call:rm{a:1}<tool_call|>", "<|tool_call>call:rm{a:1}<tool_call|>"},
    {"<|tool_call>call:f{a:<|\"|>b<tool_call|>y", "{f|{\"a\": \"b}y"},
    {"<|tool_call", "<|tool_call"},
    {"<|tool_call>call:f{a:1", "{f|{\"a\": 1}"},
    {"<|tool_call>x", "<|tool_call>x"},
};

static void test_calls_are_found_in_any_cut(void **state) {
    (void)state;
    tool_cases_check("gemma", cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_a_long_argument_is_passed_on(void **state) {
    (void)state;
    tool_case_check_long("gemma", "<start_function_call>call:f{s:<escape>",
                         "<escape>}<end_function_call>");
}

static void test_many_calls_are_passed_on(void **state) {
    (void)state;
    tool_case_check_many("gemma", "", "```tool_code\nf(a=1)\n```", "\n", "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_found_in_any_cut),
        cmocka_unit_test(test_a_long_argument_is_passed_on),
        cmocka_unit_test(test_many_calls_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
