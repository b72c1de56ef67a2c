/* Goal:   the largest answers and requests with tools work in every wire format, in time that grows
 *         with their size and not faster: an argument of 1 MiB, 10,000 calls in one answer, and as
 *         many tools as a request may have.
 * Method: texts of that size through the parser, in pieces as tokens come; logs of events of that
 *         size through the codecs, whole and streamed, and the JSON read again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <time.h>

#include "unit/api/codec_test.h"
#include "unit/api/tool_events.h"

enum { ARG_BYTES = 1 << 20, CALLS = 10000, PIECE_BYTES = 5 };

static double cpu_s(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* --- the parser --------------------------------------------------------------------------- */

/* [{"type":"function","function":{"name":"tool_0"}}, ..] */
static struct json *make_tools(uint32_t count) {
    struct buf text;
    struct json *tools = NULL;
    buf_init(&text, 1 << 20);
    for (uint32_t i = 0; i < count; i++)
        buf_printf(&text, "%c{\"type\":\"function\",\"function\":{\"name\":\"tool_%u\"}}",
                   i ? ',' : '[', i);
    buf_put_char(&text, ']');
    assert_int_equal(json_parse(buf_str(&text), &json_limits_request, &tools, NULL), ST_OK);
    buf_deinit(&text);
    return tools;
}

static void parse(const struct json *tools, struct str text, struct tool_events *ev) {
    struct tool_callbacks to;
    struct tool_parser *p = NULL;
    tool_events_init(ev, &to);
    assert_int_equal(tool_parser_create(tool_form_find("hermes"), tools, &p), ST_OK);
    for (; text.len; text = str_skip(text, str_take(text, PIECE_BYTES).len))
        assert_int_equal(tool_parser_push(p, str_take(text, PIECE_BYTES), &to), ST_OK);
    assert_int_equal(tool_parser_finish(p, &to), ST_OK);
    tool_parser_destroy(p);
}

/* `calls` calls of the last of the tools. */
static double parse_calls(uint32_t tools_count, uint32_t calls) {
    struct json *tools = make_tools(tools_count);
    struct tool_events ev;
    struct buf text;
    buf_init(&text, 1 << 26);
    for (uint32_t i = 0; i < calls; i++)
        buf_printf(&text,
                   "<tool_call>\n{\"name\": \"tool_%u\", \"arguments\": {\"n\": %u}}\n</tool_call>",
                   tools_count - 1, i);
    double start = cpu_s();
    parse(tools, buf_str(&text), &ev);
    double spent = cpu_s() - start;
    assert_int_equal(ev.calls, calls);
    assert_int_equal(buf_status(&ev.line), ST_OK);
    buf_deinit(&ev.line);
    buf_deinit(&text);
    json_destroy(tools);
    return spent;
}

static void test_names_are_found_among_many_tools_without_a_search(void **state) {
    (void)state;
    double few = 1e9, many = 1e9;
    for (int i = 0; i < 3; i++) { /* the best of three: other programs run beside it */
        double a = parse_calls(1, CALLS), b = parse_calls(API_TOOLS_MAX, CALLS);
        few = a < few ? a : few;
        many = b < many ? b : many;
    }
    print_message("10,000 calls: %.1f ms with 1 tool, %.1f ms with %d\n", few * 1e3, many * 1e3,
                  API_TOOLS_MAX);
    assert_true(many < 3 * few + 0.01);
}

static void test_an_argument_of_one_mebibyte_is_parsed(void **state) {
    (void)state;
    static const char head[] = "<tool_call>\n{\"name\": \"tool_0\", \"arguments\": {\"s\": \"";
    struct json *tools = make_tools(1);
    struct tool_events ev;
    struct buf text;
    buf_init(&text, 1 << 22);
    buf_put_text(&text, head);
    for (uint32_t i = 0; i < ARG_BYTES; i++) buf_put_char(&text, (char)('a' + i % 26));
    buf_put_text(&text, "\"}}\n</tool_call>");
    double start = cpu_s();
    parse(tools, buf_str(&text), &ev);
    print_message("1 MiB: %.1f ms\n", (cpu_s() - start) * 1e3);
    struct str line = tool_events_line(&ev);
    assert_int_equal(ev.calls, 1);
    assert_int_equal(line.len, sizeof("{tool_0|{\"s\": \"") - 1 + ARG_BYTES + sizeof("\"}}") - 1);
    assert_true(str_ends(line, STR("\"}}")));
    assert_memory_equal(line.ptr + sizeof("{tool_0|{\"s\": \"") - 1, text.ptr + sizeof(head) - 1,
                        ARG_BYTES);
    buf_deinit(&ev.line);
    buf_deinit(&text);
    json_destroy(tools);
}

/* --- the codecs --------------------------------------------------------------------------- */

static const struct {
    const char *codec, *body;
    const char *calls; /* the path to the list with the calls in a whole answer */
} formats[] = {
    {"openai.chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"w\"}]}", "tool_calls"},
    {"openai.responses", "{\"input\":\"w\"}", "output"},
    {"anthropic.messages",
     "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"w\"}]}", "content"},
    {"ollama.chat", "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"w\"}]}",
     "tool_calls"},
};
enum { FORMATS = sizeof(formats) / sizeof(formats[0]) };

static const struct json_limits large = {
    .bytes_max = 1u << 26, .depth_max = 64, .values_max = 1u << 21};

static void add(struct case_run *run, enum api_event_kind kind, uint32_t call, struct str text) {
    const struct api_event ev = {.kind = kind, .tool = call, .text = text};
    assert_int_equal(event_log_add(run->answer.log, &ev), ST_OK);
}

/* An answer of `calls` calls with the same arguments, in pieces. */
static void make_answer(struct case_run *run, uint32_t format, uint32_t calls, struct str args) {
    static const struct codec_case empty = {.finish = FINISH_NONE, .is_load = true};
    struct api_error e = {0};
    assert_int_equal(case_read_body(codec_find(formats[format].codec), str_of(formats[format].body),
                                    &run->request, &e),
                     ST_OK);
    assert_int_equal(case_answer(run, &empty), ST_OK);
    run->answer.choice_count = run->answer.finished_count = 1;
    run->choice.finish = FINISH_STOP;
    run->choice.has_tools = true;
    for (uint32_t i = 0; i < calls; i++) {
        add(run, EVENT_TOOL, i, STR("f"));
        for (struct str rest = args; rest.len; rest = str_skip(rest, str_take(rest, 999).len))
            add(run, EVENT_ARGS, i, str_take(rest, 999));
    }
    const struct api_event last = {.kind = EVENT_FINISH, .finish = FINISH_STOP, .tool = calls};
    assert_int_equal(event_log_add(run->answer.log, &last), ST_OK);
}

static const struct json *calls_in(const struct json *doc, uint32_t format) {
    const struct json *message = json_get(json_at(json_get(doc, "choices"), 0), "message");
    if (!message) message = json_get(doc, "message");
    return json_get(message ? message : doc, formats[format].calls);
}

/* The whole answer is JSON with so many calls, and the stream has the arguments of each. */
static void expect_calls(uint32_t format, uint32_t calls, struct str args) {
    struct case_run run = {.choice = {0}};
    struct json *doc = NULL;
    struct encoder e;
    struct buf out;
    buf_init(&out, CASE_BYTES_MAX * 4);
    double start = cpu_s();
    make_answer(&run, format, calls, args);
    run.request.codec->whole(&run.answer, &out);
    assert_int_equal(buf_status(&out), ST_OK);
    assert_int_equal(json_parse(buf_str(&out), &large, &doc, NULL), ST_OK);
    assert_int_equal(json_count(calls_in(doc, format)), calls);
    json_destroy(doc);

    buf_clear(&out);
    encoder_init(&e, run.request.codec, &run.answer, 0, FRAMING_SSE);
    for (uint32_t i = 0; i < 1000000 && !e.has_ended; i++) encoder_run(&e, 64, &out);
    assert_true(e.has_ended);
    assert_int_equal(e.status, ST_OK);
    assert_int_equal(buf_status(&out), ST_OK);
    assert_true(out.len > calls * args.len);
    double spent = cpu_s() - start;
    print_message("%s: %u calls of %zu bytes: %.0f ms, %zu bytes streamed\n",
                  run.request.codec->name, calls, args.len, spent * 1e3, out.len);
    assert_true(spent < 20); /* what grows with the square takes minutes */
    encoder_deinit(&e);
    buf_deinit(&out);
    case_deinit(&run);
}

static void test_ten_thousand_calls_are_written(void **state) {
    (void)state;
    for (uint32_t i = 0; i < FORMATS; i++) expect_calls(i, CALLS, STR("{\"a\": \"b\"}"));
}

static void test_an_argument_of_one_mebibyte_is_written(void **state) {
    (void)state;
    struct buf args;
    buf_init(&args, 1 << 22);
    buf_put_text(&args, "{\"s\": \"");
    for (uint32_t i = 0; i < ARG_BYTES; i++) buf_put_char(&args, (char)('a' + i % 26));
    buf_put_text(&args, "\"}");
    for (uint32_t i = 0; i < FORMATS; i++) expect_calls(i, 1, buf_str(&args));
    buf_deinit(&args);
}

/* --- requests ----------------------------------------------------------------------------- */

/* The format's body with `count` tools. */
static void put_body(uint32_t format, uint32_t count, struct buf *out) {
    const bool is_flat = format == 1 || format == 2; /* responses, anthropic */
    const struct str body = str_of(formats[format].body);
    buf_put_str(out, str_take(body, body.len - 1));
    for (uint32_t i = 0; i < count; i++) {
        buf_put_text(out, i ? "," : ",\"tools\":[");
        if (is_flat)
            buf_printf(out, "{%s\"name\":\"tool_%u\"}", format == 1 ? "\"type\":\"function\"," : "",
                       i);
        else
            buf_printf(out, "{\"type\":\"function\",\"function\":{\"name\":\"tool_%u\"}}", i);
    }
    buf_put_text(out, "]}");
}

static void test_as_many_tools_as_allowed_are_read_and_one_more_is_refused(void **state) {
    (void)state;
    for (uint32_t i = 0; i < FORMATS * 2; i++) {
        const uint32_t format = i / 2, count = API_TOOLS_MAX + i % 2;
        struct api_request r;
        struct api_error e = {0};
        struct buf body;
        buf_init(&body, 1 << 20);
        put_body(format, count, &body);
        enum status st = case_read_body(codec_find(formats[format].codec), buf_str(&body), &r, &e);
        assert_int_equal(st, i % 2 ? ST_BAD : ST_OK);
        if (i % 2) assert_string_equal(e.param, "tools");
        if (i % 2) assert_non_null(strstr(e.message.text, "1024"));
        if (i % 2 == 0) assert_int_equal(json_count(r.tools), count);
        api_request_deinit(&r);
        buf_deinit(&body);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_many_tools_as_allowed_are_read_and_one_more_is_refused),
        cmocka_unit_test(test_names_are_found_among_many_tools_without_a_search),
        cmocka_unit_test(test_an_argument_of_one_mebibyte_is_parsed),
        cmocka_unit_test(test_ten_thousand_calls_are_written),
        cmocka_unit_test(test_an_argument_of_one_mebibyte_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
