/* identity/batch_run.h - requests in one batch get the answers that they get alone.
 *
 * A *test request* is prompt, sampling, seed, length. A model has a fixed pool of them, made from a
 * seed, with prompts that share prefixes, that end at and around block edges, and pairs that differ
 * in one token; one in three has a grammar. The *reference* of a request is its answer from an
 * engine with one slot in the batch that has no other request, takes whole prompts and keeps no
 * prefixes. A *batch run* sends many requests through an engine with a policy and knobs of its own;
 * every choice that comes out is compared with its reference, token for token and logprob for
 * logprob, as bits.
 *
 * Engines are stepped by hand on a clock that moves a millisecond a step, so that a run's number
 * is all that is needed to repeat it; but where it has a time target for steps, or leaves the
 * choice between swapping and recomputing to the cost model, it follows measured times.
 *
 * Lifetime: test_model_open, any number of runs, test_model_close. Thread: one.
 */
#ifndef IDENTITY_BATCH_RUN_H
#define IDENTITY_BATCH_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/request.h"
#include "sched/knobs.h"
#include "sched/policy.h"

enum { REQUESTS = 26, CHOICES = 4, KV_TYPES = 5, ANSWER_MAX = 72 };

/* Answers of one choice. */
struct answer_bits {
    uint32_t count;
    int32_t tokens[ANSWER_MAX];
    struct token_logprob logprobs[ANSWER_MAX];
    bool is_known;
};

struct test_request {
    int32_t *prompt;
    uint32_t prompt_tokens, max_tokens;
    struct sample_params sample;
    struct answer_grammar *grammar; /* NULL: any text */
};

/* A model with its requests and their references. */
struct test_model {
    char path[4096];
    const char *name;
    const char *device; /* where a run names no device: $JITNEY_RIDES_DEVICE, or "cpu" */
    uint32_t vocab, ctx_tokens;
    struct test_request requests[REQUESTS];
    struct made_tokens *tokens;     /* that grammars read: the models have no tokenizer */
    struct alone *alone[KV_TYPES];  /* who makes references; NULL: not yet */
    struct answer_bits *references; /* [KV_TYPES][REQUESTS][CHOICES], made when first asked for */
};

/* A real model gets shorter requests: it is slower. */
enum status test_model_open(struct test_model *l, const char *name, const char *path, bool is_real,
                            struct err *err);
void test_model_close(struct test_model *l);

struct batch_run {
    uint32_t number; /* draws everything below */
    const struct sched_policy *policy;
    struct knobs knobs;
    const char *device; /* NULL: the model's */
    uint32_t request_count;
    uint32_t request_end; /* of the pool, only those below this */
    struct speculate_option speculate;
};
struct batch_run batch_run_draw(const struct test_model *l, uint32_t number);

/* What happened in the runs, so that a suite can check that it tested what it is about. */
struct coverage {
    uint32_t pairs, pairs_by_policy[16];
    uint32_t cancelled, forked, cached, cached_midway, preempted, swapped, recomputed;
    uint32_t chunked, threads_1, threads_2, greedy, sampled, batched, uncached;
    uint32_t guided, guided_preempted; /* with a grammar */
    uint32_t lines, lines_preempted;   /* batch lines (request_spec.is_batch) */
    uint32_t block_sizes[3];           /* 16, 32, 64 */
    /* Drafts; choices with accepted ones, of these preempted ones and ones with a grammar. */
    uint64_t drafted, accepted;
    uint32_t speculated, speculated_preempted, speculated_guided, speculated_sampled;
};

/* Run it and compare. ST_BAD with a sentence: some answer differs, or something else is wrong. */
enum status batch_run_check(struct test_model *l, const struct batch_run *r, struct coverage *seen,
                            struct err *err);

/* The reference of a choice; NULL with the sentence if it cannot be made. */
const struct answer_bits *test_model_reference(struct test_model *l, uint32_t kv_type,
                                               uint32_t request, uint32_t choice, struct err *err);

#endif
