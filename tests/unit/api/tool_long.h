/* unit/api/tool_long.h - answers that are long, or that never end what they began. */
#ifndef UNIT_API_TOOL_LONG_H
#define UNIT_API_TOOL_LONG_H

#include <string.h>
#include <time.h>

#include "unit/api/tool_cases.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* The request's, as struct api_request has them; the including file sets it. */
static struct json *tools;

/* The events of a text that is pushed in pieces of `piece` bytes. The caller ends ev->line. */
static inline void push_pieces(const char *form, struct str text, size_t piece,
                               struct tool_events *ev) {
    struct tool_parser *p;
    struct tool_callbacks callbacks;
    tool_events_init(ev, &callbacks);
    assert_int_equal(tool_parser_create(tool_form_find(form), tools, &p), ST_OK);
    for (; text.len; text = str_skip(text, piece))
        assert_int_equal(tool_parser_push(p, str_take(text, piece), &callbacks), ST_OK);
    assert_int_equal(tool_parser_finish(p, &callbacks), ST_OK);
    tool_parser_destroy(p);
}

/* Pieces and the whole line of events after each. */
struct tool_progress {
    const char *piece, *line;
};

static inline void check_progress(const char *form, const struct tool_progress *steps,
                                  size_t count) {
    struct tool_parser *p;
    struct tool_events ev;
    struct tool_callbacks callbacks;
    tool_events_init(&ev, &callbacks);
    assert_int_equal(tool_parser_create(tool_form_find(form), tools, &p), ST_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tool_parser_push(p, str_of(steps[i].piece), &callbacks), ST_OK);
        if (!str_is(buf_str(&ev.line), steps[i].line))
            fail_msg("after \"%s\":\n events   \"%.*s\"\n expected \"%s\"", steps[i].piece,
                     STR_ARG(buf_str(&ev.line)), steps[i].line);
    }
    tool_parser_destroy(p);
    buf_deinit(&ev.line);
}

/* before, letters, after; and the events before and after the letters. */
struct long_form {
    const char *form, *before, *after, *line_before, *line_after;
};

static inline void put_letters(struct buf *out, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) buf_put_char(out, (char)('a' + i % 26));
}

static inline void check_long_argument(const struct long_form *form, size_t bytes) {
    struct buf text, line;
    struct tool_events ev;
    buf_init(&text, 1 << 24);
    buf_init(&line, 1 << 24);
    buf_put_text(&text, form->before);
    put_letters(&text, bytes);
    buf_put_text(&text, form->after);
    buf_put_text(&line, form->line_before);
    put_letters(&line, bytes);
    buf_put_text(&line, form->line_after);
    static const size_t pieces[] = {1, 7, 1 << 24};
    for (size_t i = 0; i < COUNT(pieces); i++) {
        push_pieces(form->form, buf_str(&text), pieces[i], &ev);
        assert_true(str_eq(tool_events_line(&ev), buf_str(&line)));
        buf_deinit(&ev.line);
    }
    buf_deinit(&text);
    buf_deinit(&line);
}

/* Processor time in microseconds for `count` calls, each of which must give `events`. */
static inline int64_t time_calls(const char *form, const char *call, const char *events,
                                 size_t count) {
    struct buf text;
    struct tool_events ev;
    buf_init(&text, 1 << 24);
    for (size_t i = 0; i < count; i++) buf_put_text(&text, call);
    const clock_t from = clock();
    push_pieces(form, buf_str(&text), 5, &ev);
    const clock_t took = clock() - from;
    struct str line = tool_events_line(&ev);
    assert_int_equal(ev.calls, count);
    for (; line.len; line = str_skip(line, strlen(events)))
        assert_true(str_starts(line, str_of(events)));
    buf_deinit(&ev.line);
    buf_deinit(&text);
    return (int64_t)took * 1000000 / CLOCKS_PER_SEC;
}

/* Ten times the calls may take at most forty times as long; quadratic time would be a hundred. */
static inline void check_many_calls(const char *form, const char *call, const char *events) {
    const int64_t few = time_calls(form, call, events, 1000);
    const int64_t many = time_calls(form, call, events, 10000);
    if (many > 40 * few + 100000) fail_msg("1,000 calls: %ld us, 10,000: %ld us", few, many);
}

/* 8 MiB of one letter behind a beginning: no failure, whatever is found. */
static inline void check_flood(const char *form, const char *before, char letter) {
    struct tool_parser *p;
    struct tool_events ev;
    struct tool_callbacks callbacks;
    char fill[4096];
    memset(fill, letter, sizeof(fill));
    tool_events_init(&ev, &callbacks);
    assert_int_equal(tool_parser_create(tool_form_find(form), tools, &p), ST_OK);
    assert_int_equal(tool_parser_push(p, str_of(before), &callbacks), ST_OK);
    for (size_t i = 0; i < 2048; i++)
        assert_int_equal(tool_parser_push(p, (struct str){fill, sizeof(fill)}, &callbacks), ST_OK);
    assert_int_equal(tool_parser_finish(p, &callbacks), ST_OK);
    assert_in_range(ev.line.len, 2048 * sizeof(fill) - (64 << 10), 2 * 2048 * sizeof(fill) + 100);
    tool_parser_destroy(p);
    buf_deinit(&ev.line);
}

#endif
