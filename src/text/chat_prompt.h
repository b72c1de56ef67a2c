/* text/chat_prompt.h - a conversation as a model wants to read it.
 *
 * The model's own chat template turns a list of messages into one text, and the tokenizer that
 * into ids. Messages are JSON as clients send it, {"role", "content", ...}: what a message has
 * beyond its role is the template's business.
 *
 * Lifetime: create on a tokenizer that outlives it, destroy. Thread: any number may encode at
 * once.
 */
#ifndef TEXT_CHAT_PROMPT_H
#define TEXT_CHAT_PROMPT_H

#include <stdbool.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct tokenizer;
struct tokens;
struct chat_prompt; /* opaque */

enum { CHAT_PROMPT_BYTES_MAX = 1 << 26 };

/* ST_MISSING if the model has no template; ST_BAD if it has one that cannot be read. */
enum status chat_prompt_create(const struct tokenizer *t, struct chat_prompt **out,
                               struct err *err);
void chat_prompt_destroy(struct chat_prompt *p); /* NULL is fine */

/* Append the ids of the prompt that asks for the next message. `messages` is a JSON list of maps
 * that each have a role. ST_BAD: it is none, with what is wrong, or the template refuses it. */
enum status chat_prompt_encode(const struct chat_prompt *p, struct str messages, struct tokens *out,
                               struct err *err);

/* The same with everything that a client may say. All are JSON texts that have been checked:
 * `messages` a list of maps with a role, `tools` a list or empty, `kwargs` a map or empty, whose
 * members are further variables of the template. */
struct chat_ask {
    struct str messages, tools, kwargs;
    bool no_generation_prompt; /* do not ask for the next message */
    bool continue_final;       /* leave the last message open, so that the answer goes on with it */
};
/* Append the text of the prompt. */
enum status chat_prompt_render(const struct chat_prompt *p, const struct chat_ask *ask,
                               struct buf *out, struct err *err);
enum status chat_prompt_encode_ask(const struct chat_prompt *p, const struct chat_ask *ask,
                                   struct tokens *out, struct err *err);

#endif
