/* text/chat_prompt.h - a conversation as a model wants to read it.
 *
 * The model's own chat template (the one for tools, where it has one and tools are given) turns a
 * list of messages into one text, and the tokenizer that into ids. Messages are JSON as clients
 * send it, {"role", "content", ...}: what a message has beyond its role is the template's
 * business.
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

/* All that can be said about a prompt. Each text is JSON that is whole by itself, which whoever
 * writes it sees to; what a client wrote is parsed and written again before it comes here. */
struct chat_turn {
    struct str messages; /* a list of maps with a role */
    struct str tools;    /* a list; empty: none */
    struct str kwargs;   /* a map of further variables, none of them reserved; empty: none */
    bool no_generation_prompt;
    bool continue_final; /* end with the text of the last message, without what closes it */
    struct str opening;  /* how the answer begins, behind the prompt; empty: as the model likes */
};

/* Append the prompt as text, or its ids. ST_BAD as above. Rendering needs a stack of 512 KiB. */
enum status chat_prompt_render(const struct chat_prompt *p, const struct chat_turn *turn,
                               struct buf *out, struct err *err);
enum status chat_prompt_encode_turn(const struct chat_prompt *p, const struct chat_turn *turn,
                                    struct tokens *out, struct err *err);

/* Variables that only the server sets: messages, tools, bos_token and so on. */
bool chat_prompt_is_reserved(struct str name);

/* The template's source, as used for a conversation with or without tools. */
struct str chat_prompt_source(const struct chat_prompt *p, bool tools);

#endif
