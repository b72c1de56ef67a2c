/* sim/replay.h - an engine on simulated time; its clients are callbacks.
 *
 *     sim_engine_open     engine + runner_sim on a sim_clock, for a cost profile
 *     sim_replay_run      arrivals and steps in the order of their times, until all have ended
 *
 * The caller's thread steps the engine: a day of traffic takes seconds, and the same calls always
 * give the same run.
 *
 * Lifetime: open, run (also several times), engine_destroy. Thread: one.
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
/* The same from JSON that was read; the name is "given". */
struct json;
enum status sim_profile_read(const struct json *doc, struct cost_profile *out, struct err *err);

/* sim_engine_open sets `engine.clock` and `engine.sched.cost`. `clock` is the caller's and must
 * exist as long as the engine. Tokens come from runner_sim (end_one_in 0: an answer ends at
 * max_tokens). */
struct sim_engine_options {
    struct engine_options engine;
    struct cost_profile profile;
    uint32_t end_one_in;
    uint64_t key;
};
enum status sim_engine_open(struct engine **out, struct sim_clock *clock,
                            const struct sim_engine_options *options, struct err *err);

/* The clients. Every callback gets `ctx`. */
struct sim_clients {
    /* The time of the next action (an arrival, a cancellation); INT64_MAX: never again. */
    int64_t (*next_us)(void *ctx);
    /* Do what is due: engine_submit, engine_cancel. Called when next_us() <= now_us; afterwards
     * next_us() must be later than now_us. */
    void (*act)(void *ctx, struct engine *e, int64_t now_us);
    /* A choice has new tokens or has finished. Borrowed for the call. */
    void (*on_output)(void *ctx, struct choice *choice, int64_t now_us);
    /* After each engine_step; false ends the run. NULL: continue. */
    bool (*stepped)(void *ctx, bool did_work);
    void *ctx;
};

/* Run until there is nothing left to do. ST_BAD: sequences wait and none will ever run (a bug). A
 * failed step of the runner is not an error here: the engine ends its sequences. */
enum status sim_replay_run(struct engine *e, struct sim_clock *clock,
                           const struct sim_clients *clients, struct err *err);

#endif
