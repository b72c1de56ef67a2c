/* engine/embedder.h - embeddings: tokens of texts in, vectors out, in batches.
 *
 * The embedder's thread puts waiting texts into one forward pass (dynamic batching: as many as fit
 * batch_tokens, waiting at most window_us for more) and pools each as the model's files say. It
 * works on an encoder and, beside a serving engine, on a decoder: a pass is then like a step of the
 * engine, and the two take turns. A vector does not depend on the other texts in its batch.
 *
 * Tenants take turns, too (engine/embed_queue.h). A decoder's text that is longer than a pass takes
 * several, between which shorter texts of other tenants are computed. Texts can be cancelled and
 * expire; the pass that computes one is completed.
 *
 * Lifetime: open on a loaded model that outlives it; close after the last job was taken. Thread:
 * all functions from anywhere; `hook` is called on the embedder's thread, or by embedder_cancel.
 */
#ifndef ENGINE_EMBEDDER_H
#define ENGINE_EMBEDDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/embed_queue.h"
#include "engine/loaded_model.h"

struct embedder; /* opaque */

struct embedder_options {
    uint32_t batch_tokens; /* 0: 2048 */
    int64_t window_us;     /* how long a batch waits for more jobs; 0: not at all */
    uint32_t queue_max;    /* texts; 0: 4096 */
    uint32_t queue_least;  /* that every tenant may submit while the queue has room; 0: none */
    bool has_tenants;      /* no tenant may fill the queue alone */
    enum kv_type kv_type;  /* of a decoder's KV cache */
};

/* ST_BAD: a model without weights. */
enum status embedder_open(struct embedder **out, struct loaded_model *loaded,
                          const struct embedder_options *options, struct err *err);
void embedder_close(struct embedder *e); /* NULL is fine; jobs left end with ST_CANCELLED */

uint32_t embedder_dims(const struct embedder *e);
uint32_t embedder_tokens_max(const struct embedder *e); /* of one text */

/* All texts, which are of one tenant, or none. ST_FULL: more than the tenant may submit now;
 * ST_BAD: a text is not possible; `err` has the numbers. */
enum status embedder_submit(struct embedder *e, struct embed_job *jobs, uint32_t count,
                            struct err *err);
/* Drop the waiting texts of `user`: embedder_next returns them with ST_CANCELLED. */
void embedder_cancel(struct embedder *e, const void *user);
/* Submit a text and wait until it is done, on a thread that has no other text here. */
enum status embedder_run(struct embedder *e, struct embed_job *job, struct err *err);
/* How many more texts a tenant may submit, and how long those of it that wait will take, by what
 * passes took so far and with the turns of the others. */
struct embedder_queue {
    uint64_t room;
    int64_t wait_us; /* 0: not known yet, or none waits */
};
struct embedder_queue embedder_queue(struct embedder *e, uint32_t tenant);
/* A job that is done, or NULL. */
struct embed_job *embedder_next(struct embedder *e);
/* How long the pass under way has taken, waiting for the model not counted; 0: none is under way.
 * Takes no lock. */
int64_t embedder_stalled_us(const struct embedder *e);
typedef void embedder_hook(void *ctx);
void embedder_set_hook(struct embedder *e, embedder_hook *hook, void *ctx);

#endif
