/* grammar/states.h - the states of a matcher: their successors, and what plain text may follow.
 *
 * Thread: the one that has the grammar's lock.
 */
#ifndef GRAMMAR_STATES_H
#define GRAMMAR_STATES_H

#include "grammar/grammar_int.h"

#define STATE_UNKNOWN UINT32_MAX /* it has the bit of a fork, but is not the number of one */

/* The successors of a state. Bytes that its expressions treat alike are in one class. */
struct state_row {
    uint8_t class_of[256]; /* by byte */
    uint32_t class_count;
    uint32_t next[]; /* by class; STATE_UNKNOWN: not computed yet */
};

/* The number of characters such that every plain text of up to this length may follow; it may be
 * too low, never too high. is_first: the first state of a walk; the search takes longer there,
 * because its result may make the walk unnecessary. */
uint16_t state_room(struct grammar *g, uint32_t state, bool is_first);
/* 1 + the largest class of words all of which may follow; 0: none. */
uint8_t state_words(struct grammar *g, uint32_t state);
/* The row of a state, with the successors that are known; NULL if the budget has failed. The
 * pointer is valid until the tables are collected. */
struct state_row *state_row(struct grammar *g, uint32_t state);
size_t state_row_bytes(const struct state_row *row);
/* Compute the state after a byte, or a fork, and store it in the row; 0: the byte cannot follow, or
 * the budget has failed. */
uint32_t state_step(struct grammar *g, uint32_t state, uint8_t byte);
/* The same, without a computation if the row has it. */
static inline uint32_t state_next(struct grammar *g, uint32_t state, uint8_t byte) {
    const struct state_row *row = g->tables.states[state].row;
    const uint32_t next = row ? row->next[row->class_of[byte]] : STATE_UNKNOWN;
    return next != STATE_UNKNOWN ? next : state_step(g, state, byte);
}

#endif
