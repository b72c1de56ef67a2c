/* bench/policies.c - what each scheduling policy makes of the same traffic, on simulated time.
 *
 * Usage: bench/policies [data folder]      (else $JITNEY_TEST_DATA, else ../shared/data)
 *
 * The real engine, scheduler and KV cache; only the model is a cost profile (sched/cost.h). Runs
 * are exact: the same numbers on every machine. Lengths are those of traces/azure_conv.csv where
 * the data folder has it, else drawn from a shape like it.
 *
 * 1. Everything at once: what a policy can carry.
 * 2. The same at 70 % of what chunked carries: what latency its users see.
 * 3. Chat, reading and writing at 80 %: which policy for which work.
 * 4. Each policy on the traffic that it is for, beside chunked.
 *
 * Exits with 1 when a figure misses its limit.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "sim/measure.h"
#include "sim/workload.h"

static bool is_missed;

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "policies: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static void limit(const char *what, double value, double least) {
    printf("%s: %.2f, at least %.2f: %s\n", what, value, least, value >= least ? "met" : "MISSED");
    if (value < least) is_missed = true;
}

static void limit_most(const char *what, double value, double most) {
    printf("%s: %.3f, at most %.3f: %s\n", what, value, most, value <= most ? "met" : "MISSED");
    if (value > most) is_missed = true;
}

/* ---- one run ---- */

static struct measure run(const char *policy, const struct knobs *knobs, const char *profile,
                          const struct workload *w) {
    struct err err = {{0}};
    struct measure m;
    struct measure_options o = {.policy = sched_policy_find(policy),
                                .knobs = *knobs,
                                .profile = *cost_profile_find(profile)};
    must(measure_run(w, &o, &m, &err), &err);
    return m;
}

static void stream(struct workload *w, const struct work_stream *s) {
    struct err err = {{0}};
    must(workload_add(w, s, &err), &err);
}

static void head(const char *title) {
    printf("\n## %s\n\n", title);
    printf("| policy | output tokens/s | TTFT p50 ms | TTFT p99 ms | TPOT p50 ms | TPOT p99 ms "
           "| mean time to done ms | preemptions | waste | refused or shed |\n");
    printf("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
}

static uint32_t unfinished(const struct measure *m) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->count; i++)
        n += m->outcomes[i].finish != FINISH_STOP && m->outcomes[i].finish != FINISH_LENGTH;
    return n;
}

static void row(const char *policy, const struct measure *m) {
    printf("| %s | %.0f | %.0f | %.0f | %.1f | %.1f | %.0f | %llu | %.1f %% | %u |\n", policy,
           m->output_tokens_per_s, measure_ttft_ms(m, 0.5), measure_ttft_ms(m, 0.99),
           measure_tpot_ms(m, 0.5), measure_tpot_ms(m, 0.99), measure_mean_done_ms(m),
           (unsigned long long)m->preemptions, 100 * m->waste, unfinished(m));
    fflush(stdout);
}

/* Every policy on one workload; returns chunked's rate divided by static's. */
static double table(const char *title, const struct knobs *k, const char *profile,
                    const struct workload *w) {
    double chunked = 0, fixed = 0;
    head(title);
    for (const struct sched_policy *const *p = sched_policies; *p; p++) {
        struct measure m = run((*p)->name, k, profile, w);
        row((*p)->name, &m);
        if (strcmp((*p)->name, "chunked") == 0) chunked = m.output_tokens_per_s;
        if (strcmp((*p)->name, "static") == 0) fixed = m.output_tokens_per_s;
        measure_deinit(&m);
    }
    return chunked / fixed;
}

/* ---- 1 and 2: an H200 with an 8B model ---- */

/* 4 GiB of KV at 128 KiB a token: memory runs out before max_seqs is reached. */
static struct knobs h200_knobs(void) {
    struct knobs k = knobs_default();
    k.kv_blocks = k.spill_blocks = 2048;
    k.max_seqs = k.dynamic_batch = 64;
    k.max_step_tokens = 2048;
    return k;
}

enum { H200_REQUESTS = 3000, ANSWER_MAX = 1000 };

static double requests_per_s(const struct measure *m) { return m->count / m->elapsed_s; }

/* How the ratio depends on memory, and on what is known of an answer's length. */
static void show_ratios(const struct lengths *azure) {
    static const uint32_t gibs[] = {2, 4, 8, 16, 32};
    printf("\n## h200-8b, everything at once: chunked / static, output tokens/s, 256 sequences\n\n"
           "| KV memory | at most 1000 tokens asked for | exactly the answer's tokens asked for "
           "|\n|---:|---:|---:|\n");
    for (uint32_t g = 0; g < sizeof(gibs) / sizeof(gibs[0]); g++) {
        double ratios[2];
        struct knobs k = h200_knobs();
        k.kv_blocks = k.spill_blocks = gibs[g] * 512;
        k.max_seqs = 256;
        for (int i = 0; i < 2; i++) {
            struct workload w = {0};
            stream(&w, &(struct work_stream){.lengths = azure,
                                             .count = H200_REQUESTS,
                                             .seed = 1,
                                             .max_tokens = i == 0 ? ANSWER_MAX : 0});
            struct measure a = run("chunked", &k, "h200-8b", &w);
            struct measure b = run("static", &k, "h200-8b", &w);
            ratios[i] = a.output_tokens_per_s / b.output_tokens_per_s;
            measure_deinit(&a);
            measure_deinit(&b);
            workload_deinit(&w);
        }
        printf("| %u GiB | %.2f | %.2f |\n", gibs[g], ratios[0], ratios[1]);
    }
}

static void show_h200(const struct lengths *azure) {
    struct knobs k = h200_knobs();
    struct workload all = {0}, calm = {0};
    struct work_stream s = {
        .lengths = azure, .count = H200_REQUESTS, .seed = 1, .max_tokens = ANSWER_MAX};
    stream(&all, &s);
    double ratio = table("h200-8b, everything at once; a request asks for at most 1000 tokens", &k,
                         "h200-8b", &all);
    limit("chunked / static, output tokens/s", ratio, 2);
    show_ratios(azure);

    struct measure m = run("chunked", &k, "h200-8b", &all);
    s.per_s = 0.7 * requests_per_s(&m);
    measure_deinit(&m);
    stream(&calm, &s);
    printf("\nchunked carries %.2f requests/s; below, %.2f come (Poisson)\n", s.per_s / 0.7,
           s.per_s);
    table("h200-8b, 70 % of what chunked carries", &k, "h200-8b", &calm);
    workload_deinit(&all);
    workload_deinit(&calm);
}

/* ---- which policy for which work ---- */

/* An H200 with 16 GiB of KV at 80 % of what chunked carries, every policy, three kinds of work. */
static void show_kinds(void) {
    const struct length_shape *shapes[] = {&shape_chat, &shape_reading, &shape_writing};
    for (int i = 0; i < 3; i++) {
        struct err err = {{0}};
        struct lengths l = {0};
        struct workload all = {0}, w = {0};
        struct knobs k = h200_knobs();
        k.kv_blocks = k.spill_blocks = 8192;
        k.max_seqs = k.dynamic_batch = 128;
        must(lengths_draw(&l, shapes[i], 1500, 9, &err), &err);
        struct work_stream s = {
            .lengths = &l, .count = 1500, .seed = 9, .max_tokens = shapes[i]->answer_max};
        stream(&all, &s);
        struct measure m = run("chunked", &k, "h200-8b", &all);
        s.per_s = 0.8 * requests_per_s(&m);
        measure_deinit(&m);
        stream(&w, &s);
        char title[128];
        snprintf(title, sizeof(title), "h200-8b, %s, 80 %% load (%.1f requests/s)", shapes[i]->name,
                 s.per_s);
        table(title, &k, "h200-8b", &w);
        k.step_target_ms = 25;
        m = run("chunked", &k, "h200-8b", &w);
        row("chunked, step_target_ms=25", &m);
        measure_deinit(&m);
        workload_deinit(&all);
        workload_deinit(&w);
        lengths_deinit(&l);
    }
}

/* ---- 4: what each policy is for ---- */

static struct knobs cpu_knobs(void) {
    struct knobs k = knobs_default();
    k.kv_blocks = 2048;
    k.max_seqs = 16;
    k.spill_blocks = 2048;
    return k;
}

/* Requests a second that chunked finishes when it always has work. */
static double capacity(const struct knobs *k, const struct work_stream *like) {
    struct workload w = {0};
    struct work_stream s = *like;
    s.per_s = 0;
    stream(&w, &s);
    struct measure m = run("chunked", k, "this-cpu", &w);
    double per_s = requests_per_s(&m);
    measure_deinit(&m);
    workload_deinit(&w);
    return per_s;
}

static void show_deadline(const struct lengths *azure) {
    struct knobs k = cpu_knobs();
    struct work_stream s = {.lengths = azure,
                            .divisor = 8,
                            .count = 1000,
                            .seed = 2,
                            .max_tokens = ANSWER_MAX / 8,
                            .ttft_target_us = 2000000,
                            .tpot_target_us = 250000};
    double carried = capacity(&k, &s);
    printf("\n## deadline: TTFT within 2 s, TPOT within 250 ms, this-cpu, azure lengths / 8\n\n"
           "| load | chunked, share met | deadline, share met | ratio | shed |\n"
           "|---:|---:|---:|---:|---:|\n");
    double ratio = 0;
    for (double load = 0.5; load <= 2; load += 0.5) {
        struct workload w = {0};
        s.per_s = load * carried;
        stream(&w, &s);
        struct measure a = run("chunked", &k, "this-cpu", &w);
        struct measure b = run("deadline", &k, "this-cpu", &w);
        double met_a = measure_share_met(&a, &w), met_b = measure_share_met(&b, &w);
        ratio = met_b / met_a;
        printf("| %.1f | %.1f %% | %.1f %% | %.2f | %u |\n", load, 100 * met_a, 100 * met_b, ratio,
               unfinished(&b));
        measure_deinit(&a);
        measure_deinit(&b);
        workload_deinit(&w);
    }
    limit("deadline / chunked, share met at twice the load", ratio, 1.5);
}

static void show_fair(const struct lengths *azure) {
    struct knobs k = cpu_knobs();
    struct workload w = {0};
    struct work_stream s = {
        .lengths = azure, .divisor = 8, .count = 200, .seed = 3, .max_tokens = ANSWER_MAX / 8};
    double carried = capacity(&k, &s);
    s.per_s = carried; /* twice its half */
    stream(&w, &s);
    s.tenant = 1;
    s.seed = 4;
    s.count *= 10;
    s.per_s *= 10;
    stream(&w, &s);
    printf("\n## fair: tenant 1 sends ten times as much as tenant 0; tokens while both wait\n\n"
           "| policy | tenant 0 | tenant 1 | tenant 1 / tenant 0 |\n|---|---:|---:|---:|\n");
    const char *const names[] = {"chunked", "fair"};
    double ratio = 0;
    for (int i = 0; i < 2; i++) {
        struct measure m = run(names[i], &k, "this-cpu", &w);
        ratio = (double)m.contended_tokens[1] / (double)m.contended_tokens[0];
        printf("| %s | %llu | %llu | %.3f |\n", names[i], (unsigned long long)m.contended_tokens[0],
               (unsigned long long)m.contended_tokens[1], ratio);
        measure_deinit(&m);
    }
    workload_deinit(&w);
    limit_most("fair, tokens of the loud tenant / of the steady one", ratio, 1.1);
}

static void show_short_first(void) {
    struct knobs k = cpu_knobs();
    k.max_seqs = 4;
    struct err err = {{0}};
    struct lengths heavy = {0};
    struct workload w = {0};
    must(lengths_draw(&heavy, &shape_heavy, 2000, 5, &err), &err);
    struct work_stream s = {.lengths = &heavy, .count = 2000, .seed = 5, .max_tokens = 3000};
    s.per_s = 0.9 * capacity(&k, &s);
    stream(&w, &s);
    printf("\n## mlfq and sjf: answers over three decades of length, this-cpu, 4 sequences, 90 %% "
           "load\n\n| policy | TTFT p50 ms | done p50 ms | done mean ms | done p90 ms "
           "| done p99 ms | preemptions |\n|---|---:|---:|---:|---:|---:|---:|\n");
    const char *const names[] = {"chunked", "mlfq", "sjf"};
    double done[3];
    for (int i = 0; i < 3; i++) {
        struct measure m = run(names[i], &k, "this-cpu", &w);
        done[i] = measure_done_ms(&m, 0.5);
        printf("| %s | %.0f | %.0f | %.0f | %.0f | %.0f | %llu |\n", names[i],
               measure_ttft_ms(&m, 0.5), done[i], measure_mean_done_ms(&m),
               measure_done_ms(&m, 0.9), measure_done_ms(&m, 0.99),
               (unsigned long long)m.preemptions);
        measure_deinit(&m);
    }
    limit("chunked / mlfq, median time to done", done[0] / done[1], 1.1);
    limit("chunked / sjf, median time to done", done[0] / done[2], 1.3);
    workload_deinit(&w);
    lengths_deinit(&heavy);
}

int main(int argc, char **argv) {
    const char *env = getenv("JITNEY_TEST_DATA"); /* NOLINT */
    const char *folder = argc > 1 ? argv[1] : env ? env : "../shared/data";
    struct err err = {{0}};
    struct lengths azure = {0};
    char path[4096];
    bool fits = path_join(path, sizeof(path), folder, "traces/azure_conv.csv");
    if (fits && file_exists(path)) {
        must(lengths_read(&azure, path, &err), &err);
        printf("lengths: %s, %u requests\n", path, azure.count);
    } else {
        must(lengths_draw(&azure, &shape_chat, 20000, 1, &err), &err);
        printf("lengths: shape %s (there is no %s)\n", shape_chat.name, path);
    }
    show_h200(&azure);
    show_kinds();
    show_deadline(&azure);
    show_fair(&azure);
    show_short_first();
    lengths_deinit(&azure);
    return is_missed ? EXIT_FAILURE : EXIT_SUCCESS;
}
