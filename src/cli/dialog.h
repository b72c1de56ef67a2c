/* cli/dialog.h - a conversation: its messages, and the prompt that they become.
 *
 * Messages are kept as OpenAI's API has them; the model's own chat template turns all of them into
 * one prompt each time, so that nothing depends on how turns were cut before.
 *
 * Lifetime: open on a tokenizer that outlives it, close. Thread: the main thread.
 * Memory: at most DIALOG_BYTES_MAX of text; a message past that is refused with ST_FULL.
 */
#ifndef CLI_DIALOG_H
#define CLI_DIALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct chat_prompt; /* text/chat_prompt.h */
struct json;
struct tokenizer;
struct tokens;
struct dialog; /* opaque */

enum { DIALOG_MESSAGES_MAX = 4096, DIALOG_BYTES_MAX = 1 << 24 };

/* ST_BAD if the model has no template, with what to do instead, or one that cannot be read.
 * Without a tokenizer (NULL) the conversation is only kept: dialog_encode must not be called. */
enum status dialog_open(const struct tokenizer *t, const char *model, struct dialog **out,
                        struct err *err);
void dialog_close(struct dialog *d); /* NULL is fine */

uint32_t dialog_count(const struct dialog *d);
enum status dialog_add(struct dialog *d, const char *role, struct str text, struct err *err);
/* The result of a tool call. */
enum status dialog_add_result(struct dialog *d, struct str id, struct str name, struct str text,
                              struct err *err);
/* A message with a role, a content and perhaps reasoning_content and tool_calls. The dialog owns
 * it from then on, and a failure destroys it; NULL gives ST_NOMEM. */
enum status dialog_add_message(struct dialog *d, struct json *message, struct err *err);
void dialog_truncate(struct dialog *d, uint32_t count); /* keep the first `count` messages */

/* Remove all messages, then add the system message unless it is empty. */
enum status dialog_reset(struct dialog *d, struct str system, struct err *err);

/* The messages as a list that shares them; the caller owns it. NULL: out of memory. */
struct json *dialog_messages(const struct dialog *d);
/* The model's template; NULL without a tokenizer. */
const struct chat_prompt *dialog_template(const struct dialog *d);

/* The prompt for the next message of the assistant: of messages without tool calls, and without
 * tools (cli/chat_local.h has them). Appends to `out`. */
enum status dialog_encode(const struct dialog *d, struct tokens *out, struct err *err);

/* The messages as a JSON list of {"role", "content", ..}, and back (replacing what was there). */
void dialog_put_json(const struct dialog *d, struct buf *out);
enum status dialog_load_json(struct dialog *d, const struct json *list, struct err *err);

#endif
