/* unit/api/tool_cases.h - texts of one tool form and their events, for tests.
 *
 * Events are written as text{name|arguments}text. The request's tools are f, get_weather and add.
 */
#ifndef UNIT_API_TOOL_CASES_H
#define UNIT_API_TOOL_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "api/tools.h"
#include "unit/api/tool_events.h"
#include "unit/json_lib.h"

static const char tool_case_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"add\"}}]";

struct tool_case {
    const char *text, *events;
};

/* Texts up to this length are cut in three pieces in every way. */
enum { TOOL_CASE_SHORT_BYTES = 64 };

/* Push text[0, first), text[first, second) and the rest, or, if `first` is 0, single bytes. */
static inline void tool_case_push(const char *form, const struct json *tools, struct str text,
                                  size_t first, size_t second, struct tool_events *ev) {
    struct tool_parser *p;
    struct tool_callbacks callbacks;
    tool_events_init(ev, &callbacks);
    assert_int_equal(tool_parser_create(tool_form_find(form), tools, &p), ST_OK);
    for (size_t at = 0; at < text.len;) {
        size_t end = at < first ? first : at < second ? second : text.len;
        if (first == 0) end = at + 1;
        struct str piece = {text.ptr + at, end - at};
        assert_int_equal(tool_parser_push(p, piece, &callbacks), ST_OK);
        at = end;
    }
    assert_int_equal(tool_parser_finish(p, &callbacks), ST_OK);
    tool_parser_destroy(p);
}

static inline void tool_case_check(const char *form, const struct json *tools,
                                   const struct tool_case *c, size_t first, size_t second) {
    struct tool_events ev;
    tool_case_push(form, tools, str_of(c->text), first, second, &ev);
    struct str line = tool_events_line(&ev);
    if (!str_is(line, c->events))
        fail_msg("%s: \"%s\" cut at %zu and %zu:\n events   \"%.*s\"\n expected \"%s\"", form,
                 c->text, first, second, STR_ARG(line), c->events);
    buf_deinit(&ev.line);
}

/* Each text whole, byte by byte, in two pieces for every cut, and if it is short in three. */
static inline void tool_cases_check_with(const char *form, const struct json *tools,
                                         const struct tool_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(cases[i].text);
        tool_case_check(form, tools, &cases[i], len, len);
        tool_case_check(form, tools, &cases[i], 0, 0);
        for (size_t first = 1; first < len; first++) {
            tool_case_check(form, tools, &cases[i], first, len);
            size_t last = len <= TOOL_CASE_SHORT_BYTES ? len : first + 2;
            for (size_t second = first + 1; second < last; second++)
                tool_case_check(form, tools, &cases[i], first, second);
        }
    }
}

static inline void tool_cases_check(const char *form, const struct tool_case *cases, size_t count) {
    struct json *tools = json_of(tool_case_tools);
    tool_cases_check_with(form, tools, cases, count);
    json_destroy(tools);
}

/* A call of f whose argument s has a megabyte of letters: `before` letters `after`. */
static inline void tool_case_check_long(const char *form, const char *before, const char *after) {
    enum { LETTERS = 1 << 20 };
    struct json *tools = json_of(tool_case_tools);
    struct buf text, expected;
    struct tool_events ev;
    buf_init(&text, 2 * LETTERS);
    buf_init(&expected, 2 * LETTERS);
    buf_put_text(&text, before);
    buf_put_text(&expected, "{f|{\"s\": \"");
    for (int i = 0; i < LETTERS; i++) buf_put_char(&text, (char)('a' + i % 26));
    for (int i = 0; i < LETTERS; i++) buf_put_char(&expected, (char)('a' + i % 26));
    buf_put_text(&text, after);
    buf_put_text(&expected, "\"}}");
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        tool_case_push(form, tools, buf_str(&text), is_whole ? text.len : 0, text.len, &ev);
        assert_true(str_eq(tool_events_line(&ev), buf_str(&expected)));
        buf_deinit(&ev.line);
    }
    buf_deinit(&text);
    buf_deinit(&expected);
    json_destroy(tools);
}

/* An answer with 10,000 calls f {"a": 1}. If the time or the memory for a call grew with the number
 * of calls before it, this would run for minutes. */
static inline void tool_case_check_many(const char *form, const char *begin, const char *call,
                                        const char *between, const char *end) {
    enum { CALLS = 10000 };
    struct json *tools = json_of(tool_case_tools);
    struct buf text;
    struct tool_events ev;
    buf_init(&text, 1 << 24);
    buf_put_text(&text, begin);
    for (int i = 0; i < CALLS; i++) {
        if (i) buf_put_text(&text, between);
        buf_put_text(&text, call);
    }
    buf_put_text(&text, end);
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        tool_case_push(form, tools, buf_str(&text), is_whole ? text.len : 0, text.len, &ev);
        struct str line = tool_events_line(&ev);
        assert_int_equal(ev.calls, CALLS);
        assert_int_equal(line.len, CALLS * strlen("{f|{\"a\": 1}}"));
        for (size_t at = 0; at < line.len; at += strlen("{f|{\"a\": 1}}"))
            assert_memory_equal(line.ptr + at, "{f|{\"a\": 1}}", strlen("{f|{\"a\": 1}}"));
        buf_deinit(&ev.line);
    }
    buf_deinit(&text);
    json_destroy(tools);
}

#endif
