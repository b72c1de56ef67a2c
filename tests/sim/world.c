/* sim/world.c - the run of a world; see sim/world.h. */
#include "sim/world.h"

#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "sim/replay.h"
#include "sim/world_int.h"

enum { LINE_BYTES = 512 };

static const char *const count_names[WORLD_COUNTS] = {
    [COUNT_STEPS] = "steps",
    [COUNT_REQUESTS] = "requests",
    [COUNT_CHOICES] = "choices that ended",
    [COUNT_TOKENS] = "tokens",
    [COUNT_ENDS_STOP] = "ended by stop",
    [COUNT_ENDS_LENGTH] = "ended by length",
    [COUNT_ENDS_CANCELLED] = "ended by cancel",
    [COUNT_ENDS_EXPIRED] = "ended by expiry",
    [COUNT_ENDS_REFUSED] = "refused by the scheduler",
    [COUNT_ENDS_ERROR] = "ended by error",
    [COUNT_BAD_REQUESTS] = "bad requests",
    [COUNT_INBOX_FULL] = "requests that met a full inbox",
    [COUNT_CANCEL_WAITING] = "cancelled while waiting",
    [COUNT_CANCEL_PROMPT] = "cancelled in the prompt",
    [COUNT_CANCEL_DECODE] = "cancelled while decoding",
    [COUNT_CANCEL_SWAPPED] = "cancelled while swapped out",
    [COUNT_CANCEL_FORKING] = "cancelled while waiting for the parent",
    [COUNT_CANCEL_UNSEEN] = "cancelled before the engine looked",
    [COUNT_CANCEL_LATE] = "cancelled after the end",
    [COUNT_CANCEL_UNDER_WAY] = "cancelled while computed",
    [COUNT_STOP_STRINGS] = "choices ended by their client",
    [COUNT_SWAPS_OUT] = "swapped out",
    [COUNT_SWAPS_IN] = "blocks swapped in",
    [COUNT_COPIES] = "blocks copied on write",
    [COUNT_RECOMPUTES] = "preempted, to be recomputed",
    [COUNT_DISPLACED] = "displaced by the policy",
    [COUNT_PREEMPT_PAST_MAX] = "preempted past preempt_max, by the oldest",
    [COUNT_PREFIX_HITS] = "prefix hits",
    [COUNT_PROMISE_WAITS] = "passed while waiting for a prefix",
    [COUNT_SHARES] = "admitted into the reserve of a tenant's share",
    [COUNT_FORKS] = "choices that shared a prompt",
    [COUNT_EVICTIONS] = "blocks evicted",
    [COUNT_WINDOW_STEPS] = "steps with windows",
    [COUNT_FAILED_ROWS] = "rows that failed",
    [COUNT_FAILED_STEPS] = "steps that failed",
    [COUNT_SLOW_STEPS] = "slow steps",
    [COUNT_STOPPED_WORLDS] = "engines destroyed under load",
    [COUNT_AHEAD_PLANS] = "plans made ahead",
    [COUNT_TAKES_SAMPLED] = "rows that take a token of the plan before",
    [COUNT_DROPPED_ROWS] = "rows dropped",
    [COUNT_DRAINED] = "ahead plans that wanted a drain",
    [COUNT_LINES_BESIDE] = "steps with batch lines beside others",
    [COUNT_LINES_IN_PACE] = "of these, with time up to the pace",
    [COUNT_LINES_ALONE] = "steps of batch lines alone",
    [COUNT_LINES_PREEMPTED] = "batch lines preempted",
    [COUNT_DRAFT_ROWS] = "rows with drafts",
    [COUNT_DRAFTS_AHEAD] = "rows with drafts behind an unknown token",
    [COUNT_DRAFTED] = "drafts verified",
    [COUNT_ACCEPTED] = "drafts accepted",
};

const char *world_count_name(enum world_count c) {
    CHECK(c < WORLD_COUNTS);
    return count_names[c];
}

/* ---- telling ---- */

void world_wrong(struct world *w, const char *fmt, ...) {
    if (w->out->is_wrong) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->out->what.text, sizeof(w->out->what.text), fmt, args);
    va_end(args);
    w->out->is_wrong = true;
    w->out->step = w->out->counts[COUNT_STEPS];
}

static void on_wrong(void *ctx, const char *sentence) { world_wrong(ctx, "%s", sentence); }

void world_hash(struct world *w, uint64_t value) {
    w->out->hash = (w->out->hash ^ value) * 0x100000001b3u + (w->out->hash >> 29);
}

void world_trace(struct world *w, const char *fmt, ...) {
    if (!w->options.trace) return;
    char line[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    w->options.trace(w->options.trace_ctx, line);
}

/* ---- the run ---- */

static uint32_t choices_live(const struct world *w, bool is_batch) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->live_count; i++) {
        const struct client *c = &w->clients[w->live[i]];
        if (c->is_batch == is_batch) count += c->n - c->ended;
    }
    return count;
}

/* Every sequence that is left computes its text at most once and once more for each time that it
 * may be preempted (a batch line: by each of the others), a token a step at worst; and may wait for
 * a promise for a while. With depth 1 a
 * turn may only submit or only collect, and a sequence may rest in every second plan. */
static uint64_t drain_bound(const struct world *w) {
    uint32_t all = choices_live(w, false) + choices_live(w, true);
    uint64_t bound = 100;
    for (uint32_t i = 0; i < w->live_count; i++) {
        const struct client *c = &w->clients[w->live[i]];
        uint32_t again = c->is_batch ? all : w->knobs->preempt_max;
        bound += c->n * ((uint64_t)c->total_max * (again + 3) + 80);
    }
    return bound * (1 + 2 * (uint64_t)w->options.depth);
}

static void begin_drain(struct world *w) {
    world_trace(w, "the load stops: %u requests are left", w->live_count);
    w->is_draining = true;
    w->drain_left = drain_bound(w);
    for (uint32_t i = 0; i < w->live_count; i++) w->clients[w->live[i]].is_called = true;
}

/* Called before the clock moves on: what the next turn starts from. */
static void prepare_turn(struct world *w) {
    w->turn++;
    for (int k = 0; k < 2; k++) w->queue_bound[k] = choices_live(w, k == 1);
    w->evicted = sched_stats(w->sched).kv.evicted_blocks;
    if (!w->options.mark) return;
    w->options.mark->step = w->out->counts[COUNT_STEPS];
}

static bool stepped(void *ctx, bool did_work) {
    struct world *w = ctx;
    if (!did_work) w->began_us = w->clock.now_us;
    if (did_work) world_tally(w, COUNT_STEPS);
    if (did_work && w->has_windows) world_tally(w, COUNT_WINDOW_STEPS);
    if (!w->out->is_wrong) world_check_step(w);
    if (w->out->is_wrong) return false;
    world_call_off_by_state(w);
    if (w->is_draining && did_work && w->drain_left-- == 0)
        world_wrong(w, "%u requests have not ended in the steps that should be enough",
                    w->live_count);
    bool is_loaded =
        w->out->counts[COUNT_STEPS] >= w->options.load_steps || w->client_count == REQUESTS_MAX;
    if (!w->is_draining && is_loaded) {
        if (w->is_abandoned) return false;
        begin_drain(w);
    }
    prepare_turn(w);
    return !w->out->is_wrong;
}

static enum status open_engine(struct world *w, struct err *err) {
    TRY(engine_create(&w->engine, &w->engine_options, err));
    w->sched = engine_sched(w->engine);
    w->knobs = &w->engine_options.sched.knobs;
    w->runner_options.kv = engine_kv(w->engine);
    w->runner_options.watch = (struct sim_watch){
        .on_plan = world_on_plan, .identify = world_identify, .on_wrong = on_wrong, .ctx = w};
    TRY(runner_sim_open(&w->runner_options, &w->runner, err));
    engine_plug(w->engine, &w->runner);
    world_plug_drafts(w);
    return ST_OK;
}

/* An engine that is destroyed under load ends what is inside as cancelled, and lets it go. */
static void abandon(struct world *w) {
    world_tally(w, COUNT_STOPPED_WORLDS);
    engine_destroy(w->engine);
    w->engine = NULL;
    for (uint32_t i = 0; i < w->live_count && !w->out->is_wrong; i++) {
        const struct client *c = &w->clients[w->live[i]];
        for (uint32_t k = 0; k < c->n; k++) {
            uint32_t ready;
            enum finish_reason finish = choice_poll(&c->request->choices[k], &ready);
            if (c->choices[k].has_ended || finish != FINISH_NONE) continue;
            world_wrong(w, "request %lu choice %u is left without an end by the engine's",
                        (unsigned long)c->request->id, k);
        }
        if (atomic_load(&c->request->refs) != 1)
            world_wrong(w, "request %lu is still held after the engine's end",
                        (unsigned long)c->request->id);
    }
}

static void run(struct world *w) {
    const struct sim_clients clients = {.next_us = world_next_us,
                                        .act = world_act,
                                        .on_output = world_on_output,
                                        .stepped = stepped,
                                        .ctx = w};
    struct err err = {0};
    world_traffic_begin(w);
    prepare_turn(w);
    if (sim_replay_run(w->engine, &w->clock, &clients, &err) != ST_OK)
        world_wrong(w, "%s", err.text);
    w->out->counts[COUNT_AHEAD_PLANS] += sched_stats(w->sched).ahead_plans;
    w->out->counts[COUNT_DROPPED_ROWS] += sched_stats(w->sched).dropped_rows;
    world_count_drafts(w);
    if (w->out->is_wrong) return;
    if (w->is_draining)
        world_check_end(w);
    else
        abandon(w);
}

/* A world in which something is wrong is not taken apart: it could end in a CHECK that hides what
 * was found. */
static void release(struct world *w) {
    if (w->out->is_wrong) return;
    engine_destroy(w->engine);
    for (uint32_t i = 0; w->clients && i < w->client_count; i++)
        request_unref(w->clients[i].request);
    mem_free(w->clients);
    mem_free(w->live);
    mem_free(w);
}

enum status world_run(const struct world_options *options, struct world_outcome *out,
                      struct err *err) {
    *out = (struct world_outcome){0};
    struct world *w = mem_zalloc(sizeof(*w));
    if (!w) return err_set(err, ST_NOMEM, "out of memory for a world");
    w->options = *options;
    w->out = out;
    sim_clock_init(&w->clock);
    world_draw(w);
    out->policy = w->policy->name;
    if (options->mark) {
        *options->mark = (struct world_mark){.seed = options->seed, .depth = options->depth};
        snprintf(options->mark->policy, sizeof(options->mark->policy), "%s", out->policy);
    }
    w->clients = mem_zalloc_array(REQUESTS_MAX, sizeof(w->clients[0]));
    w->live = mem_zalloc_array(REQUESTS_MAX, sizeof(w->live[0]));
    enum status st = w->clients && w->live
                         ? open_engine(w, err)
                         : err_set(err, ST_NOMEM, "out of memory for the clients of a world");
    if (st == ST_OK) run(w);
    release(w);
    return st;
}

void world_describe(const struct world_options *options, struct err *out) {
    struct world_outcome unused = {0};
    struct world *w = mem_zalloc(sizeof(*w));
    if (!w) return;
    w->options = *options;
    w->out = &unused;
    sim_clock_init(&w->clock);
    world_draw(w);
    const struct sched_options *s = &w->engine_options.sched;
    const struct knobs *k = &s->knobs;
    err_set(
        out, ST_OK,
        "seed %lu, depth %u: %s, %u blocks of %u tokens, %u groups, %u spill slots, max_seqs %u, "
        "%u tokens "
        "a step, queue of %u, context of %u, prefix cache %s, preempt_max %u",
        (unsigned long)options->seed, options->depth, w->policy->name, k->kv_blocks, k->block_size,
        s->group_count, k->spill_blocks, k->max_seqs, k->max_step_tokens, k->queue_max,
        s->ctx_tokens, k->prefix_cache ? "on" : "off", k->preempt_max);
    mem_free(w);
}
