/* bench/draft_cost.c - what a guess costs: drafters that guess from text, on long texts.
 *
 * Sequences take turns, as in a batch, so that each finds the caches full of the others' data. In a
 * turn one to four tokens become final, two guesses stand behind them, and the drafter is asked for
 * 16 tokens. The drafter `suffix` also looks in a full pool of answers, to which every 32nd turn
 * adds one of 400 tokens.
 *
 *     random    50,000 different tokens, drawn at random: nearly nothing repeats
 *     copied    pieces of 10 to 60 tokens from further up, with a random token between them
 *
 * Prints CSV: drafter, text, tokens of context, nanoseconds of processor time for a guess (half of
 * them, 99 of 100, and all are within these), nanoseconds for a token of the prompt in `create`,
 * bytes for a token that create takes, and tokens guessed in a turn. The limit is 20 us for 99 of
 * 100 guesses with 32,768 tokens of context. The clock itself takes a part of each figure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "spec/drafter.h"
#include "spec/speculate_option.h"
#include "spec/suffix_pools.h"

enum { VOCAB = 50000, SEQS = 16, TURNS = 256, FINAL_MAX = 4, GUESSES = 2, WANTED = 16 };
enum { SAMPLES = SEQS * TURNS, CONTEXT_MAX = 32768, LIMIT_NS = 20000, ANSWER = 400 };

struct sequence {
    void *drafter;
    uint32_t known;
    int32_t tokens[CONTEXT_MAX + GUESSES];
};

struct result {
    double p50_ns, p99_ns, max_ns, index_ns, bytes, guessed;
};

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

static void fill_random(struct rng *rng, int32_t *tokens, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)rng_below(rng, VOCAB);
}

static void fill_copied(struct rng *rng, int32_t *tokens, uint32_t count) {
    uint32_t i = count < 256 ? count : 256;
    fill_random(rng, tokens, i);
    while (i < count) {
        uint32_t from = (uint32_t)rng_below(rng, i), length = 10 + (uint32_t)rng_below(rng, 50);
        for (; length > 0 && i < count; length--) tokens[i++] = tokens[from++];
        if (i < count) fill_random(rng, &tokens[i++], 1);
    }
}

typedef void fill_fn(struct rng *rng, int32_t *tokens, uint32_t count);

/* A pool that is as full as it gets, of pieces of a text. */
static struct suffix_pools *fill_pools(const int32_t *tokens) {
    struct suffix_pools *pools = NULL;
    struct kv_salt salt = {0};
    struct err err = {.text = "out of memory"};
    must(suffix_pools_create(&pools, SUFFIX_POOL_SALTS_DEFAULT, SUFFIX_POOL_TOKENS_DEFAULT), &err);
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t i = 0; i + ANSWER <= CONTEXT_MAX; i += ANSWER) {
            suffix_pools_add(pools, salt, tokens + i, ANSWER);
            suffix_pools_index_all(pools, salt);
        }
    return pools;
}

/* Returns nanoseconds for all prompts. */
static double create_all(const struct drafter *d, struct sequence *seqs, uint32_t context,
                         struct suffix_pools *pools) {
    struct speculate_option o = speculate_option_default();
    double start_ns = cpu_ns();
    for (uint32_t i = 0; i < SEQS; i++) {
        struct err err = {0};
        seqs[i].known = context - TURNS * (FINAL_MAX + 1) / 2 - GUESSES;
        struct drafter_setup setup = {.tokens_max = context,
                                      .vocab = VOCAB,
                                      .prompt = seqs[i].tokens,
                                      .prompt_tokens = seqs[i].known,
                                      .ngram_min = o.ngram_min,
                                      .ngram_max = o.ngram_max,
                                      .pools = pools};
        must(d->create(&setup, &seqs[i].drafter, &err), &err);
    }
    return cpu_ns() - start_ns;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct result measure(const struct drafter *d, fill_fn *fill, uint32_t context) {
    static struct sequence seqs[SEQS];
    static double samples[SAMPLES];
    struct rng rng = {.seed = context};
    struct result r = {0};
    for (uint32_t i = 0; i < SEQS; i++) fill(&rng, seqs[i].tokens, CONTEXT_MAX);
    struct suffix_pools *pools = d->end ? fill_pools(seqs[0].tokens) : NULL;
    r.index_ns = create_all(d, seqs, context, pools) / ((double)SEQS * seqs[0].known);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        struct sequence *s = &seqs[i % SEQS];
        int32_t out[WANTED];
        s->known += 1 + i / SEQS % FINAL_MAX;
        if (pools && i % 32 == 0) /* its tokens are indexed by the next guesses */
            suffix_pools_add(pools, (struct kv_salt){0}, s->tokens + i, ANSWER);
        double start_ns = cpu_ns();
        r.guessed += d->propose(s->drafter, s->tokens, s->known, s->known + GUESSES, WANTED, out);
        samples[i] = cpu_ns() - start_ns;
        CHECK(s->known + GUESSES <= context);
    }
    qsort(samples, SAMPLES, sizeof(samples[0]), compare);
    r.p50_ns = samples[SAMPLES / 2];
    r.p99_ns = samples[SAMPLES / 100 * 99];
    r.max_ns = samples[SAMPLES - 1];
    r.guessed /= SAMPLES;
    r.bytes = (double)d->bytes(seqs[0].drafter) / context;
    for (uint32_t i = 0; i < SEQS; i++) d->destroy(seqs[i].drafter);
    suffix_pools_destroy(pools);
    return r;
}

/* What an automaton touches of the memory that it takes. */
static double bytes_used(fill_fn *fill) {
    int32_t *tokens = mem_alloc_array(CONTEXT_MAX, sizeof(*tokens));
    struct suffix_automaton *a = NULL;
    struct rng rng = {.seed = 1};
    struct err err = {.text = "out of memory"};
    must(tokens ? suffix_automaton_create(&a, CONTEXT_MAX) : ST_NOMEM, &err);
    fill(&rng, tokens, CONTEXT_MAX);
    for (uint32_t i = 0; i < CONTEXT_MAX; i++) suffix_automaton_add(a, tokens[i]);
    double bytes = (double)suffix_automaton_bytes_used(a) / CONTEXT_MAX;
    suffix_automaton_destroy(a);
    mem_free(tokens);
    return bytes;
}

int main(void) {
    static const char *const names[] = {"ngram", "suffix"};
    static const uint32_t contexts[] = {1024, 8192, CONTEXT_MAX};
    static const char *const texts[] = {"random", "copied"};
    static fill_fn *const fills[] = {fill_random, fill_copied};
    double worst_ns = 0;
    printf("drafter,text,context,p50_ns,p99_ns,max_ns,index_ns,bytes,guessed\n");
    for (uint32_t i = 0; i < 12; i++) {
        const struct drafter *d = drafter_find(names[i / 6]);
        uint32_t context = contexts[i % 3];
        struct result r = measure(d, fills[i / 3 % 2], context);
        printf("%s,%s,%u,%.0f,%.0f,%.0f,%.0f,%.1f,%.1f\n", d->name, texts[i / 3 % 2], context,
               r.p50_ns, r.p99_ns, r.max_ns, r.index_ns, r.bytes, r.guessed);
        if (r.p99_ns > worst_ns) worst_ns = r.p99_ns;
    }
    printf("# a suffix automaton touches %.0f bytes for a random token, %.0f for a copied one\n",
           bytes_used(fill_random), bytes_used(fill_copied));
    printf("# 99 of 100 guesses: %.0f ns, limit %d: %s\n", worst_ns, LIMIT_NS,
           worst_ns <= LIMIT_NS ? "met" : "missed");
    return 0;
}
