/* api/stored_objects.h - objects of the endpoints that keep answers: conversations, stored
 * responses and stored chat completions.
 *
 * Ids are complete ("conv_..", "resp_..", "chatcmpl-.."), unless a parameter says otherwise.
 *
 * Thread: any.
 */
#ifndef API_STORED_OBJECTS_H
#define API_STORED_OBJECTS_H

#include <stdbool.h>

#include "api/error.h"
#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct conversation_row; /* jobs/answers.h */
struct json;

/* ---- ids ---- */

/* "resp_abc" or "chatcmpl-abc" without the prefix, as rows have it. False: it has another one. */
bool stored_id_read(struct str sent, const char *prefix, struct str *id);

/* ---- conversations ---- */

struct conversation_create {
    struct buf metadata; /* JSON object, or empty; owned */
    struct buf items;    /* JSON list of stored items, or empty: none; owned */
};
/* The body of POST /v1/conversations; NULL counts as {}. `seed`: of the items' ids, unique. ST_BAD,
 * ST_NOMEM. `out` is to be deinitialised in any case. */
enum status conversation_create_read(const struct json *body, struct str seed,
                                     struct conversation_create *out, struct api_error *e);
void conversation_create_deinit(struct conversation_create *c);
/* The body of POST /v1/conversations/{id}/items: {"items": [1 to 20 of them]}, as a JSON list of
 * stored items. */
enum status conversation_items_read(const struct json *body, struct str seed, struct buf *out,
                                    struct api_error *e);
/* (The body of POST /v1/conversations/{id} is read by metadata_update_read.) */

/* {"id","object":"conversation","created_at","metadata"} */
void conversation_object_put(const struct conversation_row *row, struct buf *out);
/* {"id","object":"conversation.deleted","deleted":true} */
void conversation_deleted_put(struct str id, struct buf *out);
/* The answer to POST ../items: the list of the items that were added. `items`: as read above.
 * ST_BAD: it is not a list; ST_NOMEM. */
enum status conversation_added_put(struct str items, struct buf *out);

/* ---- stored responses ---- */

/* {"id","object":"response","deleted":true} */
void response_deleted_put(struct str id, struct buf *out);

/* ---- stored chat completions ---- */

/* {"object":"chat.completion.deleted","id","deleted":true} */
void chat_deleted_put(struct str id, struct buf *out);
/* The stored chat completion `whole` with these metadata (empty: null). For lists, for GET and
 * after a change. ST_BAD: `whole` is not a JSON object; ST_NOMEM. */
enum status chat_stored_put(struct str whole, struct str metadata, struct buf *out);
/* The messages of the request `body` of chat completion `id` as one JSON list, each as it was sent
 * with "id": ID-0, ID-1, .. A list of content parts becomes "content_parts", as OpenAI has it.
 * ST_BAD: `body` is no such request; ST_NOMEM. */
enum status chat_messages_put(struct str body, struct str id, struct buf *out);

#endif
