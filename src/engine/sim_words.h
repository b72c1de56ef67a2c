/* engine/sim_words.h - the words of a vocabulary that a simulated answer is made of.
 *
 * Tokens that are words of plain letters, so that an answer reads like text and never contains a
 * special token, half a character or an end token. If the vocabulary has no such words: every token
 * that is not special.
 *
 * Lifetime: choose, deinit. Thread: its owner.
 */
#ifndef ENGINE_SIM_WORDS_H
#define ENGINE_SIM_WORDS_H

#include <stdint.h>

#include "base/status.h"

struct tokenizer;

struct sim_words {
    int32_t *list; /* ascending */
    uint32_t count;
};

/* Only ids below `vocab`, the model's. ST_BAD: there is no ordinary token at all. */
enum status sim_words_choose(struct sim_words *w, const struct tokenizer *t, uint32_t vocab,
                             struct err *err);
void sim_words_deinit(struct sim_words *w); /* a zeroed one is fine */

#endif
