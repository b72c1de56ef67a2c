/* engine/runner.h - what runs a plan: the plug between scheduling and computing.
 *
 * Implementations: local (a model on a device in this process), sim (tokens from a hash and time
 * from a cost profile, for the simulator and for measuring everything that is not the model).
 *
 * Lifetime: opened before the first plan, closed after the last. Thread: the engine thread.
 */
#ifndef ENGINE_RUNNER_H
#define ENGINE_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sample/sampler.h"
#include "sched/plan.h"

struct settle_job; /* engine/settler.h */

/* Receives the logits of one position: [vocab], valid during the call. Engine thread. */
typedef void logits_tap_fn(void *ctx, uint32_t pos, const float *logits);

/* What a runner must know of a sequence to sample for it. All of it is request memory, made by
 * the thread that submitted the request: beginning a sequence allocates nothing. */
struct runner_seq {
    struct sampler *sampler; /* has accepted the prompt; its seed is that of the choice */
    uint32_t prompt_tokens;
    bool ignore_end;     /* for a runner that has ends of its own */
    const int32_t *ends; /* the tokens that end it */
    uint32_t end_count;
    bool has_grammar;               /* the sequence also ends where sampler_is_over says so */
    struct settle_job *settling;    /* of the sampler; NULL: it is settled by the runner's thread */
    bool forces_text;               /* what sampler_forced gives follows a sampled token */
    struct token_logprob *logprobs; /* one per generated token; NULL: not wanted */
    struct sample_result *tops;     /* the same with the most likely; NULL: not wanted */
    struct token_logprob *prompt_logprobs; /* one per prompt token but the first; NULL likewise */
    struct sample_result *prompt_tops;
    logits_tap_fn
        *on_logits; /* of every position of prompt and answer, in order; NULL: not wanted */
    void *logits_ctx;
};

static inline bool runner_is_among(const int32_t *ends, uint32_t end_count, int32_t token) {
    for (uint32_t i = 0; i < end_count; i++)
        if (ends[i] == token) return true;
    return false;
}

enum { RUNNER_DEPTH_MAX = 1 };

struct runner {
    const char *name;

    /* Plans that may be under way while the next one is made: 0 or 1. With 0 each plan is collected
     * before the next one is submitted. */
    uint32_t depth;

    /* A sequence begins or has ended; `seq` is the scheduler's index for it. A sequence may end
     * while a submitted plan has a row of it. The runner may still compute that row; from `end` on
     * it does not touch what `begin` gave it, and its result for the row is ignored. `seq` begins
     * anew only after that plan was collected. */
    void (*begin)(void *self, seq_idx seq, const struct runner_seq *info);
    void (*end)(void *self, seq_idx seq);

    /* Do the plan's moves, compute its rows, sample: all after the rows of the plans submitted
     * before. submit returns without waiting where it can, and has then copied the tokens and the
     * block tables of the rows; the plan itself stays unchanged until it is collected. collect
     * gives the result of the oldest submitted plan, valid until the next submit. A failed row is
     * marked in the result; a status other than ST_OK means that nothing of the plan can be used.
     * A plan whose submit failed is not collected. */
    enum status (*submit)(void *self, const struct plan *plan, struct err *err);
    enum status (*collect)(void *self, struct step_result *result, struct err *err);

    void (*close)(void *self);
    void *self;
};

#endif
