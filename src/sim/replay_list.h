/* sim/replay_list.h - a list of requests through an engine: results per choice, and a summary.
 *
 * replay_run fills it on the real clock, replay_run_sim on a simulated one.
 *
 * Lifetime: create for a list, which outlives it; destroy. Thread: its owner.
 */
#ifndef SIM_REPLAY_LIST_H
#define SIM_REPLAY_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/cost.h"
#include "sched/knobs.h"
#include "sched/seq.h"
#include "sim/request_list.h"
#include "spec/speculate_option.h"

struct buf;
struct choice;
struct engine;
struct engine_stats;
struct sched_policy;
struct sim_clock;

struct choice_result {
    bool is_done;
    enum finish_reason finish;
    int32_t *tokens; /* answer_tokens of each */
    float *logprobs;
    uint32_t answer_tokens;
    uint32_t cached_tokens, preempt_count;
    uint32_t drafted, accepted;          /* drafts that were compared with samples; equal ones */
    int64_t first_token_us, finished_us; /* from the arrival of the request; 0: no token came */
    char *refusal;                       /* why, or NULL */
};

/* Percentiles of the choices that have the number. */
struct spread {
    double p50, p99;
    uint32_t count;
};

struct replay_summary {
    uint32_t requests, choices;
    uint32_t ends[FINISH_ERROR + 1]; /* choices by finish reason */
    uint64_t prompt_tokens, output_tokens, cached_tokens;
    uint64_t drafted, accepted; /* drafts that were compared with samples; equal ones */
    uint32_t batch_choices;     /* of choices; the spreads are of the others */
    uint64_t batch_output_tokens;
    double elapsed_s, output_tokens_per_s;
    struct spread ttft_ms, tpot_ms;
    uint64_t preemptions, steps;
    double kv_waste, sched_us_per_step;
};

struct replay {
    const struct request_list *list;
    struct choice_result *results; /* of all choices, in the order of the list */
    uint32_t *first;               /* by request: where its choices begin */
    uint32_t choice_count, done_count;
    int64_t end_us; /* when the last one finished, from the start of the replay */

    /* Set after replay_init where they differ from the default. */
    bool drops_answers;              /* tokens and logprobs are not kept */
    bool (*goes_on)(void *goes_ctx); /* asked after each turn of a simulated engine; false ends the
                                         run with ST_CANCELLED; NULL: goes on */
    void *goes_ctx;
};

enum status replay_init(struct replay *r, const struct request_list *list, struct err *err);
void replay_deinit(struct replay *r); /* a zeroed one is fine */

/* A choice has finished; `began_us` is the start of the replay on the engine's clock. Once for
 * each; copies what it needs. */
enum status replay_take(struct replay *r, uint32_t request, const struct choice *c,
                        int64_t began_us);
/* All choices of a request ended before they began. */
enum status replay_refuse(struct replay *r, uint32_t request, const char *why);

/* An engine for replay_run_sim. A model that is simulated has no context, vocabulary or memory of
 * its own: */
enum {
    SIM_CTX_TOKENS = 32768,
    SIM_VOCAB = 32000,
    SIM_KV_BLOCKS = 49152, /* 96 GiB of blocks of 16 tokens of an 8B model */
};
struct replay_sim_options {
    const struct sched_policy *policy;
    struct knobs knobs;  /* kv_blocks 0: SIM_KV_BLOCKS */
    uint32_t ctx_tokens; /* 0: SIM_CTX_TOKENS */
    uint32_t vocab;
    struct speculate_option speculate; /* not a draft model */
    size_t record_bytes;
    struct cost_profile profile;
};
enum status replay_open_sim(const struct replay_sim_options *o, struct sim_clock *clock,
                            struct engine **out, struct err *err);
/* Raise queue_max so that all choices of the list may wait. */
void replay_widen_queue(const struct request_list *list, struct knobs *knobs);

/* Run the list to the last choice: on a started engine and the real clock, or stepping the
 * engine by hand on the simulated one. */
enum status replay_run(struct replay *r, struct engine *e, struct err *err);
enum status replay_run_sim(struct replay *r, struct engine *e, struct sim_clock *clock,
                           struct err *err);

struct replay_summary replay_summarize(const struct replay *r, const struct engine_stats *stats);

/* False: it has no such time. */
bool choice_result_ttft_ms(const struct choice_result *c, double *ms);
bool choice_result_tpot_ms(const struct choice_result *c, double *ms);

void replay_put_summary(const struct replay_summary *s, struct buf *out); /* one JSON object */

#endif
