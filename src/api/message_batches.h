/* api/message_batches.h - Anthropic's message batches: reading the body that creates one, writing
 * the object and the results.
 *
 * A body may have 100,000 requests, whose tree would take many times the memory of the text. So the
 * requests are cut out of the text and parsed one at a time:
 *
 *     st = message_batch_init(&b, text, e);            checks everything around the requests
 *     while ((st = message_batch_next(&b, &line, e)) == ST_OK) ..
 *     message_batch_deinit(&b);                        ST_MISSING: all were read
 *
 * `params` are the body of a request to /v1/messages. They are not checked here, as Anthropic does
 * not: a request that is refused has an `errored` result. `order` is as in api/batch_lines.h.
 *
 * Ids of rows are complete ("msgbatch_...").
 *
 * Thread: its owner, any.
 */
#ifndef API_MESSAGE_BATCHES_H
#define API_MESSAGE_BATCHES_H

#include <stdint.h>

#include "api/error.h"
#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct batch_line; /* jobs/batches.h */
struct batch_row;
struct json;
struct line_row;
struct map64;

enum { MESSAGE_BATCH_REQUESTS_MAX = 100000, MESSAGE_BATCH_ID_MAX = 64 };

struct message_batch {
    struct str rest; /* of the list of requests, after the present one */
    uint32_t count;  /* requests that were read */
    struct map64 *ids, *prefixes;
    struct json *doc; /* the present request */
    struct buf body;
};

/* `text` is borrowed until deinit. ST_BAD: not a JSON object, or `requests` is missing, empty or
 * not a list. ST_NOMEM. To be deinitialised in any case. */
enum status message_batch_init(struct message_batch *b, struct str text, struct api_error *e);
void message_batch_deinit(struct message_batch *b);
/* ST_OK: the next request; its strings are valid until the next call, and `url` is "/v1/messages".
 * ST_MISSING: there is none. ST_BAD: the request is not an object with custom_id (1 to 64 of
 * a-z A-Z 0-9 _ -, once in the batch) and params (an object that does not stream), or there are
 * more than MESSAGE_BATCH_REQUESTS_MAX. ST_NOMEM. */
enum status message_batch_next(struct message_batch *b, struct batch_line *out,
                               struct api_error *e);

/* The object. results_url is `origin` ("https://host:port", or empty for a relative one) and
 * /v1/messages/batches/ID/results; null until the batch has ended. The counts other than
 * `processing` are 0 until then, as Anthropic's are. */
void message_batch_object_put(const struct batch_row *row, struct str origin, struct buf *out);
/* {"id","type":"message_batch_deleted"} */
void message_batch_deleted_put(struct str id, struct buf *out);
/* One line with its line break: {"custom_id":..,"result":{"type":"succeeded","message":..}}, or
 * errored (the result's body is an error as Anthropic writes it), canceled or expired. */
void message_batch_result_put(const struct line_row *row, struct buf *out);

#endif
