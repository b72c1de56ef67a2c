/* api/tools.h - finding tool calls in a model's text while it is generated.
 *
 * Each family of models writes calls in its own way. A *form* is one such way and its parser.
 * "Anywhere": text may precede the call.
 *
 *   gemma    ```tool_code, f(a="x") and ```; or <start_function_call>call:f{a:1}; anywhere
 *   granite  <|tool_call|>[{..}, {..}], anywhere
 *   hermes   <tool_call>{"name": .., "arguments": {..}}</tool_call>, anywhere; Qwen too
 *   llama3   <|python_tag|>{"name": .., "parameters": {..}}, or the object alone where the
 *            answer begins; several with ';' or white space between them
 *   mistral  [TOOL_CALLS][{..}, {..}] or [TOOL_CALLS]name[ARGS]{..}, anywhere
 *   kimi     <|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{..}<|tool_call_end|>
 *            in a section of calls, anywhere
 *   deepseek <..call.begin..>function<..sep..>NAME, then {..} between ``` (V3, R1), or
 *            <..call.begin..>NAME<..sep..>{..} (V3.1), in a section of calls, anywhere
 *   qwen3_coder <tool_call><function=NAME><parameter=KEY>VALUE</parameter>..</function>..,
 *            anywhere; also without <tool_call>
 *   glm4     <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>..</tool_call>,
 *            anywhere
 *   json     an object, objects or a list of them where the answer begins, perhaps in a fence
 *   phi4     <|tool_call|>[{..}, {..}]<|/tool_call|>, anywhere; or functools[{..}]
 *   pythonic [f(a="x"), g()] where the answer begins, or after <|python_start|> anywhere
 *
 * A call whose name is not that of one of the request's tools is text. If a mark precedes the call,
 * the parser reports it (struct tool_callbacks) as soon as its name is complete; without a mark, as
 * soon as its arguments have begun. Arguments are reported as they arrive, byte for byte as the
 * model wrote them, with two exceptions: of a JSON string that contains JSON the content is
 * reported, and Python's and Gemma's literals are converted to JSON. Text that only looks like the
 * beginning of a call is reported as text as soon as that is certain. White space at the beginning
 * of the answer or after a call is reported only if text follows it.
 *
 * A call that is malformed before it is reported is text. If it is malformed later, the rest is
 * reported as its arguments, as written, up to the form's closing mark or the end of the answer.
 * Nothing is corrected: if the answer ends inside a call, the call keeps the arguments that it has.
 * A call without arguments has {}.
 *
 * Values in tags become members of a JSON object, {"key": "value", ..}; the tool's schema says of
 * which kind. A string is the text as written and is reported as it arrives. Other values are
 * reported when they end: as JSON if they are JSON of a kind that the schema allows, else as a
 * string.
 *
 * The result does not depend on how the text is divided into pieces.
 *
 * Lifetime: tool_parser_create, push as the text comes, finish once, destroy. Thread: its owner.
 * Memory: undecided text, at most TOOL_HELD_BYTES_MAX; longer text is text. A value in tags that is
 * not a string, at most TOOL_VALUE_BYTES_MAX; a longer one becomes a string.
 *
 * To add a form: write api/tool_NAME.c, add a line to api/tool_form_list.c.
 */
#ifndef API_TOOLS_H
#define API_TOOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct json;
struct tool_parser; /* opaque */

/* How calls are written, for the grammar of an answer with calls (api/tool_grammar.h):
 *
 *   begin  before_name NAME after_name ARGS after_args  between  before_name ..  end
 *
 * ARGS is JSON of the tool's schema, or what put_args writes. A spelling of one of `specials` in
 * these texts stands for that special token, if the model's tokenizer has it. */
struct tool_shape {
    const char *sign;  /* used if the chat template contains this; NULL: always */
    const char *begin; /* before the first call; texts are never NULL */
    const char *before_name, *after_name, *after_args;
    const char *between, *end;
    /* The mark that begins calls in the middle of text, a prefix of begin + before_name. NULL: the
     * grammar allows calls only at the beginning of the answer. */
    const char *trigger;
    /* How the arguments are written if not as JSON; NULL: JSON. Writes one part
     * (grammar/grammar.h, GRAMMAR_PARTS) for the tool {"name", "parameters", ..} to `out`. `at`
     * names the place of the tool's schema; `strict`: refuse a schema that cannot be enforced.
     * `function` is NULL: any arguments. */
    void (*put_args)(const struct json *function, struct str at, bool strict, struct buf *out);
};

enum {
    TOOL_HELD_BYTES_MAX = 256 * 1024,
    TOOL_NAME_BYTES_MAX = 256,
    TOOL_VALUE_BYTES_MAX = 4 << 20,
};

struct tool_form {
    const char *name;
    /* A chat template that contains one of these uses this form. NULL-terminated. */
    const char *const *signs;
    /* Special tokens whose text the parser needs, although special tokens are usually left out
     * of the text. NULL-terminated, may be empty. */
    const char *const *specials;
    /* Texts with which a call can begin in the middle of text; the grammar of text excludes them
     * where calls are held to schemas. NULL-terminated, may be empty. */
    const char *const *openings;
    /* How calls are written: the first whose sign fits is used; the last one has no sign. */
    const struct tool_shape *shapes;
    /* The byte with which a call can begin in the middle of text; 0: none. */
    char opener;
    char second_opener; /* another such byte; 0: none */
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

struct tool_callbacks {
    void (*on_text)(void *ctx, struct str text);
    void (*on_call)(void *ctx, uint32_t call, struct str name);
    void (*on_args)(void *ctx, uint32_t call, struct str piece);
    void *ctx;
};

/* `tools`: those of struct api_request; they outlive the parser. Only their names make a call, so
 * that the text {"name": "Bob", ..} stays text; NULL: every name does. */
enum status tool_parser_create(const struct tool_form *form, const struct json *tools,
                               struct tool_parser **out);
void tool_parser_destroy(struct tool_parser *p); /* NULL is fine */

/* ST_NOMEM only; nothing may be pushed after it. */
enum status tool_parser_push(struct tool_parser *p, struct str text,
                             const struct tool_callbacks *to);
enum status tool_parser_finish(struct tool_parser *p, const struct tool_callbacks *to);

#endif
