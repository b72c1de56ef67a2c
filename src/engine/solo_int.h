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

    struct step *step; /* one sequence, its blocks in order */

    /* What the KV cache holds: these tokens from position 0 on. */
    int32_t *cached; /* ctx_tokens */
    uint32_t cached_count;

    atomic_bool stopping;
};

/* Tokens, at most chunk_tokens, at positions first_pos and up. */
struct solo_tokens {
    const int32_t *ids;
    uint32_t count, first_pos;
    bool hands_over;               /* the output of every token is handed over */
    const struct sampler *sampler; /* samples behind the last one; NULL: nothing is sampled */
};

/* Run them through `pass`; the cache must hold everything before them. The outputs are those that
 * are handed over, in order, and behind them the sampled one. */
enum status solo_run(struct solo *e, const struct pass *pass, const struct solo_tokens *tokens,
                     struct device_result *out, struct err *err);

/* ST_BAD if `count` tokens do not fit the context or one is outside the vocabulary. */
enum status solo_check_ids(const struct solo *e, const int32_t *ids, uint32_t count,
                           struct err *err);

#endif
