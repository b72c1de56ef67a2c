/* engine/solo_int.h - the inside of a solo, shared by its two files only. */
#ifndef ENGINE_SOLO_INT_H
#define ENGINE_SOLO_INT_H

#include <stdatomic.h>

#include "engine/host.h"
#include "engine/solo.h"
#include "graph/step.h"

struct solo {
    struct host host;
    struct pass logits; /* or the pooled pass of an encoder */
    struct pass hidden; /* made when a decoder is first asked for an embedding */
    struct kv_memory kv;
    uint32_t ctx_tokens, chunk_tokens;

    /* Step tables: one sequence, its blocks in order. */
    int32_t *token, *pos;       /* chunk_tokens */
    uint32_t *seq, *output_row; /* chunk_tokens */
    uint32_t *blocks;           /* ctx_tokens / KV_BLOCK_TOKENS, rounded up */

    /* What the KV cache holds: these tokens from position 0 on. */
    int32_t *cached; /* ctx_tokens */
    uint32_t cached_count;

    atomic_bool stopping;
};

enum row_choice { ROWS_NONE, ROWS_LAST, ROWS_ALL };

/* Run `count` tokens (at most chunk_tokens) at positions first_pos and up through `pass`; the
 * cache must hold everything before them. Returns the output's first row; rows of it follow
 * each other at *row_floats. */
const float *solo_run(struct solo *e, const struct pass *pass, const int32_t *ids, uint32_t count,
                      uint32_t first_pos, enum row_choice rows, size_t *row_floats);

/* ST_BAD if `count` tokens do not fit the context or one is outside the vocabulary. */
enum status solo_check_ids(const struct solo *e, const int32_t *ids, uint32_t count,
                           struct err *err);

#endif
