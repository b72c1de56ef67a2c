/* api/messages.h - a conversation of any wire format, in the form that chat templates read.
 *
 * Decoders build a conversation message by message with the functions below. The result is a tree
 * of JSON values: a list of maps with plain string contents and with tool calls whose arguments
 * are maps, because that is what templates expect. Values of the request's body are pinned, not
 * copied; nothing is written as text and parsed again.
 *
 *     message_list_init(&l);
 *     message_begin(&l, "assistant");
 *     message_put_content(&l, text);            at most once per message
 *     message_put_call(&l, id, name, args);     any number, after the content
 *     message_end(&l);
 *     st = message_list_finish(&l, r);          r->messages, r->is_chat
 *     message_list_deinit(&l);
 *
 * Lifetime: init, build, finish, deinit. Thread: its owner. Memory: content that is joined from
 * parts has a maximum. A failure is remembered, and message_list_finish returns it.
 */
#ifndef API_MESSAGES_H
#define API_MESSAGES_H

#include <stdbool.h>

#include "api/error.h"
#include "api/request.h"
#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct json;

struct message_list {
    struct json *list;    /* owned */
    struct json *message; /* the message under way; owned by the list */
    struct json *calls;   /* its tool calls, NULL: none yet; owned by the message */
    bool has_content;
    struct buf content; /* parts joined so far */
    size_t values_left; /* JSON values that arguments given as text may still become */
    enum status status;
};

void message_list_init(struct message_list *l);
void message_list_deinit(struct message_list *l);

void message_begin(struct message_list *l, const char *role);
/* "name", "tool_call_id" or "reasoning_content". Before the content. `text` is copied. */
void message_put_member(struct message_list *l, const char *key, struct str text);
/* `text` is a JSON string, which is pinned; anything else counts as an empty one. */
void message_put_content(struct message_list *l, const struct json *text);
/* Content that comes in parts, which are joined. */
void message_begin_content(struct message_list *l);
void message_add_content(struct message_list *l, struct str text);
void message_end_content(struct message_list *l);
/* `arguments`: a map, or a string that holds one as JSON. A string that does not is passed on as
 * it is, and so is one that would make the maps of all calls exceed the values_max of one body.
 * Anything else counts as an empty map. */
void message_put_call(struct message_list *l, struct str id, struct str name,
                      const struct json *arguments);
void message_end(struct message_list *l); /* a message without content gets an empty one */

/* ST_FULL: a content is over API_MADE_BYTES_MAX; ST_NOMEM. */
enum status message_list_finish(struct message_list *l, struct api_request *r);

/* Read OpenAI's `messages`, which the table of fields has checked. ST_BAD: among others, a
 * result without its call or a call without its result. `may_be_part`: these two are accepted,
 * because the messages may be a part of a conversation. */
enum status messages_read_openai(const struct json *messages, bool may_be_part,
                                 struct api_request *r, struct api_error *e);

#endif
