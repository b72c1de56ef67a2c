/* text/chat_prompt.h - from a conversation to the prompt that a model reads.
 *
 * The model's own chat template (its template for tools, if it has one and tools are given) turns
 * a list of messages into one text, and the tokenizer turns the text into token ids. A message is
 * a map {"role", "content", ...}; what it has beyond its role only the template knows.
 *
 * Lifetime: create with a tokenizer that outlives it, destroy. Thread: any number may encode at
 * once, each with trees of its own: rendering pins values of a turn's trees (base/json.h).
 */
#ifndef TEXT_CHAT_PROMPT_H
#define TEXT_CHAT_PROMPT_H

#include <stdbool.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct json;
struct text_places; /* text/content_guard.h */
struct tokenizer;
struct tokens;
struct chat_prompt; /* opaque */

enum { CHAT_PROMPT_BYTES_MAX = 1 << 26 };

/* ST_MISSING if the model has no template; ST_BAD if it has one that cannot be read. */
enum status chat_prompt_create(const struct tokenizer *t, struct chat_prompt **out,
                               struct err *err);
/* From now on the spelling of a control token inside a message is that token. It is ordinary text
 * otherwise, except in messages of the assistant. Before the first prompt. */
void chat_prompt_trust_content(struct chat_prompt *p);
void chat_prompt_destroy(struct chat_prompt *p); /* NULL is fine */

/* Append the ids of the prompt for the next message. `messages` is a list of maps that each have a
 * role, or JSON text of one. ST_BAD: it is not, or the template refuses it; `err` says why. */
enum status chat_prompt_encode(const struct chat_prompt *p, const struct json *messages,
                               struct tokens *out, struct err *err);
enum status chat_prompt_encode_json(const struct chat_prompt *p, struct str messages,
                                    struct tokens *out, struct err *err);

/* Everything that determines a prompt. The trees are borrowed. */
struct chat_turn {
    const struct json *messages; /* a list of maps with a role */
    const struct json *tools;    /* a list; NULL: none */
    const struct json *kwargs;   /* a map of further variables, none of them reserved; NULL: none */
    bool no_generation_prompt;
    bool continue_final; /* end with the text of the last message, without what closes it */
};

/* Append the prompt as text, or its ids. `plain` gets the bytes that are part of no special token,
 * for struct encode_options; NULL: not wanted. ST_BAD as above. Rendering needs a stack of
 * 512 KiB. */
enum status chat_prompt_render(const struct chat_prompt *p, const struct chat_turn *turn,
                               struct buf *out, struct text_places *plain, struct err *err);
enum status chat_prompt_encode_turn(const struct chat_prompt *p, const struct chat_turn *turn,
                                    struct tokens *out, struct err *err);

/* Variables that only the server sets: messages, tools, bos_token and so on. */
bool chat_prompt_is_reserved(struct str name);

/* The template's source, as used for a conversation with or without tools. */
struct str chat_prompt_source(const struct chat_prompt *p, bool tools);

#endif
