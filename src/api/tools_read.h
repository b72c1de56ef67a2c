/* api/tools_read.h - a request's tools and which of them the model may call.
 *
 * The result is r->tools in the form that chat templates read, {"type": "function", "function":
 * {"name", "description", "parameters"}}: every tool, the one that the request names, or NULL if
 * no tool may be called. A single tool that is required counts as named.
 *
 * The functions that read expect `tools` as the table of fields has checked it; NULL: none were
 * given. ST_BAD: `e` says what is wrong; a list that weighs more than API_TOOLS_BYTES_MAX is
 * refused.
 */
#ifndef API_TOOLS_READ_H
#define API_TOOLS_READ_H

#include "api/error.h"
#include "api/request.h"
#include "base/status.h"
#include "base/str.h"

struct json;

/* OpenAI's chat and Ollama: tools have that form already. `choice` is `tool_choice` or NULL; it
 * sets r->tool_choice and r->tool_name. */
enum status tools_read_openai(const struct json *tools, const struct json *choice,
                              struct api_request *r, struct api_error *e);

/* OpenAI's responses and Anthropic: a tool is {"name", "description", SCHEMA}, and `schema_key` is
 * the key of the arguments' schema. The codec has set r->tool_choice and r->tool_name. */
enum status tools_read_flat(const struct json *tools, const char *schema_key, struct api_request *r,
                            struct api_error *e);

/* ST_BAD: `word` is none of the words of OpenAI's tool_choice; `named` is how a function is
 * demanded. */
enum status tools_refuse_choice(struct str word, const char *named, struct api_error *e);

#endif
