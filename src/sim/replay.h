/* sim/replay.h - an engine on simulated time, driven by clients that are callbacks.
 *
 *     sim_engine_open     engine + runner_sim on a sim_clock, for a cost profile
 *     sim_replay_run      arrivals and steps in the order of their times, until all is done
 *
 * The engine is stepped by hand, in the thread of the caller: a day of traffic takes seconds and
 * the same calls always give the same run.
 *
 * Lifetime: open, run (several times if you like), engine_destroy. Thread: one.
 */
#ifndef SIM_REPLAY_H
#define SIM_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/runner_sim.h"
#include "sched/cost.h"

/* A profile by its name (sched/cost.h), or from a JSON file with the fields of struct
 * cost_profile: {"fixed_us": 5000, "per_token_us": 26, "per_attended_us": 0.012,
 * "per_move_us": 42}. The name is borrowed. */
enum status sim_profile_load(const char *name_or_path, struct cost_profile *out, struct err *err);

/* `options->clock` and `options->sched.cost` are set here. `clock` is the caller's and outlives
 * the engine. Tokens come from runner_sim (end_one_in 0: an answer ends at max_tokens). */
struct sim_engine_options {
    struct engine_options engine;
    struct cost_profile profile;
    uint32_t end_one_in;
    uint64_t key;
};
enum status sim_engine_open(struct engine **out, struct sim_clock *clock,
                            const struct sim_engine_options *options, struct err *err);

/* The clients. `ctx` is theirs. */
struct sim_clients {
    /* When they want to act next (an arrival, a cancellation); INT64_MAX: never again. */
    int64_t (*next_us)(void *ctx);
    /* Do what is due: engine_submit, engine_cancel. Called when next_us() <= now_us, which must
     * then lie later. */
    void (*act)(void *ctx, struct engine *e, int64_t now_us);
    /* A choice has new tokens or has finished. Borrowed for the call. */
    void (*moved)(void *ctx, struct choice *choice, int64_t now_us);
    /* After each turn; false ends the run. NULL: go on. */
    bool (*stepped)(void *ctx, bool did_work);
    void *ctx;
};

/* Until nothing is left to do. ST_BAD with a sentence: sequences wait and nothing will ever run
 * (a bug). Failed steps of the runner are the engine's business, not an error here. */
enum status sim_replay_run(struct engine *e, struct sim_clock *clock,
                           const struct sim_clients *clients, struct err *err);

#endif
