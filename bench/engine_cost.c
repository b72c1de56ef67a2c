/* bench/engine_cost.c - what serving costs apart from the model: requests and tokens.
 *
 * An engine over the simulated runner without a pause, so that everything measured is ours:
 *
 *     request   submit, schedule, one token, take the event, release: 128 tokens of prompt
 *     token     a step shared by all who run, and the mailbox; a client takes every event
 *     lag       the same with a client that looks only now and then
 *     record    the step record alone (it is part of `token`): rows of all who run, 32 who wait
 *
 * Prints CSV: case, running, nanoseconds of processor time on the engine's thread, the same on the
 * client's, for one request, token or step. The limits are 500 ns for a token on both together, and
 * 5000 ns for the record of a step of 256 sequences.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/recorder.h"
#include "engine/runner_sim.h"

enum { VOCAB = 49152, CTX = 8192, PROMPT = 128, REQUESTS = 4000, TOKENS = 2000 };
enum { RUNNING_MAX = 256, LAG_US = 20000, TOKEN_NS_MAX = 500 };
enum { RECORDS = 20000, RECORD_NS_MAX = 5000 };

struct load {
    struct engine *engine;
    uint32_t running;
    uint32_t submitted;
    struct request *requests[RUNNING_MAX];
    int64_t lag_us; /* the client sleeps so long after it has taken all */
    atomic_uint ended;
    double client_ns;
    uint64_t seen_tokens;
};

/* Processor time of this thread: others on the machine do not count. */
static double cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1); /* NOLINT */
}

static void open_load(struct load *l, uint32_t running) {
    struct err err = {0};
    struct runner runner;
    struct engine_options o = {.vocab = VOCAB,
                               .sched = {.policy = sched_policies[0],
                                         .knobs = knobs_default(),
                                         .ctx_tokens = CTX,
                                         .group_count = 1}};
    cost_init(&o.sched.cost, cost_profile_find("h200-8b"));
    o.sched.knobs.max_seqs = running;
    o.sched.knobs.max_step_tokens = 8192;
    o.sched.knobs.kv_blocks = running * (PROMPT + TOKENS + 16) / 16;
    *l = (struct load){.running = running};
    must(engine_create(&l->engine, &o, &err), &err);
    struct runner_sim_options sim = {
        .seq_max = sched_seq_max(&o.sched.knobs), .row_max = running, .vocab = VOCAB};
    must(runner_sim_open(&sim, &runner, &err), &err);
    engine_plug(l->engine, &runner);
}

/* Prompts begin differently, so that nothing is found in the prefix cache. */
static struct request *submit(struct load *l, uint32_t max_tokens) {
    int32_t prompt[PROMPT];
    struct err err = {0};
    struct request *r = NULL;
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = (int32_t)((l->submitted * 7919u + i * 31u) % VOCAB);
    l->submitted++;
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = PROMPT,
                                .max_tokens = max_tokens,
                                .n = 1,
                                .sample = sample_params_default()};
    must(engine_submit(l->engine, &spec, &r, &err), &err);
    return r;
}

static void take_all(struct load *l) {
    struct choice *choices[64];
    for (uint32_t count; (count = engine_next_many(l->engine, choices, 64)) > 0;)
        for (uint32_t i = 0; i < count; i++) {
            uint32_t ready;
            if (choice_poll(choices[i], &ready) != FINISH_NONE) atomic_fetch_add(&l->ended, 1);
            request_unref(choices[i]->request);
        }
}

static void measure_requests(void) {
    struct load l;
    bool did_work = false;
    open_load(&l, 64);
    double start_ns = cpu_ns();
    for (uint32_t done = 0; done < REQUESTS; done += l.running) {
        for (uint32_t i = 0; i < l.running; i++) l.requests[i] = submit(&l, 1);
        while (atomic_load(&l.ended) < done + l.running) {
            engine_step(l.engine, &did_work);
            take_all(&l);
        }
        for (uint32_t i = 0; i < l.running; i++) request_unref(l.requests[i]);
    }
    printf("request,%u,%.0f,\n", l.running, (cpu_ns() - start_ns) / l.submitted);
    engine_destroy(l.engine);
}

static void *client_main(void *arg) {
    struct load *l = arg;
    double start_ns = cpu_ns();
    while (atomic_load(&l->ended) < l->running) {
        struct choice *c = engine_next(l->engine, 100000);
        if (!c) continue;
        uint32_t ready;
        if (choice_poll(c, &ready) != FINISH_NONE) atomic_fetch_add(&l->ended, 1);
        request_unref(c->request);
        take_all(l);
        struct timespec t = {.tv_nsec = l->lag_us * 1000};
        if (l->lag_us > 0) nanosleep(&t, NULL);
    }
    l->client_ns = cpu_ns() - start_ns;
    return NULL;
}

/* Returns nanoseconds of both threads for a token. */
static double measure_tokens(const char *name, uint32_t running, int64_t lag_us) {
    struct load l;
    pthread_t client;
    bool did_work = false;
    open_load(&l, running);
    l.lag_us = lag_us;
    for (uint32_t i = 0; i < running; i++) l.requests[i] = submit(&l, TOKENS);
    for (int i = 0; i < 4; i++) engine_step(l.engine, &did_work); /* the prompts */
    int rc = pthread_create(&client, NULL, client_main, &l);
    CHECK(rc == 0);
    double start_ns = cpu_ns();
    do {
        engine_step(l.engine, &did_work);
    } while (did_work);
    double tokens = (double)running * (TOKENS - 4), engine_ns = (cpu_ns() - start_ns) / tokens;
    pthread_join(client, NULL);
    double client_ns = l.client_ns / tokens;
    printf("%s,%u,%.0f,%.0f\n", name, running, engine_ns, client_ns);
    for (uint32_t i = 0; i < running; i++) request_unref(l.requests[i]);
    engine_destroy(l.engine);
    return engine_ns + client_ns;
}

/* A plan of max_seqs rows, and as many sequences again in the queue. */
static struct sched *make_plan(uint32_t running, int32_t *tokens, struct plan *plan) {
    struct sched_options o = {
        .policy = sched_policies[0], .knobs = knobs_default(), .ctx_tokens = CTX, .group_count = 1};
    struct err err = {0};
    struct sched *s = NULL;
    seq_idx seq;
    cost_init(&o.cost, cost_profile_find("h200-8b"));
    o.knobs.max_seqs = running;
    o.knobs.kv_blocks = 4 * running;
    must(sched_create(&s, &o, &err), &err);
    for (uint32_t i = 0; i < 2 * running; i++) {
        struct sched_submit in = {.request = i + 1,
                                  .parent = SEQ_NONE,
                                  .tokens = tokens,
                                  .prompt_tokens = 1,
                                  .total_max = 2};
        must(sched_submit(s, &in, 0, &seq, &err), &err);
    }
    must(plan_init(plan, running, 64), &err);
    sched_plan(s, 0, plan);
    CHECK(plan->row_count == running);
    CHECK(plan->wait_count == PLAN_WAITS_MAX);
    plan->admitted_count = 0; /* as in most steps */
    return s;
}

/* Returns nanoseconds for the record of a step. */
static double measure_record(uint32_t running) {
    struct plan plan;
    struct recorder *r = NULL;
    int32_t tokens[2] = {1};
    struct err err = {0};
    struct sched *s = make_plan(running, tokens, &plan);
    struct sched_stats stats = sched_stats(s);
    must(recorder_create(&r, (size_t)16 << 20, running, &stats, sched_kv(s)), &err);
    double ns = 0;
    for (int warm = 1; warm >= 0; warm--) { /* the first round makes the ring's pages real */
        double start_ns = cpu_ns();
        for (uint64_t i = 0; i < RECORDS; i++) {
            struct record_times times = {.step = i, .at_us = (int64_t)i, .elapsed_us = 1};
            recorder_rows(r, s, &plan);
            recorder_step(r, &times, &plan);
        }
        ns = (cpu_ns() - start_ns) / RECORDS;
    }
    printf("record,%u,%.0f,\n", running, ns);
    recorder_destroy(r);
    plan_deinit(&plan);
    sched_destroy(s);
    return ns;
}

int main(void) {
    static const uint32_t sizes[] = {1, 64, RUNNING_MAX};
    double worst_ns = 0;
    printf("case,running,engine_ns,client_ns\n");
    measure_requests();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        double ns = measure_tokens("token", sizes[i], 0);
        if (sizes[i] >= 64 && ns > worst_ns) worst_ns = ns;
    }
    measure_tokens("lag", RUNNING_MAX, LAG_US);
    printf("# a token with 64 or more running: %.0f ns, limit %d: %s\n", worst_ns, TOKEN_NS_MAX,
           worst_ns <= TOKEN_NS_MAX ? "met" : "missed");
    double record_ns = measure_record(RUNNING_MAX);
    printf("# the record of a step with %d running: %.0f ns, limit %d: %s\n", RUNNING_MAX,
           record_ns, RECORD_NS_MAX, record_ns <= RECORD_NS_MAX ? "met" : "missed");
    return 0;
}
