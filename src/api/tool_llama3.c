/* api/tool_llama3.c - {"name": .., "parameters": {..}}, as Llama 3 models write it: after
 * <|python_tag|> anywhere, or alone at the beginning of the answer; several with ';' between them.
 *
 * Alone it must have exactly the keys of a call, because an answer may be JSON. Code after the tag,
 * which these models write for their built-in tools, is text. */
#include "api/tool_int.h"

enum { MARK = TOOL_TEXT + 1, BEFORE, BODY };

static bool step_before(struct tool_parser *p, char c) {
    if (tool_is_blank(c)) return tool_hold(p, c);
    if (c != '{') return tool_give_up(p);
    tool_scan_begin(p, false);
    return tool_enter_state(p, BODY);
}

static bool step_text(struct tool_parser *p, char c) {
    if (c == '<') return tool_enter_state(p, MARK);
    if (c == '{' && !p->has_text) {
        tool_scan_begin(p, true);
        return tool_enter_state(p, BODY);
    }
    bool separates = c == ';' && p->call_count && !p->has_text;
    return separates ? tool_take_blank(p, c) : tool_take_text(p, c);
}

static bool step(struct tool_parser *p, char c) {
    switch (p->state) {
    case MARK:
        return tool_take_mark(p, c, "<|python_tag|>", BEFORE);
    case BEFORE:
        return step_before(p, c);
    case BODY:
        return tool_take_object(p, c, TOOL_TEXT);
    default:
        return step_text(p, c);
    }
}

static const char *const marks[] = {"<|python_tag|>", NULL};
static const char *const signs[] = {"<|python_tag|>", "\"parameters\": dictionary", NULL};

static const struct tool_shape shapes[] = {{.begin = "",
                                            .before_name = "{\"name\": \"",
                                            .after_name = "\", \"parameters\": ",
                                            .after_args = "}",
                                            .between = "; ",
                                            .end = ""}};

const struct tool_form tool_form_llama3 = {
    .name = "llama3",
    .signs = signs,
    .specials = marks,
    .openings = marks,
    .shapes = shapes,
    .opener = '<',
    .step = step,
};
