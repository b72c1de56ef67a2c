/* Goal:   every text that the grammar of a demanded call allows is read as exactly one call of the
 *         tool, with arguments that satisfy its schema, in each shape of each form.
 * Method: texts drawn by seed from the grammar, with marks and tags in strings wherever it allows
 *         them; the form's parser reads each of them, and its arguments are checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "api/tool_grammar.h"
#include "base/rng.h"
#include "unit/api/tokenizer_fixture.h"
#include "unit/api/tool_events.h"
#include "unit/grammar/grammar_lib.h"
#include "unit/json_lib.h"

enum { TEXT_MAX = 4096, CLOSE_AFTER = 400, DRAWS = 100, SOURCE_MAX = 1 << 20 };

#define BODY                                                                                       \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":\"required\","          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,"              \
    "\"parameters\":{\"type\":\"object\",\"properties\":{"                                         \
    "\"o\":{\"type\":\"integer\",\"minimum\":-5,\"maximum\":500},"                                 \
    "\"s\":{\"type\":\"string\"},\"e\":{\"type\":\"string\",\"enum\":[\"x\",\"1\",\"a b\"]},"      \
    "\"b\":{\"type\":\"boolean\"},\"n\":{\"type\":\"number\",\"minimum\":0,\"maximum\":9},"        \
    "\"l\":{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":99},"     \
    "\"maxItems\":3},\"t\":{\"type\":\"string\"}},\"required\":[\"s\",\"e\"],"                     \
    "\"additionalProperties\":false}}}]}"

/* What ends things, and what looks as if it did. */
static const char *const pieces[] = {"\n</parameter>\n",
                                     "</parameter>",
                                     "</function>\n</tool_call>",
                                     "<parameter=",
                                     "<parameter=t>\n",
                                     "</arg_value>\n",
                                     "</arg_value>",
                                     "<arg_key>",
                                     "</tool_call>",
                                     "<escape>",
                                     "<|\"|>",
                                     "<end_function_call>",
                                     "<tool_call|>",
                                     "```",
                                     "\n```",
                                     "<|tool_call_end|>",
                                     "<|tool_calls_section_end|>",
                                     "\"}]",
                                     "}",
                                     "]",
                                     ")",
                                     "\"",
                                     "\", ",
                                     "\\",
                                     "\\\"",
                                     "\n",
                                     "'",
                                     "<",
                                     "</",
                                     "<|/tool_call|>",
                                     "]<|python_end|>",
                                     "a",
                                     "\xC3\xA9"};
enum { PIECES = sizeof(pieces) / sizeof(pieces[0]) };

static bool take(struct matcher *m, struct str bytes, struct buf *out) {
    if (!matcher_accept(m, bytes, NULL)) return false;
    buf_put_str(out, bytes);
    return true;
}

/* ASCII where it is possible, so that texts are UTF-8; other bytes are those of marks. */
static bool take_byte(struct matcher *m, uint32_t from, struct buf *out) {
    for (uint32_t i = 0; i < 256; i++) {
        const char c = (char)(i < 128 ? (from + i) % 128 : i);
        if (take(m, (struct str){&c, 1}, out)) return true;
    }
    return false;
}

/* False: no end was found in time. */
static bool draw(struct grammar *g, struct rng *r, struct buf *out) {
    struct matcher m = matcher_init(g);
    bool is_over = false;
    while (!is_over && out->len < TEXT_MAX) {
        const bool is_closing = out->len > CLOSE_AFTER;
        bool is_taken = false;
        if (is_closing)
            for (size_t i = 0; i < PIECES && !is_taken; i++)
                is_taken = take(&m, str_of(pieces[i]), out);
        else if (rng_below(r, 3) == 0)
            is_taken = take(&m, str_of(pieces[rng_below(r, PIECES)]), out);
        if (!is_taken) assert_true(take_byte(&m, (uint32_t)rng_below(r, 128), out));
        is_over = matcher_is_complete(&m) && !matcher_may_continue(&m);
    }
    matcher_release(&m);
    return is_over;
}

static bool is_text(const struct json *v) { return json_kind(v) == JS_TEXT; }

static bool is_number(const struct json *v, double min, double max) {
    const bool is_one = json_kind(v) == JS_INT || json_kind(v) == JS_REAL;
    return is_one && json_num(v, 0) >= min && json_num(v, 0) <= max;
}

static bool is_list(const struct json *v) {
    bool is_fit = json_kind(v) == JS_LIST && json_count(v) <= 3;
    for (size_t i = 0; i < json_count(v) && is_fit; i++) is_fit = is_number(json_at(v, i), 0, 99);
    return is_fit;
}

static bool satisfies(const struct json *args) {
    size_t known = 0;
    static const char *const keys[] = {"o", "s", "e", "b", "n", "l", "t"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        known += json_get(args, keys[i]) != NULL;
    const struct json *o = json_get(args, "o"), *b = json_get(args, "b"), *n = json_get(args, "n");
    const struct json *l = json_get(args, "l"), *t = json_get(args, "t"), *e = json_get(args, "e");
    const struct str word = json_str(e);
    const bool is_choice = str_is(word, "x") || str_is(word, "1") || str_is(word, "a b");
    return json_kind(args) == JS_MAP && known == json_count(args) && is_text(json_get(args, "s")) &&
           is_text(e) && is_choice && (!o || is_number(o, -5, 500)) && (!t || is_text(t)) &&
           (!b || json_kind(b) == JS_BOOL) && (!n || is_number(n, 0, 9)) && (!l || is_list(l));
}

static void check_text(const struct tool_form *form, const struct json *tools, struct str text) {
    struct tool_events ev;
    struct tool_callbacks to;
    struct tool_parser *p;
    struct json *args = NULL;
    tool_events_init(&ev, &to);
    assert_int_equal(tool_parser_create(form, tools, &p), ST_OK);
    assert_int_equal(tool_parser_push(p, text, &to), ST_OK);
    assert_int_equal(tool_parser_finish(p, &to), ST_OK);
    const struct str line = tool_events_line(&ev);
    const bool is_call = str_starts(line, STR("{f|")) && str_ends(line, STR("}"));
    const struct str inner = is_call ? str_take(str_skip(line, 3), line.len - 4) : line;
    const bool is_json = json_parse(inner, &json_limits_request, &args, NULL) == ST_OK;
    if (!is_call || !is_json || !satisfies(args))
        fail_msg("%s: %.*s\n is read as %.*s", form->name, STR_ARG(text), STR_ARG(line));
    json_destroy(args);
    tool_parser_destroy(p);
    buf_deinit(&ev.line);
}

/* A text as the parser gets it: special tokens are their spelling. */
static void drop_marks(struct buf *text) {
    size_t len = 0;
    for (size_t i = 0; i < text->len; i++)
        if ((uint8_t)text->ptr[i] != GRAMMAR_TOKEN_MARK) text->ptr[len++] = text->ptr[i];
    text->len = len;
}

static void check_shape(const struct tool_form *form, const struct tool_shape *shape,
                        const struct api_request *r) {
    struct tool_shape alone = *shape;
    struct tool_form one = *form;
    struct buf source, text;
    struct rng rng = {.seed = 7};
    uint32_t ends = 0;
    alone.sign = NULL;
    one.shapes = &alone;
    const struct answer_shape answer = {.request = r, .tokenizer = tokenizer, .tools = &one};
    buf_init(&source, SOURCE_MAX);
    buf_init(&text, SOURCE_MAX);
    assert_int_equal(answer_shape_put(&answer, &source), ST_OK);
    struct grammar *g = compile_or_fail(GRAMMAR_PARTS, buf_text(&source));
    for (int i = 0; i < DRAWS; i++) {
        buf_clear(&text);
        if (!draw(g, &rng, &text)) continue;
        ends++;
        drop_marks(&text);
        check_text(form, r->tools, buf_str(&text));
    }
    if (ends < DRAWS / 2) fail_msg("%s: only %u texts have an end", form->name, ends);
    grammar_destroy(g);
    buf_deinit(&source);
    buf_deinit(&text);
}

static void test_drawn_calls_are_read_as_they_were_meant(void **state) {
    (void)state;
    struct api_request r;
    struct api_error e = {0};
    assert_int_equal(lib_read_body(codec_find("openai.chat"), STR(BODY), &r, &e), ST_OK);
    for (size_t i = 0; tool_forms[i]; i++) {
        const struct tool_shape *shape = tool_forms[i]->shapes;
        for (; shape->sign; shape++) check_shape(tool_forms[i], shape, &r);
        check_shape(tool_forms[i], shape, &r);
    }
    api_request_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawn_calls_are_read_as_they_were_meant),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
