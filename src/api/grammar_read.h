/* api/grammar_read.h - what an answer must be, from every field that can say it.
 *
 * OpenAI's response_format and text.format, vLLM's structured_outputs and guided_*, llama.cpp's
 * grammar and json_schema, Anthropic's output_format and Ollama's format lead to one source of a
 * grammar (grammar/grammar.h). A request has at most one.
 *
 * Thread: the request's owner.
 */
#ifndef API_GRAMMAR_READ_H
#define API_GRAMMAR_READ_H

#include "api/error.h"
#include "base/status.h"

struct api_field;
struct api_request;
struct json;

/* Store the value of a row whose `store` is one of STORE_FORMAT to STORE_RULES. ST_BAD: another
 * field has given a grammar already, or the value is none; `e` says so. ST_NOMEM. */
enum status grammar_store(const struct api_field *f, const struct json *v, struct api_request *r,
                          const char *param, struct api_error *e);

/* The whole request was read. ST_BAD: a format needs a schema and has none, or the request also
 * lets the model call tools. */
enum status grammar_check(const struct api_request *r, struct api_error *e);

#endif
