/* api/prompts.h - texts or token ids, one or many: OpenAI's `prompt` and `input`. */
#ifndef API_PROMPTS_H
#define API_PROMPTS_H

#include <stdint.h>

#include "api/error.h"
#include "api/request.h"
#include "base/status.h"

struct json;

/* Read a text, a list of texts, a list of ids or a list of such lists into r->prompts. `v` is a
 * text or a list; at most `max` prompts. */
enum status prompts_read(const struct json *v, const char *param, uint32_t max,
                         struct api_request *r, struct api_error *e);

#endif
