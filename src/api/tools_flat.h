/* api/tools_flat.h - tools whose members stand beside each other, {"name", "description", ..}, as
 * OpenAI's responses and Anthropic's messages spell them. */
#ifndef API_TOOLS_FLAT_H
#define API_TOOLS_FLAT_H

#include "api/error.h"
#include "api/request.h"
#include "base/status.h"

struct json;

/* `tools`, already judged by the table of fields, into r->tools as chat templates read them: those
 * that r->tool_choice (and r->tool_name), which the codec has set, leaves open. `schema` is the key
 * of the arguments' schema. */
enum status tools_read_flat(const struct json *tools, const char *schema, struct api_request *r,
                            struct api_error *e);

#endif
