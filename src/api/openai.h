/* api/openai.h - what OpenAI's wire formats have in common.
 *
 * Thread: any; everything is a function of its arguments.
 */
#ifndef API_OPENAI_H
#define API_OPENAI_H

#include <stdint.h>

#include "api/answer.h"
#include "api/error.h"
#include "api/request.h"
#include "base/buf.h"
#include "base/status.h"

struct encoder;
struct json;

/* Append a constant. */
#define PUT(b, literal) buf_put(b, "" literal, sizeof(literal) - 1)

/* What the table of fields cannot judge, because it is about two of them. */
enum status openai_check(const struct json *body, struct api_request *r, struct api_error *e);

/* "stop", "length" or "tool_calls", of a choice that made `calls` of them. */
const char *openai_finish(enum finish_reason finish, uint32_t calls);

/* The beginning of an answer or of a chunk: {"id", "object", .. up to the list of choices, which
 * stays open. The id has the prefix of the request's codec. */
void openai_open_answer(const struct answer *a, const char *object, struct buf *out);
/* What comes after the last chunk: the failure; or the usage, if it was asked for, and the mark of
 * the end. `head` is the beginning of a chunk. */
void openai_end_stream(struct encoder *e, struct str head);

/* {"prompt_tokens", "completion_tokens", "total_tokens", ..} */
void openai_put_usage(const struct answer *a, struct buf *out);
/* The member `usage` of a chunk, with a comma before it: null, what the event's choice has cost up
 * to it (as vLLM counts), or nothing if nobody asked. */
void openai_put_chunk_usage(const struct answer *a, const struct api_event *ev, struct buf *out);

/* [{"token", "logprob", "bytes", "top_logprobs"}, ..] of some tokens of a choice; without the
 * brackets, so that ranges can be joined. */
void openai_put_logprobs(const struct answer *a, uint32_t choice, uint32_t first, uint32_t count,
                         struct buf *out);
void openai_put_logprob(float logprob, struct buf *out); /* never an infinity */
/* The text of a token as a JSON string. */
void openai_put_token(const struct answer *a, int32_t token, struct buf *out);
/* [1,2,3] */
void openai_put_ids(const int32_t *ids, uint32_t count, struct buf *out);
/* The ids of some tokens of a choice's answer, the same way. */
void openai_put_answer_ids(const struct answer *a, uint32_t choice, uint32_t first, uint32_t count,
                           struct buf *out);

#endif
