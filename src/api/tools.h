/* api/tools.h - tool calls inside a model's text: finding them while the text comes.
 *
 * Each family of models has its own spelling; a *form* finds calls in it:
 *
 *   hermes   <tool_call>{"name": .., "arguments": {..}}</tool_call>, anywhere; Qwen too
 *   llama3   <|python_tag|>{"name": .., "parameters": {..}}, or the object alone where the
 *            answer begins; several with ';' or white space between them
 *   mistral  [TOOL_CALLS][{..}, {..}] or [TOOL_CALLS]name[ARGS]{..}, anywhere
 *   json     an object, objects or a list of them where the answer begins, perhaps in a fence
 *
 * A call is told as soon as its name and the beginning of its arguments are known, and its
 * arguments as they come, byte for byte as the model wrote them (a string with JSON in it: the
 * string's contents). Text that only looks like the beginning of a call is told as text once
 * that is certain. White space where the answer begins, or after a call, is told only if text
 * follows it. What was told stays told: a call that breaks off keeps the arguments it had.
 *
 * Pieces in any cut give the same events: text between calls joined, names, and arguments joined.
 *
 * Lifetime: tool_parser_create, push as the text comes, finish once, destroy. Thread: its owner.
 * Memory: what is undecided, at most TOOL_HELD_BYTES_MAX; more than that is text.
 *
 * To add a form: write api/tool_NAME.c, add a line to api/tool_form_list.c.
 */
#ifndef API_TOOLS_H
#define API_TOOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct api_request;
struct buf;
struct json;
struct tool_parser; /* opaque */

/* What stands in front of a call's name, and between it and the contents of its arguments. */
struct tool_opening {
    const char *sign;        /* in the chat template; NULL: in any */
    const char *before_name; /* from the mark to the name */
    const char *after_name;  /* from the name into the arguments, which are an object */
};

enum { TOOL_HELD_BYTES_MAX = 256 * 1024, TOOL_NAME_BYTES_MAX = 256 };

struct tool_form {
    const char *name;
    /* A chat template with one of these in it speaks this form. NULL-terminated. */
    const char *const *signs;
    /* Special tokens that the parser must see although users do not: whoever hides special
     * tokens passes on these spellings. NULL-terminated, may be empty. */
    const char *const *specials;
    /* How a call begins; the last one has no sign. */
    const struct tool_opening *openings;
    /* The byte with which a call can begin in the middle of text; 0: none. */
    char opener;
    /* The next byte; false: it is not used up and comes again, in another state. */
    bool (*step)(struct tool_parser *p, char c);
};
/* NULL-terminated; tool_form_list.c holds it. */
extern const struct tool_form *const tool_forms[];
const struct tool_form *tool_form_find(const char *name); /* NULL if unknown */

/* Which one a chat template speaks; NULL: it has no tools, or spells calls in a way that no form
 * reads. */
const struct tool_form *tool_form_of_template(struct str chat_template);
bool tool_form_needs(const struct tool_form *form, struct str special); /* one of `specials` */
bool tool_template_has(struct str chat_template, struct str part);

/* Append the beginning of the call that r->tool_choice demands: the prompt ends with it, and the
 * parser is given it before the answer. Into the arguments of a named tool; of one that the model
 * may choose, up to its name. Nothing where no call is demanded, or `form` is NULL. */
void tool_opening_put(const struct tool_form *form, struct str chat_template,
                      const struct api_request *r, struct buf *out);

struct tool_sink {
    void (*on_text)(void *ctx, struct str text);
    void (*on_call)(void *ctx, uint32_t call, struct str name);
    void (*on_args)(void *ctx, uint32_t call, struct str piece);
    void *ctx;
};

/* `tools`: the request's, as struct api_request has them; they outlive the parser. Only their names
 * are calls, so that a text {"name": "Bob", ..} stays a text; NULL: every name counts. */
enum status tool_parser_create(const struct tool_form *form, const struct json *tools,
                               struct tool_parser **out);
void tool_parser_destroy(struct tool_parser *p); /* NULL is fine */

/* ST_NOMEM only; nothing may be pushed after it. */
enum status tool_parser_push(struct tool_parser *p, struct str text, const struct tool_sink *sink);
enum status tool_parser_finish(struct tool_parser *p, const struct tool_sink *sink);

#endif
