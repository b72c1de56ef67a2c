/* Goal:   what all tool forms have in common: text and arguments are passed on as early as can
 *         be, limits hold, templates have the right form, and each form reads what its shapes say.
 * Method: texts pushed in pieces; for shapes, a call is written from the shape's texts and parsed.
 *         test_tool_X.c has the texts of each form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "api/tools.h"
#include "base/mem.h"
#include "unit/api/tool_cases.h"
#include "unit/json_lib.h"
#include "unit/text/tok_lib.h"

static struct json *tools;

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* The number of bytes of all events after one more piece. */
static size_t bytes_after(struct tool_parser *p, struct tool_events *ev,
                          struct tool_callbacks *callbacks, const char *text) {
    assert_int_equal(tool_parser_push(p, str_of(text), callbacks), ST_OK);
    return ev->line.len;
}

static void test_text_is_emitted_as_soon_as_it_is_certain(void **state) {
    (void)state;
    struct tool_events ev;
    struct tool_callbacks callbacks;
    struct tool_parser *p;
    tool_events_init(&ev, &callbacks);
    assert_int_equal(tool_parser_create(tool_form_find("json"), tools, &p), ST_OK);
    assert_int_equal(bytes_after(p, &ev, &callbacks, "{\"answer"), 0);
    assert_int_equal(bytes_after(p, &ev, &callbacks, "\""), 9); /* no key of a call */
    assert_int_equal(bytes_after(p, &ev, &callbacks, ": 4"), 12);
    tool_parser_destroy(p);
    buf_deinit(&ev.line);

    tool_events_init(&ev, &callbacks);
    assert_int_equal(tool_parser_create(tool_form_find("json"), tools, &p), ST_OK);
    assert_int_equal(bytes_after(p, &ev, &callbacks, "{\"name\": \"Bob"), 0);
    assert_int_equal(bytes_after(p, &ev, &callbacks, "\""), 14); /* not a tool's name */
    tool_parser_destroy(p);
    buf_deinit(&ev.line);
}

static void test_arguments_are_emitted_as_they_arrive(void **state) {
    (void)state;
    struct tool_events ev;
    struct tool_callbacks callbacks;
    struct tool_parser *p;
    tool_events_init(&ev, &callbacks);
    assert_int_equal(tool_parser_create(tool_form_find("hermes"), tools, &p), ST_OK);
    assert_int_equal(bytes_after(p, &ev, &callbacks, "<tool_call>{\"name\": \"f"), 0);
    assert_int_equal(bytes_after(p, &ev, &callbacks, "\""), 3); /* {f| */
    assert_int_equal(bytes_after(p, &ev, &callbacks, ", \"arguments\": {"), 4);
    assert_int_equal(bytes_after(p, &ev, &callbacks, "\"x\""), 7);
    tool_parser_destroy(p);
    buf_deinit(&ev.line);
}

static void test_every_name_is_accepted_without_a_list_of_tools(void **state) {
    (void)state;
    struct tool_events ev;
    struct tool_callbacks callbacks;
    struct tool_parser *p;
    tool_events_init(&ev, &callbacks);
    assert_int_equal(tool_parser_create(tool_form_find("json"), NULL, &p), ST_OK);
    bytes_after(p, &ev, &callbacks, "{\"name\": \"Bob\", \"arguments\": {}}");
    assert_true(str_is(tool_events_line(&ev), "{Bob|{}}"));
    tool_parser_destroy(p);
    buf_deinit(&ev.line);
}

/* The beginning of what is not a call becomes text once it is too long to hold. */
static void test_held_text_has_a_limit(void **state) {
    (void)state;
    enum { FILL = 4096 };
    char fill[FILL];
    memset(fill, 'x', sizeof(fill));
    struct tool_events ev;
    struct tool_callbacks callbacks;
    struct tool_parser *p;
    tool_events_init(&ev, &callbacks);
    assert_int_equal(tool_parser_create(tool_form_find("hermes"), tools, &p), ST_OK);
    bytes_after(p, &ev, &callbacks, "<tool_call>{\"id\": \"");
    size_t pushed = strlen("<tool_call>{\"id\": \"");
    while (ev.line.len == 0 && pushed < 2 * TOOL_HELD_BYTES_MAX) {
        assert_int_equal(tool_parser_push(p, (struct str){fill, FILL}, &callbacks), ST_OK);
        pushed += FILL;
    }
    assert_in_range(pushed, TOOL_HELD_BYTES_MAX, TOOL_HELD_BYTES_MAX + FILL);
    assert_int_equal(tool_parser_finish(p, &callbacks), ST_OK);
    assert_int_equal(ev.line.len, pushed);
    tool_parser_destroy(p);
    buf_deinit(&ev.line);
}

static void test_a_name_that_is_too_long_is_text(void **state) {
    (void)state;
    struct buf text;
    buf_init(&text, 1 << 16);
    buf_put_text(&text, "[TOOL_CALLS]");
    for (int i = 0; i <= TOOL_NAME_BYTES_MAX; i++) buf_put_char(&text, 'n');
    buf_put_text(&text, "[ARGS]{}");
    const struct tool_case c = {buf_text(&text), buf_text(&text)};
    tool_cases_check("mistral", &c, 1);

    struct tool_events ev;
    struct tool_callbacks callbacks;
    struct tool_parser *p;
    tool_events_init(&ev, &callbacks);
    assert_int_equal(tool_parser_create(tool_form_find("json"), NULL, &p), ST_OK);
    buf_clear(&text);
    buf_put_text(&text, "{\"name\": \"");
    for (int i = 0; i <= TOOL_NAME_BYTES_MAX; i++) buf_put_char(&text, 'n');
    buf_put_text(&text, "\", \"arguments\": {}}");
    assert_int_equal(tool_parser_push(p, buf_str(&text), &callbacks), ST_OK);
    assert_true(str_eq(tool_events_line(&ev), buf_str(&text)));
    tool_parser_destroy(p);
    buf_deinit(&ev.line);
    buf_deinit(&text);
}

static void test_a_form_is_found_in_the_chat_template(void **state) {
    (void)state;
    static const struct {
        const char *text, *form;
    } cases[] = {
        {"{%- if tools %}<tools>..</tools> within <tool_call></tool_call> tags", "hermes"},
        {"{%- if tools %}[AVAILABLE_TOOLS]..{{ '[TOOL_CALLS]' }}", "mistral"},
        {"{%- if tools is not none %}..{{ '<|python_tag|>' }}", "llama3"},
        {"{%- if tools %}{\"name\": function name, \"parameters\": dictionary of", "llama3"},
        {"{%- if tools %}{{ tools | tojson }}{% endif %}", "json"},
        {"{%- if tools %}<|tool|>{{ tools }}<|/tool|>", "phi4"},
        {"{%- if tools %}formatted as functools[{\"name\": ..", "phi4"},
        {"{%- if tools %}'<|tool_call|>[' .. ']<|/tool_call|>'", "phi4"},
        {"{%- if tools %}respond only with <|tool_call|> followed by a JSON list", "granite"},
        {"{%- if tools %}respond only with <tool_call> followed by a JSON list", "granite"},
        {"{%- if tools %}[func_name1(params_name1=params_value1), func_name2(params)]", "pythonic"},
        {"{%- if tools %}{{ '<|python_start|>' }}", "pythonic"},
        {"{%- if tools %}{{ '<|tool_call_start|>' }}", "pythonic"},
        {"{%- if tools %}<start_function_call>call:", "gemma"},
        {"{%- if tools %}<|tool_call>call:", "gemma"},
        {"{%- if tools %}wrapped in ```tool_code", "gemma"},
        {"{%- if tools %}<tools>..<tool_call>\n<function=f>\n<parameter=a>", "qwen3_coder"},
        {"{%- if tools %}<tools>..<tool_call>{name}\n<arg_key>{key}</arg_key>", "glm4"},
        {"{% for message in messages %}{{ message.content }}{% endfor %}", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct tool_form *form = tool_form_of_template(str_of(cases[i].text));
        assert_ptr_equal(form, cases[i].form ? tool_form_find(cases[i].form) : NULL);
    }
    assert_null(tool_form_find("xml"));
}

static void test_real_chat_templates_have_their_forms(void **state) {
    (void)state;
    static const struct {
        const char *file, *form;
    } cases[] = {
        {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
        {"Qwen-Qwen3-0.6B", "hermes"},
        {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"},
        {"meta-llama-Llama-3.1-8B-Instruct", "llama3"},
        {"meta-llama-Llama-3.2-3B-Instruct", "llama3"},
        {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
        {"ibm-granite-granite-3.3-2B-Instruct", "granite"},
        {"Qwen3-Coder", "qwen3_coder"}, /* whose calls are tags in <tool_call> */
        {"GLM-4.6", "glm4"},
        {"Kimi-K2-Instruct", "kimi"},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek"},
        {"openai-gpt-oss-120b", NULL},
        {"google-gemma-2-2b-it", NULL},
        {"microsoft-Phi-3.5-mini-instruct", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char name[128], path[1024];
        struct err err = {0};
        struct buf text;
        snprintf(name, sizeof(name), "templates/%s.jinja", cases[i].file);
        if (!tok_data_path(path, sizeof(path), name)) skip();
        buf_init(&text, 1 << 20);
        assert_int_equal(file_read(path, &text, &err), ST_OK);
        const struct tool_form *form = tool_form_of_template(buf_str(&text));
        assert_ptr_equal(form, cases[i].form ? tool_form_find(cases[i].form) : NULL);
        buf_deinit(&text);
    }
}

static void test_a_form_names_the_special_tokens_that_it_needs(void **state) {
    (void)state;
    assert_true(tool_form_needs(tool_form_find("hermes"), STR("<tool_call>")));
    assert_true(tool_form_needs(tool_form_find("hermes"), STR("</tool_call>")));
    assert_true(tool_form_needs(tool_form_find("llama3"), STR("<|python_tag|>")));
    assert_true(tool_form_needs(tool_form_find("mistral"), STR("[TOOL_CALLS]")));
    assert_true(tool_form_needs(tool_form_find("mistral"), STR("[ARGS]")));
    assert_false(tool_form_needs(tool_form_find("mistral"), STR("</s>")));
    assert_false(tool_form_needs(tool_form_find("json"), STR("<tool_call>")));
}

/* One text that a part of a grammar allows: strings are a b, numbers are 3. */
static void put_sample(const struct json *part, struct buf *out) {
    const struct json *sequence = json_get(part, "sequence"), *schema = json_get(part, "schema");
    if (json_get(part, "text")) {
        buf_put_str(out, json_str(json_get(part, "text")));
    } else if (json_get(part, "token")) {
        buf_put_str(out, json_str(json_get(part, "token")));
    } else if (json_get(part, "any")) {
        put_sample(json_at(json_get(part, "any"), 0), out);
    } else if (json_get(part, "repeat")) {
        put_sample(json_get(part, "repeat"), out);
    } else if (sequence) {
        for (size_t i = 0; i < json_count(sequence); i++) put_sample(json_at(sequence, i), out);
    } else if (json_get(schema, "properties")) {
        buf_put_text(out, "{\"s\": \"a b\", \"n\": 3}");
    } else if (schema) {
        bool is_text = str_is(json_str(json_get(schema, "type")), "string");
        buf_put_text(out, is_text ? "\"a b\"" : "3");
    } else if (str_starts(json_str(json_get(part, "pattern")), STR("[0-9]"))) {
        buf_put_char(out, '3');
    } else {
        assert_true(json_get(part, "free") || json_get(part, "pattern"));
        buf_put_text(out, "a b");
    }
}

static void put_shape_args(const struct tool_shape *shape, struct buf *out) {
    struct json *function = json_of("{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                                    "\"properties\":{\"s\":{\"type\":\"string\"},"
                                    "\"n\":{\"type\":\"integer\"}},\"required\":[\"s\"]}}");
    if (shape->put_args) {
        struct buf text;
        buf_init(&text, 1 << 16);
        shape->put_args(function, STR("#"), true, &text);
        struct json *part = json_of(buf_text(&text));
        put_sample(part, out);
        json_destroy(part);
        buf_deinit(&text);
    } else {
        buf_put_text(out, "{\"s\": \"a b\", \"n\": 3}");
    }
    json_destroy(function);
}

static void put_shape_call(const struct tool_shape *shape, const char *name, struct buf *out) {
    buf_put_text(out, shape->before_name);
    buf_put_text(out, name);
    buf_put_text(out, shape->after_name);
    put_shape_args(shape, out);
    buf_put_text(out, shape->after_args);
}

/* The events without the blanks outside strings, which forms may write or not. */
static void check_shape(const struct tool_form *form, const struct tool_shape *shape) {
    static const char expected[] = "{f|{\"s\":\"a b\",\"n\":3}}{add|{\"s\":\"a b\",\"n\":3}}";
    struct buf text, line;
    struct tool_events ev;
    buf_init(&text, 1 << 16);
    buf_init(&line, 1 << 16);
    buf_put_text(&text, shape->begin);
    put_shape_call(shape, "f", &text);
    buf_put_text(&text, shape->between);
    put_shape_call(shape, "add", &text);
    buf_put_text(&text, shape->end);
    for (size_t cut = 0; cut <= text.len; cut++) {
        tool_case_push(form->name, tools, buf_str(&text), cut, text.len, &ev);
        struct str events = tool_events_line(&ev);
        buf_clear(&line);
        for (size_t i = 0; i < events.len; i++)
            if (events.ptr[i] != ' ' || str_starts(str_skip(events, i), STR(" b")))
                buf_put_char(&line, events.ptr[i]);
        if (!str_is(buf_str(&line), expected))
            fail_msg("%s: %s\n cut at %zu gives %.*s", form->name, buf_text(&text), cut,
                     STR_ARG(events));
        buf_deinit(&ev.line);
    }
    buf_deinit(&text);
    buf_deinit(&line);
}

static void test_every_form_reads_its_shapes(void **state) {
    (void)state;
    for (size_t i = 0; tool_forms[i]; i++) {
        const struct tool_shape *shape = tool_forms[i]->shapes;
        for (; shape->sign; shape++) check_shape(tool_forms[i], shape);
        check_shape(tool_forms[i], shape);
    }
}

static void test_a_trigger_begins_its_shape(void **state) {
    (void)state;
    for (size_t i = 0; tool_forms[i]; i++) {
        const struct tool_shape *shape = tool_forms[i]->shapes;
        for (bool is_last = false; !is_last; shape++) {
            char text[256];
            is_last = !shape->sign;
            if (!shape->trigger) continue;
            snprintf(text, sizeof(text), "%s%s", shape->begin, shape->before_name);
            assert_true(str_starts(str_of(text), str_of(shape->trigger)));
            assert_true(tool_forms[i]->opener == shape->trigger[0] ||
                        tool_forms[i]->second_opener == shape->trigger[0]);
        }
    }
}

static void check_part(const char *form, const char *function, bool strict, const char *part) {
    const struct tool_shape *shape = tool_form_find(form)->shapes;
    while (!shape->put_args) shape++;
    struct json *tool = json_of(function);
    struct buf text;
    buf_init(&text, 1 << 16);
    shape->put_args(tool, STR("tools/0"), strict, &text);
    if (!str_is(buf_str(&text), part))
        fail_msg("%s: %s\n gives    %s\n expected %s", form, function, buf_text(&text), part);
    json_destroy(json_of(buf_text(&text))); /* it is JSON */
    buf_deinit(&text);
    json_destroy(tool);
}

#define OBJECT(properties, rest)                                                                   \
    "{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{" properties "}" rest "}" \
    "}"

#define BY_NAME                                                                                    \
    "{\"refuse\":\"the model writes arguments by name; only objects with 'properties' and "        \
    "'required' can be kept\",\"at\":\"tools/0\"}"

static void test_named_arguments_become_parts(void **state) {
    (void)state;
    check_part("pythonic", "{\"name\":\"f\"}", true, "{\"text\":\"\"}");
    /* Required ones first, then those that may be left out. */
    check_part(
        "pythonic",
        OBJECT("\"a\":{\"type\":\"string\"},\"b\":{\"$ref\":\"#/$defs/x\"}",
               ",\"required\":[\"b\"],\"$defs\":{\"x\":{\"type\":\"null\"}}"),
        false,
        "{\"sequence\":[{\"text\":\"\"},{\"sequence\":[{\"text\":\"b=\"},{\"schema\":{\"$ref\":"
        "\"#/$defs/x\",\"$defs\":{\"x\":{\"type\":\"null\"}}},\"at\":\"tools/0/properties/b\","
        "\"relax\":\"value\"}]},{\"repeat\":{\"sequence\":[{\"text\":\", "
        "a=\"},{\"schema\":{\"type\":"
        "\"string\",\"$defs\":{\"x\":{\"type\":\"null\"}}},\"at\":\"tools/0/properties/a\","
        "\"relax\":\"value\"}]},\"max\":1}]}");
    /* No required one: each may be the first. */
    check_part(
        "pythonic", OBJECT("\"a\":true,\"b\":true", ""), true,
        "{\"some\":[{\"sequence\":[{\"text\":\"a=\"},{\"schema\":true,\"at\":"
        "\"tools/0/properties/a\"}]},{\"sequence\":[{\"text\":\"b=\"},{\"schema\":true,\"at\":"
        "\"tools/0/properties/b\"}]}],\"between\":{\"text\":\", \"}}");
    /* More than properties: refused if it must be kept. */
    check_part("pythonic", OBJECT("", ",\"minProperties\":1"), true, BY_NAME);
    /* A name that is required and has no property. */
    check_part("pythonic", OBJECT("\"a\":true", ",\"required\":[\"a\",\"b\"]"), true, BY_NAME);
    /* A name that cannot be written. */
    check_part("pythonic", OBJECT("\"a b\":true", ",\"required\":[\"a b\"]"), true, BY_NAME);
    check_part("pythonic", OBJECT("\"a b\":true,\"c-d\":true", ",\"required\":[\"a b\",\"c-d\"]"),
               false,
               "{\"sequence\":[{\"text\":\"\"},{\"sequence\":[{\"text\":\"c-d=\"},{\"schema\":true,"
               "\"at\":\"tools/0/properties/c-d\",\"relax\":\"value\"}]}]}");
    check_part(
        "gemma", OBJECT("\"s\":{\"enum\":[\"x\",2]}", ",\"required\":[\"s\"]"), true,
        "{\"sequence\":[{\"text\":\"\"},{\"sequence\":[{\"text\":\"s:\"},{\"any\":[{\"sequence\":"
        "[{\"any\":[{\"token\":\"<escape>\"},{\"text\":\"<escape>\"}]},{\"text\":\"x\"},{\"any\":"
        "[{\"token\":\"<escape>\"},{\"text\":\"<escape>\"}]}]},{\"text\":\"2\"}]}]}]}");
}

static int set_up(void **state) {
    (void)state;
    tools = json_of(tool_case_tools);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    json_destroy(tools);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_emitted_as_soon_as_it_is_certain),
        cmocka_unit_test(test_arguments_are_emitted_as_they_arrive),
        cmocka_unit_test(test_every_name_is_accepted_without_a_list_of_tools),
        cmocka_unit_test(test_held_text_has_a_limit),
        cmocka_unit_test(test_a_name_that_is_too_long_is_text),
        cmocka_unit_test(test_a_form_is_found_in_the_chat_template),
        cmocka_unit_test(test_real_chat_templates_have_their_forms),
        cmocka_unit_test(test_a_form_names_the_special_tokens_that_it_needs),
        cmocka_unit_test(test_every_form_reads_its_shapes),
        cmocka_unit_test(test_a_trigger_begins_its_shape),
        cmocka_unit_test(test_named_arguments_become_parts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
