/* api/tool_deepseek.c - calls as DeepSeek's models write them, in a section between
 * <|tool calls begin|> and <|tool calls end|> (with U+FF5C for each bar and U+2581 for each blank):
 *
 *   V3, R1   <|tool call begin|>function<|tool sep|>NAME, {..} in ```json, <|tool call end|>
 *   V3.1     <|tool call begin|>NAME<|tool sep|>{..}<|tool call end|>
 *
 * Each is read in every answer. V3 is read without the fence too. */
#include "api/tool_tags_int.h"

#define BAR "\uff5c"
#define GAP "\u2581"
#define SECTION_BEGIN "<" BAR "tool" GAP "calls" GAP "begin" BAR ">"
#define SECTION_END "<" BAR "tool" GAP "calls" GAP "end" BAR ">"
#define CALL_BEGIN "<" BAR "tool" GAP "call" GAP "begin" BAR ">"
#define CALL_END "<" BAR "tool" GAP "call" GAP "end" BAR ">"
#define SEP "<" BAR "tool" GAP "sep" BAR ">"

enum { LINE = TOOL_TEXT + 1, FENCE, FENCE_MARK };

static const char *const open_marks[] = {SECTION_BEGIN, CALL_BEGIN, SECTION_END, NULL};
static const char *const call_mark[] = {CALL_BEGIN, NULL};
static const char *const sep_mark[] = {SEP, NULL};
static const char *const close_marks[] = {CALL_END, SECTION_END, NULL};
static const char *const fence_marks[] = {"```json", "```\n", NULL};

/* The type of the call, which is always "function", or the name. */
static bool on_head(struct tool_parser *p) {
    tool_set_name(p, buf_str(&p->scan.name));
    if (str_is(buf_str(&p->scan.name), "function")) {
        p->scan.name.len = 0;
        p->state = LINE;
        return true;
    }
    if (!tool_name_is_known(p, buf_str(&p->scan.name))) return tool_give_up_mark(p);
    return tool_section_begin_args(p);
}

/* The name, up to the end of the line. JSON in its place: a tool is called "function". */
static bool step_line(struct tool_parser *p, char c) {
    const bool is_end = c == '\n' || c == '{' || c == '`';
    if (c == '<' || (!is_end && p->scan.name.len == TOOL_NAME_BYTES_MAX)) return tool_give_up(p);
    if (!is_end) {
        buf_put_char(&p->scan.name, c);
        return tool_hold(p, c);
    }
    tool_set_name(p, buf_str(&p->scan.name));
    if (c == '{' && !p->scan.name.len) buf_put_text(&p->scan.name, "function");
    if (!tool_name_is_known(p, buf_str(&p->scan.name))) return tool_give_up(p);
    tool_section_begin_args(p);
    return tool_enter_state(p, FENCE);
}

static bool step_fence(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return true;
    return tool_enter_state(p, c == '`' ? FENCE_MARK : TOOL_SECTION_ARGS);
}

static bool step_fence_mark(struct tool_parser *p, char c) {
    const enum tool_match got = tool_match_any(p, fence_marks, c);
    p->held_is_tail = true;
    if (got == MATCH_MORE) return true;
    p->state = TOOL_SECTION_ARGS;
    if (got == MATCH_DONE) {
        tool_drop_tail(p);
        return true;
    }
    p->scan.has_arg_bytes = true; /* another fence: as written */
    tool_emit_tail(p);
    return false;
}

static const struct tool_section section = {
    .open = open_marks,
    .call = call_mark,
    .sep = sep_mark,
    .close = close_marks,
    .has_fence = true,
    .on_head = on_head,
};

static bool step(struct tool_parser *p, char c) {
    switch (p->state) {
    case LINE:
        return step_line(p, c);
    case FENCE:
        return step_fence(p, c);
    case FENCE_MARK:
        return step_fence_mark(p, c);
    default:
        return tool_section_step(p, c, &section);
    }
}

static const char *const marks[] = {SECTION_BEGIN, SECTION_END, CALL_BEGIN, CALL_END, SEP, NULL};
static const char *const openings[] = {SECTION_BEGIN, CALL_BEGIN, NULL};
static const char *const signs[] = {SECTION_BEGIN, NULL};

static const struct tool_shape shapes[] = {
    {.sign = "```json",
     .begin = SECTION_BEGIN,
     .before_name = CALL_BEGIN "function" SEP,
     .after_name = "\n```json\n",
     .after_args = "\n```" CALL_END,
     .between = "\n",
     .end = SECTION_END,
     .trigger = SECTION_BEGIN},
    {.begin = SECTION_BEGIN,
     .before_name = CALL_BEGIN,
     .after_name = SEP,
     .after_args = CALL_END,
     .between = "",
     .end = SECTION_END,
     .trigger = SECTION_BEGIN},
};

const struct tool_form tool_form_deepseek = {
    .name = "deepseek",
    .signs = signs,
    .specials = marks,
    .openings = openings,
    .shapes = shapes,
    .opener = '<',
    .step = step,
};
