/* engine/embedder.h - embeddings: tokens of texts in, vectors out, in batches.
 *
 * The embedder's thread puts waiting jobs into one forward pass (dynamic batching: as many as fit
 * batch_tokens, waiting at most window_us for more) and pools each as the model's files say. It
 * works on an encoder and, beside a serving engine, on a decoder. A vector does not depend on the
 * other jobs in its batch.
 *
 * Lifetime: open on a loaded model that outlives it; close after the last job was taken. Thread:
 * submit and next from anywhere; `hook` is called on the embedder's thread.
 */
#ifndef ENGINE_EMBEDDER_H
#define ENGINE_EMBEDDER_H

#include <stdint.h>

#include "base/status.h"
#include "engine/loaded_model.h"

struct embedder; /* opaque */

struct embedder_options {
    uint32_t batch_tokens; /* 0: 2048 */
    int64_t window_us;     /* how long a batch waits for more jobs; 0: not at all */
    uint32_t queue_max;    /* jobs; 0: 4096 */
    enum kv_type kv_type;  /* of a decoder's KV cache */
};

/* The caller's memory; the embedder uses it until embedder_next returns it. */
struct embed_job {
    const int32_t *ids;
    uint32_t count;
    float *out; /* embedder_dims floats */
    void *user;
    enum status status; /* of the job, when it is done */
    struct err err;
    struct embed_job *next; /* the embedder's */
};

/* ST_BAD: a model without weights. */
enum status embedder_open(struct embedder **out, struct loaded_model *loaded,
                          const struct embedder_options *options, struct err *err);
void embedder_close(struct embedder *e); /* NULL is fine; jobs left end with ST_CANCELLED */

uint32_t embedder_dims(const struct embedder *e);
uint32_t embedder_tokens_max(const struct embedder *e); /* of one text */

/* ST_FULL: the queue is full; ST_BAD: the job is not possible; `err` has the numbers. */
enum status embedder_submit(struct embedder *e, struct embed_job *job, struct err *err);
/* Submit a job and wait until it is done, on a thread that has no other job here. */
enum status embedder_run(struct embedder *e, struct embed_job *job, struct err *err);
/* How many more jobs may wait, and how long those that do will take, by what passes took so far. */
struct embedder_queue {
    uint32_t room;
    int64_t wait_us; /* 0: not known yet, or none waits */
};
struct embedder_queue embedder_queue(struct embedder *e);
/* A job that is done, or NULL. */
struct embed_job *embedder_next(struct embedder *e);
/* How long the pass under way has taken, waiting for the model not counted; 0: none is under way.
 * Takes no lock. */
int64_t embedder_stalled_us(const struct embedder *e);
typedef void embedder_hook(void *ctx);
void embedder_set_hook(struct embedder *e, embedder_hook *hook, void *ctx);

#endif
