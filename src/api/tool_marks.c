/* api/tool_marks.c - marks of which one of several may come, and what is held behind a name. */
#include <string.h>

#include "api/tool_tags_int.h"
#include "base/check.h"

bool tool_give_up_before_mark(struct tool_parser *p) {
    char again[TOOL_MARK_BYTES_MAX];
    if (buf_status(&p->held) != ST_OK) return true; /* out of memory: the push fails */
    const size_t len = p->held.len - p->mark_at;
    CHECK(len <= sizeof(again));
    memcpy(again, p->held.ptr + p->mark_at, len);
    p->held.len = p->mark_at;
    tool_give_up(p);
    for (size_t i = 0; i < len; i++)
        while (!p->form->step(p, again[i])) {
        }
    return false;
}

bool tool_give_up_mark(struct tool_parser *p) { return !tool_give_up(p); }

bool tool_hold_tail(struct tool_parser *p, char c) {
    if (p->held.len >= TOOL_TAIL_BYTES_MAX) return false;
    buf_put_char(&p->held, c);
    p->held_is_tail = true;
    return true;
}

void tool_drop_tail(struct tool_parser *p) {
    p->held.len = 0;
    p->held_is_tail = false;
}

void tool_emit_tail(struct tool_parser *p) {
    if (p->held.len) tool_emit_args(p, buf_str(&p->held));
    tool_drop_tail(p);
}

bool tool_emit_tail_and_enter(struct tool_parser *p, uint32_t state) {
    tool_emit_tail(p);
    return tool_enter_state(p, state);
}

void tool_set_name(struct tool_parser *p, struct str name) {
    name = str_trim(name);
    if (name.len) memmove(p->scan.name.ptr, name.ptr, name.len); /* a part of it */
    p->scan.name.len = name.len;
}
