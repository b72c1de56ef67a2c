/* sim/whatif.h - the same requests with another policy, on simulated time: figures and steps.
 *
 *     {"policy":"fair","figures":{..},"steps":[..]}
 *
 * The figures are those of `jitney replay --sim --json`, the steps those of GET /v1/engine/steps.
 * The same list, knobs and profile always give the same result, but for the time that the scheduler
 * took (sched_us), which is measured.
 *
 * Lifetime: none of its own. Thread: any; the caller's runs the engine. Memory: whatif_bytes.
 */
#ifndef SIM_WHATIF_H
#define SIM_WHATIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/cost.h"
#include "sched/knobs.h"

struct buf;
struct request_list;
struct sched_policy;

enum { WHATIF_STEPS_KEPT = 10000 }; /* the page keeps no more */

struct whatif_options {
    const struct sched_policy *policy;
    struct knobs knobs;  /* all sequences may wait, whatever queue_max says */
    uint32_t ctx_tokens; /* 0: SIM_CTX_TOKENS */
    struct cost_profile profile;
    size_t record_bytes; /* of the steps that are kept, the newest; `out` gets about as many */
    /* Asked after each turn of the engine; false ends the run with ST_CANCELLED. */
    bool (*goes_on)(void *ctx);
    void *ctx;
};

/* Append the result to `out`. The list has its prompts. */
enum status whatif_run(const struct request_list *list, const struct whatif_options *o,
                       struct buf *out, struct err *err);
/* About how many bytes whatif_run takes, the list's prompts included, `out` not. */
uint64_t whatif_bytes(const struct request_list *list, const struct whatif_options *o);

#endif
