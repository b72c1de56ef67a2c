/* graph/step.h - what changes from one step to the next, as tables that ops read.
 *
 * A tape is built once; a step says which tokens it is run on. Rows are tokens of any number of
 * sequences: the rows of one sequence are contiguous and their positions rise by one.
 *
 * Lifetime: filled by the engine before a run, unchanged during it.
 */
#ifndef GRAPH_STEP_H
#define GRAPH_STEP_H

#include <stdint.h>

#include "graph/kv_space.h"

struct step_seq {
    uint32_t first_row, row_count;
    const uint32_t *blocks[KV_GROUPS_MAX]; /* block of token p: blocks[g][p / KV_BLOCK_TOKENS] */
};

struct step {
    uint32_t row_count;          /* T */
    uint32_t output_count;       /* R: rows whose logits are wanted */
    uint32_t seq_count;          /* S */
    const int32_t *token;        /* [T] */
    const int32_t *pos;          /* [T] absolute position; -1: the row is skipped */
    const uint32_t *seq;         /* [T] index into seqs */
    const uint32_t *output_row;  /* [R] index into the T rows */
    const struct step_seq *seqs; /* [S] */
};

#endif
