/* engine/kv_budget.c - see engine/kv_budget.h for the contract. */
#include "engine/kv_budget.h"

static unsigned long long mib(uint64_t bytes) { return (unsigned long long)(bytes >> 20); }

enum status kv_budget_bytes(const struct kv_budget *b, uint64_t *out, struct err *err) {
    double share = b->share > 0 ? b->share : KV_BUDGET_SHARE_DEFAULT;
    uint64_t allowed = (uint64_t)((double)b->free_bytes * share);
    uint64_t used = b->weight_bytes + b->scratch_bytes + KV_BUDGET_RESERVE_BYTES;
    *out = allowed > used ? allowed - used : 0;
    if (*out >= b->least_bytes && *out > 0) return ST_OK;
    return err_set(err, ST_NOMEM,
                   "device %s: %llu MiB are left for the KV cache, but one sequence of %u tokens "
                   "needs %llu MiB. Of %llu MiB, %llu were free; --gpu-memory %g of that is %llu; "
                   "weights take %llu, scratch memory %llu, the reserve %llu. Raise --gpu-memory, "
                   "lower --ctx or the knob max_step_tokens, or use a smaller model",
                   b->device, mib(*out), b->ctx_tokens, mib(b->least_bytes), mib(b->total_bytes),
                   mib(b->free_bytes), share, mib(allowed), mib(b->weight_bytes),
                   mib(b->scratch_bytes), mib(KV_BUDGET_RESERVE_BYTES));
}
