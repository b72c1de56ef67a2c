/* unit/api/tool_trips.h - calls written by a family's own chat template and read again. */
#ifndef UNIT_API_TOOL_TRIPS_H
#define UNIT_API_TOOL_TRIPS_H

#include <stdio.h>
#include <string.h>

#include "jinja/template.h"
#include "unit/api/tool_cases.h"
#include "unit/text/tok_lib.h"

/* A conversation whose last message is the assistant's, between the marks `begin` (its last
 * occurrence) and `end` (or the end of the text); what must be found in it. */
struct tool_trip {
    const char *file, *form, *begin, *end;
    const char *messages, *events;
    const char *without; /* a statement that is left out of the template; NULL: none */
};

static inline struct str trip_turn(const struct tool_trip *t, struct buf *text) {
    const char *all = buf_text(text), *at = NULL, *end;
    for (const char *next = all; (next = strstr(next, t->begin)); next++) at = next;
    assert_non_null(at);
    at += strlen(t->begin);
    end = t->end ? strstr(at, t->end) : NULL;
    return (struct str){at, end ? (size_t)(end - at) : strlen(at)};
}

static inline void trip_render(const struct tool_trip *t, struct str source, struct buf *out) {
    struct template *template = NULL;
    struct err err = {0};
    assert_int_equal(template_create(source, &template, &err), ST_OK);
    struct json *vars = json_map_create(), *messages = json_of(t->messages);
    assert_int_equal(json_set(vars, STR("messages"), messages), ST_OK);
    assert_int_equal(json_set(vars, STR("tools"), json_pin(tools)), ST_OK);
    assert_int_equal(json_set(vars, STR("bos_token"), json_text_create(STR("<s>"))), ST_OK);
    assert_int_equal(json_set(vars, STR("add_generation_prompt"), json_bool_create(false)), ST_OK);
    if (template_render(template, vars, 0, &template_limits_default, out, &err) != ST_OK)
        fail_msg("%s: %s", t->file, err.text);
    json_destroy(vars);
    template_destroy(template);
}

static inline void trip_leave_out(struct buf *source, const char *statement) {
    char *at = strstr(source->ptr, statement);
    assert_non_null(at);
    memset(at, ' ', strlen(statement));
}

/* Skips the test if the template is not there. */
static inline void check_trip(const struct tool_trip *t) {
    char path[1024];
    struct buf source, text;
    struct err err = {0};
    struct tool_events ev;
    if (!tok_data_path(path, sizeof(path), t->file)) skip();
    buf_init(&source, 1 << 20);
    buf_init(&text, 1 << 20);
    assert_int_equal(file_read(path, &source, &err), ST_OK);
    if (t->without) trip_leave_out(&source, t->without);
    const struct tool_form *form = tool_form_of_template(buf_str(&source));
    assert_ptr_equal(form, tool_form_find(t->form));
    trip_render(t, buf_str(&source), &text);
    const struct str turn = trip_turn(t, &text);
    for (size_t piece = 1; piece < turn.len; piece += 1 + piece / 2) {
        push_pieces(t->form, turn, piece, &ev);
        if (!str_is(tool_events_line(&ev), t->events))
            fail_msg("%s: \"%.*s\"\n events   \"%.*s\"\n expected \"%s\"", t->file, STR_ARG(turn),
                     STR_ARG(tool_events_line(&ev)), t->events);
        buf_deinit(&ev.line);
    }
    buf_deinit(&source);
    buf_deinit(&text);
}

#endif
