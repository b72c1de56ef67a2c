/* engine/request.h - a request under way: its settings, and its tokens as they are generated.
 *
 * The thread that submits allocates it, with room for all its tokens. The engine thread appends
 * tokens and publishes their number; the client reads them at its own speed. A slow client delays
 * neither the engine nor other clients, and no queue can overflow.
 *
 * Lifetime: request_create; the client and the engine each hold a reference, request_unref.
 * Thread: the client loads `ready` (acquire; the engine stores it with release) and may then read
 * tokens[0 .. ready). The comments below name the owner of every other field.
 */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"
#include "base/str.h"
#include "engine/runner.h"
#include "engine/settler.h"
#include "sample/sampler.h"
#include "sched/seq.h"
#include "spec/spec.h"

struct answer_grammar; /* engine/grammars.h */

enum { CHOICES_MAX = SAMPLE_N(SAMPLE_MOST_OF), STOP_TOKENS_MAX = 64 };

/* The settings of a request. */
struct request_spec {
    const int32_t *prompt; /* copied */
    uint32_t prompt_tokens;
    uint32_t max_tokens;
    uint32_t n; /* choices; choice i draws with seed + i */
    struct sample_params sample;
    uint32_t min_tokens;        /* of an answer; no token ends it earlier */
    bool ignore_end;            /* the model's end tokens do not end the answer */
    const int32_t *stop_tokens; /* copied; these tokens end the answer, too */
    uint32_t stop_token_count;
    bool want_logprobs;
    bool want_prompt_logprobs; /* of the prompt, too; max_tokens may be 0 then */
    /* NULL, or the logits tap: it receives the logits of every position. Such a request has one
     * choice, does not read the prefix cache and cannot have want_prompt_logprobs. Positions that
     * are computed again after a preemption are received again. */
    logits_tap_fn *on_logits;
    void *logits_ctx;
    struct answer_grammar *grammar; /* NULL, or what the answer may be; the request has its own
                                       reference (engine/grammars.h) */
    bool forces_text; /* text that the grammar forces is appended without being sampled; not with
                         log-probabilities or a logits tap */
    struct speculation speculation; /* which drafter, and how many drafts; copied */
    uint32_t tenant;
    bool has_share;         /* there are other tenants: this one must not take everything */
    bool is_batch;          /* a line of a batch job: it gets what other requests leave */
    struct str cache_salt;  /* its requests share prefixes only with those of the same salt */
    struct urgency urgency; /* expires_us relative to now; 0: never */
    bool wakes_later;       /* others follow at once, then engine_wake: one wake-up for all */
    void *user;             /* the client's own */
};

/* The limits of the model. */
struct request_bounds {
    uint32_t vocab, ctx_tokens;
    const int32_t *ends; /* the model's tokens that end an answer */
    uint32_t end_count;
    struct spec *spec; /* makes drafters; NULL: there are no drafts */
};

struct choice {
    struct request *request;
    uint32_t index;
    _Atomic unsigned ready; /* tokens, prompt included, that may be read */
    int32_t *tokens;        /* prompt, then answer */
    uint32_t prompt_tokens, total_max;
    struct token_logprob *logprobs; /* NULL: not wanted */
    struct sample_result *tops;     /* NULL: not wanted */
    struct sampler *sampler;        /* the engine thread's once submitted, but for `settling` */
    struct settle_job settling;     /* lends the sampler to another thread */
    struct spec_seq *drafter;       /* NULL: no drafts; the engine thread's once submitted */
    /* If the drafts come from the request's prediction: a bit for each token of the answer, set if
     * the token was an accepted draft. Written before `ready`. NULL: they do not. */
    _Atomic uint8_t *predicted; /* a byte is read while later bits of it are set */
    _Atomic unsigned drafted;   /* drafts that were compared with samples; written before `ready` */
    _Atomic unsigned cached_tokens; /* set before the first token, or else before the end */

    _Atomic unsigned finish; /* enum finish_reason; set after the last `ready` */

    /* The engine thread's. */
    seq_idx seq;
    bool is_live;
    struct list_link in_posted;
    /* Published with `finish`. */
    /* FINISH_STOP: the end or stop token, which is the last of `tokens`; else -1. */
    int32_t ended_by;
    uint32_t preempt_count;
    uint32_t accepted; /* of `drafted`, those that were equal */
    /* admitted: it got a slot in the batch. */
    int64_t submitted_us, admitted_us, first_token_us, finished_us;

    /* The outbox's, under its lock. */
    struct list_link in_outbox;
};

struct request {
    uint64_t id;
    uint32_t n;
    uint32_t tenant;
    bool has_share, is_batch;
    struct kv_salt salt; /* engine_submit sets it */
    struct urgency urgency;
    bool ignore_end;
    int32_t *ends; /* every token that ends a choice; NULL: none */
    uint32_t end_count;
    /* Log-probabilities of the prompt's tokens, [prompt_tokens]; entry 0 is not set. NULL: not
     * wanted. prompt_tops: the same with the most likely tokens. Complete when choice 0 has a token
     * or has ended without a failure. */
    struct token_logprob *prompt_logprobs;
    struct sample_result *prompt_tops;
    bool is_prompt_only;            /* no token of an answer is shown */
    struct answer_grammar *grammar; /* a reference; NULL: none */
    bool forces_text;
    uint32_t draft_max;      /* drafts in a step */
    bool follows_prediction; /* they come from the request's prediction */
    bool waits_for_token;    /* the next draw needs the last token: the request has a grammar or a
                             thinking budget */
    logits_tap_fn *on_logits;
    void *logits_ctx;
    void *user;
    struct err refusal;          /* why, if the finish is FINISH_REFUSED or FINISH_ERROR */
    enum status grammar_failure; /* why the grammar caused FINISH_ERROR; ST_OK: it did not */
    bool is_step_failed;         /* FINISH_ERROR: the whole step failed, not its row alone */
    _Atomic unsigned refs;

    /* The inbox's, under its lock. */
    struct list_link in_submitted, in_cancelled;
    uint32_t cancel_choices; /* a bit for each choice */
    enum finish_reason cancel_why[CHOICES_MAX];

    struct choice choices[]; /* n */
};

/* The one check of a prompt's length; the context must have room for it and one more token.
 * `is_minimum`: the text is not tokenised yet and has at least so many tokens. ST_BAD: it is empty.
 * ST_FULL: it is too long. `err` has the sentence for the client. request_create calls it, too. */
enum status request_check_prompt(uint64_t tokens, uint32_t ctx_tokens, bool is_minimum,
                                 struct err *err);

/* ST_BAD: a parameter out of its range, with the sentence. ctx_tokens caps every choice. */
enum status request_create(const struct request_spec *spec, uint64_t id,
                           const struct request_bounds *bounds, int64_t now_us,
                           struct request **out, struct err *err);
/* After its salt is known: its choices get their drafters. */
enum status request_create_drafters(struct request *r, const struct request_spec *spec,
                                    const struct request_bounds *bounds, struct err *err);
bool request_ends_at(const struct request *r, int32_t token);
void request_ref(struct request *r);
void request_unref(struct request *r); /* NULL is fine; frees at the last one */

/* What the client has not read of a choice: tokens [seen, ready). Returns the finish reason,
 * FINISH_NONE while there is more to come. */
enum finish_reason choice_poll(const struct choice *c, uint32_t *ready);

/* Whether token `i` of the answer, which is ready, was drafted from the request's prediction. */
bool choice_was_predicted(const struct choice *c, uint32_t i);

#endif
