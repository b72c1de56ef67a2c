/* api/tool_granite.c - <|tool_call|>[{"name": .., "arguments": {..}}], as Granite 3 writes it;
 * Granite 3.1 has <tool_call> in its place. The list has no closing mark; </tool_call> is read if
 * it comes. */
#include "api/tool_int.h"

static const char *const marks[] = {"<|tool_call|>", "<tool_call>", "</tool_call>", NULL};
static const char *const signs[] = {"<|tool_call|>", "<tool_call> followed by a JSON list", NULL};
static const char *const open[] = {"<|tool_call|>", "<tool_call>", NULL};
static const struct tool_marks granite_marks = {.open = open, .close = "</tool_call>"};

static bool step(struct tool_parser *p, char c) { return tool_marked_step(p, c, &granite_marks); }

static const struct tool_shape shapes[] = {
    {.sign = "<tool_call> followed by a JSON list",
     .begin = "<tool_call>[",
     .before_name = "{\"name\": \"",
     .after_name = "\", \"arguments\": ",
     .after_args = "}",
     .between = ", ",
     .end = "]",
     .trigger = "<tool_call>"},
    {.begin = "<|tool_call|>[",
     .before_name = "{\"name\": \"",
     .after_name = "\", \"arguments\": ",
     .after_args = "}",
     .between = ", ",
     .end = "]",
     .trigger = "<|tool_call|>"},
};

const struct tool_form tool_form_granite = {
    .name = "granite",
    .signs = signs,
    .specials = marks,
    .openings = open,
    .shapes = shapes,
    .opener = '<',
    .step = step,
};
