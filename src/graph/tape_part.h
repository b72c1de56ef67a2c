/* graph/tape_part.h - some ops of a tape as a tape of their own.
 *
 * What the ops read of values from before comes in through the op `input`: whole rows of those
 * values, side by side. What is read of them later goes out as rows of outputs, of which there is
 * one for each token. So a tape can be run piece by piece, and something may change in between.
 *
 * Thread: the builder's. Memory: while it copies, 6 bytes for each value of the whole tape.
 */
#ifndef GRAPH_TAPE_PART_H
#define GRAPH_TAPE_PART_H

#include <stdint.h>

#include "base/status.h"
#include "graph/tape.h"

enum { TAPE_PART_VALUES_MAX = 2 };

struct tape_part {
    const struct tape *whole;           /* not finished, so that no two ops have become one */
    uint32_t first, end;                /* ops [first, end) */
    value_id in[TAPE_PART_VALUES_MAX];  /* in the order of the columns of the op `input` */
    value_id out[TAPE_PART_VALUES_MAX]; /* the output, and what is kept */
    uint32_t in_count, out_count;       /* at least 1 */
};

/* `to` is empty; the caller finishes it. All values of `in` and `out` are rows of tokens in f32.
 * ST_BAD: an op reads a value from before that is not in `in`. */
enum status tape_copy_part(const struct tape_part *part, struct tape *to, struct err *err);

#endif
