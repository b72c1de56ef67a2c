/* Goal:   calls between Kimi's marks are found in any cut; what is malformed is text before the
 *         name and arguments as written after it.
 * Method: a table of texts (unit/api/tool_cases.h); the family's own template; long answers. */
#include "unit/api/tool_long.h"
#include "unit/api/tool_trips.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"add\"}}]";

#define FORM "kimi"
#define BEGIN "<|tool_calls_section_begin|>"
#define TAIL "<|tool_calls_section_end|>"
#define CALL "<|tool_call_begin|>"
#define END "<|tool_call_end|>"
#define ARGS "<|tool_call_argument_begin|>"
#define F CALL "functions.f:0" ARGS
#define F0 CALL "functions.f:0"
#define ADD CALL "functions.add:1" ARGS
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
    CASE(BEGIN F "{}<|tool_call_e", "{f|{}}"),
    CASE(BEGIN F "{}" END "<|tool_calls_sec", "{f|{}}"),
    CASE(BEGIN F "{}" END "<|tool_call_b", "{f|{}}<|tool_call_b"),
    PLAIN(BEGIN CALL "functions.f:0<|tool_call_arg"),
    /* How the name may be written. */
    CASE(CALL "functions.get_weather:12" ARGS "{}" END, "{get_weather|{}}"),
    CASE(CALL "f:0" ARGS "{}" END, "{f|{}}"),
    CASE(CALL "functions.f" ARGS "{}" END, "{f|{}}"),
    CASE(CALL "f" ARGS "{}" END, "{f|{}}"),
    CASE(CALL "\n functions.f:0 \n" ARGS "{}" END, "{f|{}}"),
    PLAIN(BEGIN CALL "functions.rm:0" ARGS "{}" END TAIL),
    PLAIN(CALL "functions.:0" ARGS "{}" END),
    PLAIN(CALL "functions.f:" ARGS "{}" END),
    PLAIN(CALL "functions.f:x" ARGS "{}" END),
    PLAIN(CALL "0" ARGS "{}" END),
    PLAIN(CALL ARGS "{}" END),
    CASE(BEGIN CALL "functions.f:0" CALL "functions.f:0" ARGS "{}" END TAIL,
         BEGIN CALL "functions.f:0{f|{}}"),
    /* A fence is no part of this form. */
    CASE(F "```json\n{}\n```" END, "{f|```json\n{}\n```}"),
};

static void test_calls_are_found_in_any_cut(void **state) {
    (void)state;
    tool_cases_check_with("kimi", tools, cases, COUNT(cases));
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
        {BEGIN CALL "functions.f:0", ""},
        {ARGS, "{f|"},
        {"{\"a", "{f|{\"a"},
        {"\": 1} ", "{f|{\"a\": 1}"},
        {"<|tool_call", "{f|{\"a\": 1}"},
        {"x", "{f|{\"a\": 1} <|tool_callx"},
    };
    check_progress(FORM, steps, COUNT(steps));
}

static void test_blanks_and_marks_without_end_are_bounded(void **state) {
    (void)state;
    check_flood(FORM, BEGIN, ' ');
    check_flood(FORM, BEGIN CALL, 'n');
    check_flood(FORM, BEGIN F "{} ", '\n');
    check_flood(FORM, BEGIN F "{}", '<');
    check_flood(FORM, BEGIN F "{}" END, '<');
}

static void test_the_template_of_the_family_is_read(void **state) {
    (void)state;
    static const struct tool_trip trip = {
        /* Changing a list is forbidden in templates; only the results of tools need it. */
        .without = "{%- set _ = tool_response_queue.ids.append(formatted_id) -%}",
        .file = "templates/Kimi-K2-Instruct.jinja",
        .form = FORM,
        .begin = "<|im_assistant|>assistant<|im_middle|>",
        .end = "<|im_end|>",
        .messages =
            "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"I "
            "look.\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{\"a\":\"x < 1\\n\\\"<|tool_call_end|>\\\"\",\"o\":{\"k\":[1,"
            "\"\\u00e9\",null,true,0.5]}}}},{\"type\":\"function\",\"function\":{\"name\":"
            "\"get_weather\",\"arguments\":{}}},{\"type\":\"function\",\"function\":{\"name\":"
            "\"add\",\"arguments\":\"{\\\"x\\\":  1}\"}}]}]",
        .events = "I look.{f|{\"a\": \"x < 1\\n\\\"<|tool_call_end|>\\\"\", \"o\": {\"k\": [1, "
                  "\"\xc3\xa9\", null, true, 0.5]}}}{get_weather|{}}{add|{\"x\":  1}}",
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
