/* engine/solo.h - one model, one sequence at a time, every logit in reach.
 *
 * For what a server does not do: perplexity, embeddings from the command line, the hash of all
 * logits, a talk at a terminal. Runs a request from its prompt to its last token on the caller's
 * thread and keeps the KV cache for the next one. Its numbers are the same bits as the engine's
 * (engine/engine.h), which serves many at once.
 *
 * Lifetime: open, use, close. Thread: one caller at a time; solo_stop from anywhere, also
 * from a signal handler.
 */
#ifndef ENGINE_SOLO_H
#define ENGINE_SOLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "engine/host.h"
#include "engine/text_output.h"
#include "sample/sampler.h"
#include "sched/seq.h"

struct solo; /* opaque */
struct tokenizer;

struct solo_options {
    uint32_t threads;      /* 0: the default of base/pool.h               */
    uint32_t ctx_tokens;   /* 0: what the model was made for, at most 8192 */
    uint32_t chunk_tokens; /* rows computed at once; 0: 256               */
    enum kv_type kv_type;
    const char *device, *isa;            /* as in struct host_options */
    struct weight_cache_options weights; /* zeroed: no cache */
    bool tokens_only; /* the model may come without a tokenizer; no text, no generate */
    load_progress_fn *on_progress;
    void *progress_ctx;
};

enum status solo_open(const char *path, const struct solo_options *options, struct solo **out,
                      struct err *err);
void solo_close(struct solo *e); /* NULL is fine */

struct model_file *solo_file(const struct solo *e);
const struct tokenizer *solo_tokenizer(const struct solo *e); /* NULL if tokens_only */
const struct model *solo_model(const struct solo *e);
const struct tape *solo_tape(const struct solo *e);
uint32_t solo_vocab(const struct solo *e); /* columns of a row of logits */
uint32_t solo_ctx_tokens(const struct solo *e);
const char *solo_isa(const struct solo *e); /* the path chosen: "avx2" */
uint32_t solo_threads(const struct solo *e);
struct weight_cache *solo_weights(const struct solo *e); /* NULL: there is no cache */
bool solo_is_encoder(const struct solo *e);              /* gives embeddings, does not generate */

/* Logits of every position of `ids`, in order, through the callback, in rows of `vocab`. The
 * KV cache starts empty. ST_BAD when the ids do not fit the context (both numbers are said) or
 * an id is outside the vocabulary. */
typedef enum status logits_fn(void *ctx, uint32_t first_pos, uint32_t row_count,
                              const float *logits);
enum status solo_logits(struct solo *e, const int32_t *ids, uint32_t count, logits_fn *fn,
                        void *ctx, struct err *err);

/* The embedding of one text: pooled and scaled as the model's files say. */
uint32_t solo_embed_dims(const struct solo *e);
/* How many tokens of a text can be embedded. An encoder cuts longer texts there, keeping their
 * last token (its end mark), as the packages that such models come from do; a decoder refuses
 * them. */
uint32_t solo_embed_tokens_max(const struct solo *e);
enum status solo_embed(struct solo *e, const int32_t *ids, uint32_t count, float *out,
                       struct err *err);

struct gen_request {
    const int32_t *prompt; /* borrowed until generate returns */
    uint32_t prompt_tokens;
    uint32_t max_tokens;
    struct sample_params sample;
    struct str stops[STOP_STRINGS_MAX]; /* the text ends before the first of these */
    uint32_t stop_count;
    bool ignore_end;   /* go on past end tokens */
    bool keep_special; /* show special tokens in the text */
    bool all_logits;   /* call on_logits for every position of prompt and answer */
    logits_fn *on_logits;
    void *logits_ctx;
};

/* One per generated token (and one last without a token if the end comes otherwise). */
struct gen_event {
    int32_t token;   /* -1: none */
    struct str text; /* may be empty: half a character, or a stop string's beginning is
                            held back; valid during the call */
    const struct sample_result *sample; /* NULL without a token */
    enum finish_reason finish;
};
/* Return false to stop: the finish reason of the answer is then FINISH_CANCELLED. */
typedef bool gen_event_fn(void *ctx, const struct gen_event *event);

struct gen_usage {
    uint32_t prompt_tokens, completion_tokens;
    uint32_t cached_tokens; /* prompt tokens whose KV was still there from the last request */
    int64_t prompt_us, decode_us;
    enum finish_reason finish;
};

enum status solo_generate(struct solo *e, const struct gen_request *req, gen_event_fn *fn,
                          void *ctx, struct gen_usage *usage, struct err *err);

/* Ask the running solo_generate to end soon. Async-signal-safe. */
void solo_stop(struct solo *e);

#endif
