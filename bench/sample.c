/* bench/sample.c - what choosing a token costs, description and choice, by what is asked.
 *
 * Logits are drawn for vocabularies of 32,000, 49,152 and 128,256 tokens: normal with a deviation
 * of 3, and eight tokens that stand out, as a model's do; the case "flat" has a tenth of it, so
 * that no token can be passed over. The logits lie in the nearest caches, as after a pass for
 * one sequence.
 *
 * Prints CSV: case, then microseconds of processor time for each vocabulary, the median of
 * short runs. The limits hold for 49,152: greedy 20, a draw 80, logprobs 60, cuts 150.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/row_sampler.h"
#include "sample/sampler.h"

enum { RUNS = 15, PICKS = 8, VOCABS = 3, LIMITED = 1 };

static const uint32_t vocabs[VOCABS] = {32000, 49152, 128256};

struct kind {
    const char *name;
    struct sample_params params; /* what is 0 here is the default's */
    double limit_us;
    bool flat;
    bool logprobs;
};

static const struct kind kinds[] = {
    {"greedy", {.temperature = 0.0f}, 20, false, false},
    {"greedy, 20 logprobs", {.temperature = 0.0f, .top_logprobs = 20}, 60, false, true},
    {"temperature 1", {.temperature = 1.0f}, 80, false, false},
    {"temperature 0.7", {.temperature = 0.7f}, 80, false, false},
    {"temperature 1, 20 logprobs", {.temperature = 1.0f, .top_logprobs = 20}, 80, false, true},
    {"penalties", {.temperature = 1.0f, .repetition_penalty = 1.1f}, 80, false, false},
    {"top-k 40", {.temperature = 1.0f, .top_k = 40}, 150, false, false},
    {"top-k 10000", {.temperature = 1.0f, .top_k = 10000}, 150, false, false},
    {"top-p 0.95", {.temperature = 1.0f, .top_p = 0.95f}, 150, false, false},
    {"top-p 0.95, temperature 2", {.temperature = 2.0f, .top_p = 0.95f}, 150, false, false},
    {"top-p 0.95, flat", {.temperature = 1.0f, .top_p = 0.95f}, 150, true, false},
    {"min-p 0.05", {.temperature = 1.0f, .min_p = 0.05f}, 150, false, false},
    {"min-p 0.05, flat", {.temperature = 1.0f, .min_p = 0.05f}, 150, true, false},
    {"top-k 40, top-p 0.9, min-p 0.05",
     {.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .min_p = 0.05f},
     150,
     false,
     false},
    {"typical 0.9", {.temperature = 1.0f, .typical_p = 0.9f}, 400, false, false},
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* Processor time of this thread: others on the machine do not count. */
static double cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void fill_logits(float *logits, uint32_t vocab, bool flat) {
    struct rng r = {.seed = 1};
    for (uint32_t t = 0; t < vocab; t++) {
        double sum = -6.0; /* of twelve: as good as normal */
        for (int i = 0; i < 12; i++) sum += rng_unit(&r);
        logits[t] = (float)(sum * (flat ? 0.3 : 3.0));
    }
    for (int i = 0; i < 8 && !flat; i++) logits[rng_below(&r, vocab)] = 16.0f - (float)i * 0.7f;
}

static struct sampler *create_sampler(const struct kind *k, uint32_t vocab) {
    struct sample_params p = sample_params_default();
    struct sampler *s = NULL;
    struct err err = {0};
    const struct sample_bounds bounds = {vocab, 1000};
    p.temperature = k->params.temperature;
    p.top_k = k->params.top_k;
    p.min_p = k->params.min_p;
    p.top_logprobs = k->params.top_logprobs;
    p.no_logprobs = !k->logprobs;
    if (k->params.top_p > 0.0f) p.top_p = k->params.top_p;
    if (k->params.typical_p > 0.0f) p.typical_p = k->params.typical_p;
    if (k->params.repetition_penalty > 0.0f) p.repetition_penalty = k->params.repetition_penalty;
    CHECK(sampler_create(&p, &bounds, &s, &err) == ST_OK);
    for (int32_t i = 0; i < 500; i++) sampler_accept(s, i * 61 % (int32_t)vocab);
    return s;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure(const struct kind *k, uint32_t vocab, const float *logits) {
    struct sampler *s = create_sampler(k, vocab);
    struct row_sampler *row_sampler = NULL;
    struct sampling_tables tables = {.edit_cap = sampler_edits_max(s)};
    double runs[RUNS];
    tables.edits = mem_alloc_array(tables.edit_cap + (size_t)1, sizeof(tables.edits[0]));
    CHECK(tables.edits);
    CHECK(row_sampler_create(vocab, &row_sampler) == ST_OK);
    for (int run = 0; run < RUNS; run++) {
        double start = cpu_us();
        for (uint64_t i = 0; i < PICKS; i++) {
            struct sampling sampling;
            struct sample_result got;
            tables.edit_count = 0;
            CHECK(sampler_describe(s, i, false, &tables, &sampling) == ST_OK);
            CHECK(row_sampler_run(row_sampler, &sampling, &tables, -1, logits, &got) == ST_OK);
        }
        runs[run] = (cpu_us() - start) / PICKS;
    }
    qsort(runs, RUNS, sizeof(runs[0]), by_size);
    row_sampler_destroy(row_sampler);
    mem_free(tables.edits);
    sampler_destroy(s);
    return runs[RUNS / 2];
}

int main(void) {
    float *logits = mem_alloc_array(vocabs[VOCABS - 1], sizeof(*logits));
    uint32_t missed = 0;
    CHECK(logits);
    printf("case,us at 32000,us at 49152,us at 128256,limit at 49152\n");
    for (uint32_t i = 0; i < KINDS; i++) {
        double us[VOCABS];
        for (uint32_t v = 0; v < VOCABS; v++) {
            fill_logits(logits, vocabs[v], kinds[i].flat);
            us[v] = measure(&kinds[i], vocabs[v], logits);
        }
        printf("\"%s\",%.1f,%.1f,%.1f,%.0f\n", kinds[i].name, us[0], us[1], us[2],
               kinds[i].limit_us);
        missed += us[LIMITED] > kinds[i].limit_us;
    }
    printf("limits missed: %u\n", missed);
    mem_free(logits);
    return 0;
}
