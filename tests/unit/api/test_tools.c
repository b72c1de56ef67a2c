/* Goal:   tool calls are found in each form, ordinary text and ordinary JSON are never taken for
 *         calls, and the events do not depend on how the text is cut.
 * Method: a table of texts and their events, written as text{name|arguments}text; each is pushed
 *         whole, byte by byte, and in two pieces for every cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "api/tools.h"
#include "base/mem.h"
#include "unit/api/tool_events.h"
#include "unit/json_lib.h"
#include "unit/text/tok_lib.h"

/* The request's tools: f, get_weather, add. */
static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"add\"}}]";
static struct json *tools;

struct tool_case {
    const char *form, *text, *events;
};

#define TC_OPEN "<tool_call>\n"
#define TC_CLOSE "\n</tool_call>"

static const struct tool_case hermes_cases[] = {
    {"hermes", "", ""},
    {"hermes", "Plain answer, 1 < 2, <b>bold</b>.", "Plain answer, 1 < 2, <b>bold</b>."},
    {"hermes", "  \n", "  \n"},
    {"hermes", "\n\nHello", "\n\nHello"},
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\": {\"a\": 1}}" TC_CLOSE, "{f|{\"a\": 1}}"},
    {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "{f|{}}"},
    {"hermes", "\n \n" TC_OPEN "{\"name\": \"f\", \"arguments\": {}}" TC_CLOSE "\n", "{f|{}}"},
    {"hermes",
     "Let me see.\n" TC_OPEN "{\"name\": \"f\", \"arguments\": {}}" TC_CLOSE "\n" TC_OPEN
     "{\"name\": \"add\", \"arguments\": {\"x\": [1, {\"y\": \"}\"}]}}" TC_CLOSE " Done.",
     "Let me see.\n{f|{}}{add|{\"x\": [1, {\"y\": \"}\"}]}} Done."},
    /* Arguments before the name. */
    {"hermes", TC_OPEN "{\"arguments\": {\"q\": \"x\"}, \"name\": \"f\"}" TC_CLOSE,
     "{f|{\"q\": \"x\"}}"},
    /* Strings with quotes, braces, backslashes and the closing mark in them. */
    {"hermes",
     TC_OPEN
     "{\"name\": \"f\", \"arguments\": {\"s\": \"a\\\"}\\\\\", \"t\": \"</tool_call>\"}}" TC_CLOSE
     "x",
     "{f|{\"s\": \"a\\\"}\\\\\", \"t\": \"</tool_call>\"}}x"},
    /* Arguments as a string: its contents. */
    {"hermes",
     TC_OPEN
     "{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e9\\ud83d\\ude00\\n\\\"}\"}" TC_CLOSE,
     "{f|{\"a\": \"\xc3\xa9\xf0\x9f\x98\x80\n\"}}"},
    {"hermes", TC_OPEN "{\"arguments\": \"{\\\"a\\\":1}\", \"name\": \"f\"}" TC_CLOSE,
     "{f|{\"a\":1}}"},
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\": \"{\\ud800x\\udc00}\"}" TC_CLOSE,
     "{f|{\xef\xbf\xbdx\xef\xbf\xbd}}"},
    /* No arguments at all, null, an empty string. */
    {"hermes", TC_OPEN "{\"name\": \"f\"}" TC_CLOSE, "{f|{}}"},
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\": null}" TC_CLOSE, "{f|{}}"},
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\": \"\"}" TC_CLOSE, "{f|{}}"},
    /* Other keys, an escaped name, and the wrapper of OpenAI's shape. */
    {"hermes",
     TC_OPEN "{\"id\": 7, \"thought\": [\"x\", {\"name\": 1}], \"name\": \"\\u0066\", "
             "\"arguments\": {}, \"more\": true}" TC_CLOSE,
     "{f|{}}"},
    {"hermes",
     TC_OPEN "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": "
             "2}}}" TC_CLOSE,
     "{f|{\"a\": 2}}"},
    /* The answer breaks off: a call that was reported stays, one that was not becomes text. */
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\": {\"a\": \"b", "{f|{\"a\": \"b}"},
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\"",
     TC_OPEN "{\"name\": \"f\", \"arguments\""},
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\": {}}\n</tool", "{f|{}}"},
    {"hermes", "Hi <tool_ca", "Hi <tool_ca"},
    /* Malformed JSON inside the tags. */
    {"hermes", TC_OPEN "not json" TC_CLOSE, TC_OPEN "not json" TC_CLOSE},
    {"hermes", TC_OPEN "{\"name\": 5, \"arguments\": {}}" TC_CLOSE,
     TC_OPEN "{\"name\": 5, \"arguments\": {}}" TC_CLOSE},
    {"hermes", TC_OPEN "{\"name\": \"f\" \"arguments\": {}}" TC_CLOSE,
     TC_OPEN "{\"name\": \"f\" \"arguments\": {}}" TC_CLOSE},
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\": [1]}" TC_CLOSE,
     TC_OPEN "{\"name\": \"f\", \"arguments\": [1]}" TC_CLOSE},
    {"hermes", TC_OPEN "{}" TC_CLOSE, TC_OPEN "{}" TC_CLOSE},
    /* A brace that is missing or one too many, after the call was reported. */
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\": {\"a\": 1}" TC_CLOSE "ok",
     "{f|{\"a\": 1}}ok"},
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\": {}} }" TC_CLOSE "ok",
     "{f|{}}}" TC_CLOSE "ok"},
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\": {} oh < </ </tool_ </tool_call>ok",
     "{f|{}}ok"},
    /* Marks that follow each other. */
    {"hermes", "<tool_call>" TC_OPEN "{\"name\": \"f\", \"arguments\": {}}" TC_CLOSE,
     "<tool_call>{f|{}}"},
    {"hermes", "<<tool_call>{\"name\": \"f\", \"arguments\": {}}" TC_CLOSE, "<{f|{}}"},
    {"hermes",
     TC_OPEN "{\"name\": \"f\", \"arguments\": {}}\n" TC_OPEN
             "{\"name\": \"add\", \"arguments\": {}}" TC_CLOSE,
     "{f|{}}{add|{}}"},
    {"hermes",
     TC_OPEN "{\"name\": \"f\", \"arguments\": {} ]" TC_OPEN
             "{\"name\": \"add\", \"arguments\": {}}" TC_CLOSE,
     "{f|{}}{add|{}}"},
    {"hermes", TC_OPEN "{\"name\": \"f\", \"arguments\": {}}</tool>x", "{f|{}}</tool>x"},
    /* A name that is not the request's. */
    {"hermes", TC_OPEN "{\"name\": \"rm\", \"arguments\": {}}" TC_CLOSE,
     TC_OPEN "{\"name\": \"rm\", \"arguments\": {}}" TC_CLOSE},
    {"hermes", TC_OPEN "{\"name\": \"\", \"arguments\": {}}" TC_CLOSE,
     TC_OPEN "{\"name\": \"\", \"arguments\": {}}" TC_CLOSE},
};

static const struct tool_case llama3_cases[] = {
    {"llama3", "{\"name\": \"f\", \"parameters\": {\"a\": \"1\"}}", "{f|{\"a\": \"1\"}}"},
    {"llama3", "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "{f|{}}"},
    {"llama3", "Sure. <|python_tag|> {\"name\": \"f\", \"parameters\": {}}", "Sure. {f|{}}"},
    {"llama3",
     "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"add\", \"parameters\": {\"x\": 1}}",
     "{f|{}}{add|{\"x\": 1}}"},
    {"llama3", "{\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"add\", \"parameters\": {}}\n",
     "{f|{}}{add|{}}"},
    {"llama3",
     "<|python_tag|>{\"name\": \"f\", \"parameters\": {}};<|python_tag|>{\"name\": "
     "\"add\", \"parameters\": {}}",
     "{f|{}}{add|{}}"},
    {"llama3", "{\"name\": \"f\", \"parameters\": {}}; then", "{f|{}}; then"},
    {"llama3", "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "{f|{}}"},
    {"llama3", "{\"type\": \"function\", \"function\": \"f\", \"parameters\": {}}", "{f|{}}"},
    {"llama3",
     "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"k\": {}}}}",
     "{f|{\"k\": {}}}"},
    {"llama3", "{\"function\": {\"parameters\": {\"k\": 1}, \"name\": \"f\"}, \"id\": null}",
     "{f|{\"k\": 1}}"},
    {"llama3", "<|python_tag|>{\"name\": \"f\"}", "{f|{}}"},
    /* Not at the beginning, it is JSON that the user asked for. */
    {"llama3", "Here: {\"name\": \"f\", \"parameters\": {}}",
     "Here: {\"name\": \"f\", \"parameters\": {}}"},
    {"llama3", "{\"name\": \"f\"}", "{\"name\": \"f\"}"},
    {"llama3", "{\"name\": \"Bob\", \"parameters\": {}}",
     "{\"name\": \"Bob\", \"parameters\": {}}"},
    {"llama3", "{\"name\": \"f\", \"age\": 3}", "{\"name\": \"f\", \"age\": 3}"},
    {"llama3", "{\"name\": \"f\", \"parameters\": \"none\"}",
     "{\"name\": \"f\", \"parameters\": \"none\"}"},
    {"llama3", "<|python_tag|>print(1)", "<|python_tag|>print(1)"},
    {"llama3", "a <|python b", "a <|python b"},
    {"llama3", "{\"name\": \"f\", \"parameters\": {}} and more", "{f|{}} and more"},
    {"llama3", "; {", "; {"},
};

static const struct tool_case mistral_cases[] = {
    {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "{f|{\"a\": 1}}"},
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"arguments\": {\"b\": []}, \"name\": "
     "\"add\", \"id\": \"abc123def\"}]",
     "{f|{}}{add|{\"b\": []}}"},
    {"mistral", "Wait. [TOOL_CALLS]f[ARGS]{\"a\": \"[\"}", "Wait. {f|{\"a\": \"[\"}}"},
    {"mistral", "[TOOL_CALLS]f{\"a\": {\"b\": 1}}", "{f|{\"a\": {\"b\": 1}}}"},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{}", "{f|{}}"},
    {"mistral", "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{\"c\": 2}",
     "{f|{}}{get_weather|{\"c\": 2}}"},
    {"mistral", "[TOOL_CALLS]f [ARGS] {}\n", "{f|{}}"},
    {"mistral", "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}", "{f|{}}"},
    {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}] bye", "{f|{}} bye"},
    {"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, 5]", "{f|{}}5]"},
    {"mistral", "[TOOL_CALLS][]", "[TOOL_CALLS][]"},
    {"mistral", "[TOOL_CALLS]bob[ARGS]{}", "[TOOL_CALLS]bob[ARGS]{}"},
    {"mistral", "[TOOL_CALLS]f[ARG]{}", "[TOOL_CALLS]f[ARG]{}"},
    {"mistral", "[TOOL_CALLS]f[ARGS]{\"a\": tr", "{f|{\"a\": tr}"},
    {"mistral", "[TOOL_CALLS]f[AR", "[TOOL_CALLS]f[AR"},
    {"mistral", "see [1] and [2], [TOOL", "see [1] and [2], [TOOL"},
    {"mistral", "[[TOOL_CALLS]f{}", "[{f|{}}"},
    {"mistral", "[TOOL_CALLS]?", "[TOOL_CALLS]?"},
};

static const struct tool_case json_cases[] = {
    {"json", "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "{f|{\"a\": 1}}"},
    {"json", " \n{\"name\": \"f\", \"parameters\": {}}\n", "{f|{}}"},
    {"json", "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"add\", \"arguments\": {}}]",
     "{f|{}}{add|{}}"},
    {"json", "```json\n{\"name\": \"f\", \"arguments\": {}}\n```", "{f|{}}"},
    {"json", "```\n[ {\"name\": \"f\", \"arguments\": {}} ]\n```\nDone.", "{f|{}}\nDone."},
    {"json", "```json\n{\"name\": \"f\", \"arguments\": {}}\n``", "{f|{}}"},
    {"json", "{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"add\", \"arguments\": {}}",
     "{f|{}}{add|{}}"},
    {"json", "{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"add\", \"arguments\": {}}; ok",
     "{f|{}}{add|{}}; ok"},
    {"json", "{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}", "{f|{\"x\": 1}}"},
    /* Ordinary JSON. */
    {"json", "{\"answer\": 42}", "{\"answer\": 42}"},
    {"json", "{\"name\": \"Bob\", \"arguments\": {}}", "{\"name\": \"Bob\", \"arguments\": {}}"},
    {"json", "{\"name\": \"f\", \"arguments\": 3}", "{\"name\": \"f\", \"arguments\": 3}"},
    {"json", "{\"name\": \"f\", \"type\": \"x\"}", "{\"name\": \"f\", \"type\": \"x\"}"},
    {"json", "{\"arguments\": {\"a\": 1}}", "{\"arguments\": {\"a\": 1}}"},
    {"json", "[1, 2, 3]", "[1, 2, 3]"},
    {"json", "[{\"x\": 1}]", "[{\"x\": 1}]"},
    {"json", "```python\nprint({\"name\": \"f\", \"arguments\": {}})\n```",
     "```python\nprint({\"name\": \"f\", \"arguments\": {}})\n```"},
    {"json", "``` ``", "``` ``"},
    {"json", "So: {\"name\": \"f\", \"arguments\": {}}",
     "So: {\"name\": \"f\", \"arguments\": {}}"},
    {"json", "[{\"name\": \"f\", \"arguments\": {}}, {\"x\": 1}]", "{f|{}}{\"x\": 1}]"},
    {"json", "```json\n{\"a\": 1}\n```", "```json\n{\"a\": 1}\n```"},
    {"json", "{", "{"},
    {"json", "{\"na\\u006de\": \"f\", \"arguments\": {}}",
     "{\"na\\u006de\": \"f\", \"arguments\": {}}"},
};

/* Push text[0, first), text[first, second) and the rest, or byte by byte if `first` is text.len. */
static void push_cut(const struct tool_case *c, struct str text, size_t first, size_t second,
                     struct tool_events *ev) {
    struct tool_parser *p;
    struct tool_callbacks callbacks;
    tool_events_init(ev, &callbacks);
    const struct tool_form *form = tool_form_find(c->form);
    assert_int_equal(tool_parser_create(form, tools, &p), ST_OK);
    size_t cuts[] = {first, second - first, text.len - second};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tool_parser_push(p, str_take(text, cuts[i]), &callbacks), ST_OK);
        text = str_skip(text, cuts[i]);
    }
    assert_int_equal(tool_parser_finish(p, &callbacks), ST_OK);
    tool_parser_destroy(p);
}

static void push_bytes(const struct tool_case *c, struct str text, struct tool_events *ev) {
    struct tool_parser *p;
    struct tool_callbacks callbacks;
    tool_events_init(ev, &callbacks);
    const struct tool_form *form = tool_form_find(c->form);
    assert_int_equal(tool_parser_create(form, tools, &p), ST_OK);
    for (size_t i = 0; i < text.len; i++)
        assert_int_equal(tool_parser_push(p, (struct str){text.ptr + i, 1}, &callbacks), ST_OK);
    assert_int_equal(tool_parser_finish(p, &callbacks), ST_OK);
    tool_parser_destroy(p);
}

static void expect(const struct tool_case *c, struct tool_events *ev, const char *how, size_t cut) {
    struct str line = tool_events_line(ev);
    if (!str_is(line, c->events))
        fail_msg("%s: \"%s\" %s %zu:\n events   \"%.*s\"\n expected \"%s\"", c->form, c->text, how,
                 cut, STR_ARG(line), c->events);
    buf_deinit(&ev->line);
}

static void check_cases(const struct tool_case *cases, size_t count) {
    struct tool_events ev;
    for (size_t i = 0; i < count; i++) {
        struct str text = str_of(cases[i].text);
        push_cut(&cases[i], text, text.len, text.len, &ev);
        expect(&cases[i], &ev, "whole", 0);
        push_bytes(&cases[i], text, &ev);
        expect(&cases[i], &ev, "by bytes", 0);
        for (size_t cut = 1; cut < text.len; cut++) {
            push_cut(&cases[i], text, cut, text.len, &ev);
            expect(&cases[i], &ev, "cut at", cut);
            size_t third = cut + (text.len - cut) / 2;
            push_cut(&cases[i], text, cut, third, &ev);
            expect(&cases[i], &ev, "cut twice, first at", cut);
        }
    }
}

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void test_hermes_calls_are_found_in_any_cut(void **state) {
    (void)state;
    check_cases(hermes_cases, COUNT(hermes_cases));
}

static void test_llama3_calls_are_found_in_any_cut(void **state) {
    (void)state;
    check_cases(llama3_cases, COUNT(llama3_cases));
}

static void test_mistral_calls_are_found_in_any_cut(void **state) {
    (void)state;
    check_cases(mistral_cases, COUNT(mistral_cases));
}

static void test_json_calls_are_found_in_any_cut(void **state) {
    (void)state;
    check_cases(json_cases, COUNT(json_cases));
}

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
    assert_int_equal(bytes_after(p, &ev, &callbacks, TC_OPEN "{\"name\": \"f\", \"arguments\": "),
                     0);
    assert_int_equal(bytes_after(p, &ev, &callbacks, "{"), 4); /* {f|{ */
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
    const struct tool_case c = {"mistral", buf_text(&text), buf_text(&text)};
    check_cases(&c, 1);

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
        {"{%- if tools %}<tools>..<tool_call>\n<function=f>\n<parameter=a>", NULL},
        {"{%- if tools %}<tools>..<tool_call>{name}\n<arg_key>{key}</arg_key>", NULL},
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
        {"ibm-granite-granite-3.3-2B-Instruct", "json"},
        {"Qwen3-Coder", NULL}, /* whose calls are tags in <tool_call> */
        {"GLM-4.6", NULL},
        {"Kimi-K2-Instruct", NULL},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", NULL},
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

static int set_up(void **state) {
    (void)state;
    tools = json_of(tools_text);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    json_destroy(tools);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes_calls_are_found_in_any_cut),
        cmocka_unit_test(test_llama3_calls_are_found_in_any_cut),
        cmocka_unit_test(test_mistral_calls_are_found_in_any_cut),
        cmocka_unit_test(test_json_calls_are_found_in_any_cut),
        cmocka_unit_test(test_text_is_emitted_as_soon_as_it_is_certain),
        cmocka_unit_test(test_arguments_are_emitted_as_they_arrive),
        cmocka_unit_test(test_every_name_is_accepted_without_a_list_of_tools),
        cmocka_unit_test(test_held_text_has_a_limit),
        cmocka_unit_test(test_a_name_that_is_too_long_is_text),
        cmocka_unit_test(test_a_form_is_found_in_the_chat_template),
        cmocka_unit_test(test_real_chat_templates_have_their_forms),
        cmocka_unit_test(test_a_form_names_the_special_tokens_that_it_needs),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
