/* api/openai.h - what the codecs of OpenAI's wire formats share.
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

/* Check conditions on two fields together, which the table of fields cannot. */
enum status openai_check(const struct json *body, struct api_request *r, struct api_error *e);

/* Set the template's variable reasoning_effort. `effort`: a text that was checked, or NULL: nothing
 * is set. "none" also sets enable_thinking to false, unless the request sets that variable. */
enum status openai_read_effort(const struct json *effort, struct api_request *r);

/* "stop", "length" or "tool_calls", for a choice with `calls` tool calls. */
const char *openai_finish(enum finish_reason finish, uint32_t calls);

#define OPENAI_END_MARK "[DONE]"

/* Write the beginning of an answer or a chunk: {"id", "object", .. up to the list of choices,
 * which stays open. The id has the prefix of the request's codec. */
void openai_open_answer(const struct answer *a, const char *object, struct buf *out);
/* Write what follows the last chunk: the error, or the usage if requested; then OPENAI_END_MARK.
 * `head` is the beginning of a chunk. */
void openai_end_stream(struct encoder *e, struct str head);

/* {"prompt_tokens", "completion_tokens", "total_tokens", ..} */
void openai_put_usage(const struct answer *a, struct buf *out);
/* Write the member `usage` of a chunk, with a comma before it: null, or the usage of the event's
 * choice so far (continuous_usage_stats). Writes nothing if usage was not requested. */
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
