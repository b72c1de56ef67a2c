/* sample/sampler.h - the sampling state of one sequence, and the description of its next draw.
 *
 * A sampler does not sample: the device does. A sampler holds the settings of one sequence and
 * counts the tokens that penalties need. Before a step it writes a description of what the device
 * does with the logits of one row (graph/sampling.h defines it exactly): logits to change, tokens
 * to forbid, temperature, top-k and the like, seed and position. The random number depends only on
 * the seed and on the absolute position of the token in its sequence, never on the rest of the
 * batch.
 *
 * A draw can be described before the token at the position before it is known. The description then
 * says what the device changes for that token, whichever it is ("Pending token", graph/sampling.h).
 *
 * Lifetime: create per sequence, destroy. Thread: its owner. Memory: a few hundred bytes, with
 * penalties some 30 for each token of the window, with a thinking budget one to two thousand,
 * with a grammar a bit for each token of the vocabulary, all taken by create; nothing later
 * allocates, except fork and sampler_forced. A grammar's own tables may grow.
 */
#ifndef SAMPLE_SAMPLER_H
#define SAMPLE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/sampling.h"
#include "sample/ranges.h"

struct grammar;    /* grammar/grammar.h */
struct sampler;    /* opaque */
struct tokenizer;  /* text/tokenizer.h */
struct vocabulary; /* grammar/grammar.h */

enum { LOGIT_BIAS_MAX = 1024, PENALTY_WINDOW_MAX = SAMPLE_PENALTY_WINDOW(SAMPLE_MOST_OF) };

/* How many accepted tokens can be taken back. */
enum { SAMPLE_ROLLBACK_MAX = 64 };

/* How many tokens of forced text may follow a token. */
enum { SAMPLE_FORCED_MAX = 64 };

struct logit_bias {
    int32_t token;
    float bias; /* minus infinity: never this token; several for one token add up */
};

enum { SAMPLE_CLOSING_MAX = 64 }; /* tokens of the closing text */

/* The thinking budget: a limit of the tokens of the thought, which is the first part of an answer.
 * When `budget` tokens were accepted without the closing mark, the sampler forces the closing text,
 * token by token. With a budget, a draw is never described while a token is pending. */
struct sample_thinking {
    bool has_budget; /* otherwise nothing below is used */
    bool in_thought; /* the prompt ends inside a thought */
    uint32_t budget;
    const char *open, *close;          /* the marks; they outlive the sampler */
    const struct tokenizer *tokenizer; /* outlives the sampler */
    const int32_t *closing;            /* the closing text's tokens; borrowed during create */
    uint32_t closing_count;            /* 1 to SAMPLE_CLOSING_MAX */
};

/* sample/ranges.def has the range of each number. */
struct sample_params {
    float temperature;        /* 0: always the most likely token (greedy)              */
    uint32_t top_k;           /* 0: off                                                */
    float top_p;              /* 1: off                                                */
    float min_p;              /* 0: off                                                */
    float typical_p;          /* 1: off                                                */
    float repetition_penalty; /* 1: off; divides positive, multiplies negative logits  */
    float presence_penalty;   /* 0: off                                                */
    float frequency_penalty;  /* 0: off                                                */
    int32_t penalty_window;   /* how many last tokens count; 0: none, -1: the whole context */
    uint64_t seed;
    const struct logit_bias *bias; /* borrowed during create */
    uint32_t bias_count;           /* at most LOGIT_BIAS_MAX */
    uint32_t top_logprobs;         /* at most TOP_LOGPROBS_MAX */
    bool no_logprobs;              /* draws report no log-probabilities: they
                                      cost more than a greedy choice itself */
    bool penalty_answer_only;      /* presence and frequency count the answer's tokens only;
                                      repetition counts the prompt's as well either way */
    uint32_t min_tokens;           /* of an answer, before one of `ends` may come */
    const int32_t *ends;           /* borrowed during create */
    uint32_t end_count;
    /* NULL, or what the answer may be; `ends` are then allowed only where it is complete. Both
     * outlive the sampler. A draw is never described with its token pending. */
    struct grammar *grammar;
    uint32_t
        rollback_max; /* with a grammar, how many tokens can be taken back: each costs memory */
    const struct vocabulary *vocabulary; /* of bounds.vocab tokens */
    const struct tokenizer
        *forces_with; /* whose tokens sampler_forced gives; NULL: it gives none */
    struct sample_thinking thinking;
};

/* How large things can become for one sequence. */
struct sample_bounds {
    uint32_t vocab;
    uint32_t tokens_max; /* prompt and answer; no more than these are accepted */
};

struct sample_params sample_params_default(void); /* the defaults of sample/ranges.def */

/* ST_BAD with a sentence names the field, its value and its range. */
enum status sample_params_check(const struct sample_params *p, struct err *err);

enum status sampler_create(const struct sample_params *p, const struct sample_bounds *bounds,
                           struct sampler **out, struct err *err);
void sampler_destroy(struct sampler *s); /* NULL is fine */

/* What its draws depend on beside logits, settings and position; 0 if it draws nothing. */
uint64_t sampler_seed(const struct sampler *s);

/* Add a token of the context (prompt tokens first, then each chosen one) to the penalties. */
void sampler_accept(struct sampler *s, int32_t token);

/* The prompt is over: what is accepted from here on is the answer. */
void sampler_begin_answer(struct sampler *s);

/* The work that a grammar has with the tokens that were accepted, and with the next description.
 * is_quick: only about a millisecond of work, without waiting for another thread; false:
 * some is left. It may then be done by another thread, which has the sampler to itself meanwhile.
 * Without this call the functions below do it, however long it takes. */
bool sampler_settle(struct sampler *s, bool is_quick);

/* The answer is whole, and its grammar allows no further token; false without a grammar. */
bool sampler_is_over(const struct sampler *s);

/* Why no token could be sampled, as far as the grammar is the cause. ST_FULL, ST_NOMEM,
 * ST_UNAVAILABLE: the grammar reached a limit. ST_BAD: grammar, vocabulary and biases together
 * allow no token. ST_OK: there is no grammar, or it allows some. */
enum status sampler_explain(const struct sampler *s, struct err *err);

/* Tokens of the text that must follow, because the grammar allows no other. They depend on the text
 * that was accepted and on nothing else. The caller must accept all of them, in order, before any
 * other token; or it accepts no further token at all. Returns how many; 0 without a grammar. It may
 * allocate. */
uint32_t sampler_forced(const struct sampler *s, int32_t out[SAMPLE_FORCED_MAX]);

/* Forget the last `count` accepted tokens: at most SAMPLE_ROLLBACK_MAX, with a grammar at most
 * `rollback_max`, and none from before begin_answer, create or the last rollback. */
void sampler_rollback(struct sampler *s, uint32_t count);

/* A second sampler with the same memory, for a sequence that branches; the caller owns it. */
enum status sampler_fork(const struct sampler *s, struct sampler **out);

/* The most edits that one description can have. A deny mask is (vocab + 63) / 64 words. */
uint32_t sampler_edits_max(const struct sampler *s);

/* Describe the draw for `position`, the token's absolute place in the sequence. Edits and the deny
 * mask are appended to the tables; the slot is left to the caller. ST_FULL: they do not fit, and
 * neither the tables nor `out` have changed.
 *
 * is_pending: the token at position - 1 is being sampled and not accepted yet. The device then
 * samples as if the token had been accepted before this call. out->is_pending is set only if the
 * token makes a difference (penalties). */
enum status sampler_describe(const struct sampler *s, uint64_t position, bool is_pending,
                             struct sampling_tables *tables, struct sampling *out);

/* The same without what depends on the text: no edits and no log-probabilities. For a draft model,
 * whose draw for a position is then often the one of the target. */
void sampler_describe_guess(const struct sampler *s, uint64_t position, struct sampling *out);

/* The same for a token that is given: its log-probability, and the most likely tokens. It has no
 * edits. */
void sampler_describe_score(const struct sampler *s, int32_t token, struct sampling *out);

#endif
