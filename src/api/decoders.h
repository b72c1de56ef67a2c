/* api/decoders.h - the decode functions (struct codec) that have a file of their own. */
#ifndef API_DECODERS_H
#define API_DECODERS_H

#include "api/error.h"
#include "api/request.h"
#include "base/status.h"

struct json;

enum status responses_decode(struct json *body, struct api_request *r, struct api_error *e);

/* /v1/messages and /v1/messages/count_tokens; the latter sets max_tokens to 0. */
enum status anthropic_decode(struct json *body, struct api_request *r, struct api_error *e);
enum status anthropic_count_decode(struct json *body, struct api_request *r, struct api_error *e);

enum status ollama_chat_decode(struct json *body, struct api_request *r, struct api_error *e);
enum status ollama_generate_decode(struct json *body, struct api_request *r, struct api_error *e);

#endif
