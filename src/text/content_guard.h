/* text/content_guard.h - the spelling of a control token inside a message stays ordinary text.
 *
 * A chat template surrounds messages with control tokens (<|im_end|>, [INST]), which the tokenizer
 * then finds by their spelling. A client may type the same spelling into a message and so end the
 * message early, or speak as another role. The template mixes both into one text, so the difference
 * must survive rendering:
 *
 *     content_guard_mark    copies the trees of the turn where a message contains such a spelling,
 *                           and puts a *mark* into it: a noncharacter (U+FDD0 .. U+FDEF) that no
 *                           text of the turn contains
 *     (the template is rendered)
 *     content_guard_unmark  removes the marks and notes where they were: the byte there is not part
 *                           of a special token (struct plain_bytes)
 *
 * A part of a spelling at the beginning or end of a text is marked as well, unless it has letters,
 * digits and blanks alone, because a template may put two texts side by side. Texts without any
 * such part are handed on unchanged, and so their prompts are the same to the byte. The text of
 * assistants is not marked: it is the model's own.
 *
 * Lifetime: create with a tokenizer that outlives it, destroy; the marked trees: mark, deinit.
 * Thread: any number at once, each with trees of its own.
 */
#ifndef TEXT_CONTENT_GUARD_H
#define TEXT_CONTENT_GUARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct buf;
struct content_guard; /* opaque */
struct json;
struct tokenizer;

/* *out is NULL if the tokenizer has no control tokens. ST_NOMEM. */
enum status content_guard_create(const struct tokenizer *t, struct content_guard **out);
void content_guard_destroy(struct content_guard *g); /* NULL is fine */

/* Trees that are pinned or copied; NULL where the turn has none. */
struct marked_turn {
    struct json *messages, *tools, *kwargs;
    uint32_t mark; /* the code point; 0: nothing is marked */
};
/* `g` NULL: nothing is marked. ST_BAD: the texts contain a control token's spelling and all the
 * characters that could be a mark. deinit also after a failure. */
enum status content_guard_mark(const struct content_guard *g, const struct json *messages,
                               const struct json *tools, const struct json *kwargs,
                               struct marked_turn *out, struct err *err);
void marked_turn_deinit(struct marked_turn *m);

/* Offsets into a text, in rising order. Zero-initialise. */
struct text_places {
    size_t *at;
    size_t count, cap;
};
void text_places_deinit(struct text_places *p);

/* Remove the marks from `text`, from byte `start` on; `out` gets where they were, as offsets into
 * what remains of the whole text. ST_NOMEM. */
enum status content_guard_unmark(uint32_t mark, struct buf *text, size_t start,
                                 struct text_places *out);

#endif
