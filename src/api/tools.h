/* api/tools.h - finding tool calls in a model's text while it is generated.
 *
 * Each family of models writes calls in its own way. A *form* finds the calls of one way:
 *
 *   hermes   <tool_call>{"name": .., "arguments": {..}}</tool_call>, anywhere; Qwen too
 *   llama3   <|python_tag|>{"name": .., "parameters": {..}}, or the object alone where the
 *            answer begins; several with ';' or white space between them
 *   mistral  [TOOL_CALLS][{..}, {..}] or [TOOL_CALLS]name[ARGS]{..}, anywhere
 *   json     an object, objects or a list of them where the answer begins, perhaps in a fence
 *
 * The parser reports a call (struct tool_callbacks) as soon as its name and the beginning of its
 * arguments are known, and the arguments as they arrive, byte for byte as the model wrote them (if
 * they are a string that holds JSON: the content of the string). Text that only looks like the
 * beginning of a call is reported as text once that is certain. White space at the beginning of the
 * answer or after a call is reported only if text follows it. The parser never corrects a report: a
 * call that breaks off keeps the arguments it had.
 *
 * The result does not depend on how the text is cut into pieces.
 *
 * Lifetime: tool_parser_create, push as the text comes, finish once, destroy. Thread: its owner.
 * Memory: undecided text, at most TOOL_HELD_BYTES_MAX; more than that counts as text.
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

/* The text before a call's name, and between its name and the content of its arguments. */
struct tool_opening {
    const char *sign;        /* if the chat template contains it; NULL: always */
    const char *before_name; /* from the mark to the name */
    const char *after_name;  /* from the name to the first byte inside the arguments' braces */
};

enum { TOOL_HELD_BYTES_MAX = 256 * 1024, TOOL_NAME_BYTES_MAX = 256 };

struct tool_form {
    const char *name;
    /* A chat template that contains one of these uses this form. NULL-terminated. */
    const char *const *signs;
    /* Special tokens whose text the parser needs, although special tokens are usually left out
     * of the text. NULL-terminated, may be empty. */
    const char *const *specials;
    /* How a call begins; the last one has no sign. */
    const struct tool_opening *openings;
    /* The byte with which a call can begin in the middle of text; 0: none. */
    char opener;
    /* Consume the next byte. False: it was not consumed; step is called with it again. */
    bool (*step)(struct tool_parser *p, char c);
};
/* NULL-terminated; tool_form_list.c holds it. */
extern const struct tool_form *const tool_forms[];
const struct tool_form *tool_form_find(const char *name); /* NULL if unknown */

/* The form that a chat template uses; NULL: it has no tools, or writes calls in a way that no form
 * reads. */
const struct tool_form *tool_form_of_template(struct str chat_template);
bool tool_form_needs(const struct tool_form *form, struct str special); /* one of `specials` */
bool tool_template_has(struct str chat_template, struct str part);

/* Append the beginning of the call that r->tool_choice forces: the prompt ends with it, and the
 * parser gets it before the answer. For a named tool it ends inside the arguments; if the model may
 * choose the tool, before the name. Appends nothing if no call is forced or `form` is NULL. */
void tool_opening_put(const struct tool_form *form, struct str chat_template,
                      const struct api_request *r, struct buf *out);

struct tool_callbacks {
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
enum status tool_parser_push(struct tool_parser *p, struct str text,
                             const struct tool_callbacks *to);
enum status tool_parser_finish(struct tool_parser *p, const struct tool_callbacks *to);

#endif
