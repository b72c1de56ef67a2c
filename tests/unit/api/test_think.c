/* Goal:   thoughts and text are told apart in each form, blanks around thoughts belong to neither,
 *         text without thoughts is unchanged, and nothing depends on how the text is cut.
 * Method: a table of texts with their parts; each is pushed whole, byte by byte, and in two pieces
 *         for every cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "unit/api/think_parts.h"
#include "unit/text/tok_lib.h"

struct think_case {
    const char *form;
    bool is_open;
    const char *sent, *thought, *text;
};

#define T "think", false
#define OPEN "think", true

static const struct think_case cases[] = {
    {T, "", "", ""},
    {T, "Hello.", "", "Hello."},
    {T, " \n Hello.\n ", "", " \n Hello.\n "},
    {T, " \n\t", "", " \n\t"},
    {T, "<think>\nabc\n</think>\n\nanswer", "abc", "answer"},
    {T, "<think>abc</think>answer", "abc", "answer"},
    {T, "\n <think>abc</think>answer ", "abc", "answer "},
    {T, "<think>\r\n\t a b\n\nc \n</think> \n\n answer\n", "a b\n\nc", "answer\n"},
    /* Empty thoughts. */
    {T, "<think></think>answer", "", "answer"},
    {T, "<think>\n\n</think>\n\nanswer", "", "answer"},
    {T, "<think>\n\n</think>\n\n", "", ""},
    /* Cut thoughts. */
    {T, "<think>", "", ""},
    {T, "<think>\n", "", ""},
    {T, "<think>\nabc", "abc", ""},
    {T, "<think>\nabc \n\n", "abc", ""},
    {T, "<think>abc</think", "abc</think", ""},
    {T, "<think>abc</think>", "abc", ""},
    {T, "<think>abc\n</think>\n \n", "abc", ""},
    /* What only looks like the mark. */
    {T, "<thin", "", "<thin"},
    {T, "\n<thin", "", "\n<thin"},
    {T, "<thinking>abc</thinking>", "", "<thinking>abc</thinking>"},
    {T, "<<think>abc</think>d", "", "<<think>abc</think>d"},
    {T, "<Think>abc</Think>d", "", "<Think>abc</Think>d"},
    {T, "a<think>abc</think>d", "", "a<think>abc</think>d"},
    {T, "abc</think>d", "", "abc</think>d"},
    {T, "</think>d", "", "</think>d"},
    {T, "<think>a < b </ c </thin d </think>e", "a < b </ c </thin d", "e"},
    {T, "<think>a<</think>b", "a<", "b"},
    {T, "<think>a</</think>b", "a</", "b"},
    {T, "<think>a </ </think>b", "a </", "b"},
    /* Marks inside thoughts, and behind them. */
    {T, "<think>a<think>b</think>c</think>d", "a<think>b", "c</think>d"},
    {T, "<think>a</think><think>b</think>c", "a", "<think>b</think>c"},
    {T, "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"},
    {T, "<think><think>a</think>b", "<think>a", "b"},
    /* The prompt has opened the thought. */
    {OPEN, "", "", ""},
    {OPEN, "\n", "", ""},
    {OPEN, "abc\n</think>\n\nanswer", "abc", "answer"},
    {OPEN, "\n\nabc</think>answer", "abc", "answer"},
    {OPEN, "</think>answer", "", "answer"},
    {OPEN, "\n</think>\n\nanswer", "", "answer"},
    {OPEN, "abc", "abc", ""},
    {OPEN, "<b>abc</b></think>d", "<b>abc</b>", "d"},
    {OPEN, "<thin</think>d", "<thin", "d"},
    {OPEN, "<thin", "<thin", ""},
    {OPEN, "<", "<", ""},
    {OPEN, "<think>\nabc</think>d", "abc", "d"}, /* the model opens it again */
    {OPEN, "a<think>b</think>c", "a<think>b", "c"},
    /* The other forms. */
    {"mistral", false, "[THINK]a [b] [/THIN]\n[/THINK]c[/THINK]", "a [b] [/THIN]", "c[/THINK]"},
    {"mistral", true, "a[[/THINK]c", "a[", "c"},
    {"mistral", false, "[TOOL_CALLS][]", "", "[TOOL_CALLS][]"},
    {"seed", false, "<seed:think>a<think></seed:think>b", "a<think>", "b"},
    {"command", false, "<|START_THINKING|>a<|END_<|END_THINKING|>b", "a<|END_", "b"},
    {"kimi", false, "\u25c1think\u25b7a\u25c1/think\u25b7b", "a", "b"},
    /* The last sign of the mark begins as the first does. */
    {"kimi", false, "\u25c1think\u25b7\u25c1/think\u25c1/think\u25b7b", "\u25c1/think", "b"},
    {"kimi", false, "\u25c1think\u25b6a", "", "\u25c1think\u25b6a"},
    {"kimi", true, "\u25c1think\u25b6a", "\u25c1think\u25b6a", ""},
    {"granite", false, "<think>a</think>\n<response>b < c</response>", "a", "b < c"},
    {"granite", false, "<think>a</think><response>b</response>\n", "a", "b\n"},
    {"granite", false, "<think>a</think>b</resp", "a", "b</resp"},
    {"granite", false, "<think>a</think><respo", "a", "<respo"},
    {"granite", false, "<think>a</think> <responses>", "a", "<responses>"},
    {"granite", false, "Plain <b>text</b>.", "", "Plain <b>text</b>."},
};

static void push(struct think_parser *p, struct str text, const struct think_callbacks *to) {
    assert_int_equal(think_parser_push(p, text, to), ST_OK);
}

static void check_parts(const struct think_case *c, struct think_parts *parts) {
    if (!str_is(buf_str(&parts->thought), c->thought) || !str_is(buf_str(&parts->text), c->text))
        fail_msg("%s: \"%s\": thought \"%s\", text \"%s\"", c->form, c->sent,
                 buf_text(&parts->thought), buf_text(&parts->text));
    think_parts_deinit(parts);
}

/* In pieces of `step` bytes; the first has `first` bytes. */
static void check_cut(const struct think_case *c, size_t first, size_t step) {
    struct think_parts parts;
    const struct think_callbacks to = think_parts_init(&parts);
    struct think_parser p;
    struct str text = str_of(c->sent);
    think_parser_init(&p, think_form_find(c->form), c->is_open);
    assert_int_equal(think_parser_is_inside(&p), c->is_open);
    push(&p, str_take(text, first), &to);
    for (text = str_skip(text, first); text.len;
         text = str_skip(text, step < text.len ? step : text.len))
        push(&p, str_take(text, step), &to);
    assert_int_equal(think_parser_finish(&p, &to), ST_OK);
    think_parser_deinit(&p);
    check_parts(c, &parts);
}

static void test_thoughts_and_text_are_told_apart_at_every_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t len = strlen(cases[i].sent);
        for (size_t cut = 0; cut <= len; cut++) check_cut(&cases[i], cut, len + 1);
        check_cut(&cases[i], 0, 1);
        check_cut(&cases[i], 1, 2);
        check_cut(&cases[i], 2, 3);
    }
}

/* `count` blanks in place of the %s. */
static void check_blanks(const char *format, size_t count, size_t thought, size_t text) {
    char *blanks = mem_alloc(count + 1), *sent = mem_alloc(count + 64);
    assert_true(blanks && sent);
    memset(blanks, '\n', count);
    blanks[count] = 0;
    snprintf(sent, count + 64, format, blanks);
    static const size_t steps[] = {1, 1000, THINK_BLANKS_MAX, 1 << 20};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct think_parts parts;
        const struct think_callbacks to = think_parts_init(&parts);
        struct think_parser p;
        think_parser_init(&p, think_form_find("think"), false);
        for (struct str left = str_of(sent); left.len;) {
            struct str piece = str_take(left, steps[i]);
            push(&p, piece, &to);
            left = str_skip(left, piece.len);
            assert_true(p.held.len <= THINK_BLANKS_MAX);
            assert_true(p.thought.len <= THINK_BLANKS_MAX);
        }
        assert_int_equal(think_parser_finish(&p, &to), ST_OK);
        assert_int_equal(parts.thought.len, thought);
        assert_int_equal(parts.text.len, text);
        think_parser_deinit(&p);
        think_parts_deinit(&parts);
    }
    mem_free(blanks);
    mem_free(sent);
}

static void test_the_blanks_that_are_held_have_a_maximum(void **state) {
    (void)state;
    enum { MAX = THINK_BLANKS_MAX };
    /* Before the opening mark: too many of them are text, and so is the mark. */
    check_blanks("%s<think>a</think>b", MAX - 1, 1, 1);
    check_blanks("%s<think>a</think>b", MAX, 0, MAX + 17);
    check_blanks("%s", 3 * MAX, 0, 3 * MAX);
    /* At the beginning of a thought and behind it they are dropped as they come. */
    check_blanks("<think>%sa</think>b", 3 * MAX, 1, 1);
    check_blanks("<think>a</think>%sb", 3 * MAX, 1, 1);
    /* At its end, blocks of the maximum are part of it. */
    check_blanks("<think>a%s</think>b", MAX - 1, 1, 1);
    check_blanks("<think>a%s</think>b", 2 * MAX + 9, 2 * MAX + 1, 1);
    check_blanks("<think>a%sc</think>b", 2 * MAX + 9, 2 * MAX + 11, 1);
}

static void test_it_is_inside_from_the_opening_to_the_closing_mark(void **state) {
    (void)state;
    struct think_parts parts;
    const struct think_callbacks to = think_parts_init(&parts);
    struct think_parser p;
    think_parser_init(&p, think_form_find("think"), false);
    push(&p, STR("\n<thin"), &to);
    assert_false(think_parser_is_inside(&p));
    push(&p, STR("k>"), &to);
    assert_true(think_parser_is_inside(&p));
    push(&p, STR("a</think"), &to);
    assert_true(think_parser_is_inside(&p));
    push(&p, STR(">"), &to);
    assert_false(think_parser_is_inside(&p));
    push(&p, STR("\n<think>"), &to);
    assert_false(think_parser_is_inside(&p));
    think_parser_deinit(&p);
    think_parts_deinit(&parts);
}

static void on_same_text(void *ctx, struct str text) { *(const char **)ctx = text.ptr; }

static void test_text_behind_thoughts_is_passed_on_without_a_copy(void **state) {
    (void)state;
    const char *got = NULL;
    const struct think_callbacks to = {.on_text = on_same_text, .ctx = &got};
    static const char text[] = "answer <b> and more";
    struct think_parser p;
    think_parser_init(&p, think_form_find("think"), false);
    push(&p, STR("<think></think>\n"), &to);
    push(&p, str_of(text), &to);
    assert_ptr_equal(got, text);
    think_parser_deinit(&p);
}

static void test_a_thought_is_passed_on_as_it_comes(void **state) {
    (void)state;
    struct think_parts parts;
    const struct think_callbacks to = think_parts_init(&parts);
    struct think_parser p;
    think_parser_init(&p, think_form_find("think"), true);
    push(&p, STR("one two "), &to);
    assert_true(str_is(buf_str(&parts.thought), "one two"));
    push(&p, STR("three <"), &to);
    assert_true(str_is(buf_str(&parts.thought), "one two three"));
    think_parser_deinit(&p);
    think_parts_deinit(&parts);
}

static void test_templates_choose_their_form(void **state) {
    (void)state;
    static const struct {
        const char *chat_template, *form;
    } templates[] = {
        {"{{ '<think>\\n' }}", "think"},
        {"{{ content.split('</think>')[-1] }}", "think"},
        {"{{ 'between <think></think> and <response></response>' }}", "granite"},
        {"{{ '[THINK]' + x + '[/THINK]' }}", "mistral"},
        {"{% set think_end_token = '</seed:think>' %}", "seed"},
        {"{{ '<|START_THINKING|>' }}", "command"},
        {"{{ '\u25c1think\u25b7' }}", "kimi"},
        {"{{ messages }}", NULL},
        {"{{ message.thinking }}<|channel|>analysis", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++) {
        const struct think_form *form = think_form_of_template(str_of(templates[i].chat_template));
        const struct think_form *want =
            templates[i].form ? think_form_find(templates[i].form) : NULL;
        assert_ptr_equal(form, want);
    }
    assert_null(think_form_find("none"));
}

static void test_published_templates_choose_their_form(void **state) {
    (void)state;
    static const char *const files[][2] = {
        {"Qwen-Qwen3-0.6B", "think"},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "think"},
        {"GLM-4.6", "think"},
        {"HuggingFaceTB-SmolLM3-3B", "think"},
        {"ibm-granite-granite-3.3-2B-Instruct", "granite"},
        {"Qwen-Qwen2.5-7B-Instruct", NULL},
        {"openai-gpt-oss-120b", NULL},
        {"meta-llama-Llama-3.1-8B-Instruct", NULL},
        {"mistralai-Mistral-Nemo-Instruct-2407", NULL},
        {"Kimi-K2-Instruct", NULL},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char name[128], path[1024];
        struct err err = {0};
        snprintf(name, sizeof(name), "templates/%s.jinja", files[i][0]);
        struct buf text;
        buf_init(&text, 1 << 20);
        if (!tok_data_path(path, sizeof(path), name)) skip();
        assert_int_equal(file_read(path, &text, &err), ST_OK);
        const struct think_form *form = think_form_of_template(buf_str(&text));
        const struct think_form *want = files[i][1] ? think_form_find(files[i][1]) : NULL;
        assert_ptr_equal(form, want);
        buf_deinit(&text);
    }
}

static void test_a_prompt_that_ends_with_the_mark_has_opened_a_thought(void **state) {
    (void)state;
    const struct think_form *form = think_form_find("think");
    assert_true(think_is_open(form, STR("user: x\nassistant: <think>")));
    assert_true(think_is_open(form, STR("assistant: <think>\n ")));
    assert_false(think_is_open(form, STR("assistant: <think>\n\n</think>\n\n")));
    assert_false(think_is_open(form, STR("assistant: <think>\nabc")));
    assert_false(think_is_open(form, STR("think>")));
    assert_false(think_is_open(form, STR("")));
    assert_false(think_is_open(NULL, STR("<think>")));
    assert_true(think_form_needs(form, STR("</think>")));
    assert_true(think_form_needs(think_form_find("granite"), STR("<response>")));
    assert_false(think_form_needs(form, STR("<response>")));
    assert_false(think_form_needs(form, STR("")));
    assert_false(think_form_needs(NULL, STR("<think>")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thoughts_and_text_are_told_apart_at_every_cut),
        cmocka_unit_test(test_the_blanks_that_are_held_have_a_maximum),
        cmocka_unit_test(test_it_is_inside_from_the_opening_to_the_closing_mark),
        cmocka_unit_test(test_text_behind_thoughts_is_passed_on_without_a_copy),
        cmocka_unit_test(test_a_thought_is_passed_on_as_it_comes),
        cmocka_unit_test(test_templates_choose_their_form),
        cmocka_unit_test(test_published_templates_choose_their_form),
        cmocka_unit_test(test_a_prompt_that_ends_with_the_mark_has_opened_a_thought),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
