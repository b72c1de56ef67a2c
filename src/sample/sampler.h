/* sample/sampler.h - from logits to a token, the same way every time.
 *
 * The order of work: logit_procs (penalties, bias, later grammars) say which tokens are allowed
 * and what to add to some of them; then temperature; then top-k, typical, top-p, min-p cut the
 * candidates; then one number drawn from (seed, position) chooses. The logits array is never
 * written. The random number depends only on the seed and on the absolute position of the
 * token in its sequence, never on who shares the batch. Ties go to the lower token id.
 * exp and log are base/fmath.h's, so results are the same on every machine.
 *
 * Exactly, with l the logits after the logit_procs, T the temperature, x = (l - max l) * (1 / T)
 * in float, e = exp(x) in whole 2^-39ths (base/fvec.h), so that sums of e are exact in whatever
 * order, and rank meaning larger l first, then lower id:
 *
 *   T = 0      the first in rank, and nothing below applies
 *   top-k      keep the first k in rank; then those with e > 0
 *   typical    m = the sum of e * x, in double from the lowest id to the highest, / sum e; order
 *              by |x - m| in float, which is |-log p - H| for p = e / sum e, then id; keep the
 *              shortest prefix whose e add up to typical_p * sum e
 *   top-p      the shortest prefix in rank whose e add up to top_p * sum e of what is left
 *   min-p      keep those with e >= min_p * the largest e that is left
 *   draw       the first, by id, where the running sum of e exceeds floor(r * sum e / 2^64) for
 *              64 random bits r
 *
 * A prefix holds at least one token; shares of a sum are taken in double. Numbers smaller than
 * FLT_MIN count as 0, as they do in the threads that compute.
 *
 * A sampler is what one sequence needs to remember, a few hundred bytes; what a choice needs to
 * work with is a scratch, some 42 bytes for each token of the vocabulary, one for each thread
 * that chooses.
 *
 * Lifetime: create per sequence, destroy. Thread: its owner. Memory: all taken by create; pick
 * and accept allocate nothing.
 */
#ifndef SAMPLE_SAMPLER_H
#define SAMPLE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/sampling.h"

struct sampler;        /* opaque */
struct sample_scratch; /* opaque */

enum { SAMPLE_VOCAB_MAX = 1 << 24 };
enum { LOGIT_BIAS_MAX = 1024, PENALTY_WINDOW_MAX = 131072 };

/* How many accepted tokens can be taken back. */
enum { SAMPLE_ROLLBACK_MAX = 64 };

struct logit_bias {
    int32_t token;
    float bias; /* -1e6 .. 1e6, or minus infinity: never this token; several add up */
};

struct sample_params {
    float temperature;        /* 0: the likeliest token (greedy)              0 .. 10  */
    uint32_t top_k;           /* 0: off                                                */
    float top_p;              /* 1: off                                       0 .. 1   */
    float min_p;              /* 0: off                                       0 .. 1   */
    float typical_p;          /* 1: off                                       0 .. 1   */
    float repetition_penalty; /* 1: off; divides positive, multiplies negative logits  */
    float presence_penalty;   /* 0: off                                      -2 .. 2   */
    float frequency_penalty;  /* 0: off                                      -2 .. 2   */
    int32_t penalty_window;   /* how many last tokens count; 0: none, -1: the whole context,
                                 at most PENALTY_WINDOW_MAX                            */
    uint64_t seed;
    const struct logit_bias *bias; /* borrowed during create */
    uint32_t bias_count;           /* at most LOGIT_BIAS_MAX */
    uint32_t top_logprobs;         /* at most TOP_LOGPROBS_MAX */
    bool no_logprobs;              /* pick leaves them out: 0, and no likeliest ones; they cost
                                      more than a greedy choice itself */
    bool penalty_answer_only;      /* presence and frequency count the answer's tokens only;
                                      repetition counts the prompt's as well either way */
    uint32_t min_tokens;           /* of an answer, before one of `ends` may come */
    const int32_t *ends;           /* borrowed during create */
    uint32_t end_count;
};

/* How large things can become for one sequence. */
struct sample_bounds {
    uint32_t vocab;
    uint32_t tokens_max; /* prompt and answer; no more than these are accepted */
};

struct sample_params sample_params_default(void); /* temperature 0.8, window 64, else off */

/* ST_BAD with a sentence names the field, its value and its range. */
enum status sample_params_check(const struct sample_params *p, struct err *err);

enum status sampler_create(const struct sample_params *p, const struct sample_bounds *bounds,
                           struct sampler **out, struct err *err);
void sampler_destroy(struct sampler *s); /* NULL is fine */

/* What its draws depend on beside logits, settings and position; 0 if it draws nothing. */
uint64_t sampler_seed(const struct sampler *s);

/* Tell it a token of the context (prompt tokens first, then each chosen one), for penalties. */
void sampler_accept(struct sampler *s, int32_t token);

/* The prompt is over: what is accepted from here on is the answer. */
void sampler_begin_answer(struct sampler *s);

/* Forget the last `count` accepted tokens: at most SAMPLE_ROLLBACK_MAX, and none from before
 * begin_answer, create or the last rollback. */
void sampler_rollback(struct sampler *s, uint32_t count);

/* A second sampler with the same memory, for a sequence that branches; the caller owns it. */
enum status sampler_fork(const struct sampler *s, struct sampler **out);

enum status sample_scratch_create(uint32_t vocab, struct sample_scratch **out);
void sample_scratch_destroy(struct sample_scratch *s); /* NULL is fine */

/* Choose the token for `position`, its absolute place in the sequence. A logit that is NaN
 * counts as minus infinity, plus infinity as the largest number; if nothing is allowed the
 * result is ST_BAD. The scratch, made for the same vocabulary, keeps nothing between calls. */
enum status sampler_pick(const struct sampler *s, struct sample_scratch *scratch,
                         const float *logits, uint64_t position, struct sample_result *out);

/* What the model thinks of `token` there, and the likeliest ones: sampler_pick's result for a
 * token that is given. */
void sampler_score(const struct sampler *s, struct sample_scratch *scratch, const float *logits,
                   int32_t token, struct sample_result *out);

#endif
