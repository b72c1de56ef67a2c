/* sim/replay.c - see sim/replay.h for the contract. */
#include "sim/replay.h"

#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"

/* Arrivals that are refused, expiries and timers one after another; more than that is a bug. */
enum { IDLE_TURNS_MAX = 1000000 };

/* ---- profiles ---- */

/* Of each cost: a simulation of the longest list at such costs ends before its clock does. */
static const double PROFILE_US_MAX = 1e6;

static enum status read_number(const struct json *doc, const char *key, double min, double *out,
                               struct err *err) {
    *out = json_num(json_get(doc, key), -1);
    if (*out >= min && *out <= PROFILE_US_MAX) return ST_OK;
    return err_set(err, ST_BAD, "%s must be a number from %g to %g", key, min, PROFILE_US_MAX);
}

enum status sim_profile_read(const struct json *doc, struct cost_profile *out, struct err *err) {
    *out = (struct cost_profile){.name = "given"};
    TRY(read_number(doc, "fixed_us", 1e-3, &out->fixed_us, err));
    TRY(read_number(doc, "per_token_us", 1e-3, &out->per_token_us, err));
    TRY(read_number(doc, "per_attended_us", 0, &out->per_attended_us, err));
    return read_number(doc, "per_move_us", 0, &out->per_move_us, err);
}

static enum status parse_profile(const struct buf *text, struct cost_profile *out,
                                 struct err *err) {
    struct json *doc = NULL;
    TRY(json_parse(buf_str(text), &json_limits_request, &doc, err));
    enum status st = sim_profile_read(doc, out, err);
    json_destroy(doc);
    return st;
}

enum status sim_profile_load(const char *name_or_path, struct cost_profile *out, struct err *err) {
    const struct cost_profile *known = cost_profile_find(name_or_path);
    if (known) {
        *out = *known;
        return ST_OK;
    }
    if (!file_exists(name_or_path))
        return err_set(err, ST_MISSING, "%s is neither a cost profile nor a file", name_or_path);
    struct buf text;
    buf_init(&text, json_limits_request.bytes_max);
    enum status st = file_read(name_or_path, &text, err);
    if (st == ST_OK && (st = parse_profile(&text, out, err)) != ST_OK)
        err_prefix(err, st, name_or_path);
    out->name = name_or_path;
    buf_deinit(&text);
    return st;
}

/* ---- the engine ---- */

enum status sim_engine_open(struct engine **out, struct sim_clock *clock,
                            const struct sim_engine_options *options, struct err *err) {
    struct engine_options engine = options->engine;
    sim_clock_init(clock);
    engine.clock = &clock->clock;
    cost_init(&engine.sched.cost, &options->profile);
    struct engine *e = NULL;
    TRY(engine_create(&e, &engine, err));
    struct runner_sim_options o = {.seq_max = sched_seq_max(&engine.sched.knobs),
                                   .row_max = engine.sched.knobs.max_seqs,
                                   .vocab = engine.vocab,
                                   .end_one_in = options->end_one_in,
                                   .key = options->key,
                                   .clock = clock,
                                   .profile = options->profile};
    struct runner runner;
    enum status st = runner_sim_open(&o, &runner, err);
    if (st != ST_OK) {
        engine_destroy(e);
        return st;
    }
    engine_plug(e, &runner);
    *out = e;
    return ST_OK;
}

/* ---- the run ---- */

static void deliver_outputs(struct engine *e, const struct sim_clock *clock,
                            const struct sim_clients *clients) {
    for (struct choice *c; (c = engine_next(e, 0));) {
        struct request *r = c->request;
        clients->on_output(clients->ctx, c, clock->now_us);
        request_unref(r);
    }
}

/* There was nothing to do at this time: move the clock to the next time at which there is. */
static enum status skip_to_next(struct engine *e, struct sim_clock *clock, int64_t clients_us,
                                bool *is_over, struct err *err) {
    const struct sched *s = engine_sched(e);
    int64_t timer_us = sched_next_timer_us(s);
    int64_t next_us = timer_us < clients_us ? timer_us : clients_us;
    if (next_us != INT64_MAX) { /* in the past if the scheduler spreads timers over several plans */
        if (next_us > clock->now_us) sim_clock_advance(clock, next_us - clock->now_us);
        return ST_OK;
    }
    *is_over = sched_is_idle(s);
    if (*is_over) return ST_OK;
    struct sched_stats n = sched_stats(s);
    return err_set(err, ST_BAD,
                   "nothing runs and nothing ever will: %u wait, %u run, %u are swapped out",
                   n.waiting, n.running, n.swapped);
}

enum status sim_replay_run(struct engine *e, struct sim_clock *clock,
                           const struct sim_clients *clients, struct err *err) {
    uint32_t idle_turns = 0;
    for (bool is_over = false; !is_over;) {
        if (clients->next_us(clients->ctx) <= clock->now_us) {
            clients->act(clients->ctx, e, clock->now_us);
            CHECK(clients->next_us(clients->ctx) > clock->now_us);
        }
        bool did_work;
        engine_step(e, &did_work); /* a failed step ends its sequences; the others continue */
        deliver_outputs(e, clock, clients);
        if (clients->stepped && !clients->stepped(clients->ctx, did_work)) return ST_OK;
        idle_turns = did_work ? 0 : idle_turns + 1;
        if (did_work) continue;
        if (idle_turns == IDLE_TURNS_MAX)
            return err_set(err, ST_BAD, "%u turns in a row had nothing to do", idle_turns);
        TRY(skip_to_next(e, clock, clients->next_us(clients->ctx), &is_over, err));
    }
    return ST_OK;
}
