/* engine/engine.h - requests in, tokens out, step by step.
 *
 * An engine owns a scheduler and a runner. In each step the scheduler makes a plan and the runner
 * turns it into tokens. Clients on any thread submit requests and take the choices that have new
 * tokens. The engine runs on its own thread (engine_start), or its caller steps it (the simulator,
 * engine/request_run.h). A process may have several engines; there are no statics.
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
#include "engine/cache_salt.h"
#include "engine/mailbox.h"
#include "engine/record.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "sched/sched.h"

struct control; /* engine/control.h */
struct control_rules;
struct engine; /* opaque */

struct engine_options {
    struct sched_options sched;
    uint32_t vocab;
    const int32_t *ends; /* tokens of the model that end an answer; copied */
    uint32_t end_count;
    const struct clock *clock;         /* NULL: the real one */
    size_t record_bytes;               /* of the ring of step records; 0: a MiB */
    struct speculate_option speculate; /* of requests that do not choose a drafter */
    struct cache_secret secret; /* of the prefix cache: salts and block keys are made with it */
};

/* The scheduler is made first, because a runner needs its KV cache: */
enum status engine_create(struct engine **out, const struct engine_options *options,
                          struct err *err);
const struct kv_cache *engine_kv(const struct engine *e);
struct spec *engine_spec(const struct engine *e); /* for a draft model (spec/spec.h) */
/* ... then the runner is plugged in; the engine closes it. */
void engine_plug(struct engine *e, const struct runner *runner);
void engine_destroy(struct engine *e); /* NULL is fine; stops it first */

/* Run on a thread of its own. stop ends the requests that are left as cancelled. */
enum status engine_start(struct engine *e, struct err *err);
void engine_stop(struct engine *e);

/* One turn: plan and submit one step, collect one step, publish new tokens and finished choices.
 * With a runner of depth 1 the collected step is the one submitted in the previous turn. All work
 * of the engine happens here. `did_work`: there was something to plan or to collect. Returns the
 * status of the step that was collected. */
enum status engine_step(struct engine *e, bool *did_work);

/* Clients. ST_OK: the caller has a reference (request_unref) and calls engine_next until each
 * choice has finished. ST_BAD: the request is not possible; `err` has the numbers. ST_FULL: the
 * queue is full. */
enum status engine_submit(struct engine *e, const struct request_spec *spec, struct request **out,
                          struct err *err);
/* After requests that were submitted with `wakes_later`. */
void engine_wake(struct engine *e);
/* Choices that may run or wait at one time: max_seqs and queue_max, as they are in force. */
uint32_t engine_places(const struct engine *e);
/* Choices of batch requests (request_spec.is_batch) that may run or wait besides: 2 * max_seqs. */
uint32_t engine_batch_places(const struct engine *e);
void engine_cancel(struct engine *e, struct request *r); /* all choices */
void engine_cancel_choice(struct engine *e, struct request *r, uint32_t choice,
                          enum finish_reason why); /* FINISH_STOP: a stop string was met */

/* The next choice with new tokens or a finish reason, or NULL. The caller gets a reference to its
 * request (request_unref). */
struct choice *engine_next(struct engine *e, int64_t timeout_us);
/* The same for up to `max` choices at once, without waiting; returns how many. */
uint32_t engine_next_many(struct engine *e, struct choice **out, uint32_t max);
/* Call `hook` on the engine thread after each step that gave a choice new tokens or ended one; for
 * event loops. */
void engine_set_hook(struct engine *e, output_hook *hook, void *ctx);

enum { ENGINE_STEP_SIZES = 16 };

/* As of the last step: reading it does not wait for the step under way. */
struct engine_stats {
    struct sched_stats sched; /* running, preempted, hits of the prefix cache in tokens, ... */
    uint64_t step_tokens; /* computed, by all steps; rows that failed or were dropped excluded */
    uint64_t step_sizes[ENGINE_STEP_SIZES]; /* steps of 1 token, up to 2, 4, ... 2^14, and more */
    uint64_t prompt_tokens; /* of step_tokens; those recomputed after a preemption count again, and
                               text that a grammar forces counts, too */
    uint64_t answer_tokens; /* sampled */
    uint64_t submitted;     /* requests that engine_submit took */
    uint64_t refused;       /* choices of them that the scheduler refused */
    uint32_t waiting;       /* choices without a slot in the batch, also those just submitted */
    double kv_used_share;   /* of the KV blocks, those that sequences hold; 0 .. 1 */
    /* Time spent in the scheduler; time with at least one step under way. */
    int64_t sched_us, step_us;
    int64_t stalled_us;       /* how long the step under way has taken; 0: none is under way */
    double predicted_wait_us; /* for a prompt of 512 tokens */
    struct cost_profile cost; /* what the cost model has learned; its name is "learned" */
};
struct engine_stats engine_stats(struct engine *e);

/* How long a request with such a prompt, arriving now, would wait for its first token. */
double engine_predict_wait_us(struct engine *e, uint32_t prompt_tokens);

/* For health checks. Takes no lock, so it works also when the engine thread hangs. */
struct engine_liveness {
    uint64_t steps;        /* with work in them, since create */
    int64_t quiet_us;      /* since it last began or ended a turn; an idle one turns every second */
    int64_t stalled_us;    /* how long the turn under way has taken; 0: none is under way */
    uint32_t failed_steps; /* in a row: their results could not be used */
};
struct engine_liveness engine_liveness(const struct engine *e);
/* What is in force, and what is asked of the engine thread (engine/control.h). engine_ask_* wakes
 * an idle engine; it answers between two steps. */
struct control *engine_control(const struct engine *e);
uint64_t engine_ask_map(struct engine *e);
/* Another policy or other knobs (those that are live): sched_change. ST_FULL: another change is not
 * done yet. */
enum status engine_ask_change(struct engine *e, const struct control_rules *rules,
                              uint64_t *ticket);
/* What each step did, by sequence; any thread may read it. */
struct record_ring *engine_records(const struct engine *e);

/* Watchdog: how long the current step may take before `on_stall` is called, once per stall, on
 * the watchdog's thread. Before engine_start. */
typedef void stall_fn(void *ctx, int64_t stalled_us);
void engine_watch(struct engine *e, int64_t limit_us, stall_fn *on_stall, void *ctx);

/* For the simulator: CHECK everything. Only between steps. */
void engine_verify(const struct engine *e);
struct sched *engine_sched(struct engine *e);

#endif
