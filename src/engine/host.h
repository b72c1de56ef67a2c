/* engine/host.h - a model on a device: loaded, prepared, ready to run steps.
 *
 * Opens the model file, its tokenizer and its architecture, opens the device, and brings the
 * weights into the device's layout, from an image of them if one was kept
 * (engine/weight_cache.h). On top of it a *pass* is a forward pass for one purpose with its scratch
 * memory, and *kv memory* is the place where keys and values lie. Who computes what and when is
 * not known here.
 *
 * Several may share it: whoever runs, makes or frees anything on it holds it meanwhile
 * (host_lock). Those who wait get it in the order in which they came, so that nobody starves.
 *
 * Lifetime: open; make passes and KV memory; free them; close. Thread: one caller at a time,
 * unless each holds it.
 */
#ifndef ENGINE_HOST_H
#define ENGINE_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/weight_cache.h"
#include "graph/device.h"
#include "graph/kv_space.h"
#include "graph/tape.h"
#include "model/model.h"

struct host_gate;
struct model_file;
struct step;
struct tokenizer;

/* How far loading has come, 0 .. 1, with what is being done. */
typedef void load_progress_fn(void *ctx, const char *stage, double share);

struct host_options {
    uint32_t threads;      /* 0: the default of base/pool.h */
    uint32_t ctx_tokens;   /* the longest sequence; 0: what the model was made for, at most 8192 */
    const char *isa;       /* as cpu_device_open takes it; NULL: "auto" */
    const char *placement; /* are threads bound to processors: "auto", "off", "on"; NULL: "auto" */
    bool tokens_only;      /* the model may come without a tokenizer */
    struct weight_cache_options weights; /* zeroed: no cache */
    bool no_weights;               /* names and numbers only: no device, and nothing can be run */
    load_progress_fn *on_progress; /* may be NULL */
    void *progress_ctx;
};

/* Read it; change nothing. */
struct host {
    struct model_file *file;
    struct tokenizer *tokenizer; /* NULL if tokens_only */
    struct model *model;
    struct device device;
    struct weight_cache *weights; /* NULL: there is none */
    struct host_gate *gate;
    bool device_open;
    const char *bound_to; /* the threads' processors, "0-7"; the device's; NULL: not bound */
    struct err unbound;   /* why not, where it was asked for; else "" */
    uint32_t threads, ctx_tokens;
};

enum status host_open(struct host *h, const char *path, const struct host_options *options,
                      struct err *err);
void host_close(struct host *h); /* a zeroed one is fine */

void host_lock(struct host *h);
void host_unlock(struct host *h);

struct pass {
    struct tape *tape;
    uint8_t *slab; /* the device's */
};
enum status pass_create(struct host *h, enum model_goal goal, const struct tape_sizes *sizes,
                        struct pass *out, struct err *err);
void pass_destroy(struct host *h, struct pass *p); /* a zeroed one is fine */

/* Run it. The result's first row; the rows of it follow each other at *row_floats. */
const float *pass_run(struct host *h, const struct pass *p, const struct step *step,
                      const struct kv_space *kv, size_t *row_floats);

/* One space per KV group of the model, group g with block_counts[g] blocks of KV_BLOCK_TOKENS. */
struct kv_memory {
    struct kv_space spaces[KV_GROUPS_MAX];
    uint32_t group_count;
};
enum status kv_memory_create(struct host *h, enum kv_type type, const uint32_t *block_counts,
                             struct kv_memory *out, struct err *err);
void kv_memory_destroy(struct host *h, struct kv_memory *kv); /* a zeroed one is fine */

#endif
