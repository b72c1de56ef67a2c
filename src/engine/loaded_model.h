/* engine/loaded_model.h - a model on a device: loaded, prepared, ready to run steps.
 *
 * Opens the model file, its tokenizer and its architecture, opens the device, and brings the
 * weights into the device's layout, from an image of them if one was kept
 * (engine/weight_cache.h). A *pass* is a forward pass for one purpose with its scratch memory; *KV
 * memory* holds keys and values. What is computed and when is decided by the callers.
 *
 * Several threads may share one. A thread locks it (loaded_model_lock) while it submits a step or
 * creates or frees anything on it; collecting a result needs no lock. The lock is fair: threads
 * get it in the order of their calls.
 *
 * Lifetime: open; create passes and KV memory; free them; close. Thread: one caller at a time,
 * unless every caller holds the lock.
 */
#ifndef ENGINE_LOADED_MODEL_H
#define ENGINE_LOADED_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/weight_cache.h"
#include "graph/device.h"
#include "graph/kv_space.h"
#include "graph/tape.h"
#include "model/model.h"

struct loaded_model_mutex;
struct model_file;
struct step;
struct tokenizer;

/* How far loading has come, 0 .. 1, with what is being done. */
typedef void load_progress_fn(void *ctx, const char *stage, double share);

struct loaded_model_options {
    uint32_t threads;    /* 0: the default of base/pool.h */
    uint32_t ctx_tokens; /* the longest sequence; 0: what the model was made for, at most 8192 */
    const char *device;  /* these three as in kernels/devices.h; NULL: "auto" */
    const char *isa;
    const char *placement;
    bool fp8_weights;                    /* likewise */
    bool tokens_only;                    /* the model may come without a tokenizer */
    struct weight_cache_options weights; /* zeroed: no cache */
    uint32_t block_tokens; /* of the KV cache to come, checked before loading; 0: none */
    enum kv_type kv_type;
    const struct device *beside;   /* as in graph/device_kind.h; NULL: none */
    const struct model *head_of;   /* as in struct model_options; NULL: a model of its own */
    bool no_weights;               /* names and numbers only: nothing can be run */
    load_progress_fn *on_progress; /* may be NULL */
    void *progress_ctx;
};

/* Read it; change nothing. */
struct loaded_model {
    struct model_file *file;
    struct tokenizer *tokenizer; /* NULL if tokens_only */
    struct model *model;
    struct device device;
    struct weight_cache *weights; /* NULL: no cache */
    struct key_statistics *keys;  /* of KV_I4; NULL: none */
    struct loaded_model_mutex *mutex;
    struct device_memory memory; /* of the device before the weights; zeroed if it has none */
    bool device_open, has_weights;
    bool reads_file; /* weights that the device reads from the mapped file as it computes */
    uint32_t threads, ctx_tokens;
};

enum status loaded_model_open(struct loaded_model *loaded, const char *path,
                              const struct loaded_model_options *options, struct err *err);
void loaded_model_close(struct loaded_model *loaded); /* a zeroed one is fine */

/* ST_IO: bytes of the model's files were missing when they were read, or its cached weights are
 * damaged; the model cannot be used any more. */
enum status loaded_model_check(const struct loaded_model *loaded, struct err *err);

void loaded_model_lock(struct loaded_model *loaded);
void loaded_model_unlock(struct loaded_model *loaded);

/* One space per KV group of the model. */
struct kv_memory {
    struct kv_space spaces[KV_GROUPS_MAX];
    uint32_t group_count;
};
struct kv_memory_options {
    enum kv_type type;
    uint32_t block_tokens;                /* a multiple of the device's kv_block_tokens */
    uint32_t block_counts[KV_GROUPS_MAX]; /* by group */
    uint32_t spill_slots;                 /* by group; 0: none */
    const char *spill_dir;                /* engine/spill.h */
};
/* ST_BAD: the device has no such format. */
enum status kv_memory_create(struct loaded_model *loaded, const struct kv_memory_options *options,
                             struct kv_memory *out, struct err *err);
void kv_memory_destroy(struct loaded_model *loaded,
                       struct kv_memory *kv); /* a zeroed one is fine */

/* Bytes of one block of a KV group, all layers of it; 0: the device has no such format. */
size_t loaded_model_kv_block_bytes(struct loaded_model *loaded, enum kv_type type,
                                   uint32_t block_tokens, uint32_t group);

/* A forward pass on the device. `sizes` says how large steps are; rows_max, outputs_max and
 * seqs_max are the tape's too. */
struct pass {
    struct tape *tape;
    struct device_program *program;
};
struct pass_options {
    enum model_goal goal;
    struct step_sizes sizes;
    const struct kv_memory *kv; /* NULL for an encoder */
    uint32_t slot_count;        /* as in struct program_options */
};
enum status pass_create(struct loaded_model *loaded, const struct pass_options *options,
                        struct pass *out, struct err *err);
void pass_destroy(struct loaded_model *loaded, struct pass *p); /* a zeroed one is fine */

/* Wait for the oldest step of a program. ST_IO: the model's file was cut while the device read from
 * it, so nothing that it computed can be used. */
enum status pass_collect(struct loaded_model *loaded, const struct pass *p,
                         struct device_result *out, struct err *err);

/* Run one step to its end. Locks the model while it submits. */
enum status pass_run(struct loaded_model *loaded, const struct pass *p, const struct step *step,
                     struct device_result *out, struct err *err);

#endif
