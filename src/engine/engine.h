/* engine/engine.h - requests in, tokens out: the step that everything happens in.
 *
 * An engine owns a scheduler and a runner and turns plans into tokens, step by step. Clients on
 * any thread submit requests and take what has moved; the engine runs on one thread of its own
 * (engine_start) or is stepped by hand (the simulator). Several engines may live in one process;
 * there are no statics.
 *
 * Lifetime: create over a runner; start; stop; destroy. Thread: submit, cancel, next and the
 * statistics from anywhere; step from one thread.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "engine/mailbox.h"
#include "engine/record.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "sched/sched.h"

struct engine; /* opaque */

struct engine_options {
    struct sched_options sched;
    uint32_t vocab;
    const int32_t *ends; /* tokens of the model that end an answer; copied */
    uint32_t end_count;
    const struct clock *clock; /* NULL: the real one */
    uint32_t record_count;     /* step records kept; 0: 4096 */
};

/* The scheduler is made first, because a runner needs its KV cache: */
enum status engine_create(struct engine **out, const struct engine_options *options,
                          struct err *err);
const struct kv_cache *engine_kv(const struct engine *e);
/* ... then the runner is plugged in; the engine closes it. */
void engine_plug(struct engine *e, const struct runner *runner);
void engine_destroy(struct engine *e); /* NULL is fine; stops it first */

/* Run on a thread of its own. stop ends the requests that are left as cancelled. */
enum status engine_start(struct engine *e, struct err *err);
void engine_stop(struct engine *e);

/* One turn: plan and submit one step, collect one step, publish new tokens and finished choices.
 * With a runner of depth 1 the collected step is the one submitted in the previous turn. Everything
 * the server does for its clients happens here. `did_work` tells whether there was anything to do.
 * Returns the status of the step that was collected. */
enum status engine_step(struct engine *e, bool *did_work);

/* Clients. On ST_OK the caller holds a reference (request_unref) and takes events until each
 * choice has finished. ST_BAD: it can never be served, with the numbers. ST_FULL: the queue is
 * full. */
enum status engine_submit(struct engine *e, const struct request_spec *spec, struct request **out,
                          struct err *err);
void engine_cancel(struct engine *e, struct request *r); /* all choices */
void engine_cancel_choice(struct engine *e, struct request *r, uint32_t choice,
                          enum finish_reason why); /* FINISH_STOP: a stop string was met */

/* The next choice that moved (its request is referenced: request_unref), or NULL. */
struct choice *engine_next(struct engine *e, int64_t timeout_us);
/* The same for up to `max` of them at once, without waiting; returns how many. */
uint32_t engine_next_many(struct engine *e, struct choice **out, uint32_t max);
/* Call `hook` on the engine thread after each step that moved somebody; for event loops. */
void engine_set_hook(struct engine *e, moved_hook *hook, void *ctx);

enum { ENGINE_STEP_SIZES = 16 };

/* As of the last step. The engine is never waited for while it computes. */
struct engine_stats {
    struct sched_stats sched; /* running, preempted, hits of the prefix cache in tokens, ... */
    uint64_t step_tokens; /* computed, by all steps; rows that failed or were dropped excluded */
    uint64_t step_sizes[ENGINE_STEP_SIZES]; /* steps of 1 token, up to 2, 4, ... 2^14, and more */
    uint64_t prompt_tokens; /* of step_tokens; those recomputed after a preemption count again */
    uint64_t answer_tokens; /* sampled */
    uint64_t submitted;     /* requests that engine_submit took */
    uint64_t refused;       /* choices of them that the scheduler refused */
    uint32_t waiting;       /* choices without a seat, those not looked at yet included */
    double kv_used_share;   /* of the KV blocks, those that sequences hold; 0 .. 1 */
    /* Time spent in the scheduler; time with at least one step under way. */
    int64_t sched_us, step_us;
    int64_t stalled_us;       /* how long the step under way has taken; 0: none is under way */
    double predicted_wait_us; /* for a prompt of 512 tokens */
};
struct engine_stats engine_stats(struct engine *e);

/* How long a request with such a prompt, arriving now, would wait for its first token. */
double engine_predict_wait_us(struct engine *e, uint32_t prompt_tokens);

/* Is it alive? Takes no lock, so that it tells also when the engine does not move any more. */
struct engine_liveness {
    uint64_t steps;        /* that did something, since create */
    int64_t quiet_us;      /* since it last began or ended a turn; an idle one turns every second */
    int64_t stalled_us;    /* how long the turn under way has taken; 0: none is under way */
    uint32_t failed_steps; /* of which nothing could be used, since one that could */
};
struct engine_liveness engine_liveness(const struct engine *e);
void engine_put_trace(struct engine *e, struct buf *out);

/* Watchdog: how long the current step may take before `on_stall` is called, once per stall, on
 * the watchdog's thread. Before engine_start. */
typedef void stall_fn(void *ctx, int64_t stalled_us);
void engine_watch(struct engine *e, int64_t limit_us, stall_fn *on_stall, void *ctx);

/* For the simulator: CHECK everything. Only between steps. */
void engine_verify(const struct engine *e);
struct sched *engine_sched(struct engine *e);

#endif
