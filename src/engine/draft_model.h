/* engine/draft_model.h - a second, smaller model that guesses what the first one samples next.
 *
 * It has weights, a forward pass and KV memory of its own, on the same kind of device. On a CPU it
 * computes on the target's threads. Each ask is answered in one call, for all sequences at once: a
 * first step computes the tokens that the draft model has not seen, each further step one token of
 * each sequence. A long text is caught up over several calls, a bounded number of tokens in each;
 * until then the sequence has no drafts. Tokens are chosen as the target chooses them (same
 * temperature, seed and position), without penalties, biases and grammars.
 *
 * The number of sequences with drafts is bounded (engine/draft_lanes.h), and with it the KV memory.
 * What a step costs is measured at start and learned while it runs.
 *
 * If the device fails in a draft step, there are no drafts any more; answers stay the same.
 *
 * Lifetime: open; plug into spec/spec.h, which closes it; the target is closed later. Thread: open
 * by the thread that opens the target, the rest on the engine thread. Memory: all taken by open.
 */
#ifndef ENGINE_DRAFT_MODEL_H
#define ENGINE_DRAFT_MODEL_H

#include <stdint.h>

#include "base/status.h"
#include "engine/loaded_model.h"
#include "spec/spec.h"

enum {
    DRAFT_LANES_DEFAULT = 16,
    DRAFT_STEP_ROWS = 256,  /* tokens in one step of the draft model */
    DRAFT_CATCH_UP_MIN = 32 /* tokens of long texts that a call computes, at least */
};

struct draft_model_options {
    struct loaded_model_options load; /* as the target was loaded; its context is the target's */
    uint32_t block_tokens;
    uint32_t seq_max;      /* every seq_idx is below this */
    uint32_t lanes;        /* sequences with drafts at one time; 0: DRAFT_LANES_DEFAULT */
    uint64_t memory_bytes; /* that may be used; 0: what the device, or the machine, has free */
};

/* What it takes. */
struct draft_model_memory {
    uint64_t weight_bytes, kv_bytes;
    uint32_t lanes, tokens_max;
};

/* ST_BAD: not a model that generates, or its vocabulary is another one; `err` names the first
 * token that differs. ST_NOMEM: it does not fit; `err` has the numbers. */
enum status draft_model_open(const char *path, struct loaded_model *target,
                             const struct draft_model_options *options, struct draft_model *out,
                             struct draft_model_memory *memory, struct err *err);
/* Of one that is open: CHECKs all. */
void draft_model_verify(const struct draft_model *model);
/* Since it was opened. */
struct draft_model_stats {
    uint64_t calls, steps, rows; /* of the draft model */
    uint64_t caught_up;          /* of the rows, those of long texts */
    double step_us;              /* a step of one row, as learned */
    bool has_failed;
};
struct draft_model_stats draft_model_stats(const struct draft_model *model);

#endif
