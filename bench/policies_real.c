/* bench/policies_real.c - every scheduling policy with a real model on this machine.
 *
 * Usage: bench/policies_real [model [data folder]]
 *        (else smollm2 from the model cache, $JITNEY_TEST_DATA, ../shared/data)
 *
 * 1. Share of a step that goes into scheduling with 256 running.
 * 2. Every policy at 70 % of what the machine carries. Lengths of traces/azure_conv.csv / 8, 16
 *    sequences; an answer is as long as the trace says, whatever the model would have said. A round
 *    first measures what chunked carries (everything at once), then offers 70 % of that (Poisson
 *    arrivals, the same for all). Other work on the machine comes and goes, so chunked and static
 *    take turns for several rounds, and medians are shown.
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
#include "config/env.h"
#include "hub/model_cache.h"
#include "engine/engine.h"
#include "engine/service.h"
#include "sim/replay_list.h"
#include "sim/workload.h"

enum {
    SEQS = 16,
    DIVISOR = 8,
    CARRY_REQUESTS = 32,
    REQUESTS = 40,
    ROUNDS = 5, /* of chunked and static; the others have one */
    FULL_SEQS = 256,
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

/* The runs of one policy. */
struct rounds {
    struct run runs[ROUNDS];
    int count;
};

/* The median over rounds of one number. */
static double median(const struct rounds *r, size_t offset) {
    double v[ROUNDS];
    for (int i = 0; i < r->count; i++)
        memcpy(&v[i], (const char *)&r->runs[i].sum + offset, sizeof(v[0]));
    qsort(v, (size_t)r->count, sizeof(v[0]), by_value);
    return v[r->count / 2];
}

#define MEDIAN(rounds, field) median(rounds, offsetof(struct replay_summary, field))

static void print_row(const char *name, const struct rounds *r) {
    printf("| %s | %.1f | %.0f | %.0f | %.1f | %.1f | %llu | %.1f %% |\n", name,
           MEDIAN(r, output_tokens_per_s), MEDIAN(r, ttft_ms.p50), MEDIAN(r, ttft_ms.p99),
           MEDIAN(r, tpot_ms.p50), MEDIAN(r, tpot_ms.p99),
           (unsigned long long)r->runs[0].sum.preemptions, 100 * MEDIAN(r, kv_waste));
}

static struct knobs real_knobs(void) {
    struct knobs k = knobs_default();
    k.max_seqs = k.dynamic_batch = SEQS;
    return k;
}

/* 70 % of the requests a second that chunked finishes when it always has work. */
static double find_rate(const char *model, const struct lengths *lengths) {
    struct workload all = make_work(lengths, CARRY_REQUESTS, 0);
    struct run carry = run(model, sched_policy_find("chunked"), real_knobs(), &all);
    double per_s = CARRY_REQUESTS / carry.sum.elapsed_s;
    printf("chunked carries %.2f requests/s (%.1f output tokens/s); %.2f are offered\n", per_s,
           carry.sum.output_tokens_per_s, 0.7 * per_s);
    workload_deinit(&all);
    return 0.7 * per_s;
}

static bool is_named(const struct sched_policy *p, const char *name) {
    return strcmp(p->name, name) == 0;
}

/* Each round by itself: what the machine carried then is what its runs were offered. */
static void compare(const struct rounds *chunked, const struct rounds *fixed) {
    double rate[ROUNDS], ttft[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const struct replay_summary *a = &chunked->runs[i].sum, *b = &fixed->runs[i].sum;
        rate[i] = a->output_tokens_per_s / b->output_tokens_per_s;
        ttft[i] = a->ttft_ms.p50 / b->ttft_ms.p50;
    }
    qsort(rate, ROUNDS, sizeof(rate[0]), by_value);
    qsort(ttft, ROUNDS, sizeof(ttft[0]), by_value);
    double middle = rate[ROUNDS / 2], later = ttft[ROUNDS / 2];
    printf("\nchunked / static, median of %d rounds: output tokens/s %.3f (%.3f to %.3f), at least "
           "1: %s; TTFT p50 %.3f (%.3f to %.3f), at most 0.5: %s\n",
           ROUNDS, middle, rate[0], rate[ROUNDS - 1], middle >= 1 ? "met" : "MISSED", later,
           ttft[0], ttft[ROUNDS - 1], later <= 0.5 ? "met" : "MISSED");
}

/* One round: chunked and static always, the others in the first. */
static void run_round(const char *model, const struct lengths *lengths, int round,
                      struct rounds *rounds) {
    struct workload calm = make_work(lengths, REQUESTS, find_rate(model, lengths));
    for (uint32_t p = 0; sched_policies[p]; p++) {
        const struct sched_policy *policy = sched_policies[p];
        if (round > 0 && !is_named(policy, "chunked") && !is_named(policy, "static")) continue;
        struct rounds *r = &rounds[p];
        r->runs[r->count++] = run(model, policy, real_knobs(), &calm);
        fprintf(stderr, "%s: %.1f tokens/s, TTFT p50 %.0f ms\n", policy->name,
                r->runs[round].sum.output_tokens_per_s, r->runs[round].sum.ttft_ms.p50);
    }
    workload_deinit(&calm);
}

static void show_policies(const char *model, const struct lengths *lengths) {
    static struct rounds rounds[POLICIES_MAX];
    const struct rounds *chunked = NULL, *fixed = NULL;
    for (int round = 0; round < ROUNDS; round++) run_round(model, lengths, round, rounds);
    printf("\n| policy | output tokens/s | TTFT p50 ms | TTFT p99 ms | TPOT p50 ms | TPOT p99 ms "
           "| preemptions | waste |\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (uint32_t p = 0; sched_policies[p]; p++) {
        print_row(sched_policies[p]->name, &rounds[p]);
        if (is_named(sched_policies[p], "chunked")) chunked = &rounds[p];
        if (is_named(sched_policies[p], "static")) fixed = &rounds[p];
    }
    CHECK(chunked && fixed);
    compare(chunked, fixed);
}

/* ---- 256 at one time ---- */

static void show_share(const char *model) {
    struct length_pair pair = {16, 16};
    struct lengths lengths = {&pair, 1};
    struct err err = {{0}};
    struct workload w = {0};
    struct work_stream s = {.lengths = &lengths, .count = FULL_SEQS};
    must(workload_add(&w, &s, &err), &err);
    struct knobs k = knobs_default();
    k.max_seqs = FULL_SEQS;
    struct run r = run(model, sched_policy_find("chunked"), k, &w);
    double share = r.sum.sched_us_per_step / r.step_us;
    printf("%u running: %.1f us of scheduling in steps of %.0f us, %.3f %%, under 1 %%: %s\n",
           FULL_SEQS, r.sum.sched_us_per_step, r.step_us, 100 * share,
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
    show_share(model);
    show_policies(model, &lengths);
    lengths_deinit(&lengths);
    return EXIT_SUCCESS;
}
