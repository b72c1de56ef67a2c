/* api/tool_section.c - calls as a head and JSON between marks, in a section of calls.
 *
 *   TEXT --'<'--> OPEN --begin--> SECTION --'<'--> CALL --> HEAD --'<'--> SEP --on_head--> ARGS
 *                 OPEN --call--> HEAD                                    ARGS --call_end--> TEXT
 *                 OPEN --end, if calls precede--> TEXT
 *
 * Arguments end at the mark behind them, unless it is inside a string of the JSON. Until then they
 * are passed on as written, whether they are valid or not. Blanks, the end of a fence and a mark
 * that has begun are held (TAIL). */
#include <string.h>

#include "api/tool_tags_int.h"

enum {
    ARGS = TOOL_SECTION_ARGS,
    OPEN,
    SECTION,
    CALL,
    HEAD,
    SEP,
    TAIL_FENCE,
    AFTER_FENCE,
    TAIL_MARK,
};

enum { OPEN_BEGIN, OPEN_CALL, OPEN_END };
enum { CLOSE_CALL, CLOSE_SECTION };

static const char *const fences[] = {"```", NULL};

static bool begin_head(struct tool_parser *p) {
    p->scan.name.len = 0;
    p->state = HEAD;
    return true;
}

static bool end_section(struct tool_parser *p) {
    if (!p->has_text) p->blanks.len = 0; /* they are between the marks */
    p->held.len = 0;
    p->in_section = false;
    p->state = TOOL_TEXT;
    return true;
}

static bool step_open(struct tool_parser *p, char c, const struct tool_section *s) {
    const enum tool_match got = tool_match_any(p, s->open, c);
    const bool may_end = strncmp(s->open[OPEN_END], buf_text(&p->held), p->held.len) == 0;
    p->held_is_tail = got == MATCH_MORE && p->in_section && may_end;
    if (got == MATCH_NOT) return tool_give_up(p);
    if (got == MATCH_MORE) return true;
    if (p->mark == OPEN_CALL) return begin_head(p);
    if (p->mark == OPEN_END) return p->in_section ? end_section(p) : tool_give_up_mark(p);
    p->in_section = false;
    p->state = SECTION;
    return true;
}

static bool step_section(struct tool_parser *p, char c) {
    if (c == '<') return tool_enter_state(p, CALL);
    if (!tool_is_blank(c) || p->held.len >= TOOL_TAIL_BYTES_MAX) return tool_give_up(p);
    return tool_hold(p, c);
}

static bool step_call(struct tool_parser *p, char c, const struct tool_section *s) {
    const enum tool_match got = tool_match_any(p, s->call, c);
    if (got == MATCH_NOT) return tool_give_up_before_mark(p);
    return got == MATCH_DONE ? begin_head(p) : true;
}

static bool step_head(struct tool_parser *p, char c) {
    if (c == '<') return tool_enter_state(p, SEP);
    if (p->scan.name.len == TOOL_NAME_BYTES_MAX) return tool_give_up(p);
    buf_put_char(&p->scan.name, c);
    return tool_hold(p, c);
}

static bool step_sep(struct tool_parser *p, char c, const struct tool_section *s) {
    const enum tool_match got = tool_match_any(p, s->sep, c);
    if (got == MATCH_NOT) return tool_give_up_before_mark(p);
    return got == MATCH_DONE ? s->on_head(p) : true;
}

bool tool_section_begin_args(struct tool_parser *p) {
    p->scan.args.len = 0;
    p->scan.is_emitted = p->scan.has_arg_bytes = false;
    p->scan.in_string = p->scan.in_escape = false;
    tool_emit_call(p);
    p->state = ARGS;
    return true;
}

static void put_arg_byte(struct tool_parser *p, char c) {
    struct tool_scan *s = &p->scan;
    tool_emit_tail(p);
    tool_emit_args(p, (struct str){&c, 1});
    s->has_arg_bytes = true;
    const bool is_quote = c == '"' && !s->in_escape;
    s->in_escape = s->in_string && c == '\\' && !s->in_escape;
    if (is_quote) s->in_string = !s->in_string;
}

static bool step_args(struct tool_parser *p, char c, const struct tool_section *s) {
    if (!p->scan.in_string) {
        if (tool_is_blank(c) && !p->scan.has_arg_bytes) return true;
        if (tool_is_blank(c) && tool_hold_tail(p, c)) return true;
        if (c == '<') return tool_enter_state(p, TAIL_MARK);
        if (c == '`' && s->has_fence) return tool_enter_state(p, TAIL_FENCE);
    }
    put_arg_byte(p, c);
    return true;
}

static bool back_to_args(struct tool_parser *p) {
    p->scan.has_arg_bytes |= p->held.len > 0;
    return tool_emit_tail_and_enter(p, ARGS);
}

static bool step_tail_fence(struct tool_parser *p, char c) {
    const enum tool_match got = tool_match_any(p, fences, c);
    p->held_is_tail = true;
    if (got == MATCH_NOT) return back_to_args(p);
    if (got == MATCH_DONE) p->state = AFTER_FENCE;
    return true;
}

static bool step_after_fence(struct tool_parser *p, char c) {
    if (c == '<') return tool_enter_state(p, TAIL_MARK);
    return (tool_is_blank(c) && tool_hold_tail(p, c)) || back_to_args(p);
}

static bool step_tail_mark(struct tool_parser *p, char c, const struct tool_section *s) {
    const enum tool_match got = tool_match_any(p, s->close, c);
    p->held_is_tail = true;
    if (got == MATCH_NOT) return back_to_args(p);
    if (got == MATCH_MORE) return true;
    tool_drop_tail(p);
    if (!p->scan.has_arg_bytes) tool_emit_args(p, STR("{}"));
    p->in_section = p->mark == CLOSE_CALL;
    p->state = TOOL_TEXT;
    return true;
}

bool tool_section_step(struct tool_parser *p, char c, const struct tool_section *s) {
    switch (p->state) {
    case OPEN:
        return step_open(p, c, s);
    case SECTION:
        return step_section(p, c);
    case CALL:
        return step_call(p, c, s);
    case HEAD:
        return step_head(p, c);
    case SEP:
        return step_sep(p, c, s);
    case ARGS:
        return step_args(p, c, s);
    case TAIL_FENCE:
        return step_tail_fence(p, c);
    case AFTER_FENCE:
        return step_after_fence(p, c);
    case TAIL_MARK:
        return step_tail_mark(p, c, s);
    default:
        return c == '<' ? tool_enter_state(p, OPEN) : tool_take_text(p, c);
    }
}
