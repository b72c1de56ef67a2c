/* sim/world.h - one seeded world: an engine, its clients, and all that can go wrong.
 *
 * A seed draws a small world (blocks, max_seqs, groups, a policy and its knobs) so that every limit
 * is hit, and its traffic: arrivals, lengths, shared prefixes, choices, tenants, priorities,
 * deadlines, cancellations in every state, steps that fail. The real engine serves it on
 * simulated time. After every step the promises of engine, scheduler and KV cache are checked
 * from outside, and their own verify functions from inside. Then the load stops, everything must
 * end in a bounded number of steps, and nothing may be held.
 *
 * The same options always give the same run. README.md lists what is checked.
 *
 * Lifetime: one call. Thread: any; a world shares nothing with others.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/policy.h"

/* How far a run is, for the parent process if it ends in a CHECK. */
struct world_mark {
    uint64_t seed, step;
    uint32_t depth;
    char policy[24];
};

struct world_options {
    uint64_t seed;
    const struct sched_policy *policy; /* NULL: drawn */
    uint32_t depth;                    /* of the runner: 0 or 1 */
    uint32_t load_steps;               /* under load; the drain comes on top */
    uint32_t verify_every;             /* steps between two looks from inside; 1: after each */
    struct world_mark *mark;           /* kept up to date; may be NULL */
    void (*trace)(void *ctx, const char *line); /* NULL: none */
    void *trace_ctx;
};

/* What happened, so that a test can require that everything did. */
enum world_count {
    COUNT_STEPS, /* that computed something */
    COUNT_REQUESTS,
    COUNT_CHOICES,
    COUNT_TOKENS, /* sampled */
    COUNT_ENDS_STOP,
    COUNT_ENDS_LENGTH,
    COUNT_ENDS_CANCELLED,
    COUNT_ENDS_EXPIRED,
    COUNT_ENDS_REFUSED,
    COUNT_ENDS_ERROR,
    COUNT_BAD_REQUESTS,
    COUNT_INBOX_FULL,
    COUNT_CANCEL_WAITING,
    COUNT_CANCEL_PROMPT,
    COUNT_CANCEL_DECODE,
    COUNT_CANCEL_SWAPPED,
    COUNT_CANCEL_FORKING,
    COUNT_CANCEL_UNSEEN, /* before the engine had looked at it */
    COUNT_CANCEL_LATE,   /* after it had ended */
    COUNT_CANCEL_UNDER_WAY,
    COUNT_STOP_STRINGS, /* one choice ended by its client */
    COUNT_SWAPS_OUT,
    COUNT_SWAPS_IN,
    COUNT_COPIES,
    COUNT_RECOMPUTES,
    COUNT_DISPLACED, /* by the policy */
    COUNT_PREEMPT_PAST_MAX,
    COUNT_PREFIX_HITS,
    COUNT_PROMISE_WAITS,
    COUNT_SHARES,
    COUNT_FORKS,
    COUNT_EVICTIONS,
    COUNT_WINDOW_STEPS, /* in worlds with windows */
    COUNT_FAILED_ROWS,
    COUNT_FAILED_STEPS,
    COUNT_SLOW_STEPS,
    COUNT_STOPPED_WORLDS, /* destroyed with requests inside */
    COUNT_AHEAD_PLANS,    /* made while another was under way */
    COUNT_TAKES_SAMPLED,  /* rows whose token the plan before samples */
    COUNT_DROPPED_ROWS,   /* of sequences that had ended or were to be recomputed */
    COUNT_DRAINED,        /* ahead plans that wanted everything collected first */
    COUNT_LINES_BESIDE,   /* steps with rows of batch lines beside others */
    COUNT_LINES_IN_PACE,  /* of these, those with time up to the pace */
    COUNT_LINES_ALONE,
    COUNT_LINES_PREEMPTED,
    COUNT_DRAFT_ROWS,
    COUNT_DRAFTS_AHEAD, /* rows with drafts whose first token the plan before samples */
    COUNT_DRAFTED,
    COUNT_ACCEPTED,
    WORLD_COUNTS
};
const char *world_count_name(enum world_count c);

struct world_outcome {
    bool is_wrong;
    struct err what;    /* the first thing that was wrong */
    uint64_t step;      /* when */
    const char *policy; /* the world's */
    uint64_t hash;      /* of everything that was planned and reported */
    uint64_t counts[WORLD_COUNTS];
};

/* Not ST_OK only when there is no memory for the world. */
enum status world_run(const struct world_options *options, struct world_outcome *out,
                      struct err *err);

/* The world of a seed in a few lines, for a person. */
void world_describe(const struct world_options *options, struct err *out);

#endif
