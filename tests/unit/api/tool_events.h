/* unit/api/tool_events.h - the events of a tool parser as one line of text.
 *
 * Text as it is, a call as {name|arguments}; joined, so that two cuts of one text can be compared.
 */
#ifndef UNIT_API_TOOL_EVENTS_H
#define UNIT_API_TOOL_EVENTS_H

#include "api/tools.h"
#include "base/buf.h"
#include "base/check.h"

struct tool_events {
    struct buf line;
    uint32_t calls;
    bool in_call;
};

static void events_leave_call(struct tool_events *ev) {
    if (ev->in_call) buf_put_char(&ev->line, '}');
    ev->in_call = false;
}

static void events_on_text(void *ctx, struct str text) {
    struct tool_events *ev = ctx;
    CHECK(text.len > 0);
    events_leave_call(ev);
    buf_put_str(&ev->line, text);
}

static void events_on_call(void *ctx, uint32_t call, struct str name) {
    struct tool_events *ev = ctx;
    CHECK(call == ev->calls++);
    events_leave_call(ev);
    buf_put_char(&ev->line, '{');
    buf_put_str(&ev->line, name);
    buf_put_char(&ev->line, '|');
    ev->in_call = true;
}

static void events_on_args(void *ctx, uint32_t call, struct str piece) {
    struct tool_events *ev = ctx;
    CHECK(ev->in_call && call == ev->calls - 1);
    CHECK(piece.len > 0);
    buf_put_str(&ev->line, piece);
}

static inline void tool_events_init(struct tool_events *ev, struct tool_callbacks *callbacks) {
    *ev = (struct tool_events){.calls = 0};
    buf_init(&ev->line, 1 << 24);
    *callbacks = (struct tool_callbacks){events_on_text, events_on_call, events_on_args, ev};
}

static inline struct str tool_events_line(struct tool_events *ev) {
    events_leave_call(ev);
    return buf_str(&ev->line);
}

#endif
