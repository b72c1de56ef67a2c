/* sim/replay_list_run.c - replay_run and replay_run_sim: the list on a clock.
 *
 * One loop on the caller's thread: submit the requests that have arrived, cancel those whose time
 * has come, then take new tokens until the next arrival or cancellation is due. Times are measured
 * from the arrival time in the list, not from the moment of submission. The simulator has the same
 * loop over the same callbacks.
 */
#include "sim/replay_list.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "sim/replay.h"

static const int64_t WAIT_US_MAX = 1000000;

/* ---- a simulated engine ---- */

enum status replay_open_sim(const struct replay_sim_options *o, struct sim_clock *clock,
                            struct engine **out, struct err *err) {
    struct sim_engine_options sim = {
        .engine = {.vocab = o->vocab,
                   .record_bytes = o->record_bytes,
                   .speculate = o->speculate,
                   .sched = {.policy = o->policy,
                             .knobs = o->knobs,
                             .ctx_tokens = o->ctx_tokens ? o->ctx_tokens : SIM_CTX_TOKENS,
                             .group_count = 1,
                             .draft_rows_max = DRAFT_ROWS_MAX}},
        .profile = o->profile};
    if (o->knobs.kv_blocks == 0) sim.engine.sched.knobs.kv_blocks = SIM_KV_BLOCKS;
    return sim_engine_open(out, clock, &sim, err);
}

void replay_widen_queue(const struct request_list *list, struct knobs *knobs) {
    uint32_t choices = request_list_choices(list);
    if (knobs->queue_max < choices) knobs->queue_max = choices;
}

/* ---- the run ---- */

/* An arrival or a cancellation. */
struct due {
    int64_t at_us;
    uint32_t request;
};

struct run {
    struct replay *replay;
    struct engine *engine;
    int64_t began_us;
    struct request **live; /* by request; NULL: not submitted, or all its choices have ended */
    uint32_t *left;        /* choices that have not ended */
    struct due *arrivals, *cancels;
    uint32_t arrival_count, arrived, cancel_count, cancelled;
    uint32_t *lines;                            /* batch requests that have arrived, in order */
    uint32_t line_count, line_next, lines_live; /* lines_live: choices that have not ended */
    enum status status;                         /* ST_OK, or what ends the run */
};

static int by_time(const void *a, const void *b) {
    const struct due *x = a, *y = b;
    if (x->at_us != y->at_us) return x->at_us < y->at_us ? -1 : 1;
    return x->request < y->request ? -1 : x->request > y->request;
}

static enum status run_init(struct run *u) {
    const struct request_list *list = u->replay->list;
    size_t room = list->count + (size_t)1;
    u->live = mem_zalloc_array(room, sizeof(struct request *));
    u->left = mem_zalloc_array(room, sizeof(u->left[0]));
    u->arrivals = mem_zalloc_array(room, sizeof(u->arrivals[0]));
    u->cancels = mem_zalloc_array(room, sizeof(u->cancels[0]));
    u->lines = mem_zalloc_array(room, sizeof(u->lines[0]));
    if (!u->live || !u->left || !u->arrivals || !u->cancels || !u->lines) return ST_NOMEM;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct listed_request *r = &list->items[i];
        u->arrivals[u->arrival_count++] = (struct due){r->at_us, i};
        if (r->cancel_after_us >= 0)
            u->cancels[u->cancel_count++] = (struct due){r->at_us + r->cancel_after_us, i};
    }
    qsort(u->arrivals, u->arrival_count, sizeof(struct due), by_time);
    qsort(u->cancels, u->cancel_count, sizeof(struct due), by_time);
    return ST_OK;
}

static void run_deinit(struct run *u) {
    for (uint32_t i = 0; u->live && i < u->replay->list->count; i++) request_unref(u->live[i]);
    mem_free(u->live);
    mem_free(u->left);
    mem_free(u->arrivals);
    mem_free(u->cancels);
    mem_free(u->lines);
}

static enum status submit(struct run *u, uint32_t i) {
    const struct listed_request *r = &u->replay->list->items[i];
    struct request_spec spec = {.prompt = r->prompt,
                                .prompt_tokens = r->prompt_tokens,
                                .max_tokens = r->max_tokens,
                                .n = r->n,
                                .sample = sample_params_default(),
                                .ignore_end = r->ignore_eos,
                                .want_logprobs = !u->replay->drops_answers,
                                .tenant = r->tenant,
                                .is_batch = r->is_batch,
                                .urgency = {.priority = r->priority,
                                            .ttft_target_us = r->ttft_target_us,
                                            .tpot_target_us = r->tpot_target_us},
                                .user = (void *)(uintptr_t)i};
    spec.sample.temperature = (float)r->temperature;
    spec.sample.seed = r->seed;
    struct err why = {0};
    enum status st = engine_submit(u->engine, &spec, &u->live[i], &why);
    if (st == ST_NOMEM) return st;
    if (st != ST_OK) return replay_refuse(u->replay, i, why.text);
    u->left[i] = r->n;
    if (r->is_batch) u->lines_live += r->n;
    return ST_OK;
}

/* May the next batch request be submitted? The engine has a limit for them: the others wait here,
 * as the lines of a batch job wait in its file. */
static bool line_is_due(const struct run *u) {
    if (u->line_next == u->line_count || u->status != ST_OK) return false;
    uint32_t choices = u->replay->list->items[u->lines[u->line_next]].n;
    return u->lines_live == 0 || u->lines_live + choices <= engine_batch_places(u->engine);
}

static enum status arrive(struct run *u, uint32_t i) {
    if (!u->replay->list->items[i].is_batch) return submit(u, i);
    u->lines[u->line_count++] = i;
    return ST_OK;
}

/* It may be cancelled already. */
static enum status submit_line(struct run *u, uint32_t i, int64_t now_us) {
    const struct listed_request *r = &u->replay->list->items[i];
    TRY(submit(u, i));
    if (u->live[i] && r->cancel_after_us >= 0 && r->at_us + r->cancel_after_us <= now_us)
        engine_cancel(u->engine, u->live[i]);
    return ST_OK;
}

static enum status do_due(struct run *u, int64_t now_us) {
    while (u->arrived < u->arrival_count && u->arrivals[u->arrived].at_us <= now_us)
        TRY(arrive(u, u->arrivals[u->arrived++].request));
    while (line_is_due(u)) TRY(submit_line(u, u->lines[u->line_next++], now_us));
    while (u->cancelled < u->cancel_count && u->cancels[u->cancelled].at_us <= now_us) {
        struct request *r = u->live[u->cancels[u->cancelled++].request];
        if (r) engine_cancel(u->engine, r);
    }
    return ST_OK;
}

/* When there is something to submit or to cancel again, on the engine's clock. */
static int64_t next_us(void *ctx) {
    const struct run *u = ctx;
    int64_t next = INT64_MAX;
    if (u->status != ST_OK) return next;
    if (line_is_due(u)) return u->began_us;
    if (u->arrived < u->arrival_count) next = u->arrivals[u->arrived].at_us;
    if (u->cancelled < u->cancel_count && u->cancels[u->cancelled].at_us < next)
        next = u->cancels[u->cancelled].at_us;
    return next == INT64_MAX ? next : u->began_us + next;
}

static void act(void *ctx, struct engine *e, int64_t now_us) {
    struct run *u = ctx;
    u->engine = e;
    u->status = do_due(u, now_us - u->began_us);
}

/* It may be asked to stop several times, until it has. */
static void stop_at_end(struct run *u, uint32_t i, const struct choice *c, uint32_t ready) {
    const uint32_t *stops = u->replay->list->items[i].stops;
    if (stops && stops[c->index] > 0 && ready >= c->prompt_tokens + stops[c->index])
        engine_cancel_choice(u->engine, c->request, c->index, FINISH_STOP);
}

/* A choice may come once more after its end was seen: it had new tokens, and then it ended. */
static void on_output(void *ctx, struct choice *c, int64_t now_us) {
    (void)now_us;
    struct run *u = ctx;
    uint32_t i = (uint32_t)(uintptr_t)c->request->user, ready;
    const struct choice_result *result = &u->replay->results[u->replay->first[i] + c->index];
    if (result->is_done) return;
    if (choice_poll(c, &ready) == FINISH_NONE) {
        stop_at_end(u, i, c, ready);
        return;
    }
    enum status st = replay_take(u->replay, i, c, u->began_us);
    if (st != ST_OK) u->status = st;
    if (u->replay->list->items[i].is_batch) u->lines_live--;
    if (--u->left[i] > 0) return;
    request_unref(u->live[i]);
    u->live[i] = NULL;
}

static bool is_over(const struct run *u) {
    return u->status != ST_OK || u->replay->done_count == u->replay->choice_count;
}

static bool stepped(void *ctx, bool did_work) {
    struct run *u = ctx;
    const struct replay *r = u->replay;
    (void)did_work;
    if (u->status == ST_OK && r->goes_on && !r->goes_on(r->goes_ctx)) u->status = ST_CANCELLED;
    return !is_over(u);
}

static void loop(struct run *u) {
    while (!is_over(u)) {
        int64_t now_us = clock_now(&clock_real);
        if (next_us(u) <= now_us) act(u, u->engine, now_us);
        if (is_over(u)) break;
        int64_t left_us = next_us(u) - now_us;
        struct choice *c = engine_next(u->engine, left_us < WAIT_US_MAX ? left_us : WAIT_US_MAX);
        for (; c; c = engine_next(u->engine, 0)) {
            on_output(u, c, now_us);
            request_unref(c->request);
        }
    }
}

static enum status run_end(struct run *u, struct err *err) {
    enum status st = u->status;
    run_deinit(u);
    return st == ST_NOMEM ? err_set(err, st, "out of memory for the replay") : st;
}

enum status replay_run(struct replay *r, struct engine *e, struct err *err) {
    struct run u = {.replay = r, .engine = e};
    u.status = run_init(&u);
    u.began_us = clock_now(&clock_real);
    loop(&u);
    return run_end(&u, err);
}

enum status replay_run_sim(struct replay *r, struct engine *e, struct sim_clock *clock,
                           struct err *err) {
    struct run u = {.replay = r, .engine = e, .began_us = clock_now(&clock->clock)};
    const struct sim_clients clients = {
        .next_us = next_us, .act = act, .on_output = on_output, .stepped = stepped, .ctx = &u};
    u.status = run_init(&u);
    if (u.status == ST_OK) {
        enum status st = sim_replay_run(e, clock, &clients, err);
        if (u.status == ST_OK) u.status = st;
    }
    return run_end(&u, err);
}
