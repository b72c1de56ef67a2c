/* identity/crowd.h - requests that crowd together must get the answers that they get alone.
 *
 * A *ticket* is a request: prompt, sampling, seed, length. A model has a fixed pool of them, made
 * from a seed, with prompts that share prefixes, that end at and around block edges, and twins
 * that differ in one token. The *reference* of a ticket is its answer from an engine with one
 * seat that serves nobody else, takes whole prompts and keeps no prefixes. A *crowd* runs a crowd
 * of tickets through an engine with a policy and knobs of its own; every choice that comes out
 * is compared with its reference, token for token and logprob for logprob, as bits.
 *
 * Engines are stepped by hand on a clock that moves a millisecond a step, so that a crowd's number
 * is all that is needed to repeat it; but where it has a time target for steps, or leaves the
 * choice between swapping and recomputing to the cost model, it follows measured times.
 *
 * Lifetime: line_open, any number of crowds, line_close. Thread: one.
 */
#ifndef IDENTITY_CROWD_H
#define IDENTITY_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/request.h"
#include "sched/knobs.h"
#include "sched/policy.h"

enum { TICKETS = 26, CHOICES = 4, KV_TYPES = 3, ANSWER_MAX = 72 };

/* Answers of one choice. */
struct answer_bits {
    uint32_t count;
    int32_t tokens[ANSWER_MAX];
    struct token_logprob logprobs[ANSWER_MAX];
    bool is_known;
};

struct ticket {
    int32_t *prompt;
    uint32_t prompt_tokens, max_tokens;
    struct sample_params sample;
};

/* A model with its tickets and their references. */
struct line {
    char path[4096];
    const char *name;
    const char *device; /* where crowds name none: $JITNEY_RIDES_DEVICE, or "cpu" */
    uint32_t vocab, ctx_tokens;
    struct ticket tickets[TICKETS];
    struct alone *alone[KV_TYPES];  /* who makes references; NULL: not yet */
    struct answer_bits *references; /* [KV_TYPES][TICKETS][CHOICES], made when first asked for */
};

/* A real model gets shorter tickets: it is slower. */
enum status line_open(struct line *l, const char *name, const char *path, bool is_real,
                      struct err *err);
void line_close(struct line *l);

struct crowd {
    uint32_t number; /* draws everything below */
    const struct sched_policy *policy;
    struct knobs knobs;
    const char *device;  /* NULL: the line's */
    uint32_t crowd;      /* tickets aboard */
    uint32_t ticket_end; /* of the pool, only those below this */
};
struct crowd crowd_draw(const struct line *l, uint32_t number);

/* What happened in crowds, so that a suite can tell that it tested what it means to. */
struct coverage {
    uint32_t pairs, pairs_by_policy[16];
    uint32_t cancelled, forked, cached, cached_midway, preempted, swapped, recomputed;
    uint32_t chunked, threads_1, threads_2, greedy, sampled, crowded, uncached;
    uint32_t block_sizes[3]; /* 16, 32, 64 */
};

/* Run it and compare. ST_BAD with a sentence: some answer differs, or something else is wrong. */
enum status crowd_check(struct line *l, const struct crowd *r, struct coverage *seen,
                        struct err *err);

/* The reference of a choice; NULL with the sentence if it cannot be made. */
const struct answer_bits *line_reference(struct line *l, uint32_t kv_type, uint32_t ticket,
                                         uint32_t choice, struct err *err);

#endif
