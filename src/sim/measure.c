/* sim/measure.c - see sim/measure.h for the contract. */
#include "sim/measure.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "sim/replay.h"

enum { VOCAB = 32000 };

struct run {
    const struct workload *work;
    struct measure *out;
    struct engine *engine;
    int64_t began_us;
    uint32_t next; /* the request that arrives next */
    uint32_t done;
    int32_t *prompt;                     /* room for the longest */
    uint32_t unstarted[MEASURE_TENANTS]; /* arrived, without a first token and not ended */
    bool is_tenant[MEASURE_TENANTS];
    uint32_t *seen; /* answer tokens received, by request */
    struct err *err;
    enum status status;
};

/* ---- clients ---- */

static int64_t next_us(void *ctx) {
    const struct run *u = ctx;
    if (u->next == u->work->count || u->status != ST_OK) return INT64_MAX;
    return u->began_us + u->work->requests[u->next].at_us;
}

static void submit(struct run *u, uint32_t i) {
    const struct work_request *r = &u->work->requests[i];
    for (uint32_t p = 0; p < r->prompt_tokens; p++) /* no two prompts share a prefix */
        u->prompt[p] = (int32_t)((p < 2 ? i >> 15 * p & 0x7fff : p) % VOCAB);
    struct request_spec spec = {.prompt = u->prompt,
                                .prompt_tokens = r->prompt_tokens,
                                .max_tokens = r->max_tokens,
                                .n = 1,
                                .sample = sample_params_default(),
                                .ignore_end = true,
                                .tenant = r->tenant,
                                .urgency = {.priority = r->priority,
                                            .ttft_target_us = r->ttft_target_us,
                                            .tpot_target_us = r->tpot_target_us},
                                .user = (void *)(uintptr_t)i};
    struct request *handle;
    enum status st = engine_submit(u->engine, &spec, &handle, u->err);
    if (st != ST_OK) {
        u->status = st;
        return;
    }
    request_unref(handle); /* the engine holds its own reference until the last event */
    u->unstarted[r->tenant]++;
}

static void act(void *ctx, struct engine *e, int64_t now_us) {
    struct run *u = ctx;
    u->engine = e;
    while (next_us(u) <= now_us) submit(u, u->next++);
}

static bool is_contended(const struct run *u) {
    uint32_t tenants = 0;
    for (uint32_t t = 0; t < MEASURE_TENANTS; t++) {
        if (u->is_tenant[t] && u->unstarted[t] == 0) return false;
        tenants += u->is_tenant[t];
    }
    return tenants > 1;
}

static void finish(struct run *u, uint32_t i, const struct choice *c, enum finish_reason why) {
    struct outcome *o = &u->out->outcomes[i];
    const struct work_request *r = &u->work->requests[i];
    CHECK(o->finish == FINISH_NONE);
    o->finish = why;
    o->tokens = u->seen[i];
    o->preempt_count = c->preempt_count;
    o->done_us = c->finished_us - u->began_us - r->at_us;
    if (o->tokens > 0) o->ttft_us = c->first_token_us - u->began_us - r->at_us;
    if (o->tokens == 0) u->unstarted[r->tenant]--;
    u->out->output_tokens += o->tokens;
    u->done++;
}

static void on_output(void *ctx, struct choice *c, int64_t now_us) {
    (void)now_us;
    struct run *u = ctx;
    uint32_t i = (uint32_t)(uintptr_t)c->request->user, ready;
    const struct work_request *r = &u->work->requests[i];
    enum finish_reason why = choice_poll(c, &ready);
    uint32_t answer = ready - r->prompt_tokens, before = u->seen[i];
    if (u->out->outcomes[i].finish != FINISH_NONE) return;
    if (answer > before) {
        uint64_t served = answer - before + (before == 0 ? r->prompt_tokens : 0);
        if (is_contended(u)) u->out->contended_tokens[r->tenant] += served;
        if (before == 0) u->unstarted[r->tenant]--;
        u->seen[i] = answer;
    }
    if (why != FINISH_NONE)
        finish(u, i, c, why);
    else if (answer >= r->answer_tokens)
        engine_cancel_choice(u->engine, c->request, 0, FINISH_STOP);
}

static bool stepped(void *ctx, bool did_work) {
    (void)did_work;
    const struct run *u = ctx;
    return u->status == ST_OK && u->done < u->work->count;
}

/* ---- the run ---- */

static void summarize(struct run *u, struct engine *e, const struct sim_clock *clock) {
    struct measure *m = u->out;
    struct sched_stats s = engine_stats(e).sched;
    m->preemptions = s.preempted;
    m->recomputed_tokens = s.recomputed_tokens;
    m->steps = s.steps;
    m->elapsed_s = (double)(clock->now_us - u->began_us) / 1e6;
    if (m->elapsed_s > 0) m->output_tokens_per_s = (double)m->output_tokens / m->elapsed_s;
    if (s.held_positions > 0) m->waste = 1 - (double)s.used_positions / (double)s.held_positions;
}

static enum status run_engine(struct run *u, const struct measure_options *options,
                              uint32_t longest, struct err *err) {
    struct sim_engine_options o = {
        .engine = {.sched = {.policy = options->policy,
                             .knobs = options->knobs,
                             .ctx_tokens = longest + 1,
                             .group_count = 1},
                   .vocab = VOCAB},
        .profile = options->profile,
    };
    if (o.engine.sched.knobs.queue_max < u->work->count)
        o.engine.sched.knobs.queue_max = u->work->count;
    struct sim_clock clock;
    struct engine *e = NULL;
    TRY(sim_engine_open(&e, &clock, &o, err));
    const struct sim_clients clients = {
        .next_us = next_us, .act = act, .on_output = on_output, .stepped = stepped, .ctx = u};
    u->engine = e;
    u->began_us = clock.now_us;
    enum status st = sim_replay_run(e, &clock, &clients, err);
    if (u->status != ST_OK) st = u->status;
    if (st == ST_OK) summarize(u, e, &clock);
    engine_destroy(e);
    return st;
}

enum status measure_run(const struct workload *w, const struct measure_options *options,
                        struct measure *out, struct err *err) {
    uint32_t longest = 1;
    struct run u = {.work = w, .out = out, .err = err};
    *out = (struct measure){.count = w->count};
    for (uint32_t i = 0; i < w->count; i++) {
        const struct work_request *r = &w->requests[i];
        CHECK(r->tenant < MEASURE_TENANTS);
        u.is_tenant[r->tenant] = true;
        CHECK(r->max_tokens < UINT32_MAX - r->prompt_tokens);
        if (r->prompt_tokens + r->max_tokens > longest) longest = r->prompt_tokens + r->max_tokens;
    }
    out->outcomes = mem_zalloc_array(w->count + (size_t)1, sizeof(out->outcomes[0]));
    u.seen = mem_zalloc_array(w->count + (size_t)1, sizeof(u.seen[0]));
    u.prompt = mem_alloc_array(longest, sizeof(u.prompt[0]));
    enum status st = ST_OK;
    if (!out->outcomes || !u.seen || !u.prompt)
        st = err_set(err, ST_NOMEM, "out of memory for %u requests", w->count);
    if (st == ST_OK) st = run_engine(&u, options, longest, err);
    mem_free(u.seen);
    mem_free(u.prompt);
    if (st != ST_OK) measure_deinit(out);
    return st;
}

void measure_deinit(struct measure *m) {
    mem_free(m->outcomes);
    *m = (struct measure){.outcomes = NULL};
}

/* ---- statistics ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Negative values are left out. */
static double ttft_ms(const struct outcome *o) {
    return o->tokens > 0 ? (double)o->ttft_us / 1e3 : -1;
}
static double tpot_ms(const struct outcome *o) {
    return o->tokens > 1 ? (double)(o->done_us - o->ttft_us) / 1e3 / (o->tokens - 1) : -1;
}
static double done_ms(const struct outcome *o) {
    return o->finish == FINISH_STOP || o->finish == FINISH_LENGTH ? (double)o->done_us / 1e3 : -1;
}

/* By nearest rank: the smallest value that `share` of all do not exceed. */
static double percentile(const struct measure *m, double (*get)(const struct outcome *),
                         double share) {
    uint32_t count = 0;
    double *values = mem_alloc_array(m->count + (size_t)1, sizeof(values[0]));
    if (!values) return 0;
    for (uint32_t i = 0; i < m->count; i++) {
        double v = get(&m->outcomes[i]);
        if (v >= 0) values[count++] = v;
    }
    qsort(values, count, sizeof(values[0]), by_value);
    uint32_t rank = (uint32_t)(share * count);
    if (rank < share * count) rank++;
    double value = count == 0 ? 0 : values[rank > 0 ? rank - 1 : 0];
    mem_free(values);
    return value;
}

double measure_ttft_ms(const struct measure *m, double share) {
    return percentile(m, ttft_ms, share);
}
double measure_tpot_ms(const struct measure *m, double share) {
    return percentile(m, tpot_ms, share);
}
double measure_done_ms(const struct measure *m, double share) {
    return percentile(m, done_ms, share);
}

double measure_mean_done_ms(const struct measure *m) {
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        double v = done_ms(&m->outcomes[i]);
        if (v < 0) continue;
        sum += v;
        count++;
    }
    return count > 0 ? sum / count : 0;
}

bool outcome_met(const struct outcome *o, const struct work_request *r) {
    if (o->finish != FINISH_STOP && o->finish != FINISH_LENGTH) return false;
    if (r->ttft_target_us > 0 && o->ttft_us > r->ttft_target_us) return false;
    return r->tpot_target_us == 0 || tpot_ms(o) <= (double)r->tpot_target_us / 1e3;
}

double measure_share_met(const struct measure *m, const struct workload *w) {
    uint32_t met = 0;
    CHECK(m->count == w->count);
    for (uint32_t i = 0; i < m->count; i++) met += outcome_met(&m->outcomes[i], &w->requests[i]);
    return m->count > 0 ? (double)met / m->count : 0;
}
