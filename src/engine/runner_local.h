/* engine/runner_local.h - the runner that computes here: a model and its KV memory.
 *
 * A plan becomes one step of the device, or several: rows whose logits or prompt log-probabilities
 * are wanted are computed in slices of their own, and when the list of logit edits of a step is
 * full, a further step takes the other rows. As many plans may be under way as the device's depth
 * asks for.
 *
 * Thread: the engine thread; the device's threads help inside a step.
 */
#ifndef ENGINE_RUNNER_LOCAL_H
#define ENGINE_RUNNER_LOCAL_H

#include "base/status.h"
#include "engine/loaded_model.h"
#include "engine/runner.h"

struct kv_cache;

struct runner_local_options {
    struct kv_memory_options kv; /* block_counts as the cache has them */
    uint32_t seq_max;            /* sequences that may have begun and not ended */
    uint32_t row_max;            /* tokens in one step */
    uint32_t sample_max;         /* sequences in one step */
    uint32_t tokens_max;         /* the longest sequence */
    uint32_t draft_rows;         /* drafts in one step */
    uint32_t logit_rows;         /* of a request with a logits tap: tokens in one step; 0: few */
};

/* `loaded` and `kv` outlive the runner. The runner is closed with out->close(out->self). */
enum status runner_local_open(struct loaded_model *loaded, const struct kv_cache *kv,
                              const struct runner_local_options *options, struct runner *out,
                              struct err *err);

/* How much memory of the device a runner with these options takes beside its KV blocks. Opens one
 * with a single block and closes it again. The device has memory of its own. */
enum status runner_local_measure(struct loaded_model *loaded,
                                 const struct runner_local_options *options, uint64_t *bytes,
                                 struct err *err);

/* Of a runner that was opened here: the scratch memory of its forward pass. */
size_t runner_local_scratch_bytes(const struct runner *runner);

#endif
