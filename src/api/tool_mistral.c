/* api/tool_mistral.c - calls after [TOOL_CALLS], as Mistral's models write them: a list of
 * objects, or, from 2025 on, name[ARGS]{..} with perhaps [CALL_ID]id before [ARGS].
 *
 *   TEXT --'['--> MARK --> BEFORE --'['--> LIST --'{'--> BODY --'}'--> NEXT --']'--> TEXT
 *                          BEFORE --name--> NAME --> BLANK --'['--> TAG --> BODY --'}'--> TEXT
 *
 * A name is whole where '[' or '{' follows it. There is no closing mark: malformed arguments end
 * with the answer. */
#include "api/tool_int.h"

enum { MARK = TOOL_TEXT + 1, BEFORE, LIST, BODY, NEXT, NAME, BLANK, TAG, ID };

static const char *const tags[] = {"[ARGS]", "[CALL_ID]", NULL};

static bool begin_object(struct tool_parser *p) {
    tool_scan_begin(p, false);
    return tool_enter_state(p, BODY);
}

static bool step_before(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return tool_hold(p, c);
    p->in_list = c == '[';
    if (c == '{') return begin_object(p);
    if (c == '[') {
        p->state = LIST;
        return tool_hold(p, c);
    }
    p->scan.name.len = 0;
    return tool_is_name_char(c) ? tool_enter_state(p, NAME) : tool_give_up(p);
}

static bool step_list(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return tool_hold(p, c);
    return c == '{' ? begin_object(p) : tool_give_up(p);
}

static bool step_next(struct tool_parser *p, char c) {
    if (tool_is_blank(c) || c == ',') return true;
    if (c == '{') return begin_object(p);
    p->state = TOOL_TEXT;
    p->in_list = false;
    return c == ']';
}

static bool step_name(struct tool_parser *p, char c) {
    if (!tool_is_name_char(c)) return tool_enter_state(p, BLANK);
    return tool_put_name(p, c) ? tool_hold(p, c) : tool_give_up(p);
}

/* After the name: the call is emitted if the name is a tool's. */
static bool step_blank(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return tool_hold(p, c);
    bool is_whole = c == '{' || c == '[';
    if (!is_whole || !tool_name_is_known(p, buf_str(&p->scan.name))) return tool_give_up(p);
    tool_scan_begin_args(p);
    return tool_enter_state(p, c == '[' ? TAG : BODY);
}

static bool step_tag(struct tool_parser *p, char c) {
    enum tool_match got = tool_match_any(p, tags, c);
    p->held_is_tail = got == MATCH_MORE;
    if (got == MATCH_MORE) return true;
    if (got == MATCH_NOT) tool_scan_break(p, buf_str(&p->held));
    p->held.len = 0;
    p->state = got == MATCH_DONE && p->mark == 1 ? ID : BODY;
    return got == MATCH_DONE;
}

static bool step_id(struct tool_parser *p, char c) {
    if (tool_is_name_char(c)) return true;
    return tool_enter_state(p, c == '[' ? TAG : BODY);
}

static bool step(struct tool_parser *p, char c) {
    switch (p->state) {
    case MARK:
        return tool_take_mark(p, c, "[TOOL_CALLS]", BEFORE);
    case BEFORE:
        return step_before(p, c);
    case LIST:
        return step_list(p, c);
    case BODY:
        return tool_take_object(p, c, p->in_list ? NEXT : TOOL_TEXT);
    case NEXT:
        return step_next(p, c);
    case NAME:
        return step_name(p, c);
    case BLANK:
        return step_blank(p, c);
    case TAG:
        return step_tag(p, c);
    case ID:
        return step_id(p, c);
    default:
        return c == '[' ? tool_enter_state(p, MARK) : tool_take_text(p, c);
    }
}

static const char *const marks[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", NULL};
static const char *const openings[] = {"[TOOL_CALLS]", NULL};
static const char *const signs[] = {"[TOOL_CALLS]", NULL};

static const struct tool_shape shapes[] = {
    {.sign = "[ARGS]",
     .begin = "",
     .before_name = "[TOOL_CALLS]",
     .after_name = "[ARGS]",
     .after_args = "",
     .between = "",
     .end = "",
     .trigger = "[TOOL_CALLS]"},
    {.begin = "[TOOL_CALLS][",
     .before_name = "{\"name\": \"",
     .after_name = "\", \"arguments\": ",
     .after_args = "}",
     .between = ", ",
     .end = "]",
     .trigger = "[TOOL_CALLS]"},
};

const struct tool_form tool_form_mistral = {
    .name = "mistral",
    .signs = signs,
    .specials = marks,
    .openings = openings,
    .shapes = shapes,
    .opener = '[',
    .step = step,
};
