/* spec/drafter.h - the plug for whatever guesses the next tokens of one sequence from text alone.
 *
 * A drafter remembers one sequence. Its answers may be wrong, late or empty: the target model
 * verifies each of them, so a drafter can change the speed of an answer and nothing else.
 *
 * To add one: write spec/drafter_NAME.c, add a line to spec/drafter_list.c, and document it in
 * docs/speculation.md.
 *
 * Lifetime: create with the request, destroy with it. Thread: create and destroy from any thread;
 * propose and end on the engine thread. Memory: all taken by create, and proportional to the
 * longest sequence at most; propose allocates nothing.
 */
#ifndef SPEC_DRAFTER_H
#define SPEC_DRAFTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kv/prefix.h"

struct suffix_pools; /* spec/suffix_pools.h */

struct drafter_setup {
    uint32_t tokens_max; /* the longest text of the sequence */
    uint32_t vocab;
    /* The prompt: the first final tokens of the text. Read by create, which indexes it so that the
     * engine thread need not; not kept. NULL: the first propose indexes it. */
    const int32_t *prompt;
    uint32_t prompt_tokens;        /* predicted: where the answer begins; 0: unknown */
    uint32_t ngram_min, ngram_max; /* ngram: tokens that must be equal before a guess */
    const int32_t *prediction;     /* predicted: what the client expects; copied */
    uint32_t prediction_tokens;    /* 0: none */
    struct suffix_pools *pools;    /* suffix: recent answers; outlives the drafter; or NULL */
    struct kv_salt salt;           /* suffix: whose answers it may read and adds to */
};

struct drafter {
    const char *name;    /* what --speculate takes */
    const char *summary; /* one sentence for --help and docs */
    bool reads_answers;  /* it uses drafter_setup.pools */

    /* ST_NOMEM, or ST_BAD with a sentence. */
    enum status (*create)(const struct drafter_setup *setup, void **self, struct err *err);
    void (*destroy)(void *self);                            /* NULL is fine */
    size_t (*bytes_for)(const struct drafter_setup *setup); /* what create would take */

    /* Guess at most `max` tokens that follow tokens[0 .. count). The first `known` are final, and
     * `known` never falls from one call to the next; those from `known` on may be others in the
     * next call. Returns how many were written to `out`; 0: no guess. */
    uint32_t (*propose)(void *self, const int32_t *tokens, uint32_t known, uint32_t count,
                        uint32_t max, int32_t *out);

    /* Optional: the sequence has ended with this text. */
    void (*end)(void *self, const int32_t *tokens, uint32_t count, uint32_t prompt_tokens);

    size_t (*bytes)(const void *self); /* memory that it holds */
    void (*verify)(const void *self);  /* CHECK all invariants; slow */
};

/* NULL-terminated; drafter_list.c holds it. */
extern const struct drafter *const drafters[];
const struct drafter *drafter_find(const char *name); /* NULL if unknown */

#endif
