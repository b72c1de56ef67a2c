/* engine/service.h - a model file as a running engine: model, scheduler, KV memory and runner.
 *
 * service_open opens the model, works out how many KV blocks fit the given memory, creates the
 * engine and plugs in a runner: the one that computes in this process, or a simulated one, for
 * measuring and testing everything but the model.
 *
 *     service_open -> engine_submit, engine_next ... on s.engine -> service_close
 *
 * Lifetime: the caller's storage, which must not move; open, close. A process may have several.
 * Thread: open and close from one thread; the engine's own rules in between.
 */
#ifndef ENGINE_SERVICE_H
#define ENGINE_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/draft_model.h"
#include "engine/engine.h"
#include "engine/grammars.h"
#include "engine/loaded_model.h"
#include "sched/knobs.h"
#include "sched/policy.h"

struct service_options {
    const struct sched_policy *policy; /* NULL: the first of the list */
    struct knobs knobs;                /* kv_blocks 0: as many as kv_bytes hold */
    uint64_t kv_bytes;   /* 0: a GiB, on a device with memory of its own what memory_share leaves,
                            or what max_seqs whole contexts can use if that is less */
    double memory_share; /* of a device that has memory of its own; 0: as in engine/kv_budget.h.
                            Without kv_bytes, what this share leaves is the KV cache */
    uint32_t ctx_tokens; /* as in struct loaded_model_options */
    /* For a program that runs one request at a time: KV memory is that of one sequence, whatever
     * it takes, and knobs.max_seqs is 1. A sequence may then have ctx_tokens in the KV cache and
     * one sampled token after them, which is never computed. */
    bool is_single;
    uint32_t logit_rows;                  /* as in struct runner_local_options */
    const char *device, *isa, *placement; /* as in struct loaded_model_options */
    bool fp8_weights;                     /* likewise */
    struct weight_cache_options weights;  /* as in struct loaded_model_options */
    const char *spill_dir;                /* where swapped blocks go; NULL: /tmp */
    struct speculate_option speculate;    /* of requests that do not choose a drafter; with a path,
                                             that draft model is loaded (engine/draft_model.h) */
    uint32_t draft_lanes;                 /* as in struct draft_model_options */
    uint64_t draft_bytes;                 /* memory of the draft model; 0: what is free */
    size_t record_bytes;                  /* of the step records; 0: a MiB */
    bool tokens_only;          /* the model may come without a tokenizer; no token ends an answer */
    const struct clock *clock; /* NULL: the real one */
    int64_t grammar_us;        /* compiling a grammar takes no longer; 0: as in grammar/grammar.h */
    size_t grammar_bytes;      /* a grammar takes no more; 0: the same */
    size_t grammar_memory;     /* all grammars in use; 0: as in grammar/grammar_cache.h */
    const struct cache_secret *secret; /* of the prefix cache; NULL: a random one */
    bool is_sim;             /* no weights are read and nothing is computed: engine/runner_sim.h
                                answers with ordinary words of the model's vocabulary, up to
                                max_tokens */
    int64_t sim_step_us;     /* a pause in every step; 0: none */
    uint64_t sim_hang_after; /* this step never returns; 0: all return */
    uint64_t sim_fail_after; /* this step and all later ones fail; 0: none fails */
    uint64_t sim_nan_at;     /* the first row of this step is not numbers; 0: of none */
    load_progress_fn *on_progress; /* may be NULL */
    void *progress_ctx;
};

/* What the engine has set aside. KV memory is real once it is written; a simulated engine has
 * none and counts it all the same. */
struct service_memory {
    uint64_t block_bytes[KV_GROUPS_MAX]; /* of one block of each group, all layers of it */
    uint64_t kv_bytes, prefix_bytes;     /* of kv_blocks and of prefix_blocks, all groups */
    uint64_t scratch_bytes;              /* what a step's rows and logits take at most */
    struct draft_model_memory draft;     /* zeroed: there is no draft model */
};

/* Read it; change nothing. */
struct service {
    struct loaded_model loaded;
    struct draft_model draft; /* close NULL: none; the engine's once there is one */
    struct engine *engine;
    struct grammars *grammars; /* NULL: its answers cannot have one (no tokenizer, or simulated) */
    uint32_t total_max; /* tokens of the longest sequence: ctx_tokens; one more with is_single */
    struct knobs knobs; /* as in force: kv_blocks, prefix_blocks and threads are filled in */
    struct service_memory memory;
};

/* The engine is made and plugged, not started. ST_BAD names what cannot be: a knob that the
 * device does not support, an encoder. */
enum status service_open(struct service *s, const char *path, const struct service_options *options,
                         struct err *err);
void service_close(struct service *s); /* stops it first; a zeroed one is fine */

#endif
