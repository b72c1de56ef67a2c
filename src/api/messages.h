/* api/messages.h - a conversation as chat templates expect it, whatever it was sent as.
 *
 * Codecs write a conversation with the verbs below, message by message; it becomes a JSON list of
 * maps with plain string contents and tool calls whose arguments are maps, because that is what
 * templates read. OpenAI's own messages are read by messages_read_openai.
 *
 *     message_list_init(&l);
 *     message_begin(&l, "assistant");
 *     message_put_content(&l, text);            at most once a message
 *     message_put_call(&l, id, name, args);     any number, after the content
 *     message_end(&l);
 *     st = message_list_finish(&l, r);          r->messages, is_chat
 *     message_list_deinit(&l);
 *
 * Lifetime: init, verbs, finish, deinit. Thread: its owner. Memory: one text under a maximum.
 */
#ifndef API_MESSAGES_H
#define API_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "api/request.h"
#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

struct json;

struct message_list {
    struct buf text;
    uint32_t count;      /* messages begun */
    uint32_t call_count; /* of the message under way */
    bool has_content;    /* the message under way has it */
};

void message_list_init(struct message_list *l);
void message_list_deinit(struct message_list *l);

void message_begin(struct message_list *l, const char *role);
/* A member whose value is text: "name", "tool_call_id", "reasoning_content". Before the content. */
void message_put_member(struct message_list *l, const char *key, struct str value);
void message_put_content(struct message_list *l, struct str text);
/* Content that comes in parts: joined. */
void message_begin_content(struct message_list *l);
void message_add_content(struct message_list *l, struct str text);
void message_end_content(struct message_list *l);
/* `arguments` is a map, or a text that spells one; anything else ends up as the text it is. */
enum status message_put_call(struct message_list *l, struct str id, struct str name,
                             const struct json *arguments);
void message_end(struct message_list *l); /* a message without content gets an empty one */

/* ST_FULL: over API_MADE_BYTES_MAX; ST_NOMEM. */
enum status message_list_finish(struct message_list *l, struct api_request *r);

/* OpenAI's `messages`, already judged by the table of fields. */
enum status messages_read_openai(const struct json *messages, struct api_request *r,
                                 struct api_error *e);

/* OpenAI's `tools`, `tool_choice`: r->tool_choice, and r->tools as the template reads them: all,
 * the named one, or with "none" none. Judged by the table, too. Both may be NULL. */
enum status tools_read_openai(const struct json *tools, const struct json *choice,
                              struct api_request *r, struct api_error *e);

#endif
