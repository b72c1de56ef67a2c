/* bench/policies_real.c - every scheduling policy with a real model on this machine.
 *
 * Usage: bench/policies_real [model [data folder]]
 *        (else smollm2 from the model cache, $JITNEY_TEST_DATA, ../shared/data)
 *
 * 1. What the machine carries: chunked, everything at once. Lengths of traces/azure_conv.csv / 8,
 *    16 seats; an answer is as long as the trace says, whatever the model would have said.
 * 2. Poisson arrivals at 70 % of that, the same ones for every policy. Rounds are interleaved
 *    (A B C A B C ...) and medians over rounds are shown, because other work on the machine comes
 *    and goes; chunked and static have more rounds than the others.
 * 3. Share of a step that goes into scheduling with 256 running.
 *
 * Prints how the limits stand; a noisy machine can miss them, so the exit status is 0.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/replay.h"
#include "config/env.h"
#include "config/model_cache.h"
#include "engine/engine.h"
#include "engine/service.h"
#include "sim/workload.h"

enum {
    SEATS = 16,
    DIVISOR = 8,
    CARRY_REQUESTS = 40,
    REQUESTS = 40,
    ROUNDS = 3,
    ROUNDS_MAX = 3,
    FULL_SEATS = 256,
    POLICIES_MAX = 16,
};

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "policies_real: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static void *must_have(void *memory) {
    if (!memory) must(ST_NOMEM, &(struct err){"out of memory"});
    return memory;
}

/* ---- one run ---- */

/* Prompts of distinct random words: nothing is found in the prefix cache. */
static void make_list(struct request_list *list, const struct workload *w, uint32_t vocab) {
    *list = (struct request_list){.count = w->count, .cap = w->count};
    list->items = must_have(mem_zalloc_array(w->count, sizeof(list->items[0])));
    for (uint32_t i = 0; i < w->count; i++) {
        const struct work_request *r = &w->requests[i];
        struct listed_request *to = &list->items[i];
        *to = (struct listed_request){.line = i + 1,
                                      .at_us = r->at_us,
                                      .cancel_after_us = -1,
                                      .prompt_tokens = r->prompt_tokens,
                                      .max_tokens = r->answer_tokens,
                                      .n = 1,
                                      .ignore_eos = true};
        to->id = must_have(mem_dup("\"\"", 2));
        to->prompt = must_have(mem_alloc_array(r->prompt_tokens, sizeof(to->prompt[0])));
        for (uint32_t p = 0; p < r->prompt_tokens; p++)
            to->prompt[p] = (int32_t)(rng_at(7, i, p) % vocab);
    }
}

struct run {
    struct replay_summary sum;
    double step_us;
};

static struct run run(const char *model, const struct sched_policy *policy, struct knobs k,
                      const struct workload *w) {
    struct err err = {{0}};
    struct service s;
    struct request_list list;
    struct replay replay;
    if (k.queue_max < w->count) k.queue_max = w->count;
    struct service_options o = {.policy = policy, .knobs = k, .ctx_tokens = 2048};
    must(service_open(&s, model, &o, &err), &err);
    make_list(&list, w, 1000);
    must(replay_init(&replay, &list, &err), &err);
    must(engine_start(s.engine, &err), &err);
    must(replay_run(&replay, s.engine, &err), &err);
    engine_stop(s.engine);
    struct engine_stats stats = engine_stats(s.engine);
    struct run out = {.sum = replay_summarize(&replay, &stats)};
    if (stats.sched.steps > 0) out.step_us = (double)stats.step_us / (double)stats.sched.steps;
    replay_deinit(&replay);
    request_list_deinit(&list);
    service_close(&s);
    return out;
}

static struct workload make_work(const struct lengths *lengths, uint32_t count, double per_s) {
    struct err err = {{0}};
    struct workload w = {0};
    struct work_stream s = {
        .lengths = lengths, .divisor = DIVISOR, .count = count, .seed = 11, .per_s = per_s};
    must(workload_add(&w, &s, &err), &err);
    return w;
}

/* ---- every policy ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median over rounds of one number. */
static double median(const struct run *runs, size_t offset) {
    double v[ROUNDS_MAX];
    for (int i = 0; i < ROUNDS; i++)
        memcpy(&v[i], (const char *)&runs[i].sum + offset, sizeof(v[0]));
    qsort(v, ROUNDS, sizeof(v[0]), by_value);
    return v[ROUNDS / 2];
}

#define MEDIAN(runs, field) median(runs, offsetof(struct replay_summary, field))

static void print_row(const char *name, const struct run *runs) {
    printf("| %s | %.1f | %.0f | %.0f | %.1f | %.1f | %llu | %.1f %% |\n", name,
           MEDIAN(runs, output_tokens_per_s), MEDIAN(runs, ttft_ms.p50), MEDIAN(runs, ttft_ms.p99),
           MEDIAN(runs, tpot_ms.p50), MEDIAN(runs, tpot_ms.p99),
           (unsigned long long)runs[0].sum.preemptions, 100 * MEDIAN(runs, kv_waste));
}

static void compare(const struct run *chunked, const struct run *fixed) {
    double rate = MEDIAN(chunked, output_tokens_per_s) / MEDIAN(fixed, output_tokens_per_s);
    double ttft = MEDIAN(chunked, ttft_ms.p50) / MEDIAN(fixed, ttft_ms.p50);
    printf("\nchunked / static: output tokens/s %.3f, at least 1: %s; TTFT p50 %.3f, at most 0.5: "
           "%s\n",
           rate, rate >= 1 ? "met" : "MISSED", ttft, ttft <= 0.5 ? "met" : "MISSED");
}

static void show_policies(const char *model, const struct lengths *lengths) {
    static struct run runs[POLICIES_MAX][ROUNDS_MAX];
    struct knobs k = knobs_default();
    k.max_seqs = SEATS;
    k.dynamic_batch = SEATS;
    struct workload all = make_work(lengths, CARRY_REQUESTS, 0);
    struct run carry = run(model, sched_policy_find("chunked"), k, &all);
    double per_s = 0.7 * CARRY_REQUESTS / carry.sum.elapsed_s;
    printf("chunked carries %.2f requests/s (%.1f output tokens/s); below, %.2f come\n\n",
           per_s / 0.7, carry.sum.output_tokens_per_s, per_s);
    struct workload calm = make_work(lengths, REQUESTS, per_s);

    const struct run *chunked = NULL, *fixed = NULL;
    for (int round = 0; round < ROUNDS; round++)
        for (uint32_t p = 0; sched_policies[p]; p++)
            runs[p][round] = run(model, sched_policies[p], k, &calm);
    printf("| policy | output tokens/s | TTFT p50 ms | TTFT p99 ms | TPOT p50 ms | TPOT p99 ms "
           "| preemptions | waste |\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (uint32_t p = 0; sched_policies[p]; p++) {
        print_row(sched_policies[p]->name, runs[p]);
        if (strcmp(sched_policies[p]->name, "chunked") == 0) chunked = runs[p];
        if (strcmp(sched_policies[p]->name, "static") == 0) fixed = runs[p];
    }
    CHECK(chunked && fixed);
    compare(chunked, fixed);
    workload_deinit(&all);
    workload_deinit(&calm);
}

/* ---- 256 at one time ---- */

static void show_share(const char *model) {
    struct length_pair pair = {16, 16};
    struct lengths lengths = {&pair, 1};
    struct err err = {{0}};
    struct workload w = {0};
    struct work_stream s = {.lengths = &lengths, .count = FULL_SEATS};
    must(workload_add(&w, &s, &err), &err);
    struct knobs k = knobs_default();
    k.max_seqs = FULL_SEATS;
    struct run r = run(model, sched_policy_find("chunked"), k, &w);
    double share = r.sum.sched_us_per_step / r.step_us;
    printf("\n%u running: %.1f us of scheduling in steps of %.0f us, %.3f %%, under 1 %%: %s\n",
           FULL_SEATS, r.sum.sched_us_per_step, r.step_us, 100 * share,
           share < 0.01 ? "met" : "MISSED");
    workload_deinit(&w);
}

int main(int argc, char **argv) {
    struct err err = {{0}};
    struct env_settings env;
    struct model_cache cache = {{0}};
    struct lengths lengths = {0};
    char model[MODEL_PATH_BYTES], path[MODEL_PATH_BYTES];
    const char *data = getenv("JITNEY_TEST_DATA"); /* NOLINT */
    env_read(&env);
    must(model_cache_init(&cache, &env, &err), &err);
    if (model_cache_resolve(&cache, argc > 1 ? argv[1] : "smollm2", model, &err) != ST_OK) {
        printf("skipped: %s\n", err.text);
        return EXIT_SUCCESS;
    }
    const char *folder = argc > 2 ? argv[2] : data ? data : "../shared/data";
    bool fits = path_join(path, sizeof(path), folder, "traces/azure_conv.csv");
    if (fits && file_exists(path))
        must(lengths_read(&lengths, path, &err), &err);
    else
        must(lengths_draw(&lengths, &shape_chat, CARRY_REQUESTS, 1, &err), &err);
    show_policies(model, &lengths);
    show_share(model);
    lengths_deinit(&lengths);
    return EXIT_SUCCESS;
}
