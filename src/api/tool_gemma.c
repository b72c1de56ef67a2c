/* api/tool_gemma.c - calls as the Gemma family writes them, anywhere in the answer:
 *
 *   ```tool_code          ```tool_call                       <start_function_call>call:f{a:1}
 *   f(a="x", b=1)         {"name": "f", "arguments": {..}}   <end_function_call>
 *   ```                   ```
 *
 * and as in tool_call after ```json where no text precedes it; there it must have exactly the keys
 * of a call. FunctionGemma writes the last one; its strings are between <escape> marks. Gemma 4
 * writes <|tool_call>call:f{a:1}<tool_call|>, with strings between <|"|> marks.
 *
 *   TEXT --'`'--> FENCE --> CODE --name--> NAME --'('--> BODY --')'--> NEXT --'`'--> TAIL --> TEXT
 *                 FENCE --> CODE --'{'--> BODY
 *   TEXT --'<'--> MARK --> NAME --'{'--> BODY --'}'--> AFTER --'<'--> CLOSE --> TEXT */
#include "api/tool_literal_int.h"

enum { FENCE = TOOL_TEXT + 1, CODE, MARK, NAME, BODY, NEXT, TAIL, AFTER, CLOSE };

enum { TOOL_CODE, TOOL_CALL, JSON };
static const char *const fences[] = {"```tool_code", "```tool_call", "```json", NULL};

static const char *const open[] = {"<start_function_call>call:", "<|tool_call>call:", NULL};
static const char *const close[] = {"<end_function_call>", "<tool_call|>"};
static const struct tool_notation *const notations[] = {&tool_notation_escaped,
                                                        &tool_notation_quoted};

static bool step_text(struct tool_parser *p, char c) {
    if (c == '`') return tool_enter_state(p, FENCE);
    return c == '<' ? tool_enter_state(p, MARK) : tool_take_text(p, c);
}

static bool step_fence(struct tool_parser *p, char c) {
    enum tool_match got = tool_match_any(p, fences, c);
    if (got == MATCH_MORE) return true;
    if (got == MATCH_NOT || (p->mark == JSON && p->has_text)) {
        tool_give_up(p);
        return got == MATCH_DONE;
    }
    p->in_fence = true;
    p->state = CODE;
    return true;
}

static bool begin_json(struct tool_parser *p) {
    tool_scan_begin(p, p->mark == JSON);
    p->scan.closing = "```";
    return tool_enter_state(p, BODY);
}

/* The first call of a fence; it may be in a list. */
static bool step_code(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return tool_hold(p, c);
    if (c == '[' && !p->in_list) {
        p->in_list = true;
        return tool_hold(p, c);
    }
    if (p->mark != TOOL_CODE) return c == '{' ? begin_json(p) : tool_give_up(p);
    p->scan.name.len = 0;
    return tool_is_name_char(c) ? tool_enter_state(p, NAME) : tool_give_up(p);
}

static bool step_mark(struct tool_parser *p, char c) {
    enum tool_match got = tool_match_any(p, open, c);
    if (got == MATCH_NOT) return tool_give_up(p);
    if (got == MATCH_DONE) p->state = NAME;
    p->scan.name.len = 0;
    return true;
}

static bool step_name(struct tool_parser *p, char c) {
    if (tool_is_name_char(c)) return tool_put_name(p, c) ? tool_hold(p, c) : tool_give_up(p);
    bool is_whole = c == (p->in_fence ? '(' : '{');
    if (!is_whole || !tool_name_is_known(p, buf_str(&p->scan.name))) return tool_give_up(p);
    tool_scan_begin_literal(p, p->in_fence ? &tool_notation_python : notations[p->mark], false);
    p->scan.closing = p->in_fence ? "```" : close[p->mark];
    p->state = BODY;
    return true;
}

static bool step_body(struct tool_parser *p, char c) {
    enum tool_scanned got = tool_scan_step(p, c);
    if (got == SCAN_NOT && p->scan.is_emitted) return tool_enter_state(p, NEXT);
    if (got == SCAN_NOT) return tool_give_up(p);
    if (got == SCAN_MORE) return true;
    p->state = p->in_fence ? NEXT : AFTER;
    if (p->scan.is_closed) {
        p->in_list = p->in_fence = false;
        p->state = TOOL_TEXT;
    }
    return true;
}

/* Inside a fence after a call. */
static bool step_next(struct tool_parser *p, char c) {
    bool separates = c == ',' || c == ';' || (c == ']' && p->in_list);
    if (tool_is_blank(c) || separates) return tool_take_blank(p, c);
    if (c == '`') return tool_enter_state(p, TAIL);
    if (p->mark != TOOL_CODE && c == '{') return begin_json(p);
    p->scan.name.len = 0;
    bool is_name = p->mark == TOOL_CODE && tool_is_name_char(c);
    return is_name ? tool_enter_state(p, NAME) : tool_give_up(p);
}

/* The mark after the last call, which may be missing. */
static bool step_end(struct tool_parser *p, char c) {
    enum tool_match got = tool_match(p, p->state == TAIL ? "```" : close[p->mark], c);
    p->held_is_tail = got == MATCH_MORE;
    if (got == MATCH_MORE) return true;
    if (got == MATCH_NOT && p->state == CLOSE && p->matched == 1 && (c == 's' || c == '|')) {
        p->state = MARK;
        return false;
    }
    if (got == MATCH_NOT) return tool_give_up(p);
    p->held.len = p->blanks.len = 0;
    p->in_list = p->in_fence = false;
    p->state = TOOL_TEXT;
    return true;
}

static bool step(struct tool_parser *p, char c) {
    switch (p->state) {
    case FENCE:
        return step_fence(p, c);
    case CODE:
        return step_code(p, c);
    case MARK:
        return step_mark(p, c);
    case NAME:
        return step_name(p, c);
    case BODY:
        return step_body(p, c);
    case NEXT:
        return step_next(p, c);
    case TAIL:
    case CLOSE:
        return step_end(p, c);
    case AFTER:
        if (tool_is_blank(c)) return tool_take_blank(p, c);
        return tool_enter_state(p, c == '<' ? CLOSE : TOOL_TEXT);
    default:
        return step_text(p, c);
    }
}

static const char *const marks[] = {"<start_function_call>",
                                    "<end_function_call>",
                                    "<escape>",
                                    "<|tool_call>",
                                    "<tool_call|>",
                                    "<|\"|>",
                                    NULL};
static const char *const openings[] = {"<start_function_call>", "<|tool_call>", "```tool_code",
                                       "```tool_call", NULL};
static const char *const signs[] = {"<start_function_call>", "<|tool_call>", "```tool_code", NULL};

static const struct tool_shape shapes[] = {
    {.sign = "<start_function_call>",
     .begin = "",
     .before_name = "<start_function_call>call:",
     .after_name = "{",
     .after_args = "}<end_function_call>",
     .between = "",
     .end = "",
     .trigger = "<start_function_call>",
     .put_args = tool_escaped_put_args},
    {.sign = "<|tool_call>",
     .begin = "",
     .before_name = "<|tool_call>call:",
     .after_name = "{",
     .after_args = "}<tool_call|>",
     .between = "",
     .end = "",
     .trigger = "<|tool_call>",
     .put_args = tool_quoted_put_args},
    {.begin = "```tool_code\n",
     .before_name = "",
     .after_name = "(",
     .after_args = ")",
     .between = "\n",
     .end = "\n```",
     .trigger = "```tool_code",
     .put_args = tool_python_put_args},
};

const struct tool_form tool_form_gemma = {
    .name = "gemma",
    .signs = signs,
    .specials = marks,
    .openings = openings,
    .shapes = shapes,
    .opener = '<',
    .second_opener = '`',
    .step = step,
};
