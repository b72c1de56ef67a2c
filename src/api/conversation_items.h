/* api/conversation_items.h - the items of conversations: what /v1/responses reads and answers with,
 * in the form in which it is stored.
 *
 * A stored item is complete: it has an id, a type and a status, and its content is a list of parts.
 * So a list of stored items can be returned to a client as it is, and can be read as the `input` of
 * a request.
 *
 *     body of a request --responses_input_items--> its own items --+
 *     earlier items ---------------------+                         | stored with the answer
 *     body + earlier items --responses_merge--> body to be run     |
 *     answer --responses_output_items--> the answer's items -------+
 *
 * Thread: any.
 */
#ifndef API_CONVERSATION_ITEMS_H
#define API_CONVERSATION_ITEMS_H

#include <stdint.h>

#include "api/error.h"
#include "api/object_page.h"
#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct answer;
struct json;

enum { CONVERSATION_ITEMS_MAX = 20 /* that one request may add, as with OpenAI */ };

/* Append a list of items as stored items, as JSON. An item without an id gets one of `seed` and its
 * index ("msg_SEED_0", "fc_..", "fco_..", "rs_.."), the same each time. `param` is the path of the
 * list, for errors. ST_BAD: an item is not a message, function_call, function_call_output or
 * reasoning, or lacks a member; ST_NOMEM. */
enum status items_store(const struct json *items, struct str seed, const char *param,
                        struct buf *out, struct api_error *e);

/* The same of the `input` of a body of /v1/responses: a string is a message of the user, and an
 * item_reference is left out, because the item that it names is stored.
 * `answer_id` is the id of the answer to it, without a prefix. */
enum status responses_input_items(const struct json *body, struct str answer_id, struct buf *out,
                                  struct api_error *e);

/* The `output` of the response object alone: a JSON list. The answer is complete. */
void responses_output_items(const struct answer *a, struct buf *out);

/* Write the body into `out`, which is empty, with `input` replaced by the earlier items (a JSON
 * list, or empty) and then its own items. All other fields are as sent, so that the response
 * repeats them. An item_reference to an earlier item is left out, because that item is there.
 * ST_BAD: one of the texts is not what it should be, or both together are over the limits of one
 * body (API_MESSAGES_MAX items, json_limits_request); ST_NOMEM. */
enum status responses_merge(struct str body, struct str earlier_items, struct buf *out,
                            struct api_error *e);

/* A page of a JSON list of stored items: GET /v1/responses/{id}/input_items. `items` is in the
 * order of the conversation; `after`: id of the item before the page, or empty. ST_BAD: it is not a
 * list, or has no item `after`; ST_NOMEM. */
enum status items_page_put(struct str items, const struct page_choice *choice, struct str after,
                           struct buf *out, struct api_error *e);

/* The item of this id in a JSON list. ST_MISSING; ST_NOMEM. */
enum status items_find_put(struct str items, struct str id, struct buf *out);

#endif
