/* spec/suffix_automaton.h - finds where the end of a text occurred before, and what followed.
 *
 * A suffix automaton is a graph of states. Each state stands for a set of pieces of the text that
 * end at the same places; an edge leads from a piece to the piece with one more token. It is built
 * online, one token at a time (Blumer et al. 1985). Every edge counts how often its token followed,
 * so a guess is the most frequent continuation; of equally frequent ones, the latest.
 *
 * A text of n tokens has at most 2n states. Every state but the last has at least one edge, which
 * is stored in the state itself; at most n others are found by hashing.
 *
 * Counts are exact for the SUFFIX_COUNT_DEPTH longest pieces that end at a token and differ in
 * where they occur; most texts have no more of them. In a text that repeats itself, counts of
 * shorter pieces are too low; these are never the longest match there.
 *
 * Thread: one at a time. Memory: all taken by create, and touched only as the text grows; add takes
 * constant time on average.
 */
#ifndef SPEC_SUFFIX_AUTOMATON_H
#define SPEC_SUFFIX_AUTOMATON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SUFFIX_COUNT_DEPTH = 16 };
enum { SUFFIX_DOUBT = 2 }; /* chosen by measurement (README.md) */
enum { SUFFIX_END = -1 };  /* stands between texts; is never matched and never guessed */

struct suffix_automaton; /* opaque */

/* A piece that ends the text of the caller and occurs in the text of the automaton. */
struct suffix_match {
    uint32_t state;
    uint32_t tokens; /* its length; 0: none */
};

enum status suffix_automaton_create(struct suffix_automaton **out, uint32_t tokens_max);
void suffix_automaton_destroy(struct suffix_automaton *a); /* NULL is fine */
void suffix_automaton_clear(struct suffix_automaton *a);   /* forget the text; takes no time */

/* Append a token, or SUFFIX_END. False, and nothing has changed: there are tokens_max of them, or
 * the tokens were chosen so that their hashes are equal. */
bool suffix_automaton_add(struct suffix_automaton *a, int32_t token);
uint32_t suffix_automaton_tokens(const struct suffix_automaton *a);

/* The longest end of the automaton's own text that occurs elsewhere in it. */
struct suffix_match suffix_automaton_repeat(const struct suffix_automaton *a);

/* The longest end of a text that occurs in the automaton, given that of the text without its last
 * token. Begin with {0}. */
struct suffix_match suffix_automaton_step(const struct suffix_automaton *a, struct suffix_match m,
                                          int32_t token);

/* The longest part of a match that tokens follow; `tokens` is 0 if there is none. */
struct suffix_match suffix_automaton_followed(const struct suffix_automaton *a,
                                              struct suffix_match m);

/* Write what most often follows the match, at most `max` tokens. A token that followed `count` of
 * `total` times is right with an estimated chance of
 *
 *     count / (total + SUFFIX_DOUBT / length)
 *
 * where `length` is that of the match and of the guess so far: a longer match is trusted more. Stop
 * where the product of the chances falls below `chance_min`, and at a SUFFIX_END. At the end of the
 * automaton's text, go on behind the longest end that occurs before: so a text that repeats itself
 * is continued. Returns how many were written. */
uint32_t suffix_automaton_guess(const struct suffix_automaton *a, struct suffix_match m,
                                double chance_min, uint32_t max, int32_t *out);

size_t suffix_automaton_bytes_for(uint32_t tokens_max);               /* what create would take */
size_t suffix_automaton_bytes(const struct suffix_automaton *a);      /* taken by create */
size_t suffix_automaton_bytes_used(const struct suffix_automaton *a); /* touched so far */
void suffix_automaton_verify(const struct suffix_automaton *a); /* CHECK all invariants; slow */

#endif
