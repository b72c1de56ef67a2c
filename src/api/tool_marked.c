/* api/tool_marked.c - JSON objects after a mark, one or a list of them, perhaps before a closing
 * mark: what hermes, phi4 and granite share.
 *
 *   TEXT --opener--> OPEN --mark--> BEFORE --'{'--> BODY --'}'--> AFTER --> CLOSE --> TEXT
 *          BEFORE --'['--> BEFORE                  BODY --'}' in a list--> NEXT --']'--> AFTER
 *
 * If the object is malformed after its arguments, the rest up to a mark is skipped (SKIP). */
#include <string.h>

#include "api/tool_int.h"

enum { OPEN = TOOL_TEXT + 1, START, BEFORE, BODY, NEXT, AFTER, CLOSE, SKIP, SKIP_CLOSE };

static bool begin_object(struct tool_parser *p, const struct tool_marks *marks) {
    tool_scan_begin(p, false);
    p->scan.closing = marks->close;
    return tool_enter_state(p, BODY);
}

static bool step_text(struct tool_parser *p, char c, const struct tool_marks *marks) {
    if (c == p->form->opener) return tool_enter_state(p, OPEN);
    bool may_start = marks->start && !p->has_text && c == marks->start[0];
    return may_start ? tool_enter_state(p, START) : tool_take_text(p, c);
}

static bool step_open(struct tool_parser *p, char c, const struct tool_marks *marks) {
    enum tool_match got = tool_match_any(p, marks->open, c);
    if (got == MATCH_NOT) return tool_give_up(p);
    if (got == MATCH_DONE) p->state = BEFORE;
    return true;
}

static bool step_before(struct tool_parser *p, char c, const struct tool_marks *marks) {
    if (tool_is_blank(c)) return tool_hold(p, c);
    if (c == '{') return begin_object(p, marks);
    if (c != '[' || p->in_list) return tool_give_up(p);
    p->in_list = true;
    return tool_hold(p, c);
}

static bool step_body(struct tool_parser *p, char c) {
    enum tool_scanned got = tool_scan_step(p, c);
    if (got == SCAN_NOT) return p->scan.is_emitted ? tool_enter_state(p, SKIP) : tool_give_up(p);
    if (got == SCAN_MORE) return true;
    if (p->scan.is_closed) p->in_list = false;
    p->state = p->scan.is_closed ? TOOL_TEXT : p->in_list ? NEXT : AFTER;
    return true;
}

static bool step_next(struct tool_parser *p, char c, const struct tool_marks *marks) {
    if (tool_is_blank(c) || c == ',') return true;
    if (c == '{') return begin_object(p, marks);
    p->in_list = false;
    p->state = AFTER;
    return c == ']';
}

static bool step_after(struct tool_parser *p, char c, const struct tool_marks *marks) {
    if (tool_is_blank(c)) return tool_take_blank(p, c);
    if (c == '{') return begin_object(p, marks);
    return tool_enter_state(p, c == marks->close[0] ? CLOSE : TOOL_TEXT);
}

/* Whether what matched of the closing mark, and then `c`, is the beginning of an opening one. */
static bool is_opening(struct tool_parser *p, char c, const struct tool_marks *marks) {
    for (uint32_t i = 0; marks->open[i]; i++) {
        p->mark = i;
        if (strncmp(marks->open[i], marks->close, p->matched) == 0 &&
            marks->open[i][p->matched] == c)
            return true;
    }
    return false;
}

/* The closing mark may be missing: an opening mark or text may follow instead. Inside an invalid
 * call everything else is skipped. */
static bool step_close(struct tool_parser *p, char c, const struct tool_marks *marks) {
    enum tool_match got = tool_match(p, marks->close, c);
    p->held_is_tail = got == MATCH_MORE;
    if (got == MATCH_MORE) return true;
    if (got == MATCH_NOT && is_opening(p, c, marks)) {
        p->in_list = false;
        p->state = OPEN;
        return false;
    }
    if (got == MATCH_NOT && p->state == CLOSE) return tool_give_up(p);
    p->held.len = 0;
    if (got == MATCH_DONE) p->blanks.len = 0;
    if (got == MATCH_DONE) p->in_list = false;
    p->state = got == MATCH_DONE ? TOOL_TEXT : SKIP;
    return got == MATCH_DONE;
}

bool tool_marked_step(struct tool_parser *p, char c, const struct tool_marks *marks) {
    switch (p->state) {
    case OPEN:
        return step_open(p, c, marks);
    case START:
        return tool_take_mark(p, c, marks->start, BEFORE);
    case BEFORE:
        return step_before(p, c, marks);
    case BODY:
        return step_body(p, c);
    case NEXT:
        return step_next(p, c, marks);
    case AFTER:
        return step_after(p, c, marks);
    case CLOSE:
    case SKIP_CLOSE:
        return step_close(p, c, marks);
    case SKIP:
        return c == marks->close[0] ? tool_enter_state(p, SKIP_CLOSE) : true;
    default:
        return step_text(p, c, marks);
    }
}
