/* api/tools.h - tool calls inside a model's text: finding them while the text comes.
 *
 * Each family of models has its own spelling; a *form* finds calls in it. Forms: hermes
 * (<tool_call>{...}</tool_call>, Qwen too), llama3 (<|python_tag|> or a bare JSON object with
 * "parameters"), mistral ([TOOL_CALLS][...]), json (a bare object or list of them with "name" and
 * "arguments"). Text that only looks like the beginning of a call is told as text once that is
 * certain; arguments are told as they come, byte for byte as the model wrote them.
 *
 * Pieces in any cut give the same events: text between calls joined, names, and arguments joined.
 */
#ifndef API_TOOLS_H
#define API_TOOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct tool_parser; /* opaque */

struct tool_form {
    const char *name;
    enum status (*create)(const struct tool_form *form, struct tool_parser **out);
};
/* NULL-terminated; tool_form_list.c holds it. */
extern const struct tool_form *const tool_forms[];
const struct tool_form *tool_form_find(const char *name); /* NULL if unknown */

/* Which one a chat template speaks; NULL: it has no tools. */
const struct tool_form *tool_form_of_template(struct str chat_template);

struct tool_sink {
    void (*on_text)(void *ctx, struct str text);
    void (*on_call)(void *ctx, uint32_t call, struct str name);
    void (*on_args)(void *ctx, uint32_t call, struct str piece);
    void *ctx;
};
enum status tool_parser_push(struct tool_parser *p, struct str text, const struct tool_sink *sink);
enum status tool_parser_finish(struct tool_parser *p, const struct tool_sink *sink);
void tool_parser_destroy(struct tool_parser *p); /* NULL is fine */

#endif
