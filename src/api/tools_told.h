/* api/tools_told.h - tools for a model whose chat template knows nothing of them.
 *
 * The conversation itself tells them: a system message lists them and says how a call is written
 * (the form "hermes"), calls that were made stand in the assistant's text, and their results come
 * from the user. How well a model follows that is its own affair; the wire looks the same.
 */
#ifndef API_TOOLS_TOLD_H
#define API_TOOLS_TOLD_H

#include <stdbool.h>

#include "base/status.h"
#include "base/str.h"

struct buf;

/* Does this template have no place for tools, so that they must be told? */
bool tools_must_be_told(struct str chat_template);

/* Append `messages` as such a template can read them, with `tools` told (empty: only what was
 * called before is written out). Both are JSON lists as struct api_request has them. ST_NOMEM. */
enum status tools_tell(struct str messages, struct str tools, struct buf *out);

#endif
