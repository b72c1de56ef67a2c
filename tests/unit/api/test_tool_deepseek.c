/* Goal:   calls between DeepSeek's marks, as V3 and as V3.1 write them, are found in any cut; what
 *         is malformed is text before the name and arguments as written after it.
 * Method: a table of texts (unit/api/tool_cases.h); the family's own template; long answers. */
#include "unit/api/tool_long.h"
#include "unit/api/tool_trips.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"add\"}}]";

#define FORM "deepseek"
#define BAR "\uff5c"
#define GAP "\u2581"
#define BEGIN "<" BAR "tool" GAP "calls" GAP "begin" BAR ">"
#define TAIL "<" BAR "tool" GAP "calls" GAP "end" BAR ">"
#define CALL "<" BAR "tool" GAP "call" GAP "begin" BAR ">"
#define END "<" BAR "tool" GAP "call" GAP "end" BAR ">"
#define SEP "<" BAR "tool" GAP "sep" BAR ">"
#define F CALL "f" SEP
#define F0 CALL "f"
#define ADD CALL "add" SEP
/* As V3 writes it. */
#define V3(name, args) CALL "function" SEP name "\n```json\n" args "\n```" END
#define CASE(text, events)                                                                         \
    { text, events }
#define PLAIN(text)                                                                                \
    { text, text }

static const struct tool_case cases[] = {
    PLAIN(""),
    PLAIN(" \n"),
    PLAIN("Plain, 1 < 2, <b>x</b> <| <|tool " TAIL " " END),
    CASE(BEGIN F "{}" END TAIL, "{f|{}}"),
    CASE(BEGIN F "{\"a\": 1}" END TAIL, "{f|{\"a\": 1}}"),
    CASE("\n" BEGIN F "{\"a\": 1}" END TAIL "\n", "{f|{\"a\": 1}}"),
    CASE("I look.\n" BEGIN F "{}" END TAIL " Done.", "I look.\n{f|{}} Done."),
    CASE(BEGIN F "{\"a\": {\"b\": [1, {\"c\": \"}]\"}]}}" END TAIL,
         "{f|{\"a\": {\"b\": [1, {\"c\": \"}]\"}]}}}"),
    CASE(BEGIN F "{\"s\": \"q\\\"}\\\\\", \"t\": \"\\u00e9\xc3\xa9\"}" END TAIL,
         "{f|{\"s\": \"q\\\"}\\\\\", \"t\": \"\\u00e9\xc3\xa9\"}}"),
    CASE(BEGIN F "{\n  \"a\" : 1\n}" END TAIL, "{f|{\n  \"a\" : 1\n}}"),
    CASE(BEGIN F " {\"a\": 1} " END TAIL, "{f|{\"a\": 1}}"),
    CASE(BEGIN F "{\"a\": \"\xf0\x9f\x98\x80\"}" END TAIL, "{f|{\"a\": \"\xf0\x9f\x98\x80\"}}"),
    /* Marks inside a string are the string's. */
    CASE(BEGIN F "{\"a\": \"" END TAIL "\"}" END TAIL "x", "{f|{\"a\": \"" END TAIL "\"}}x"),
    /* Several calls. */
    CASE(BEGIN F "{}" END ADD "{\"x\": 2}" END TAIL, "{f|{}}{add|{\"x\": 2}}"),
    CASE(BEGIN F "{}" END "\n" ADD "{\"x\": 2}" END "\n" TAIL "ok", "{f|{}}{add|{\"x\": 2}}ok"),
    CASE(BEGIN F "{}" END TAIL "\n" BEGIN ADD "{}" END TAIL, "{f|{}}{add|{}}"),
    CASE(BEGIN F "{}" END " and " ADD "{}" END TAIL, "{f|{}} and {add|{}}"),
    CASE(F "{}" END "ok", "{f|{}}ok"),
    CASE(BEGIN "\n " F "{}" END TAIL, "{f|{}}"),
    CASE(BEGIN F "{}" TAIL "ok", "{f|{}}ok"),
    CASE(BEGIN F "{}" END TAIL TAIL, "{f|{}}" TAIL),
    /* No arguments. */
    CASE(BEGIN F END TAIL, "{f|{}}"),
    CASE(BEGIN F " \n" END TAIL, "{f|{}}"),
    /* Malformed before the name is complete: text. */
    PLAIN(BEGIN "hello" TAIL),
    PLAIN(BEGIN TAIL),
    PLAIN(BEGIN " <b>" F0),
    PLAIN(CALL "f" END),
    PLAIN(BEGIN CALL "f{}" END TAIL),
    CASE(BEGIN CALL "x" BEGIN F "{}" END TAIL, BEGIN CALL "x{f|{}}"),
    CASE(BEGIN BEGIN F "{}" END TAIL, BEGIN "{f|{}}"),
    CASE(BEGIN CALL F "{}" END TAIL, BEGIN CALL "{f|{}}"),
    CASE("<" F "{}" END, "<{f|{}}"),
    CASE(BEGIN F "{}" END CALL "bad" END TAIL "x", "{f|{}}" CALL "bad" END "x"),
    /* Malformed behind the name: as written, up to the end of the call. */
    CASE(BEGIN F "hello" END TAIL "x", "{f|hello}x"),
    CASE(BEGIN F "[1]" END TAIL, "{f|[1]}"),
    CASE(BEGIN F "{\"a\": 1}}" END TAIL, "{f|{\"a\": 1}}}"),
    CASE(BEGIN F "{\"a\": 1" END TAIL, "{f|{\"a\": 1}"),
    CASE(BEGIN F "{} <b> {" END TAIL "x", "{f|{} <b> {}x"),
    CASE(BEGIN F "{}<" END TAIL "x", "{f|{}<}x"),
    CASE(BEGIN F "{\"a\": \"x" END TAIL "y", "{f|{\"a\": \"x" END TAIL "y}"),
    /* The answer breaks off. */
    CASE(BEGIN F, "{f|}"),
    CASE(BEGIN F "{\"a\": \"b", "{f|{\"a\": \"b}"),
    CASE(BEGIN F "{\"a\": 1} ", "{f|{\"a\": 1}}"),
    CASE(BEGIN F "{}" END, "{f|{}}"),
    PLAIN(BEGIN),
    PLAIN(BEGIN CALL),
    PLAIN("Hi <"),
    CASE(BEGIN F "{}<" BAR "tool" GAP "call", "{f|{}}"),
    CASE(BEGIN F "{}" END "<" BAR "tool" GAP "calls" GAP "e", "{f|{}}"),
    CASE(BEGIN F "{}" END "<" BAR "tool" GAP "call" GAP, "{f|{}}<" BAR "tool" GAP "call" GAP),
    PLAIN(BEGIN CALL "rm" SEP "{}" END TAIL),
    PLAIN(CALL SEP "{}" END),
    CASE(CALL " f\n" SEP "{}" END, "{f|{}}"),
    /* V3. */
    CASE(BEGIN V3("f", "{\"a\": 1}") TAIL, "{f|{\"a\": 1}}"),
    CASE(BEGIN V3("f", "{\"a\": \"```\\n\"}") "\n" V3("add", "{}") TAIL,
         "{f|{\"a\": \"```\\n\"}}{add|{}}"),
    CASE("Hm." BEGIN V3("f", "{\n \"a\": {}\n}") TAIL " ok", "Hm.{f|{\n \"a\": {}\n}} ok"),
    CASE(CALL "function" SEP "f\n{\"a\": 1}" END, "{f|{\"a\": 1}}"),
    CASE(CALL "function" SEP "f\n```\n{\"a\": 1}\n```\n" END, "{f|{\"a\": 1}}"),
    CASE(CALL "function" SEP "f```json\n{}\n```" END, "{f|{}}"),
    CASE(CALL "function" SEP "f{\"a\": 1}" END, "{f|{\"a\": 1}}"),
    CASE(CALL "function" SEP "f\n```json\n```" END, "{f|{}}"),
    PLAIN(BEGIN V3("rm", "{}") TAIL),
    PLAIN(BEGIN V3("", "{}") TAIL),
    PLAIN(CALL "function" SEP "f" END TAIL),
    PLAIN(CALL "function" SEP "{\"a\": 1}" END TAIL),
    PLAIN(CALL "procedure" SEP "f\n```json\n{}\n```" END),
    CASE(CALL "function" SEP "f\n```python\nf(1)\n```" END "x", "{f|```python\nf(1)}x"),
    CASE(CALL "function" SEP "f\n```json\n{}\n```\nNote." END, "{f|{}\n```\nNote.}"),
    CASE(CALL "function" SEP "f\n```json\n{}\n````" END, "{f|{}\n````}"),
    CASE(CALL "function" SEP "f\n```json\n{}\n``" END, "{f|{}\n``}"),
    CASE(CALL "function" SEP "f\n``", "{f|}"),
    CASE(CALL "function" SEP "f\n```json\n{\"a\"", "{f|{\"a\"}"),
    CASE(CALL "function" SEP "f\n```json\n{}\n``", "{f|{}}"),
    PLAIN(CALL "function" SEP "f"),
    CASE(CALL "function" SEP "f\n", "{f|}"),
};

static void test_calls_are_found_in_any_cut(void **state) {
    (void)state;
    tool_cases_check_with("deepseek", tools, cases, COUNT(cases));
}

static void test_long_arguments_are_whole(void **state) {
    (void)state;
    const struct long_form form = {FORM, BEGIN F "{\"a\": \"", "\"}" END TAIL, "{f|{\"a\": \"",
                                   "\"}}"};
    check_long_argument(&form, 1 << 20);
}

static void test_many_calls_take_linear_time_and_bounded_memory(void **state) {
    (void)state;
    check_many_calls(FORM, F "{\"a\": [1, \"x\"]}" END, "{f|{\"a\": [1, \"x\"]}}");
    check_many_calls(FORM, BEGIN F "{}" END TAIL "\n", "{f|{}}");
}

static void test_arguments_are_passed_on_as_they_arrive(void **state) {
    (void)state;
    static const struct tool_progress steps[] = {
        {BEGIN CALL "function" SEP "f", ""}, {"\n", "{f|"},
        {"```json\n{\"a", "{f|{\"a"},        {"\": 1}\n", "{f|{\"a\": 1}"},
        {"```<", "{f|{\"a\": 1}"},           {"x", "{f|{\"a\": 1}\n```<x"},
    };
    check_progress(FORM, steps, COUNT(steps));
}

/* V3.1 has the name where V3 has "function". */
static void test_a_tool_may_be_called_function(void **state) {
    (void)state;
    static const struct tool_case odd[] = {
        CASE(CALL "function" SEP "{\"a\": 1}" END, "{function|{\"a\": 1}}"),
        CASE(V3("function", "{}"), "{function|{}}"),
        CASE(V3("f", "{}"), "{f|{}}"),
    };
    struct json *before = tools;
    tools = json_of("[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"function\"}}]");
    tool_cases_check_with("deepseek", tools, odd, COUNT(odd));
    json_destroy(tools);
    tools = before;
}

static void test_blanks_and_marks_without_end_are_bounded(void **state) {
    (void)state;
    check_flood(FORM, BEGIN, ' ');
    check_flood(FORM, BEGIN CALL, 'n');
    check_flood(FORM, CALL "function" SEP, 'n');
    check_flood(FORM, BEGIN F "{} ", '\n');
    check_flood(FORM, BEGIN F "{}", '`');
    check_flood(FORM, BEGIN F "{}\n```", '\n');
}

static void test_the_template_of_the_family_is_read(void **state) {
    (void)state;
    static const struct tool_trip trip = {
        .file = "templates/deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja",
        .form = FORM,
        .begin = "<" BAR "Assistant" BAR ">",
        .end = "<" BAR "end" GAP "of" GAP "sentence" BAR ">",
        .messages =
            "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":null,"
            "\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{\"a\":\"x < 1\\n\\\"```\\\"\",\"o\":{\"k\":[1,"
            "\"\\u00e9\",null,true,0.5]}}}},{\"type\":\"function\",\"function\":{\"name\":"
            "\"get_weather\",\"arguments\":{}}}]}]",
        .events = "{f|{\"a\": \"x < 1\\n\\\"```\\\"\", \"o\": {\"k\": [1, "
                  "\"\xc3\xa9\", null, true, 0.5]}}}{get_weather|{}}",
    };
    check_trip(&trip);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_found_in_any_cut),
        cmocka_unit_test(test_arguments_are_passed_on_as_they_arrive),
        cmocka_unit_test(test_long_arguments_are_whole),
        cmocka_unit_test(test_many_calls_take_linear_time_and_bounded_memory),
        cmocka_unit_test(test_a_tool_may_be_called_function),
        cmocka_unit_test(test_blanks_and_marks_without_end_are_bounded),
        cmocka_unit_test(test_the_template_of_the_family_is_read),
    };
    tools = json_of(tools_text);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_destroy(tools);
    return failed;
}
