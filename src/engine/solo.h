/* engine/solo.h - one sequence through a model in the plainest way: all logits, or its embedding.
 *
 * No scheduler, no batch, no sampling. Tests compare the engine and the embedder with it: the bits
 * must be the same.
 *
 * Lifetime: open, use, close. Thread: one caller at a time.
 */
#ifndef ENGINE_SOLO_H
#define ENGINE_SOLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/host.h"

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

#endif
