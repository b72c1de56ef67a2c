/* grammar/chars.h - sets of characters as expressions over the bytes that spell them.
 *
 * A character is spelled as UTF-8, or as chars_spell_json writes it inside a JSON string: one
 * spelling for each character, so that the complement of a set of texts is the complement of their
 * spellings.
 *
 * Thread: the caller's. Memory: the sets are values.
 */
#ifndef GRAMMAR_CHARS_H
#define GRAMMAR_CHARS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "grammar/expr.h"

struct buf;

enum { CODE_SET_MAX = 1000, CODE_MAX = 0x10FFFF };

struct code_set {
    uint32_t count;
    bool is_full; /* more than CODE_SET_MAX ranges were added */
    struct {
        uint32_t low, high; /* both included */
    } ranges[CODE_SET_MAX];
};

enum spelling { SPELL_UTF8, SPELL_JSON };

static inline void code_set_clear(struct code_set *s) {
    s->count = 0;
    s->is_full = false;
}
void code_set_add(struct code_set *s, uint32_t low, uint32_t high);
void code_set_add_set(struct code_set *s, const struct code_set *more);
void code_set_negate(struct code_set *s);
/* ASCII letters in the other case, too. */
void code_set_fold(struct code_set *s);

expr_id chars_expr(struct expr_pool *p, const struct code_set *s, enum spelling spelling);
/* Any one character. */
expr_id chars_any(struct expr_pool *p, enum spelling spelling);
/* Append a text as it stands inside a JSON string: escaped is only what must be. */
void chars_spell_json(struct buf *out, struct str text);
/* A text; for SPELL_JSON without the quotes. */
expr_id chars_text(struct expr_pool *p, struct str text, enum spelling spelling);

#endif
