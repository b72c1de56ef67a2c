/* Goal:   pythonic: calls are found, other text stays text, malformed calls come as they were
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
    {"Plain [text] < here", "Plain [text] < here"},
    {"[1, 2, 3]", "[1, 2, 3]"},
    {"[f(a=1)]", "{f|{\"a\": 1}}"},
    {"[get_weather(city=\"Paris\", n=3), add(x=1.5, ok=True, l=[1, 'a'], d={'k': None})]",
     "{get_weather|{\"city\": \"Paris\", \"n\": 3}}{add|{\"x\": 1.5, \"ok\": true, \"l\": [1, "
     "\"a\"], \"d\": {\"k\": null}}}"},
    {"[f()]", "{f|{}}"},
    {"[f( )]", "{f|{}}"},
    {"[ f ( ) ]", "[ f ( ) ]"},
    {"<|python_start|>[f(a=1)]<|python_end|>", "{f|{\"a\": 1}}"},
    {"<|python_start|>f(a=1)<|python_end|>", "{f|{\"a\": 1}}"},
    {"Hi. <|python_start|>[f(a=1), add(x=2)]<|python_end|> Bye.",
     "Hi. {f|{\"a\": 1}}{add|{\"x\": 2}} Bye."},
    {"<|python_start|>[f()]", "{f|{}}"},
    {"<|python_start|>[f()]<|python_e", "{f|{}}"},
    {"<|python_start|>[f()]<|python_end|>\n<|python_start|>[add()]<|python_end|>",
     "{f|{}}{add|{}}"},
    {"<|python_start|>[f()]<|python_start|>[add()]<|python_end|>", "{f|{}}{add|{}}"},
    {"<|tool_call_start|>[f(a=\"b\")]<|tool_call_end|>Checking.", "{f|{\"a\": \"b\"}}Checking."},
    {"[f(s='it\\'s', t=\"say \\\"hi\\\"\", u='say \"hi\"')]",
     "{f|{\"s\": \"it's\", \"t\": \"say \\\"hi\\\"\", \"u\": \"say \\\"hi\\\"\"}}"},
    {"[f(s='\\n\\t\\\\\\x41\\u00e9\\U0001F600\\101\\d\\a')]",
     "{f|{\"s\": \"\\n\\t\\\\A\303\251\360\237\230\200A\\\\d\\u0007\"}}"},
    {"[f(s=\"\\ud83d\\ude00\")]", "{f|{\"s\": \"\\ud83d\\ude00\"}}"},
    {"[f(s=\"\344\270\226\347\225\214 \360\237\230\200\")]",
     "{f|{\"s\": \"\344\270\226\347\225\214 \360\237\230\200\"}}"},
    {"[f(s=\"\"\"a \"quoted\"\nline\"\"\", t='''x''')]",
     "{f|{\"s\": \"a \\\"quoted\\\"\\nline\", \"t\": \"x\"}}"},
    {"[f(s=\"\", t='')]", "{f|{\"s\": \"\", \"t\": \"\"}}"},
    {"[f(a=true, b=false, c=null, d=False)]",
     "{f|{\"a\": true, \"b\": false, \"c\": null, \"d\": false}}"},
    {"[f(a=-1, b=+2, c=1_000, d=.5, e=5., g=1e-3, h=-0.0)]",
     "{f|{\"a\": -1, \"b\": 2, \"c\": 1000, \"d\": 0.5, \"e\": 5.0, \"g\": 1e-3, \"h\": -0.0}}"},
    {"[f(a=(1, 2), b=(), c=[[], [1,],], d={\"x\": {\"y\": (3,)}})]",
     "{f|{\"a\": [1, 2], \"b\": [], \"c\": [[], [1]], \"d\": {\"x\": {\"y\": [3]}}}}"},
    {"[f(d={1: \"a\", 'b': 2,},)]", "{f|{\"d\": {\"1\": \"a\", \"b\": 2}}}"},
    {"[f(a = 1 , b\n=\n2)]", "{f|{\"a\": 1, \"b\": 2}}"},
    {"[f(s=\"a]), add(x=1\")]", "{f|{\"s\": \"a]), add(x=1\"}}"},
    {"[f(a-b=1, $c.d/e=2)]", "{f|{\"a-b\": 1, \"$c.d/e\": 2}}"},
    {"[f(\303\251=1)]", "{f|{\"\303\251\": 1}}"},
    {"[rm(a=1)]", "[rm(a=1)]"},
    {"[f(\"Paris\")]", "[f(\"Paris\")]"},
    {"[f(x)]", "[f(x)]"},
    {"[f(a==1)]", "{f|{\"a\": =1)]}"},
    {"[f for f in x]", "[f for f in x]"},
    {"[f(a", "[f(a"},
    {"f(a=1)", "f(a=1)"},
    {"[f", "[f"},
    {"So [f(a=1)]", "So [f(a=1)]"},
    {"<|python_start|>[f(\"Paris\")]<|python_end|>x", "{f|\"Paris\")]}x"},
    {"<|python_start|>[f(a=foo)]<|python_end|>x", "{f|{\"a\": foo)]}x"},
    {"<|python_start|>[f(a=1, \"b\")]<|python_end|>", "{f|{\"a\": 1, \"b\")]}"},
    {"<|python_start|>[f(a=0x10)]<|python_end|>", "{f|{\"a\": 0x10)]}"},
    {"<|python_start|>[f(a=[1, foo])]<|python_end|>", "{f|{\"a\": [1, foo])]}"},
    {"<|python_start|>[f(a={1, 2})]<|python_end|>", "{f|{\"a\": {\"1\", 2})]}"},
    {"<|python_start|>[f(a=\"\\x4z\")]<|python_end|>", "{f|{\"a\": \"\\x4z\")]}"},
    {"<|python_start|>[f(a=1<|python_end|>x", "{f|{\"a\": 1}x"},
    {"<|python_start|>[f(a=\"b\n<|python_end|>x", "{f|{\"a\": \"b\\n}x"},
    {"<|python_start|>[f(a=\"\"<|python_end|>x", "{f|{\"a\": \"\"}x"},
    {"<|python_start|>[f(a=\"<|python_end|>\")]<|python_end|>x",
     "{f|{\"a\": \"<|python_end|>\"}}x"},
    {"<|python_start|>[rm(a=1)]<|python_end|>", "<|python_start|>[rm(a=1)]<|python_end|>"},
    {"<|python_start|>f<|python_end|>", "<|python_start|>f<|python_end|>"},
    {"<|python_start|>print(1)<|python_end|>", "<|python_start|>print(1)<|python_end|>"},
    {"[f(a=1", "{f|{\"a\": 1}"},
    {"[f(a=\"b", "{f|{\"a\": \"b}"},
    {"[f(a=Tru", "{f|{\"a\": Tru}"},
    {"[f(a=1, b", "{f|{\"a\": 1}"},
    {"[f(a=[1, {\"k\": \"v\\", "{f|{\"a\": [1, {\"k\": \"v}"},
    {"[f(a=\"\"", "{f|{\"a\": \"\"}"},
    {"[f(a=1), ", "{f|{\"a\": 1}}"},
    {"[f(a=1), ad", "{f|{\"a\": 1}}ad"},
    {"[f(a=1), rm(b=2)]", "{f|{\"a\": 1}}rm(b=2)]"},
    {"[f(a=1)] ok", "{f|{\"a\": 1}} ok"},
    {"[f(a=1)", "{f|{\"a\": 1}}"},
    {"{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"add\", \"parameters\": {}}",
     "{f|{\"a\": 1}}{add|{}}"},
    {"<|python_start|>{\"name\": \"f\", \"parameters\": {}}<|python_end|>", "{f|{}}"},
    {"{\"answer\": 42}", "{\"answer\": 42}"},
};

static void test_calls_are_found_in_any_cut(void **state) {
    (void)state;
    tool_cases_check("pythonic", cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_a_long_argument_is_passed_on(void **state) {
    (void)state;
    tool_case_check_long("pythonic", "[f(s='", "')]");
}

static void test_many_calls_are_passed_on(void **state) {
    (void)state;
    tool_case_check_many("pythonic", "[", "f(a=1)", ", ", "]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_found_in_any_cut),
        cmocka_unit_test(test_a_long_argument_is_passed_on),
        cmocka_unit_test(test_many_calls_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
