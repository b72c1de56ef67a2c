/* api/tool_hermes.c - <tool_call>{"name": .., "arguments": {..}}</tool_call>, as the Hermes, Qwen
 * and SmolLM families write it: anywhere in the answer, any number of times; also several objects,
 * or a list of them, between the marks. */
#include "api/tool_int.h"

static const char *const marks[] = {"<tool_call>", "</tool_call>", NULL};
static const char *const signs[] = {"<tool_call>", NULL};
static const char *const open[] = {"<tool_call>", NULL};
static const struct tool_marks hermes_marks = {.open = open, .close = "</tool_call>"};

static bool step(struct tool_parser *p, char c) { return tool_marked_step(p, c, &hermes_marks); }

static const struct tool_shape shapes[] = {{.begin = "",
                                            .before_name = "<tool_call>\n{\"name\": \"",
                                            .after_name = "\", \"arguments\": ",
                                            .after_args = "}\n</tool_call>",
                                            .between = "\n",
                                            .end = "",
                                            .trigger = "<tool_call>"}};

const struct tool_form tool_form_hermes = {
    .name = "hermes",
    .signs = signs,
    .specials = marks,
    .openings = open,
    .shapes = shapes,
    .opener = '<',
    .step = step,
};
