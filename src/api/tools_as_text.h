/* api/tools_as_text.h - tools for a model whose chat template has no place for them.
 *
 * The conversation itself carries them as text: a system message lists the tools and shows how a
 * call is written (the form "hermes"), earlier calls become part of the assistant's text, and
 * results become messages of the user. The wire looks the same to a client; how well a model
 * follows the description depends on the model.
 */
#ifndef API_TOOLS_AS_TEXT_H
#define API_TOOLS_AS_TEXT_H

#include <stdbool.h>

#include "base/status.h"
#include "base/str.h"

struct json;

/* Whether a chat template never mentions tools, so that they must be described in text. */
bool tools_as_text_needed(struct str chat_template);

/* Make a list of messages that such a template can read; the caller owns *out. Both lists are in
 * the form that struct api_request has them; `tools` NULL: only earlier calls and results are
 * rewritten. Messages that need no change are pinned. ST_FULL: a text is too long; ST_NOMEM. */
enum status tools_as_text(const struct json *messages, const struct json *tools, struct json **out);

#endif
