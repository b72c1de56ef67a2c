/* api/tool_grammar.h - the grammar of an answer: thoughts, then text, tool calls, or what the
 * request's own grammar says.
 *
 * The result is a source of GRAMMAR_PARTS (grammar/grammar.h):
 *
 *   tool_choice, grammar         the answer
 *   required or named            [thought] calls; the answer ends after them
 *   auto, a tool is strict       [thought] text with calls: after the form's mark (tool_shape's
 *                                trigger); without one, calls alone or text alone
 *   auto and a grammar           [thought] calls, or what the grammar says
 *   no tools and a grammar       [thought] what the grammar says
 *   auto, no strict tool         no grammar: the model writes calls as it likes
 *
 * Every call has the name of one of the request's tools. Its arguments satisfy the tool's schema if
 * the call is forced (required, named), the tool is strict, or the request has a grammar; otherwise
 * they are any JSON object, unless the form has its own put_args, which follows the schema. A
 * schema that cannot be enforced exactly is refused if the tool is strict; otherwise it is relaxed,
 * and grammar_relaxed says so.
 *
 * Thread: any.
 */
#ifndef API_TOOL_GRAMMAR_H
#define API_TOOL_GRAMMAR_H

#include <stdbool.h>

#include "base/status.h"

struct api_request;
struct buf;
struct think_form;
struct tokenizer;
struct tool_form;

struct answer_shape {
    const struct api_request *request;
    const struct tokenizer *tokenizer;
    const struct tool_form *tools;   /* of the model; NULL: none */
    const struct think_form *thinks; /* of the model; NULL: it does not think */
    bool in_thought;                 /* the prompt ends inside a thought */
    bool is_loose;                   /* arguments of calls are any JSON objects */
};

/* Whether the answer needs a grammar. */
bool answer_shape_is_needed(const struct answer_shape *s);
/* Whether `is_loose` may be set: the client has asked for no schema to be enforced exactly. */
bool answer_shape_may_loosen(const struct answer_shape *s);
/* Append the source. ST_NOMEM; ST_FULL: it is too large for `out`. */
enum status answer_shape_put(const struct answer_shape *s, struct buf *out);

#endif
