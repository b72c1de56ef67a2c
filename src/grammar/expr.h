/* grammar/expr.h - regular expressions over bytes, as values, and their lazy automaton.
 *
 * An expression is a number: equal ones have the same number, so that sets of them are small and
 * comparing costs nothing. expr_step gives the expression of what may follow after one byte (its
 * Brzozowski derivative), so an expression is also a state of a deterministic automaton, whose
 * transitions are computed when they are first asked for. Intersection and complement cost no more
 * than union; JSON Schema needs them for "a string that is none of these keys" and the like.
 *
 * After the account of the pool has failed, every function returns EXPR_NONE.
 *
 * Lifetime: create, use, destroy. Thread: one at a time; expr_step changes the pool.
 * Memory: charged to the budget that is given at creation.
 */
#ifndef GRAMMAR_EXPR_H
#define GRAMMAR_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct budget;
struct expr_pool; /* opaque */

typedef uint32_t expr_id;
enum {
    EXPR_NONE = 0,  /* matches nothing        */
    EXPR_EMPTY = 1, /* matches the empty text */
    EXPR_ANY = 2,   /* matches every text     */
};
enum { EXPR_NO_MAX = UINT32_MAX / 2 };

struct byte_set {
    uint64_t bits[4];
};
static inline bool byte_set_has(const struct byte_set *s, uint8_t byte) {
    return s->bits[byte >> 6] >> (byte & 63) & 1;
}
void byte_set_add(struct byte_set *s, uint8_t low, uint8_t high); /* both included */

struct expr_pool *expr_pool_create(struct budget *budget); /* NULL: the budget has failed */
void expr_pool_destroy(struct expr_pool *p);               /* NULL is fine */
uint32_t expr_count(const struct expr_pool *p);
bool expr_has_failed(const struct expr_pool *p); /* its account has */

/* Forget all known steps, and the expressions from number `first` on that neither map[number] != 0
 * nor a kept one needs. The others move to the front in their order; map[old] becomes the number
 * of each. */
void expr_pool_collect(struct expr_pool *p, uint32_t first, uint32_t *map);

expr_id expr_bytes(struct expr_pool *p, const struct byte_set *set);
expr_id expr_range(struct expr_pool *p, uint8_t low, uint8_t high);
expr_id expr_literal(struct expr_pool *p, struct str text);
expr_id expr_concat(struct expr_pool *p, expr_id a, expr_id b);
expr_id expr_or(struct expr_pool *p, expr_id a, expr_id b);
expr_id expr_or_all(struct expr_pool *p, const expr_id *list, uint32_t count);
expr_id expr_and(struct expr_pool *p, expr_id a, expr_id b);
expr_id expr_not(struct expr_pool *p, expr_id a);
expr_id expr_repeat(struct expr_pool *p, expr_id a, uint32_t min, uint32_t max);

/* One of the texts; they are sorted in place. Common beginnings are shared, so the automaton of
 * 100,000 texts is a tree. */
expr_id expr_choice(struct expr_pool *p, struct str *texts, uint32_t count);

/* Decimal numbers without sign and exponent that are a multiple of unit / 10^scale. */
expr_id expr_multiple(struct expr_pool *p, uint32_t unit, uint32_t scale);

bool expr_matches_empty(const struct expr_pool *p, expr_id e);

/* What may follow after `byte`; EXPR_NONE: nothing does. */
expr_id expr_step(struct expr_pool *p, expr_id e, uint8_t byte);

/* Whether any text matches. Exact unless the search is longer than a bound; then true. */
bool expr_is_alive(struct expr_pool *p, expr_id e);
/* Whether the expression matches the whole text. */
bool expr_matches(struct expr_pool *p, expr_id e, struct str text);

/* A number n such that every text of up to n times `item` may follow in the expression, which is
 * alive; EXPR_NO_MAX: any text of it. May be too low, never too high. */
uint32_t expr_room(const struct expr_pool *p, expr_id e, expr_id item);
/* Whether only the byte `stop` may follow after expr_room times `item`; it may follow earlier. */
bool expr_room_ends(const struct expr_pool *p, expr_id e, expr_id item, uint8_t stop);

/* Set marks[b] where bytes b-1 and b may lead to different expressions: one byte of each run
 * between marks stands for all of it. */
void expr_mark_classes(const struct expr_pool *p, expr_id e, struct byte_set *marks);

#endif
