/* sim/measure.h - run a workload with a policy on simulated time, and measure it.
 *
 * Runs the real engine, scheduler and KV cache over runner_sim (sim/replay.h). An answer stops at
 * its own length, as if the model had ended it: the scheduler only knows max_tokens.
 *
 * Lifetime: measure_run fills a zeroed struct; measure_deinit frees it. Thread: its owner.
 */
#ifndef SIM_MEASURE_H
#define SIM_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/cost.h"
#include "sched/knobs.h"
#include "sched/policy.h"
#include "sim/workload.h"

enum { MEASURE_TENANTS = 8 };

struct measure_options {
    const struct sched_policy *policy;
    struct knobs knobs; /* with kv_blocks set; queue_max is raised to the size of the workload */
    struct cost_profile profile;
};

/* The result of one request; times are counted from its arrival. */
struct outcome {
    enum finish_reason finish;
    uint32_t tokens; /* of the answer */
    uint32_t preempt_count;
    int64_t ttft_us, done_us; /* ttft_us 0: it got no token */
};

struct measure {
    struct outcome *outcomes; /* in the order of the workload */
    uint32_t count;
    uint64_t output_tokens, preemptions, recomputed_tokens, steps;
    double elapsed_s, output_tokens_per_s;
    double waste; /* share of held (or reserved) token positions that hold no token */
    /* Tokens computed for each tenant, prompts included, while every tenant of the workload had
     * requests without a first token. */
    uint64_t contended_tokens[MEASURE_TENANTS];
};

enum status measure_run(const struct workload *w, const struct measure_options *options,
                        struct measure *out, struct err *err);
void measure_deinit(struct measure *m); /* a zeroed one is fine */

/* Percentiles by nearest rank, share 0 .. 1, in ms; 0 if there are no values. Requests that got no
 * token are not included: see measure_share_met. */
double measure_ttft_ms(const struct measure *m, double share);
double measure_tpot_ms(const struct measure *m, double share);
double measure_done_ms(const struct measure *m, double share); /* to the last token */
double measure_mean_done_ms(const struct measure *m);

/* Did the request finish and meet its targets of TTFT and TPOT? */
bool outcome_met(const struct outcome *o, const struct work_request *r);
double measure_share_met(const struct measure *m, const struct workload *w);

#endif
