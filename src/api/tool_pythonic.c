/* api/tool_pythonic.c - [f(a="x", b=1), g()], as Llama 3.2 and Llama 4 write it: alone where the
 * answer begins, or after a mark anywhere. LFM2 writes the same after its own mark. Between the
 * marks the brackets may be missing, and {"name": .., "parameters": {..}} is read as in llama3.
 *
 *   TEXT --'['--> LIST --name--> NAME --'('--> BODY --')'--> NEXT --']'--> AFTER --> TEXT
 *   TEXT --'<'--> MARK --> LIST                BODY --'}'--> AFTER
 *
 * Without a mark it is a call only if the name is a tool's and an argument's name and '=', or ')',
 * follow it. */
#include "api/tool_literal_int.h"

enum { MARK = TOOL_TEXT + 1, LIST, NAME, BODY, NEXT, AFTER, CLOSE };

/* in_list: the '[' was read. in_fence: a mark precedes. */
static const char *const open[] = {"<|python_start|>", "<|tool_call_start|>", NULL};
static const char *const close[] = {"<|python_end|>", "<|tool_call_end|>"};

static const char *closing(const struct tool_parser *p) {
    return p->in_fence ? close[p->mark] : NULL;
}

static bool leave(struct tool_parser *p) {
    p->in_list = p->in_fence = false;
    return tool_enter_state(p, TOOL_TEXT);
}

static bool begin_json(struct tool_parser *p) {
    tool_scan_begin(p, !p->in_fence);
    p->scan.closing = closing(p);
    return tool_enter_state(p, BODY);
}

static bool step_text(struct tool_parser *p, char c) {
    if (c == '<') return tool_enter_state(p, MARK);
    if (c == '[' && !p->has_text) return tool_enter_state(p, LIST);
    if (c == '{' && !p->has_text) return begin_json(p);
    bool separates = c == ';' && p->call_count && !p->has_text;
    return separates ? tool_take_blank(p, c) : tool_take_text(p, c);
}

static bool step_mark(struct tool_parser *p, char c) {
    enum tool_match got = tool_match_any(p, open, c);
    if (got == MATCH_NOT) return tool_give_up(p);
    if (got == MATCH_DONE) p->state = LIST;
    p->in_fence = got == MATCH_DONE;
    return true;
}

static bool step_list(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return tool_hold(p, c);
    if (c == '{' && p->in_fence && !p->in_list) return begin_json(p);
    if (c == '[' && !p->in_list) {
        p->in_list = true;
        return tool_hold(p, c);
    }
    p->scan.name.len = 0;
    return tool_is_name_char(c) ? tool_enter_state(p, NAME) : tool_give_up(p);
}

static bool step_name(struct tool_parser *p, char c) {
    if (tool_is_name_char(c)) return tool_put_name(p, c) ? tool_hold(p, c) : tool_give_up(p);
    if (c != '(' || !tool_name_is_known(p, buf_str(&p->scan.name))) return tool_give_up(p);
    tool_hold(p, c);
    tool_scan_begin_literal(p, &tool_notation_python, !p->in_fence);
    p->scan.closing = closing(p);
    p->state = BODY;
    return true;
}

static bool step_body(struct tool_parser *p, char c) {
    enum tool_scanned got = tool_scan_step(p, c);
    if (got == SCAN_NOT) return tool_give_up(p);
    if (got == SCAN_MORE) return true;
    if (p->scan.is_closed)
        leave(p);
    else
        p->state = p->in_list ? NEXT : AFTER;
    return true;
}

/* After a call in a list: another one, or the end of the list. */
static bool step_next(struct tool_parser *p, char c) {
    if (tool_is_blank(c) || c == ',') return true;
    p->scan.name.len = 0;
    if (tool_is_name_char(c)) return tool_enter_state(p, NAME);
    p->in_list = false;
    tool_enter_state(p, AFTER);
    return c == ']';
}

static bool step_after(struct tool_parser *p, char c) {
    if (!p->in_fence) return leave(p);
    if (tool_is_blank(c)) return tool_take_blank(p, c);
    p->scan.name.len = 0;
    if (c == '{') return begin_json(p);
    if (c == ';' || c == ',') return tool_take_blank(p, c);
    return c == '<' ? tool_enter_state(p, CLOSE) : leave(p);
}

static bool step_close(struct tool_parser *p, char c) {
    enum tool_match got = tool_match(p, close[p->mark], c);
    p->held_is_tail = got == MATCH_MORE;
    if (got == MATCH_MORE) return true;
    if (got == MATCH_NOT && open[p->mark][p->matched] == c) {
        p->in_fence = false;
        p->state = MARK;
        return false;
    }
    if (got == MATCH_NOT) return tool_give_up(p);
    p->held.len = p->blanks.len = 0;
    leave(p);
    return true;
}

static bool step(struct tool_parser *p, char c) {
    switch (p->state) {
    case MARK:
        return step_mark(p, c);
    case LIST:
        return step_list(p, c);
    case NAME:
        return step_name(p, c);
    case BODY:
        return step_body(p, c);
    case NEXT:
        return step_next(p, c);
    case AFTER:
        return step_after(p, c);
    case CLOSE:
        return step_close(p, c);
    default:
        return step_text(p, c);
    }
}

static const char *const marks[] = {"<|python_start|>", "<|python_end|>", "<|tool_call_start|>",
                                    "<|tool_call_end|>", NULL};
static const char *const signs[] = {"<|python_start|>", "<|tool_call_start|>", "[func_name1(",
                                    NULL};

#define PYTHON_CALL                                                                                \
    .before_name = "", .after_name = "(", .after_args = ")", .between = ", ",                      \
    .put_args = tool_python_put_args

static const struct tool_shape shapes[] = {
    {.sign = "\"parameters\": dictionary",
     .begin = "",
     .before_name = "{\"name\": \"",
     .after_name = "\", \"parameters\": ",
     .after_args = "}",
     .between = "; ",
     .end = ""},
    {.sign = "<|python_start|>",
     .begin = "<|python_start|>[",
     .end = "]<|python_end|>",
     .trigger = "<|python_start|>",
     PYTHON_CALL},
    {.sign = "<|tool_call_start|>",
     .begin = "<|tool_call_start|>[",
     .end = "]<|tool_call_end|>",
     .trigger = "<|tool_call_start|>",
     PYTHON_CALL},
    {.begin = "[", .end = "]", PYTHON_CALL},
};

const struct tool_form tool_form_pythonic = {
    .name = "pythonic",
    .signs = signs,
    .specials = marks,
    .openings = open,
    .shapes = shapes,
    .opener = '<',
    .step = step,
};
