/* api/tool_qwen3_coder.c - calls as Qwen3-Coder and models after it write them:
 *
 *   <tool_call>
 *   <function=NAME>
 *   <parameter=KEY>
 *   VALUE
 *   </parameter>
 *   </function>
 *   </tool_call>
 *
 * These models often leave out <tool_call>; so <function=NAME> alone is a call too. */
#include "api/tool_tags_int.h"
#include "base/json.h"

enum { OPEN = TOOL_TEXT + 1, BEFORE, FUNCTION, NAME, KEY };

enum { OPEN_CALL, OPEN_FUNCTION, OPEN_END };
enum { NEXT_PARAMETER, NEXT_FUNCTION_END, NEXT_CALL_END };

static const char *const open_marks[] = {"<tool_call>", "<function=", "</tool_call>", NULL};
static const char *const function_mark[] = {"<function=", NULL};
static const char *const value_end[] = {"</parameter>", NULL};
static const char *const next_marks[] = {"<parameter=", "</function>", "</tool_call>", NULL};

static bool begin_name(struct tool_parser *p) {
    p->scan.name.len = 0;
    p->state = NAME;
    return true;
}

/* The end of a call, which was emitted before: no text. */
static bool end_call(struct tool_parser *p) {
    if (!p->has_text) p->blanks.len = 0;
    p->held.len = 0;
    p->in_section = false;
    p->state = TOOL_TEXT;
    return true;
}

static bool step_open(struct tool_parser *p, char c) {
    const enum tool_match got = tool_match_any(p, open_marks, c);
    const bool may_end = p->matched == 1 || (p->matched && p->mark == OPEN_END);
    p->held_is_tail = got == MATCH_MORE && p->in_section && may_end;
    if (got == MATCH_NOT) return tool_give_up(p);
    if (got == MATCH_MORE) return true;
    if (p->mark == OPEN_FUNCTION) return begin_name(p);
    if (p->mark == OPEN_END) return p->in_section ? end_call(p) : tool_give_up_mark(p);
    p->in_section = false;
    p->state = BEFORE;
    return true;
}

static bool step_before(struct tool_parser *p, char c) {
    if (c == '<') return tool_enter_state(p, FUNCTION);
    if (!tool_is_blank(c) || p->held.len >= TOOL_TAIL_BYTES_MAX) return tool_give_up(p);
    return tool_hold(p, c);
}

static bool step_function(struct tool_parser *p, char c) {
    const enum tool_match got = tool_match_any(p, function_mark, c);
    if (got == MATCH_NOT) return tool_give_up_before_mark(p);
    return got == MATCH_DONE ? begin_name(p) : true;
}

static bool step_name(struct tool_parser *p, char c) {
    if (c == '>') {
        tool_set_name(p, buf_str(&p->scan.name));
        if (!tool_name_is_known(p, buf_str(&p->scan.name))) return tool_give_up(p);
        tool_tagged_begin(p);
        return true;
    }
    const bool is_long = p->scan.name.len == TOOL_NAME_BYTES_MAX;
    if (c == '<' || c == '\n' || is_long) return tool_give_up(p);
    buf_put_char(&p->scan.name, c);
    return tool_hold(p, c);
}

static bool on_next(struct tool_parser *p) {
    if (p->mark == NEXT_PARAMETER) {
        p->tagged.key.len = 0;
        p->state = KEY;
        return true;
    }
    p->in_section = p->mark == NEXT_FUNCTION_END;
    return tool_tagged_end(p);
}

static const struct tool_tags tags = {
    .value_end = value_end,
    .next = next_marks,
    .has_lines = true,
    .has_python_words = true,
    .on_next = on_next,
    .before_key = "<parameter=",
    .after_key = ">\n",
    .after_value = "\n</parameter>\n",
};

static bool step_key(struct tool_parser *p, char c) {
    if (c == '>' && p->tagged.key.len) {
        tool_tagged_begin_value(p, &tags);
        return true;
    }
    if (c == '>' || c == '\n' || !tool_hold_tail(p, c)) return tool_tagged_malformed(p);
    buf_put_char(&p->tagged.key, c);
    return true;
}

static bool step(struct tool_parser *p, char c) {
    switch (p->state) {
    case TOOL_TEXT:
        return c == '<' ? tool_enter_state(p, OPEN) : tool_take_text(p, c);
    case OPEN:
        return step_open(p, c);
    case BEFORE:
        return step_before(p, c);
    case FUNCTION:
        return step_function(p, c);
    case NAME:
        return step_name(p, c);
    case KEY:
        return step_key(p, c);
    default:
        return tool_tagged_step(p, c, &tags);
    }
}

static void put_args(const struct json *function, struct str at, bool strict, struct buf *out) {
    tool_tagged_put_args(&(struct tool_schema){function, at, strict}, &tags, out);
}

static const char *const marks[] = {"<tool_call>", "</tool_call>", NULL};
static const char *const openings[] = {"<tool_call>", "<function=", NULL};
static const char *const signs[] = {"<parameter=", NULL};

static const struct tool_shape shapes[] = {{.begin = "",
                                            .before_name = "<tool_call>\n<function=",
                                            .after_name = ">\n",
                                            .after_args = "</function>\n</tool_call>",
                                            .between = "\n",
                                            .end = "",
                                            .trigger = "<tool_call>",
                                            .put_args = put_args}};

const struct tool_form tool_form_qwen3_coder = {
    .name = "qwen3_coder",
    .signs = signs,
    .specials = marks,
    .openings = openings,
    .shapes = shapes,
    .opener = '<',
    .step = step,
};
