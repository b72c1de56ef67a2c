/* identity/batch_drafts.h - drafts for a batch run, from the answers that requests get alone.
 *
 * By the run's number there are no drafts, or the drafter is prompt lookup, the suffix automaton, a
 * prediction that is the answer with some edits, or one that is always right, one that answers
 * random tokens, one that is right for a drawn number of tokens, or a draft model: the model
 * itself, or another one of its vocabulary. Drafting is said to cost nothing, so that it is done.
 * Answers must be the same with each of them.
 *
 * Lifetime: within a run. Thread: one.
 */
#ifndef IDENTITY_BATCH_DRAFTS_H
#define IDENTITY_BATCH_DRAFTS_H

#include "base/rng.h"
#include "identity/batch_run.h"
#include "spec/spec.h"

struct service;
struct speculate_option;

/* Which request of the pool a request of the engine is. */
typedef uint32_t batch_drafts_request_fn(void *ctx, uint64_t id);

struct batch_drafts {
    struct test_model *model;
    const struct batch_run *run;
    struct service *service;
    batch_drafts_request_fn *request_of;
    void *ctx;
    struct rng rng;
    struct draft_model inner; /* close NULL: none */
    int32_t prediction[2 * ANSWER_MAX];
};

/* For the options of the run's engine. */
struct speculate_option batch_drafts_option(const struct batch_run *run);
/* Before the first request; `d` outlives the engine. */
enum status batch_drafts_plug(struct batch_drafts *d, struct err *err);
/* What a request of the run predicts; `out` borrows it until the next call. */
enum status batch_drafts_predict(struct batch_drafts *d, uint32_t request, struct speculation *out,
                                 struct err *err);

#endif
