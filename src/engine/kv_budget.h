/* engine/kv_budget.h - how much memory of a device the KV cache may take.
 *
 * A device with memory of its own (a GPU) says how much of it is free. The engine may use a share
 * of that. Weights and the scratch memory of the largest step are subtracted, and a reserve for
 * what the driver allocates later (kernels at their first launch, graphs); the rest is for KV
 * blocks. All of it is taken at load, so a server that is ready does not run out of it.
 *
 * Thread: pure.
 */
#ifndef ENGINE_KV_BUDGET_H
#define ENGINE_KV_BUDGET_H

#include <stdint.h>

#include "base/status.h"

static const double KV_BUDGET_SHARE_DEFAULT = 0.9;
static const uint64_t KV_BUDGET_RESERVE_BYTES = (uint64_t)256 << 20;

struct kv_budget {
    const char *device;               /* its name, for the message */
    uint64_t total_bytes, free_bytes; /* of the device; free before the weights were loaded */
    double share;                     /* of free_bytes; 0: KV_BUDGET_SHARE_DEFAULT */
    uint64_t weight_bytes;            /* taken since then */
    uint64_t scratch_bytes;           /* of the largest step */
    uint64_t least_bytes;             /* what one sequence of the whole context takes */
    uint32_t ctx_tokens;              /* of that sequence, for the message */
};

/* ST_NOMEM: less is left than one sequence takes; `err` has all the numbers. */
enum status kv_budget_bytes(const struct kv_budget *b, uint64_t *out, struct err *err);

#endif
