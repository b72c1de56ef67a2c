/* engine/runner_local.h - the runner that computes here: a host, KV memory, a spill store.
 *
 * Thread: the engine thread; the device's threads help inside a step.
 */
#ifndef ENGINE_RUNNER_LOCAL_H
#define ENGINE_RUNNER_LOCAL_H

#include "base/status.h"
#include "engine/host.h"
#include "engine/runner.h"

struct kv_cache;

struct runner_local_options {
    enum kv_type kv_type;
    uint32_t block_tokens;                /* a multiple of KV_BLOCK_TOKENS */
    uint32_t block_counts[KV_GROUPS_MAX]; /* of the cache, by group */
    uint32_t spill_slots;
    const char *spill_dir;
    uint32_t seq_max;    /* sequences that may have begun and not ended */
    uint32_t row_max;    /* tokens in one step */
    uint32_t sample_max; /* sequences in one step */
    uint32_t tokens_max; /* the longest sequence */
};

/* `host` and `kv` outlive the runner. The runner is closed with out->close(out->self). */
enum status runner_local_open(struct host *host, const struct kv_cache *kv,
                              const struct runner_local_options *options, struct runner *out,
                              struct err *err);

/* Of a runner that was opened here: the slab of its forward pass. */
size_t runner_local_scratch_bytes(const struct runner *runner);

#endif
