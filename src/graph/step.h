/* graph/step.h - one step as plain tables: everything that changes from step to step.
 *
 * A tape is built once; a step says which tokens it is run on, what happens to KV memory first, and
 * what to do with each output row. A row is one token here. (A row of a plan, sched/plan.h, is a
 * run of tokens of one sequence and becomes `count` rows of a step.) The rows of one sequence are
 * contiguous and their positions rise by one.
 *
 * All tables lie in one piece of host memory that the device can reach, at addresses that never
 * change, so that a device can copy them at once. `moves` alone is borrowed.
 *
 * Lifetime: step_create; filled before a submit, unchanged until its collect; step_destroy.
 */
#ifndef GRAPH_STEP_H
#define GRAPH_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/kv_space.h"
#include "graph/sampling.h"

struct device;

/* The largest step. */
struct step_sizes {
    uint32_t rows_max, outputs_max, seqs_max;
    uint32_t group_count, blocks_max; /* KV groups; blocks of a sequence in one group */
    uint32_t edits_max, deny_words_max;
    uint32_t input_floats; /* columns of the op `input`; 0: the tape has none */
};

struct step_seq {
    uint32_t first_row, row_count;
};

struct step {
    struct step_sizes sizes;
    uint32_t row_count;    /* T; 0: only the moves are done */
    uint32_t output_count; /* R: rows whose output is wanted */
    uint32_t seq_count;    /* S */
    bool hands_over;       /* no sampling: the result is the raw output rows; `samplings` is not
                              read */

    int32_t *token;             /* [T] step_token_at(slot): the token that the device keeps there */
    int32_t *pos;               /* [T] absolute position; -1: the row is skipped */
    uint32_t *seq;              /* [T] index into seqs */
    uint32_t *output_row;       /* [R] index into the T rows */
    struct step_seq *seqs;      /* [S] */
    uint32_t *blocks;           /* [S][group_count][blocks_max]: step_blocks */
    struct sampling *samplings; /* [R] */
    struct sampling_tables tables;
    float *input; /* [T][input_floats] what the op `input` reads */

    const struct kv_move *moves; /* done before the rows; borrowed until the collect */
    uint32_t move_count;

    void *memory; /* all tables, from the device's host_alloc */
    size_t memory_bytes;
};

/* The value of `token` for a row whose token the host does not know yet: the device reads it from
 * the place `slot` of the sequence's last token, where an earlier step has stored it. */
static inline int32_t step_token_at(uint32_t slot) { return -1 - (int32_t)slot; }
static inline uint32_t step_token_slot(int32_t token) { return (uint32_t)(-1 - token); }

/* Block of token p of a sequence: step_blocks(...)[p / block_tokens]. */
static inline uint32_t *step_blocks(const struct step *s, uint32_t seq, uint32_t group) {
    return s->blocks + ((size_t)seq * s->sizes.group_count + group) * s->sizes.blocks_max;
}

/* ST_NOMEM. The device outlives the step. */
enum status step_create(struct step **out, const struct device *dev, const struct step_sizes *sizes,
                        struct err *err);
void step_destroy(struct step *s, const struct device *dev); /* NULL is fine */

void step_clear(struct step *s); /* no rows, outputs, sequences, moves and edits */

#endif
