/* api/tool_glm4.c - calls as GLM models from 4.5 on write them:
 *
 *   <tool_call>NAME
 *   <arg_key>KEY</arg_key>
 *   <arg_value>VALUE</arg_value>
 *   </tool_call>
 *
 * Later models write the same without the line ends. */
#include "api/tool_tags_int.h"
#include "base/json.h"

enum { OPEN = TOOL_TEXT + 1, NAME, KEY, KEY_END, BEFORE_VALUE, VALUE_MARK };

enum { NEXT_KEY, NEXT_CALL_END };

static const char *const key_end[] = {"</arg_key>", NULL};
static const char *const value_mark[] = {"<arg_value>", NULL};
static const char *const value_end[] = {"</arg_value>", NULL};
static const char *const next_marks[] = {"<arg_key>", "</tool_call>", NULL};

static bool on_next(struct tool_parser *p) {
    if (p->mark == NEXT_CALL_END) return tool_tagged_end(p);
    p->tagged.key.len = 0;
    p->state = KEY;
    return true;
}

static const struct tool_tags tags = {
    .value_end = value_end,
    .next = next_marks,
    .on_next = on_next,
    .before_key = "<arg_key>",
    .after_key = "</arg_key>\n<arg_value>",
    .after_value = "</arg_value>\n",
};

/* The name ends at the end of its line, or at a mark. */
static bool step_name(struct tool_parser *p, char c) {
    const struct str name = str_trim(buf_str(&p->scan.name));
    if (c == '<' || (c == '\n' && name.len)) {
        tool_set_name(p, name);
        if (!tool_name_is_known(p, buf_str(&p->scan.name))) return tool_give_up(p);
        tool_tagged_begin(p);
        return false;
    }
    if (p->scan.name.len == TOOL_NAME_BYTES_MAX) return tool_give_up(p);
    buf_put_char(&p->scan.name, c);
    return tool_hold(p, c);
}

static bool step_open(struct tool_parser *p, char c) {
    p->scan.name.len = 0;
    return tool_take_mark(p, c, "<tool_call>", NAME);
}

static bool step_key(struct tool_parser *p, char c) {
    if (c == '<' && p->tagged.key.len) return tool_enter_state(p, KEY_END);
    if (c == '<' || !tool_hold_tail(p, c)) return tool_tagged_malformed(p);
    buf_put_char(&p->tagged.key, c);
    return true;
}

static bool step_mark(struct tool_parser *p, char c) {
    const bool is_key_end = p->state == KEY_END;
    const enum tool_match got = tool_match_any(p, is_key_end ? key_end : value_mark, c);
    if (got == MATCH_NOT) return tool_tagged_malformed(p);
    if (got == MATCH_MORE) return true;
    p->state = BEFORE_VALUE;
    if (!is_key_end) tool_tagged_begin_value(p, &tags);
    return true;
}

static bool step_before_value(struct tool_parser *p, char c) {
    if (c == '<') return tool_enter_state(p, VALUE_MARK);
    return (tool_is_blank(c) && tool_hold_tail(p, c)) || tool_tagged_malformed(p);
}

static bool step(struct tool_parser *p, char c) {
    switch (p->state) {
    case TOOL_TEXT:
        return c == '<' ? tool_enter_state(p, OPEN) : tool_take_text(p, c);
    case OPEN:
        return step_open(p, c);
    case NAME:
        return step_name(p, c);
    case KEY:
        return step_key(p, c);
    case KEY_END:
    case VALUE_MARK:
        return step_mark(p, c);
    case BEFORE_VALUE:
        return step_before_value(p, c);
    default:
        return tool_tagged_step(p, c, &tags);
    }
}

static void put_args(const struct json *function, struct str at, bool strict, struct buf *out) {
    tool_tagged_put_args(&(struct tool_schema){function, at, strict}, &tags, out);
}

static const char *const marks[] = {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
                                    "<arg_value>", "</arg_value>", NULL};
static const char *const openings[] = {"<tool_call>", NULL};
static const char *const signs[] = {"<arg_key>", NULL};

static const struct tool_shape shapes[] = {{.begin = "",
                                            .before_name = "<tool_call>",
                                            .after_name = "\n",
                                            .after_args = "</tool_call>",
                                            .between = "\n",
                                            .end = "",
                                            .trigger = "<tool_call>",
                                            .put_args = put_args}};

const struct tool_form tool_form_glm4 = {
    .name = "glm4",
    .signs = signs,
    .specials = marks,
    .openings = openings,
    .shapes = shapes,
    .opener = '<',
    .step = step,
};
