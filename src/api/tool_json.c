/* api/tool_json.c - calls as plain JSON at the beginning of the answer: an object, several objects
 * or a list of them, also between ```json and ```. For models that learn calls from the prompt.
 *
 * No mark precedes the JSON, so it must have exactly the keys of a call. */
#include "api/tool_int.h"

enum { FENCE = TOOL_TEXT + 1, WORD, LIST, BODY, NEXT, TAIL };

static bool begin_object(struct tool_parser *p) {
    tool_scan_begin(p, true);
    return tool_enter_state(p, BODY);
}

static bool begin_list(struct tool_parser *p, char c) {
    p->in_list = true;
    p->state = LIST;
    return tool_hold(p, c);
}

static bool step_text(struct tool_parser *p, char c) {
    if (p->has_text) return tool_take_text(p, c);
    if (c == '{') return begin_object(p);
    if (c == '[') return begin_list(p, c);
    if (c == '`') return tool_enter_state(p, p->in_fence ? TAIL : FENCE);
    bool separates = p->call_count && (c == ',' || c == ';');
    return separates ? tool_take_blank(p, c) : tool_take_text(p, c);
}

/* The name of the language after the fence, if there is one. */
static bool step_word(struct tool_parser *p, char c) {
    bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (is_word || tool_is_blank(c)) return tool_hold(p, c);
    p->in_fence = true;
    if (c == '{') return begin_object(p);
    return c == '[' ? begin_list(p, c) : tool_give_up(p);
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

static bool step_tail(struct tool_parser *p, char c) {
    enum tool_match got = tool_match(p, "```", c);
    p->held_is_tail = got == MATCH_MORE;
    if (got == MATCH_MORE) return true;
    if (got == MATCH_NOT) return tool_give_up(p);
    p->held.len = p->blanks.len = 0;
    p->in_fence = false;
    p->state = TOOL_TEXT;
    return true;
}

static bool step(struct tool_parser *p, char c) {
    switch (p->state) {
    case FENCE:
        return tool_take_mark(p, c, "```", WORD);
    case WORD:
        return step_word(p, c);
    case LIST:
        return step_list(p, c);
    case BODY:
        return tool_take_object(p, c, p->in_list ? NEXT : TOOL_TEXT);
    case NEXT:
        return step_next(p, c);
    case TAIL:
        return step_tail(p, c);
    default:
        return step_text(p, c);
    }
}

static const char *const none[] = {NULL};
static const char *const signs[] = {"tools", NULL};

static const struct tool_shape shapes[] = {{.begin = "",
                                            .before_name = "{\"name\": \"",
                                            .after_name = "\", \"arguments\": ",
                                            .after_args = "}",
                                            .between = "\n",
                                            .end = ""}};

const struct tool_form tool_form_json = {
    .name = "json",
    .signs = signs,
    .specials = none,
    .openings = none,
    .shapes = shapes,
    .opener = 0,
    .step = step,
};
