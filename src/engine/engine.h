/* engine/engine.h - one model, ready to answer.
 *
 * Opens a model file, binds it to a device, owns its KV cache, and runs requests on it. A
 * request goes in as tokens and comes out as a row of events, each with one token and the text
 * that it completed; the last one carries the reason for the end. Several engines may live in
 * one process; there are no statics.
 *
 * Lifetime: open, use, close. Thread: one caller at a time; engine_stop from anywhere, also
 * from a signal handler.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "graph/kv_space.h"
#include "sample/sampler.h"

struct engine; /* opaque */
struct model;
struct model_file;
struct tape;
struct tokenizer;

/* How far loading has come, 0 .. 1, with what is being done. May be NULL. */
typedef void load_progress_fn(void *ctx, const char *stage, double share);

struct engine_options {
    uint32_t threads;      /* 0: as many as the process may use           */
    uint32_t ctx_tokens;   /* 0: what the model was made for, at most 8192 */
    uint32_t chunk_tokens; /* rows computed at once; 0: 256               */
    enum kv_type kv_type;
    const char *isa;  /* "auto", "avx2", "portable", "ref"; NULL: auto */
    bool tokens_only; /* the model may come without a tokenizer; no text, no generate */
    load_progress_fn *on_progress;
    void *progress_ctx;
};

enum status engine_open(const char *path, const struct engine_options *options, struct engine **out,
                        struct err *err);
void engine_close(struct engine *e); /* NULL is fine */

struct model_file *engine_file(const struct engine *e);
const struct tokenizer *engine_tokenizer(const struct engine *e); /* NULL if tokens_only */
const struct model *engine_model(const struct engine *e);
const struct tape *engine_tape(const struct engine *e);
uint32_t engine_vocab(const struct engine *e); /* columns of a row of logits */
uint32_t engine_ctx_tokens(const struct engine *e);
const char *engine_isa(const struct engine *e); /* the path chosen: "avx2" */
uint32_t engine_threads(const struct engine *e);
bool engine_is_encoder(const struct engine *e); /* gives embeddings, does not generate */

/* Logits of every position of `ids`, in order, through the callback, in rows of `vocab`. The
 * KV cache starts empty. ST_BAD when the ids do not fit the context (both numbers are said) or
 * an id is outside the vocabulary. */
typedef enum status logits_fn(void *ctx, uint32_t first_pos, uint32_t row_count,
                              const float *logits);
enum status engine_logits(struct engine *e, const int32_t *ids, uint32_t count, logits_fn *fn,
                          void *ctx, struct err *err);

/* The embedding of one text: pooled and scaled as the model's files say. */
uint32_t engine_embed_dims(const struct engine *e);
enum status engine_embed(struct engine *e, const int32_t *ids, uint32_t count, float *out,
                         struct err *err);

enum finish_reason {
    FINISH_NONE,   /* there is more to come */
    FINISH_STOP,   /* an end token or a stop string */
    FINISH_LENGTH, /* max_tokens, or the context is full */
    FINISH_CANCEL, /* engine_stop */
};
const char *finish_name(enum finish_reason r); /* "stop", "length", "cancel" */

enum { STOP_STRINGS_MAX = 16, STOP_STRING_BYTES_MAX = 256 };

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
/* Return false to stop: the finish reason of the answer is then FINISH_CANCEL. */
typedef bool gen_event_fn(void *ctx, const struct gen_event *event);

struct gen_usage {
    uint32_t prompt_tokens, completion_tokens;
    uint32_t cached_tokens; /* prompt tokens whose KV was still there from the last request */
    int64_t prompt_us, decode_us;
    enum finish_reason finish;
};

enum status engine_generate(struct engine *e, const struct gen_request *req, gen_event_fn *fn,
                            void *ctx, struct gen_usage *usage, struct err *err);

/* Ask the running engine_generate to end soon. Async-signal-safe. */
void engine_stop(struct engine *e);

#endif
