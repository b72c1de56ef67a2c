/* Goal:   calls in GLM's tags become calls with JSON arguments of the tool's kinds, in any cut;
 *         what is malformed is text before the name and arguments as written after it.
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

#define HEAD "<tool_call>f\n"
#define ADD "<tool_call>add\n"
#define P(key, value) "<arg_key>" key "</arg_key>\n<arg_value>" value "</arg_value>\n"
#define TAIL "</tool_call>"
#define CASE(text, events)                                                                         \
    { text, events }
#define PLAIN(text)                                                                                \
    { text, text }

static const struct tool_case cases[] = {
    PLAIN(""),
    PLAIN("Plain, 1 < 2, <b>x</b> </tool_call> <arg_key>a</arg_key>"),
    PLAIN(" \n"),
    CASE(HEAD TAIL, "{f|{}}"),
    CASE("<tool_call>f</tool_call>", "{f|{}}"),
    CASE("<tool_call>\n f \n</tool_call>", "{f|{}}"),
    CASE(HEAD P("a", "Paris") TAIL, "{f|{\"a\": \"Paris\"}}"),
    CASE(HEAD P("a", "Paris") P("n", "3") TAIL, "{f|{\"a\": \"Paris\", \"n\": 3}}"),
    CASE("\n" HEAD P("a", "x") TAIL "\n", "{f|{\"a\": \"x\"}}"),
    CASE("I look.\n" HEAD P("a", "x") TAIL "\nDone.", "I look.\n{f|{\"a\": \"x\"}}\nDone."),
    CASE(HEAD TAIL "\n" ADD P("q", "1") TAIL, "{f|{}}{add|{\"q\": 1}}"),
    CASE("<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value><arg_key>n</arg_key>"
         "<arg_value>2</arg_value></tool_call>",
         "{f|{\"a\": \"x\", \"n\": 2}}"),
    /* A string is the text as written, with its line ends. */
    CASE(HEAD P("a", "5") TAIL, "{f|{\"a\": \"5\"}}"),
    CASE(HEAD P("a", "{\"k\": 1}") TAIL, "{f|{\"a\": \"{\\\"k\\\": 1}\"}}"),
    CASE(HEAD P("a", "") TAIL, "{f|{\"a\": \"\"}}"),
    CASE(HEAD P("a", "\n x \n") TAIL, "{f|{\"a\": \"\\n x \\n\"}}"),
    CASE(HEAD P("a", "q\"\\\t\x01") TAIL, "{f|{\"a\": \"q\\\"\\\\\\t\\u0001\"}}"),
    CASE(HEAD P("a", "\xc3\xa9\xf0\x9f\x98\x80") TAIL, "{f|{\"a\": \"\xc3\xa9\xf0\x9f\x98\x80\"}}"),
    CASE(HEAD P("a", "\xc3x\xf0\x9f") TAIL, "{f|{\"a\": \"\xef\xbf\xbdx\xef\xbf\xbd\"}}"),
    /* Closing tags inside a value. */
    CASE(HEAD P("a", "x</arg_value>y\n</arg_value>\nz") TAIL,
         "{f|{\"a\": \"x</arg_value>y\\n</arg_value>\\nz\"}}"),
    CASE(HEAD P("a", "</arg_value>\n</arg_value>\n</arg_value") P("n", "1") TAIL,
         "{f|{\"a\": \"</arg_value>\\n</arg_value>\\n</arg_value\", \"n\": 1}}"),
    CASE(HEAD P("a", "</tool_call> <tool_call> <arg_key>") TAIL,
         "{f|{\"a\": \"</tool_call> <tool_call> <arg_key>\"}}"),
    /* Other kinds: as JSON, if they are. */
    CASE(HEAD P("n", " -12 ") P("x", "1.5e3") P("b", "true") TAIL,
         "{f|{\"n\": -12, \"x\": 1.5e3, \"b\": true}}"),
    CASE(HEAD P("o", "{\"k\": [1, {\"t\": \"</arg_value>\"}]}") P("l", "[]") TAIL,
         "{f|{\"o\": {\"k\": [1, {\"t\": \"</arg_value>\"}]}, \"l\": []}}"),
    CASE(HEAD P("n", "1.5") TAIL, "{f|{\"n\": \"1.5\"}}"),
    CASE(HEAD P("n", "twelve") TAIL, "{f|{\"n\": \"twelve\"}}"),
    CASE(HEAD P("b", "True") P("z", "None") TAIL, "{f|{\"b\": \"True\", \"z\": \"None\"}}"),
    CASE(HEAD P("o", "{\"k\": 1") TAIL, "{f|{\"o\": \"{\\\"k\\\": 1\"}}"),
    CASE(HEAD P("e", "1") P("r", "7") P("i", "null") TAIL,
         "{f|{\"e\": \"1\", \"r\": 7, \"i\": null}}"),
    CASE(HEAD P("s", "null") P("s", "nullable") P("s", "5") TAIL,
         "{f|{\"s\": null, \"s\": \"nullable\", \"s\": \"5\"}}"),
    /* Properties that the schema does not name. */
    CASE(ADD P("u", "5") P("v", "true") P("w", "{\"k\": []}") P("y", "null") TAIL,
         "{add|{\"u\": 5, \"v\": true, \"w\": {\"k\": []}, \"y\": null}}"),
    CASE(ADD P("u", "5 apples") P("w", "\"q\"") TAIL,
         "{add|{\"u\": \"5 apples\", \"w\": \"\\\"q\\\"\"}}"),
    CASE(ADD P("k \"1\"", "x") TAIL, "{add|{\"k \\\"1\\\"\": \"x\"}}"),
    /* Malformed before the name is complete: text. */
    PLAIN("<tool_call>rm\n" P("a", "x") TAIL),
    PLAIN("<tool_call></tool_call>"),
    PLAIN("<tool_call>\n\n</tool_call>"),
    PLAIN("<tool_call>f x\n" TAIL),
    PLAIN("<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"),
    CASE("<tool_call>" HEAD TAIL, "<tool_call>{f|{}}"),
    CASE("<tool_call>g" HEAD TAIL, "<tool_call>g{f|{}}"),
    CASE("<<" HEAD TAIL, "<<{f|{}}"),
    /* Malformed behind the name: as written, up to the end of the call. */
    CASE(HEAD "hello" TAIL " ok", "{f|\nhello} ok"),
    CASE(HEAD "{\"a\": 1}\n" TAIL, "{f|\n{\"a\": 1}\n}"),
    CASE(HEAD "<arg_value>x</arg_value>\n" TAIL, "{f|\n<arg_value>x</arg_value>\n}"),
    CASE(HEAD "<arg_key></arg_key>" TAIL, "{f|\n<arg_key></arg_key>}"),
    CASE(HEAD P("a", "x") "<arg_key>n</arg_key>5</arg_value></tool_call> ok",
         "{f|{\"a\": \"x\"<arg_key>n</arg_key>5</arg_value>} ok"),
    CASE(HEAD "<arg_key>a</arg_key></arg_key><arg_value>x</arg_value>" TAIL HEAD TAIL,
         "{f|\n<arg_key>a</arg_key></arg_key><arg_value>x</arg_value>}{f|{}}"),
    CASE(HEAD P("a", "x") "and", "{f|{\"a\": \"x</arg_value>\\nand}"),
    /* The answer breaks off: what was passed on stays, nothing is closed. */
    PLAIN("<tool_call>f"),
    CASE("<tool_call>f\n", "{f|}"),
    CASE(HEAD "<arg_key>a", "{f|}"),
    CASE(HEAD "<arg_key>a</arg_key>\n<arg_va", "{f|}"),
    CASE(HEAD "<arg_key>a</arg_key>\n<arg_value>", "{f|{\"a\": \"}"),
    CASE(HEAD "<arg_key>a</arg_key>\n<arg_value>ab", "{f|{\"a\": \"ab}"),
    CASE(HEAD "<arg_key>a</arg_key>\n<arg_value>ab</arg", "{f|{\"a\": \"ab}"),
    CASE(HEAD P("a", "x") "<arg_key>n</arg_key><arg_value>12", "{f|{\"a\": \"x\"}"),
    CASE(HEAD P("a", "x") "</tool", "{f|{\"a\": \"x}"),
    PLAIN("Hi <tool_ca"),
};

static void test_calls_are_found_in_any_cut(void **state) {
    (void)state;
    tool_cases_check_with("glm4", tools, cases, COUNT(cases));
}

static void test_arguments_are_passed_on_as_they_arrive(void **state) {
    (void)state;
    static const struct tool_progress steps[] = {
        {"<tool_call>f", ""},
        {"\n", "{f|"},
        {"<arg_key>a</arg_key>\n<arg_value>", "{f|{\"a\": \""},
        {"ab", "{f|{\"a\": \"ab"},
        {"</arg_value>", "{f|{\"a\": \"ab"},
        {"\n<arg_key>", "{f|{\"a\": \"ab\""},
        {"n</arg_key>\n<arg_value>12", "{f|{\"a\": \"ab\""},
        {"</arg_value></tool_call>", "{f|{\"a\": \"ab\", \"n\": 12}"},
    };
    check_progress("glm4", steps, COUNT(steps));
}

static void test_long_arguments_are_whole(void **state) {
    (void)state;
    const struct long_form form = {"glm4", HEAD "<arg_key>a</arg_key>\n<arg_value>",
                                   "</arg_value>\n" TAIL, "{f|{\"a\": \"", "\"}}"};
    check_long_argument(&form, 1 << 20);
    const struct long_form list = {"glm4", HEAD "<arg_key>l</arg_key>\n<arg_value>[\"",
                                   "\"]</arg_value>\n" TAIL, "{f|{\"l\": [\"", "\"]}}"};
    check_long_argument(&list, 1 << 20);
}

static void test_many_calls_take_linear_time_and_bounded_memory(void **state) {
    (void)state;
    check_many_calls("glm4", HEAD P("a", "x") P("n", "1") TAIL "\n",
                     "{f|{\"a\": \"x\", \"n\": 1}}");
}

static void test_blanks_and_marks_without_end_are_bounded(void **state) {
    (void)state;
    check_flood("glm4", HEAD, ' ');
    check_flood("glm4", HEAD "<arg_key>", 'k');
    check_flood("glm4", HEAD "<arg_key>a</arg_key>", ' ');
    check_flood("glm4", HEAD "<arg_key>n</arg_key><arg_value>", ' ');
    check_flood("glm4", HEAD "<arg_key>a</arg_key><arg_value>x</arg_value>", '\n');
    check_flood("glm4", "<tool_call>", '\n');
    check_flood("glm4", "<tool_call>", 'n');
}

static void test_the_template_of_the_family_is_read(void **state) {
    (void)state;
    static const struct tool_trip trip = {
        .file = "templates/GLM-4.6.jinja",
        .form = "glm4",
        .begin = "<|assistant|>\n<think></think>\n",
        .messages =
            "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"I "
            "look.\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{\"a\":\"if x < 1:\\n\\tprint(\\\"</arg_value>\\\")\\n\",\"n\":-7,"
            "\"x\":0.5,\"b\":true,\"o\":{\"k\":[1,\"\\u00e9\\\"\",null]},\"l\":[1,[2]],"
            "\"i\":null,\"r\":3,\"e\":\"2\"}}},{\"type\":\"function\",\"function\":{\"name\":"
            "\"get_weather\",\"arguments\":{}}},{\"type\":\"function\",\"function\":{\"name\":"
            "\"f\",\"arguments\":{\"a\":\"\"}}}]}]",
        .events = "I look.\n{f|{\"a\": \"if x < 1:\\n\\tprint(\\\"</arg_value>\\\")\\n\", \"n\": "
                  "-7, \"x\": 0.5, \"b\": true, \"o\": {\"k\": [1, \"\xc3\xa9\\\"\", null]}, "
                  "\"l\": [1, [2]], \"i\": null, \"r\": 3, \"e\": \"2\"}}{get_weather|{}}{f|{"
                  "\"a\": \"\"}}",
    };
    check_trip(&trip);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_found_in_any_cut),
        cmocka_unit_test(test_arguments_are_passed_on_as_they_arrive),
        cmocka_unit_test(test_long_arguments_are_whole),
        cmocka_unit_test(test_many_calls_take_linear_time_and_bounded_memory),
        cmocka_unit_test(test_blanks_and_marks_without_end_are_bounded),
        cmocka_unit_test(test_the_template_of_the_family_is_read),
    };
    tools = json_of(tools_text);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_destroy(tools);
    return failed;
}
