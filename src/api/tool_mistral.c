/* api/tool_mistral.c - calls after [TOOL_CALLS], as Mistral's models write them: a list of
 * objects, or, from 2025 on, name[ARGS]{..} with perhaps [CALL_ID]id before [ARGS].
 *
 *   TEXT --'['--> MARK --> BEFORE --'['--> LIST --'{'--> BODY --'}'--> NEXT --']'--> TEXT
 *                          BEFORE --name--> NAME --'['--> TAG --> BLANK --'{'--> BODY --> TEXT */
#include "api/tool_int.h"

enum { MARK = TOOL_TEXT + 1, BEFORE, LIST, BODY, NEXT, NAME, BLANK, TAG_ARGS, TAG_ID, ID };

static bool is_name_char(char c) {
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_letter || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

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
    return is_name_char(c) ? tool_enter_state(p, NAME) : tool_give_up(p);
}

static bool step_list(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return tool_hold(p, c);
    return c == '{' ? begin_object(p) : tool_give_up(p);
}

static bool step_next(struct tool_parser *p, char c) {
    if (tool_is_blank(c) || c == ',') return true;
    if (c == '{') return begin_object(p);
    p->state = TOOL_TEXT;
    return c == ']';
}

/* The arguments begin: it is a call if the name is a tool's. */
static bool begin_args(struct tool_parser *p) {
    if (!tool_name_is_known(p, buf_str(&p->scan.name))) return tool_give_up(p);
    tool_scan_begin_args(p);
    return tool_enter_state(p, BODY);
}

static bool step_name(struct tool_parser *p, char c) {
    if (!is_name_char(c)) return tool_enter_state(p, BLANK);
    if (p->scan.name.len == TOOL_NAME_BYTES_MAX) return tool_give_up(p);
    buf_put_char(&p->scan.name, c);
    return tool_hold(p, c);
}

static bool step_blank(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return tool_hold(p, c);
    if (c == '{') return begin_args(p);
    return c == '[' ? tool_enter_state(p, TAG_ARGS) : tool_give_up(p);
}

static bool step_tag(struct tool_parser *p, char c) {
    if (p->state == TAG_ARGS && p->matched == 1 && c == 'C') p->state = TAG_ID;
    bool is_id = p->state == TAG_ID;
    enum tool_match got = tool_match(p, is_id ? "[CALL_ID]" : "[ARGS]", c);
    if (got == MATCH_NOT) return tool_give_up(p);
    if (got == MATCH_DONE) p->state = is_id ? ID : BLANK;
    return true;
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
    case TAG_ARGS:
    case TAG_ID:
        return step_tag(p, c);
    case ID:
        return is_name_char(c) ? tool_hold(p, c) : tool_enter_state(p, BLANK);
    default:
        return c == '[' ? tool_enter_state(p, MARK) : tool_take_text(p, c);
    }
}

static const char *const marks[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", NULL};
static const char *const signs[] = {"[TOOL_CALLS]", NULL};

static const struct tool_opening openings[] = {
    {"[ARGS]", "[TOOL_CALLS]", "[ARGS]{"},
    {NULL, "[TOOL_CALLS][{\"name\": \"", "\", \"arguments\": {"},
};

const struct tool_form tool_form_mistral = {
    .name = "mistral",
    .signs = signs,
    .specials = marks,
    .openings = openings,
    .opener = '[',
    .step = step,
};
