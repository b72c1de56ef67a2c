/* engine/runner_sim.h - a runner without a model: tokens from a hash, time from a profile.
 *
 * A token is a keyed hash of the sequence's own tokens so far, so every answer can be checked
 * and does not depend on other rows of the step. A step takes what the cost profile says, on a
 * simulated clock, or a real pause, for measuring a server without its model.
 *
 * On demand the runner also models what KV memory holds: for every token position of every block of
 * every group a hash of the text up to there and of whose it is. It does the plan's moves on
 * that, writes what rows compute, and before that compares everything that a row may read with
 * the row's own text. A wrong block, a lost copy, a swap to the wrong slot or a block of another
 * tenant is found in the step that would have used it. A step that fails leaves garbage wherever
 * it would have written.
 *
 * With depth 1 a plan is submitted while the one before it is under way. When a plan runs is drawn
 * from a seed: as early as in its submit, as late as in its collect, always after the plans before
 * it. Whatever a plan needs is copied by submit. Until a plan is collected, no other plan may use
 * the blocks that its rows write. To find violations, the runner fills these blocks with garbage at
 * collect if the row's sequence has ended meanwhile.
 *
 * Lifetime: as any runner. Thread: the engine thread. Memory: all taken by open.
 */
#ifndef ENGINE_RUNNER_SIM_H
#define ENGINE_RUNNER_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "engine/runner.h"
#include "kv/cache.h"
#include "sched/cost.h"
#include "sched/plan.h"

/* A clock that advances only through sim_clock_advance. */
struct sim_clock {
    struct clock clock; /* what others are given */
    int64_t now_us;
};
/* Stays where it is. Begins at one second: zero means "not yet" in many places. */
void sim_clock_init(struct sim_clock *c);
void sim_clock_advance(struct sim_clock *c, int64_t us); /* at least 0 */

/* The faults to inject into a step. All zero: none. */
struct sim_fault {
    bool submit_fails;   /* the whole step: garbage where it would have written. With depth 1 it is
                            submit or collect that fails */
    bool row_fails;      /* the numbers of one row are not numbers */
    uint32_t failed_row; /* which */
    int64_t slow_us;     /* longer than the profile says */
};

/* Callbacks for the simulator and its tests. Each may be NULL; each gets `ctx`. */
struct sim_watch {
    /* A plan was submitted and has not run: look at it, and say what goes wrong in it. */
    void (*on_plan)(void *ctx, const struct plan *plan, struct sim_fault *fault);
    /* Which sequence is it? `owner`: sequences share KV only if it is equal. `seed`: equal texts
     * with equal seeds get equal tokens. Without this the owner is 0. */
    void (*identify)(void *ctx, seq_idx seq, uint64_t *owner, uint64_t *seed);
    /* A row reads what is not its own, or a plan breaks its rules; one sentence. */
    void (*on_wrong)(void *ctx, const char *sentence);
    void *ctx;
};

struct runner_sim_options {
    uint32_t seq_max; /* every seq_idx is below this */
    uint32_t row_max; /* rows of a plan */
    uint32_t vocab;
    const int32_t *words; /* answers are made of these; copied; NULL: of the whole vocabulary */
    uint32_t word_count;
    bool draws_by_seed;  /* a sampler's seed is the sequence's; else all have seed 0 */
    uint32_t end_one_in; /* one token in so many ends an answer; 0: none does */
    uint64_t key;        /* of the hash; any number */

    uint32_t depth;      /* as struct runner says */
    uint64_t delay_seed; /* with depth 1: draws when each plan runs */

    struct sim_clock *clock;     /* NULL: real time, and step_us */
    struct cost_profile profile; /* of a step on the simulated clock */
    int64_t step_us;             /* a real pause in every step; 0: none */
    uint64_t hang_after;         /* this step never returns; 0: all return */
    uint64_t fail_after;         /* this step and all later ones fail; 0: none fails */
    uint64_t nan_at;             /* the first row of this step is not numbers; 0: of none */

    /* The model of KV memory; kv NULL: none. */
    const struct kv_cache *kv;
    uint32_t block_tokens, tokens_max, block_count, spill_slots, group_count;
    uint32_t windows[KV_CACHE_GROUPS_MAX];

    struct sim_watch watch;
};

enum status runner_sim_open(const struct runner_sim_options *options, struct runner *out,
                            struct err *err);

/* How many sequences have begun and not ended. */
uint32_t runner_sim_begun(const struct runner *runner);

/* The text so far as one number, and the token that follows it. */
uint64_t sim_text_begin(uint64_t owner);
uint64_t sim_text_add(uint64_t text, int32_t token);
int32_t sim_token(const struct runner_sim_options *o, uint64_t seed, uint64_t text);
bool sim_token_ends(const struct runner_sim_options *o, uint64_t seed, uint64_t text);
float sim_logprob(const struct runner_sim_options *o, uint64_t seed, uint64_t text);

#endif
