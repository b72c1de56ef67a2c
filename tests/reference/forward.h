/* reference/forward.h - one sequence through a model in the plainest way: logits or embedding.
 *
 * No scheduler, no batch, no sampling. Tests compare the engine and the embedder with it: the bits
 * must be the same.
 *
 * Lifetime: open, use, close. Thread: one caller at a time.
 */
#ifndef REFERENCE_FORWARD_H
#define REFERENCE_FORWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/loaded_model.h"

struct forward; /* opaque */

struct forward_options {
    uint32_t threads;      /* 0: the default of base/pool.h               */
    uint32_t ctx_tokens;   /* 0: what the model was made for, at most 8192 */
    uint32_t chunk_tokens; /* rows computed at once; 0: 256               */
    enum kv_type kv_type;
    const char *device, *isa;            /* as in struct loaded_model_options */
    bool fp8_weights;                    /* likewise */
    struct weight_cache_options weights; /* zeroed: no cache */
    bool tokens_only;                    /* the model may come without a tokenizer */
};

enum status forward_open(const char *path, const struct forward_options *options,
                         struct forward **out, struct err *err);
void forward_close(struct forward *e); /* NULL is fine */

struct loaded_model *forward_loaded(struct forward *e);
uint32_t forward_vocab(const struct forward *e); /* columns of a row of logits */
bool forward_is_encoder(const struct forward *e);

/* Logits of every position of `ids`, in order, through the callback, in rows of `vocab`. The
 * KV cache starts empty. ST_BAD: the ids do not fit the context, or an
 * id is outside the vocabulary. */
typedef enum status logits_fn(void *ctx, uint32_t first_pos, uint32_t row_count,
                              const float *logits);
enum status forward_logits(struct forward *e, const int32_t *ids, uint32_t count, logits_fn *fn,
                           void *ctx, struct err *err);

/* The embedding of one text: pooled and scaled as the model's files say. */
uint32_t forward_embed_dims(const struct forward *e);
/* How many tokens of a text can be embedded. An encoder cuts longer texts there, keeping their
 * last token (its end mark), as the packages that such models come from do; a decoder refuses
 * them. */
uint32_t forward_embed_tokens_max(const struct forward *e);
enum status forward_embed(struct forward *e, const int32_t *ids, uint32_t count, float *out,
                          struct err *err);

#endif
