/* api/tool_phi4.c - <|tool_call|>[{"name": .., "arguments": {..}}]<|/tool_call|>, as Phi-4-mini
 * writes it; or functools[{..}], where no text precedes it. */
#include "api/tool_int.h"

static const char *const marks[] = {"<|tool_call|>", "<|/tool_call|>", NULL};
static const char *const signs[] = {"<|/tool_call|>", "<|/tool|>", "functools", NULL};
static const char *const open[] = {"<|tool_call|>", NULL};
static const struct tool_marks phi4_marks = {
    .open = open, .start = "functools", .close = "<|/tool_call|>"};

static bool step(struct tool_parser *p, char c) { return tool_marked_step(p, c, &phi4_marks); }

static const struct tool_shape shapes[] = {
    {.sign = "functools",
     .begin = "functools[",
     .before_name = "{\"name\": \"",
     .after_name = "\", \"arguments\": ",
     .after_args = "}",
     .between = ", ",
     .end = "]"},
    {.begin = "<|tool_call|>[",
     .before_name = "{\"name\": \"",
     .after_name = "\", \"arguments\": ",
     .after_args = "}",
     .between = ", ",
     .end = "]<|/tool_call|>",
     .trigger = "<|tool_call|>"},
};

const struct tool_form tool_form_phi4 = {
    .name = "phi4",
    .signs = signs,
    .specials = marks,
    .openings = open,
    .shapes = shapes,
    .opener = '<',
    .step = step,
};
