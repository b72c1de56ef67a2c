/* bench/embed.c - how much faster texts become vectors together than one by one.
 *
 * Usage: embed [MODEL]       (else minilm from the model cache)
 *
 * Short texts of 8 to 24 random tokens through an embedder: one at a time, each after the answer
 * to the one before it, then 32 at a time. Prints CSV: together, texts, seconds, texts per second;
 * and the ratio. Passed over where the model is absent.
 */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "config/env.h"
#include "hub/model_cache.h"
#include "engine/embedder.h"

enum { TEXTS = 256, TOGETHER = 32, TOKENS_MIN = 8, TOKENS_MAX = 24, ROUNDS = 3, WINDOW_US = 200 };

struct load {
    struct loaded_model loaded;
    struct embedder *embedder;
    int32_t ids[TEXTS][TOKENS_MAX];
    struct embed_job jobs[TEXTS];
    float *vectors;
    sem_t done; /* a batch is */
};

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1); /* NOLINT */
}

static void on_done(void *ctx) { sem_post(ctx); }

static void open_embedder(struct load *l, int64_t window_us) {
    struct err err = {{0}};
    struct embedder_options options = {.window_us = window_us};
    must(embedder_open(&l->embedder, &l->loaded, &options, &err), &err);
    embedder_set_hook(l->embedder, on_done, &l->done);
}

static void make_texts(struct load *l) {
    uint32_t dims = l->loaded.model->hp.dim, vocab = l->loaded.model->hp.vocab;
    struct rng r = {.seed = 5};
    l->vectors = mem_zalloc_array((size_t)TEXTS * dims, sizeof(float));
    CHECK(l->vectors);
    for (uint32_t t = 0; t < TEXTS; t++) {
        uint32_t count = TOKENS_MIN + (uint32_t)rng_below(&r, TOKENS_MAX - TOKENS_MIN + 1);
        for (uint32_t i = 0; i < count; i++) l->ids[t][i] = (int32_t)rng_below(&r, vocab);
        l->jobs[t] = (struct embed_job){
            .ids = l->ids[t], .count = count, .out = l->vectors + (size_t)t * dims};
    }
}

static void take(struct load *l, uint32_t count) {
    while (count > 0) {
        while (embedder_next(l->embedder)) count--;
        if (count > 0) sem_wait(&l->done);
    }
}

/* Seconds for all texts. */
static double run(struct load *l, uint32_t together) {
    struct err err = {{0}};
    int64_t start_us = clock_now(&clock_real);
    for (uint32_t t = 0; t < TEXTS; t += together) {
        for (uint32_t i = 0; i < together; i++)
            must(embedder_submit(l->embedder, &l->jobs[t + i], 1, &err), &err);
        take(l, together);
    }
    return (double)(clock_now(&clock_real) - start_us) / 1e6;
}

static double best_of(struct load *l, uint32_t together, int64_t window_us) {
    open_embedder(l, window_us);
    run(l, together); /* pages */
    double best = run(l, together);
    for (int i = 1; i < ROUNDS; i++) {
        double s = run(l, together);
        if (s < best) best = s;
    }
    printf("%u,%d,%.4f,%.0f\n", together, TEXTS, best, TEXTS / best);
    embedder_close(l->embedder);
    return best;
}

int main(int argc, char **argv) {
    static struct load l;
    struct err err = {{0}};
    struct env_settings env;
    struct model_cache cache = {{0}};
    char path[MODEL_PATH_BYTES];
    env_read(&env);
    must(model_cache_init(&cache, &env, &err), &err);
    if (model_cache_resolve(&cache, argc > 1 ? argv[1] : "minilm", path, &err) != ST_OK) {
        printf("# passed over: %s\n", err.text);
        return 0;
    }
    struct loaded_model_options options = {.ctx_tokens = 512, .tokens_only = true};
    must(loaded_model_open(&l.loaded, path, &options, &err), &err);
    sem_init(&l.done, 0, 0);
    make_texts(&l);
    printf("together,texts,s,texts_per_s\n");
    double single = best_of(&l, 1, 0), many = best_of(&l, TOGETHER, WINDOW_US);
    printf("# %d together: %.2f times as fast as one by one\n", TOGETHER, single / many);
    mem_free(l.vectors);
    sem_destroy(&l.done);
    loaded_model_close(&l.loaded);
    return 0;
}
