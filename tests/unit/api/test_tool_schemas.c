/* Goal:   a tool's schema, whatever it is, costs time that grows with its size: where the kind of a
 *         value is looked up, and where the grammar of arguments that are not JSON is written.
 * Method: schemas with references in circles, with nested optional properties and with long lists
 *         of required names; processor time and bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <time.h>

#include "api/tools.h"
#include "unit/api/tool_events.h"
#include "unit/json_lib.h"

enum { BYTES_MAX = 1 << 26, TIME_MAX_S = 5 };

static double cpu_s(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* A definition that refers to itself `refs` times. */
static struct json *make_circle(int refs) {
    struct buf text;
    buf_init(&text, 1 << 16);
    buf_put_text(&text, "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
                        "\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/R\"}},"
                        "\"$defs\":{\"R\":{\"anyOf\":[");
    for (int i = 0; i < refs; i++) buf_printf(&text, "%s{\"$ref\":\"#/$defs/R\"}", i ? "," : "");
    buf_put_text(&text, "]}}}}}]");
    struct json *tools = json_of(buf_text(&text));
    buf_deinit(&text);
    return tools;
}

static void test_references_in_circles_cost_bounded_time(void **state) {
    (void)state;
    static const char text[] = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n"
                               "</function>\n</tool_call>";
    struct json *tools = make_circle(10);
    struct tool_callbacks to;
    struct tool_events ev;
    struct tool_parser *p;
    struct buf part;
    buf_init(&part, BYTES_MAX);
    const struct tool_form *form = tool_form_find("qwen3_coder");
    const double start = cpu_s();
    tool_events_init(&ev, &to);
    assert_int_equal(tool_parser_create(form, tools, &p), ST_OK);
    assert_int_equal(tool_parser_push(p, str_of(text), &to), ST_OK);
    assert_int_equal(tool_parser_finish(p, &to), ST_OK);
    form->shapes[0].put_args(json_get(json_at(tools, 0), "function"), STR("at"), false, &part);
    assert_true(cpu_s() - start < TIME_MAX_S);
    assert_true(str_is(tool_events_line(&ev), "{f|{\"a\": \"x\"}}"));
    buf_deinit(&ev.line);
    buf_deinit(&part);
    tool_parser_destroy(p);
    json_destroy(tools);
}

/* The part of a function's arguments in each of the form's shapes that has one. */
static void check_parts(const char *form, struct json *function, size_t bytes_max) {
    for (const struct tool_shape *shape = tool_form_find(form)->shapes;; shape++) {
        struct buf part;
        buf_init(&part, BYTES_MAX);
        const double start = cpu_s();
        if (shape->put_args) shape->put_args(function, STR("at"), false, &part);
        if (cpu_s() - start >= TIME_MAX_S) fail_msg("%s: %.1f s", form, cpu_s() - start);
        if (part.len > bytes_max) fail_msg("%s: %zu bytes", form, part.len);
        assert_int_equal(buf_status(&part), ST_OK);
        buf_deinit(&part);
        if (!shape->sign) return;
    }
}

static const char *const forms[] = {"gemma", "pythonic", "qwen3_coder", "glm4"};

/* Objects in objects, each the last of `width` properties, of which none is required. */
static void test_nested_optional_properties_are_written_once(void **state) {
    (void)state;
    enum { WIDTH = 8, DEPTH = 7 };
    struct buf text;
    buf_init(&text, 1 << 16);
    buf_put_text(&text, "{\"name\":\"f\",\"parameters\":");
    for (int d = 0; d < DEPTH; d++) {
        buf_put_text(&text, "{\"type\":\"object\",\"properties\":{");
        for (int i = 0; i < WIDTH; i++) buf_printf(&text, "\"p%d\":{\"type\":\"string\"},", i);
        buf_put_text(&text, "\"o\":");
    }
    buf_put_text(&text, "{\"type\":\"string\"}");
    for (int d = 0; d < DEPTH; d++) buf_put_text(&text, "}}");
    buf_put_char(&text, '}');
    struct json *function = json_of(buf_text(&text));
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        check_parts(forms[i], function, 64 * text.len);
    json_destroy(function);
    buf_deinit(&text);
}

static void test_long_lists_of_names_are_not_searched(void **state) {
    (void)state;
    enum { COUNT = 40000 };
    struct buf text;
    buf_init(&text, 1 << 22);
    buf_put_text(&text, "{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < COUNT; i++) buf_printf(&text, "%s\"p%05d\":{}", i ? "," : "", i);
    buf_put_text(&text, "},\"required\":[");
    for (int i = 0; i < COUNT; i++) buf_printf(&text, "%s\"r%05d\"", i ? "," : "", i);
    buf_put_text(&text, "]}}");
    struct json *function = json_of(buf_text(&text));
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        check_parts(forms[i], function, 64 * text.len);
    json_destroy(function);
    buf_deinit(&text);
}

/* Each property has a copy of the definitions: the grammar is too large, and is given up soon. */
static void test_large_definitions_are_not_copied_without_end(void **state) {
    (void)state;
    enum { COUNT = 20000, DEFS = 20000 };
    struct buf text;
    buf_init(&text, 1 << 22);
    buf_put_text(&text, "{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"$defs\":{");
    for (int i = 0; i < DEFS; i++) buf_printf(&text, "%s\"d%05d\":{}", i ? "," : "", i);
    buf_put_text(&text, "},\"properties\":{");
    for (int i = 0; i < COUNT; i++)
        buf_printf(&text, "%s\"p%05d\":{\"type\":\"null\"}", i ? "," : "", i);
    buf_put_text(&text, "}}}");
    struct json *function = json_of(buf_text(&text));
    static const char *const with_copies[] = {"pythonic", "qwen3_coder", "glm4"};
    for (size_t i = 0; i < 3; i++) {
        const struct tool_shape *shape = tool_form_find(with_copies[i])->shapes;
        while (!shape->put_args) shape++;
        struct buf part;
        buf_init(&part, 8 << 20);
        const double start = cpu_s();
        shape->put_args(function, STR("at"), false, &part);
        if (cpu_s() - start >= TIME_MAX_S) fail_msg("%s: %.1f s", with_copies[i], cpu_s() - start);
        assert_int_equal(buf_status(&part), ST_FULL);
        buf_deinit(&part);
    }
    json_destroy(function);
    buf_deinit(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references_in_circles_cost_bounded_time),
        cmocka_unit_test(test_nested_optional_properties_are_written_once),
        cmocka_unit_test(test_long_lists_of_names_are_not_searched),
        cmocka_unit_test(test_large_definitions_are_not_copied_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
