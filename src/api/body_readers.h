/* api/body_readers.h - the read_body functions (struct codec) that have a file of their own. */
#ifndef API_BODY_READERS_H
#define API_BODY_READERS_H

#include "api/error.h"
#include "api/request.h"
#include "base/status.h"

struct json;

enum status responses_read_body(struct json *body, struct api_request *r, struct api_error *e);

/* /v1/messages and /v1/messages/count_tokens; the latter sets max_tokens to 0. */
enum status anthropic_read_body(struct json *body, struct api_request *r, struct api_error *e);
enum status anthropic_count_read_body(struct json *body, struct api_request *r,
                                      struct api_error *e);

enum status ollama_chat_read_body(struct json *body, struct api_request *r, struct api_error *e);
enum status ollama_generate_read_body(struct json *body, struct api_request *r,
                                      struct api_error *e);

#endif
