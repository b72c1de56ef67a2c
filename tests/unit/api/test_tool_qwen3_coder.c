/* Goal:   calls in Qwen3-Coder's tags become calls with JSON arguments of the tool's kinds, in any
 *         cut; what is malformed is text before the name and arguments as written after it.
 * Method: a table of texts (unit/api/tool_cases.h); the family's own template; long answers. */
#include "unit/api/tool_long.h"
#include "unit/api/tool_trips.h"

/* f has a property of every kind; get_weather has no schema. */
static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"a\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},"
    "\"x\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},"
    "\"l\":{\"type\":\"array\"},\"s\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},"
    "\"e\":{\"enum\":[\"1\",\"2\"]},\"r\":{\"$ref\":\"#/$defs/R\"},"
    "\"i\":{\"type\":[\"integer\",\"null\"]},\"z\":{\"type\":\"null\"}},"
    "\"$defs\":{\"R\":{\"type\":\"integer\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{}}}]";

#define HEAD "<tool_call>\n<function=f>\n"
#define ADD "<tool_call>\n<function=add>\n"
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define TAIL "</function>\n</tool_call>"
#define CASE(text, events)                                                                         \
    { text, events }
#define PLAIN(text)                                                                                \
    { text, text }

static const struct tool_case cases[] = {
    PLAIN(""),
    PLAIN("Plain, 1 < 2, <b>x</b> </tool_call> </function> <parameter=a>"),
    PLAIN(" \n"),
    CASE(HEAD TAIL, "{f|{}}"),
    CASE(HEAD P("a", "Paris") TAIL, "{f|{\"a\": \"Paris\"}}"),
    CASE(HEAD P("a", "Paris") P("n", "3") TAIL, "{f|{\"a\": \"Paris\", \"n\": 3}}"),
    CASE("\n\n" HEAD P("a", "x") TAIL "\n", "{f|{\"a\": \"x\"}}"),
    CASE("I look.\n\n" HEAD P("a", "x") TAIL "\nDone.", "I look.\n\n{f|{\"a\": \"x\"}}\nDone."),
    CASE(HEAD TAIL "\n" ADD P("q", "1") TAIL, "{f|{}}{add|{\"q\": 1}}"),
    /* A string is the text as written, without one line end at each end. */
    CASE(HEAD P("a", "5") TAIL, "{f|{\"a\": \"5\"}}"),
    CASE(HEAD P("a", "{\"k\": 1}") TAIL, "{f|{\"a\": \"{\\\"k\\\": 1}\"}}"),
    CASE(HEAD P("a", "") TAIL, "{f|{\"a\": \"\"}}"),
    CASE(HEAD P("a", "\n x \n") TAIL, "{f|{\"a\": \"\\n x \\n\"}}"),
    CASE(HEAD P("a", "q\"\\\t\x01\x7f") TAIL, "{f|{\"a\": \"q\\\"\\\\\\t\\u0001\\u007f\"}}"),
    CASE(HEAD P("a", "\xc3\xa9\xf0\x9f\x98\x80") TAIL, "{f|{\"a\": \"\xc3\xa9\xf0\x9f\x98\x80\"}}"),
    CASE(HEAD P("a", "\xc3x\xf0\x9f") TAIL, "{f|{\"a\": \"\xef\xbf\xbdx\xef\xbf\xbd\"}}"),
    /* Values without line ends, and with one only. */
    CASE("<tool_call><function=f><parameter=a>x</parameter></function></tool_call>",
         "{f|{\"a\": \"x\"}}"),
    CASE(HEAD "<parameter=a>\n</parameter>\n" TAIL, "{f|{\"a\": \"\"}}"),
    CASE(HEAD "<parameter=a>\nx</parameter>" TAIL, "{f|{\"a\": \"x\"}}"),
    /* Closing tags inside a value. */
    CASE(HEAD P("a", "x</parameter>y\n</parameter>\nz") TAIL,
         "{f|{\"a\": \"x</parameter>y\\n</parameter>\\nz\"}}"),
    CASE(HEAD P("a", "</parameter>\n</parameter>\n</parameter") P("n", "1") TAIL,
         "{f|{\"a\": \"</parameter>\\n</parameter>\\n</parameter\", \"n\": 1}}"),
    CASE(HEAD P("a", "x</parameter>") TAIL, "{f|{\"a\": \"x</parameter>\"}}"),
    CASE(HEAD P("a", "</function>\n</tool_call> <tool_call>") TAIL,
         "{f|{\"a\": \"</function>\\n</tool_call> <tool_call>\"}}"),
    /* Other kinds: as JSON, if they are. */
    CASE(HEAD P("n", " -12 ") P("x", "1.5e3") P("b", "true") TAIL,
         "{f|{\"n\": -12, \"x\": 1.5e3, \"b\": true}}"),
    CASE(HEAD P("o", "{\"k\": [1, {\"t\": \"</parameter>\"}]}") P("l", "[]") TAIL,
         "{f|{\"o\": {\"k\": [1, {\"t\": \"</parameter>\"}]}, \"l\": []}}"),
    CASE(HEAD P("n", "123456789012345678901234567890") TAIL,
         "{f|{\"n\": 123456789012345678901234567890}}"),
    CASE(HEAD P("n", "1.0") TAIL, "{f|{\"n\": 1.0}}"),
    CASE(HEAD P("n", "1.5") TAIL, "{f|{\"n\": \"1.5\"}}"),
    CASE(HEAD P("n", "twelve") TAIL, "{f|{\"n\": \"twelve\"}}"),
    CASE(HEAD P("n", "") TAIL, "{f|{\"n\": \"\"}}"),
    CASE(HEAD P("b", "True") P("b", "False") P("z", "None") P("i", "None") TAIL,
         "{f|{\"b\": true, \"b\": false, \"z\": null, \"i\": null}}"),
    CASE(HEAD P("b", "trueish and more") TAIL, "{f|{\"b\": \"trueish and more\"}}"),
    CASE(HEAD P("o", "{\"k\": 1") TAIL, "{f|{\"o\": \"{\\\"k\\\": 1\"}}"),
    CASE(HEAD P("o", "[1]") TAIL, "{f|{\"o\": \"[1]\"}}"),
    CASE(HEAD P("e", "1") P("r", "7") P("i", "null") TAIL,
         "{f|{\"e\": \"1\", \"r\": 7, \"i\": null}}"),
    CASE(HEAD P("s", "null") P("s", "nullable") P("s", "5") P("s", "None") TAIL,
         "{f|{\"s\": null, \"s\": \"nullable\", \"s\": \"5\", \"s\": \"None\"}}"),
    /* Properties that the schema does not name. */
    CASE(ADD P("u", "5") P("v", "true") P("w", "{\"k\": []}") P("y", "null") TAIL,
         "{add|{\"u\": 5, \"v\": true, \"w\": {\"k\": []}, \"y\": null}}"),
    CASE(ADD P("u", "5 apples") P("v", "True") P("w", "\"q\"") P("y", "nobody knows") TAIL,
         "{add|{\"u\": \"5 apples\", \"v\": \"True\", \"w\": \"\\\"q\\\"\", \"y\": "
         "\"nobody knows\"}}"),
    CASE(ADD P("k \"1\"", "x") TAIL, "{add|{\"k \\\"1\\\"\": \"x\"}}"),
    /* <tool_call> is left out, at either end. */
    CASE("Hm.\n<function=f>\n" P("a", "x") TAIL " ok", "Hm.\n{f|{\"a\": \"x\"}} ok"),
    CASE("<function=f>\n" P("a", "x") "</function>\nok </tool_call>", "{f|{\"a\": \"x\"}}\nok "),
    CASE(HEAD "</function>\n" ADD TAIL, "{f|{}}{add|{}}"),
    CASE(HEAD P("a", "x") "</tool_call> ok </tool_call>", "{f|{\"a\": \"x\"}} ok </tool_call>"),
    /* Malformed before the name is complete: text. */
    PLAIN("<tool_call>\nhello\n</tool_call>"),
    PLAIN("<tool_call>\n<function>\n" TAIL),
    PLAIN("<tool_call>\n<function=rm>\n" P("a", "x") TAIL),
    PLAIN("<tool_call>\n<function=>\n" TAIL),
    PLAIN("<tool_call>\n<function=f\n>" TAIL),
    PLAIN("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"),
    CASE("<tool_call>\n" HEAD TAIL, "<tool_call>\n{f|{}}"),
    CASE("<tool_call>\n<" HEAD TAIL, "<tool_call>\n<{f|{}}"),
    CASE("<function=" HEAD TAIL, "<function={f|{}}"),
    /* Malformed behind the name: as written, up to the end of the call. */
    CASE(HEAD "hello" TAIL " ok", "{f|\nhello</function>\n} ok"),
    CASE(HEAD "and <b> </tool> " TAIL "ok", "{f|\nand <b> </tool> </function>\n}ok"),
    CASE(HEAD P("a", "x") "and", "{f|{\"a\": \"x\\n</parameter>\\nand}"),
    CASE(HEAD "<parameter>\nx\n</parameter>\n" TAIL, "{f|\n<parameter>\nx\n</parameter>\n"
                                                     "</function>\n}"),
    CASE(HEAD P("a", "x") "<parameter=\n" TAIL, "{f|{\"a\": \"x\"<parameter=\n</function>\n}"),
    CASE(HEAD "<parameter=>\n" TAIL HEAD TAIL, "{f|\n<parameter=>\n</function>\n}{f|{}}"),
    /* The answer breaks off: what was passed on stays, nothing is closed. */
    PLAIN("<tool_call>\n<function=f"),
    CASE("<tool_call>\n<function=f>", "{f|}"),
    CASE(HEAD "<parameter=a", "{f|}"),
    CASE(HEAD "<parameter=a>", "{f|{\"a\": \"}"),
    CASE(HEAD "<parameter=a>\nab", "{f|{\"a\": \"ab}"),
    CASE(HEAD "<parameter=a>\nab\n</para", "{f|{\"a\": \"ab}"),
    CASE(HEAD P("a", "x") "<parameter=n>\n12", "{f|{\"a\": \"x\"}"),
    CASE(HEAD P("a", "x") "</func", "{f|{\"a\": \"x}"),
    CASE(HEAD P("a", "x") "</function>\n</tool", "{f|{\"a\": \"x\"}}"),
    CASE(HEAD P("a", "x") "</function>\n<tool_c", "{f|{\"a\": \"x\"}}\n<tool_c"),
    CASE(HEAD "hello </tool", "{f|\nhello }"),
    PLAIN("Hi <tool_ca"),
    PLAIN("Hi <"),
};

static void test_calls_are_found_in_any_cut(void **state) {
    (void)state;
    tool_cases_check_with("qwen3_coder", tools, cases, COUNT(cases));
}

static void test_a_string_is_passed_on_as_it_arrives(void **state) {
    (void)state;
    static const struct tool_progress steps[] = {
        {"<tool_call>\n<function=f", ""},
        {">", "{f|"},
        {"\n<parameter=a>", "{f|{\"a\": \""},
        {"\nab", "{f|{\"a\": \"ab"},
        {"\n</param", "{f|{\"a\": \"ab"},
        {"x", "{f|{\"a\": \"ab\\n</paramx"},
        {"\n</parameter>\n<parameter=", "{f|{\"a\": \"ab\\n</paramx\""},
        {"n>\n12\n", "{f|{\"a\": \"ab\\n</paramx\""},
        {"</parameter>\n</function>", "{f|{\"a\": \"ab\\n</paramx\", \"n\": 12}"},
    };
    check_progress("qwen3_coder", steps, COUNT(steps));
}

static void test_long_arguments_are_whole(void **state) {
    (void)state;
    const struct long_form form = {"qwen3_coder", HEAD "<parameter=a>\n", "\n</parameter>\n" TAIL,
                                   "{f|{\"a\": \"", "\"}}"};
    check_long_argument(&form, 1 << 20);
    const struct long_form list = {"qwen3_coder", HEAD "<parameter=l>\n[\"",
                                   "\"]\n</parameter>\n" TAIL, "{f|{\"l\": [\"", "\"]}}"};
    check_long_argument(&list, 1 << 20);
    /* Too long to be read as JSON: a string. */
    const struct long_form text = {"qwen3_coder", HEAD "<parameter=l>\n[ ",
                                   "]\n</parameter>\n" TAIL, "{f|{\"l\": \"[ ", "]\"}}"};
    check_long_argument(&text, TOOL_VALUE_BYTES_MAX);
}

static void test_many_calls_take_linear_time_and_bounded_memory(void **state) {
    (void)state;
    check_many_calls("qwen3_coder", HEAD P("a", "x") P("n", "1") TAIL "\n",
                     "{f|{\"a\": \"x\", \"n\": 1}}");
}

static void test_blanks_and_tags_without_end_are_bounded(void **state) {
    (void)state;
    check_flood("qwen3_coder", HEAD, ' ');
    check_flood("qwen3_coder", HEAD "<parameter=", 'k');
    check_flood("qwen3_coder", HEAD "<parameter=n>\n", ' ');
    check_flood("qwen3_coder", HEAD "<parameter=a>\nx\n</parameter>", '\n');
    check_flood("qwen3_coder", "<tool_call>", '\n');
    check_flood("qwen3_coder", "<function=", 'n');
}

static void test_the_template_of_the_family_is_read(void **state) {
    (void)state;
    static const struct tool_trip trip = {
        .file = "templates/Qwen3-Coder.jinja",
        .form = "qwen3_coder",
        .begin = "<|im_start|>assistant\n",
        .end = "<|im_end|>",
        .messages =
            "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"I "
            "look.\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{\"a\":\"if x < 1:\\n\\tprint(\\\"</parameter>\\\")\\n\",\"n\":-7,"
            "\"x\":0.5,\"b\":true,\"o\":{\"k\":[1,\"\\u00e9\\\"\",null]},\"l\":[1,[2]],"
            "\"i\":null,\"r\":3,\"e\":\"2\"}}},{\"type\":\"function\",\"function\":{\"name\":"
            "\"get_weather\",\"arguments\":{}}},{\"type\":\"function\",\"function\":{\"name\":"
            "\"f\",\"arguments\":{\"a\":\"\"}}}]}]",
        .events = "I look.\n\n{f|{\"a\": \"if x < 1:\\n\\tprint(\\\"</parameter>\\\")\\n\", \"n\": "
                  "-7, \"x\": 0.5, \"b\": true, \"o\": {\"k\": [1, \"\xc3\xa9\\\"\", null]}, "
                  "\"l\": [1, [2]], \"i\": null, \"r\": 3, \"e\": \"2\"}}{get_weather|{}}{f|{"
                  "\"a\": \"\"}}",
    };
    check_trip(&trip);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_found_in_any_cut),
        cmocka_unit_test(test_a_string_is_passed_on_as_it_arrives),
        cmocka_unit_test(test_long_arguments_are_whole),
        cmocka_unit_test(test_many_calls_take_linear_time_and_bounded_memory),
        cmocka_unit_test(test_blanks_and_tags_without_end_are_bounded),
        cmocka_unit_test(test_the_template_of_the_family_is_read),
    };
    tools = json_of(tools_text);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_destroy(tools);
    return failed;
}
