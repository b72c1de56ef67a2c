/* Goal:   a conversation with tools becomes messages that a template without tools can show, and a
 *         conversation without tools is not changed.
 * Method: messages and tools in; the messages that come out are compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "api/tools_as_text.h"
#include "unit/json_lib.h"

#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}"

static struct json *convert(const char *messages, const char *tools) {
    struct json *list = json_of(messages), *given = json_of(tools), *out = NULL;
    assert_int_equal(tools_as_text(list, given, &out), ST_OK);
    json_destroy(list);
    json_destroy(given);
    return out;
}

static const char *text_of(const struct json *doc, size_t i, const char *key) {
    return json_str(json_get(json_at(doc, i), key)).ptr;
}

static void test_tools_follow_the_system_message_or_make_one(void **state) {
    (void)state;
    struct json *doc = convert("[{\"role\":\"user\",\"content\":\"hi\"}]", "[" TOOL "]");
    assert_int_equal(json_count(doc), 2);
    assert_string_equal(text_of(doc, 0, "role"), "system");
    assert_non_null(strstr(text_of(doc, 0, "content"), "\n" TOOL "\n"));
    assert_non_null(strstr(text_of(doc, 0, "content"), "<tool_call>"));
    assert_string_equal(text_of(doc, 1, "content"), "hi");
    json_destroy(doc);

    doc = convert("[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                  "{\"role\":\"user\",\"content\":\"hi\"}]",
                  "[" TOOL "," TOOL "]");
    assert_int_equal(json_count(doc), 2);
    assert_memory_equal(text_of(doc, 0, "content"), "Be brief.\n\n", 11);
    assert_non_null(strstr(text_of(doc, 0, "content"), "\n" TOOL "\n" TOOL "\n"));
    json_destroy(doc);
}

static void test_calls_and_results_become_text(void **state) {
    (void)state;
    struct json *doc = convert(
        "[{\"role\":\"user\",\"content\":\"hi\"},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\","
        "\"type\":\"function\",\"function\":{\"name\":\"now\",\"arguments\":{\"in\":\"\\\"R\"}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"noon\"}]",
        NULL);
    assert_int_equal(json_count(doc), 3);
    assert_string_equal(text_of(doc, 1, "content"),
                        "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"in\":\"\\\"R\"}}\n"
                        "</tool_call>");
    assert_string_equal(text_of(doc, 2, "role"), "user");
    assert_string_equal(text_of(doc, 2, "content"), "<tool_response>\nnoon\n</tool_response>");
    json_destroy(doc);
}

static void test_text_beside_calls_stays_in_front_of_them(void **state) {
    (void)state;
    struct json *doc =
        convert("[{\"role\":\"assistant\",\"content\":\"Let me see.\",\"tool_calls\":["
                "{\"function\":{\"name\":\"a\",\"arguments\":{}}},"
                "{\"function\":{\"name\":\"b\",\"arguments\":{}}}]}]",
                NULL);
    assert_string_equal(text_of(doc, 0, "content"),
                        "Let me see.\n"
                        "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>\n"
                        "<tool_call>\n{\"name\": \"b\", \"arguments\": {}}\n</tool_call>");
    json_destroy(doc);
}

static void test_a_conversation_without_tools_is_not_changed(void **state) {
    (void)state;
    const char *messages = "[{\"role\":\"system\",\"content\":\"s\"},"
                           "{\"role\":\"user\",\"content\":\"u\",\"name\":\"n\"}]";
    struct json *doc = convert(messages, "[]");
    assert_true(json_is(doc, messages));
    json_destroy(doc);
}

static void test_a_template_that_never_mentions_tools_needs_them_as_text(void **state) {
    (void)state;
    assert_true(tools_as_text_needed(STR("{% for m in messages %}{{ m.content }}{% endfor %}")));
    assert_false(tools_as_text_needed(STR("{% if tools %}{{ tools | tojson }}{% endif %}")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tools_follow_the_system_message_or_make_one),
        cmocka_unit_test(test_calls_and_results_become_text),
        cmocka_unit_test(test_text_beside_calls_stays_in_front_of_them),
        cmocka_unit_test(test_a_conversation_without_tools_is_not_changed),
        cmocka_unit_test(test_a_template_that_never_mentions_tools_needs_them_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
