/* bench/draft_model.c - what a draft model gains, where a given share of its drafts is right.
 *
 * Usage: draft_model TARGET DRAFT [SHARE [ANSWER [ROUNDS [PROMPT]]]]
 *
 * The weights are random, so the draft model's guesses are wrong. It computes them all the same,
 * and then each is replaced: by the token that the target samples there, with the probability
 * SHARE, or by another one. The target's answers are taken from a run without drafts. So the times
 * are those of a real pair of models with this acceptance.
 *
 * Printed are the time of a step of the target with 1 to 8 rows, the time of a step of the draft
 * model, what these times allow for each number of drafts, and for 1, 8 and 32 sequences at a time
 * the medians of tokens/s without and with drafts, of rounds that take turns.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/draft_model.h"
#include "engine/service.h"
#include "graph/step.h"

enum { SEQS = 32, ROWS = 8, STEP_RUNS = 15, PROMPT_MAX = 1024, ANSWER_MAX = 1024, ROUNDS_MAX = 64 };

struct bench {
    double share;
    uint32_t prompt, answer, rounds;
    struct service service;
    struct draft_model inner;
    int32_t *texts[SEQS]; /* [prompt + answer] by request */
    struct rng rng;
};

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "draft_model: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *list, uint32_t count) {
    qsort(list, count, sizeof(list[0]), by_size);
    return list[count / 2];
}

/* ---- drafts of which a share is right ---- */

static int32_t *text_of(struct bench *b, seq_idx seq) {
    const struct sched_seq *s = sched_seq_at(engine_sched(b->service.engine), seq);
    for (uint32_t i = 0; i < SEQS; i++)
        if (memcmp(s->tokens, b->texts[i], b->prompt * sizeof(int32_t)) == 0) return b->texts[i];
    CHECK(false);
}

/* The draft model is asked for one token after the other, so that it goes on from what replaces
 * its guess, as it would if it had guessed that. It computes the same steps as when asked once. */
static void propose(void *self, struct draft_ask *const *asks, uint32_t count) {
    struct bench *b = self;
    struct draft_ask one[SEQS], *list[SEQS];
    for (uint32_t n = 0;; n++) {
        uint32_t going = 0;
        for (uint32_t i = 0; i < count; i++) {
            const struct draft_ask *ask = asks[i];
            if (ask->given != n || n == ask->max) continue;
            one[i] = (struct draft_ask){.seq = ask->seq,
                                        .tokens = ask->tokens,
                                        .known = ask->known,
                                        .count = ask->count + n,
                                        .max = 1,
                                        .out = ask->out + n};
            list[going++] = &one[i];
        }
        if (going == 0) return;
        b->inner.propose(b->inner.self, list, going);
        for (uint32_t i = 0; i < count; i++) {
            struct draft_ask *ask = asks[i];
            if (ask->given != n || n == ask->max || one[i].given == 0) continue;
            int32_t right = text_of(b, ask->seq)[ask->count + n];
            bool is_right = (double)rng_below(&b->rng, 1 << 20) < b->share * (1 << 20);
            ask->out[n] = is_right ? right : right == 7 ? 8 : 7;
            ask->given++;
        }
    }
}

static void begin(void *self, seq_idx seq, const struct sampling *draw) {
    struct bench *b = self;
    b->inner.begin(b->inner.self, seq, draw);
}
static void end(void *self, seq_idx seq) {
    struct bench *b = self;
    b->inner.end(b->inner.self, seq);
}
static double cost_us(void *self, uint32_t seqs, uint32_t tokens) {
    struct bench *b = self;
    return b->inner.cost_us(b->inner.self, seqs, tokens);
}
static void close_inner(void *self) {
    struct bench *b = self;
    b->inner.close(b->inner.self);
}

/* ---- runs ---- */

struct outcome {
    double tokens_per_s;
    uint64_t drafted, accepted;
};

static struct request *submit(struct bench *b, uint32_t i, bool drafts) {
    struct err err = {{0}};
    struct request *r;
    struct request_spec spec = {.prompt = b->texts[i],
                                .prompt_tokens = b->prompt,
                                .max_tokens = b->answer,
                                .n = 1,
                                .sample = sample_params_default(),
                                .ignore_end = true};
    spec.sample.temperature = 0;
    spec.speculation.is_chosen = true;
    spec.speculation.choice = speculate_option_default();
    if (drafts) spec.speculation.choice.kind = SPECULATE_MODEL;
    must(engine_submit(b->service.engine, &spec, &r, &err), &err);
    return r;
}

/* All at once; the time counts from when all have their first token. */
static struct outcome run(struct bench *b, uint32_t at_once, bool drafts) {
    struct engine *e = b->service.engine;
    struct request *requests[SEQS];
    struct outcome out = {0};
    uint64_t began_tokens = 0, tokens = 0;
    int64_t began_us = 0;
    bool did_work = true;
    for (uint32_t i = 0; i < at_once; i++) requests[i] = submit(b, i, drafts);
    while (did_work) {
        struct err err = {{0}};
        must(engine_step(e, &did_work), &err);
        for (struct choice *c; (c = engine_next(e, 0));) request_unref(c->request);
        uint32_t started = 0;
        tokens = 0;
        for (uint32_t i = 0; i < at_once; i++) {
            uint32_t ready;
            choice_poll(&requests[i]->choices[0], &ready);
            started += ready > b->prompt;
            tokens += ready - b->prompt;
        }
        if (started < at_once || began_us > 0) continue;
        began_us = clock_now(&clock_real);
        began_tokens = tokens;
    }
    double us = (double)(clock_now(&clock_real) - began_us);
    out.tokens_per_s = (double)(tokens - began_tokens) * 1e6 / us;
    for (uint32_t i = 0; i < at_once; i++) {
        struct choice *c = &requests[i]->choices[0];
        if (c->tokens[b->prompt + b->answer - 1] != b->texts[i][b->prompt + b->answer - 1] &&
            drafts)
            printf("  answers differ\n");
        memcpy(b->texts[i], c->tokens, (b->prompt + b->answer) * sizeof(int32_t));
        out.drafted += c->drafted;
        out.accepted += c->accepted;
        request_unref(requests[i]);
    }
    return out;
}

static void compare(struct bench *b, uint32_t at_once) {
    double off[ROUNDS_MAX], on[ROUNDS_MAX];
    uint64_t drafted = 0, accepted = 0;
    run(b, at_once, false); /* the answers */
    run(b, at_once, true);  /* times are learned */
    for (uint32_t i = 0; i < b->rounds; i++) {
        off[i] = run(b, at_once, false).tokens_per_s;
        struct outcome o = run(b, at_once, true);
        on[i] = o.tokens_per_s;
        drafted += o.drafted;
        accepted += o.accepted;
    }
    double without = median(off, b->rounds), with = median(on, b->rounds);
    printf("%2u at once: %7.2f tokens/s without drafts, %7.2f with: %.2fx; %llu drafted, %.2f "
           "accepted, draft step %.0f us\n",
           at_once, without, with, with / without, (unsigned long long)drafted,
           drafted ? (double)accepted / (double)drafted : 0.0,
           draft_model_stats(&b->inner).step_us);
    fflush(stdout);
}

/* ---- what the times allow ---- */

/* A step of the target with `rows` rows of one sequence, all of them sampled. */
static double target_us(struct bench *b, const struct pass *pass, struct step *step,
                        uint32_t rows) {
    double times[STEP_RUNS];
    for (uint32_t n = 0; n < STEP_RUNS; n++) {
        struct device_result result;
        struct err err = {{0}};
        step_clear(step);
        step->seqs[step->seq_count++] = (struct step_seq){.first_row = 0, .row_count = rows};
        for (uint32_t i = 0; i * 16 < b->prompt + ROWS; i++) step_blocks(step, 0, 0)[i] = i;
        for (uint32_t r = 0; r < rows; r++) {
            step->token[r] = (int32_t)r;
            step->pos[r] = (int32_t)(b->prompt + r);
            step->seq[r] = 0;
            step->output_row[r] = r;
            step->samplings[r] = (struct sampling){.kind = SAMPLING_DRAW,
                                                   .slot = r,
                                                   .top_p = 1,
                                                   .typical_p = 1,
                                                   .deny_first = SAMPLING_NONE};
        }
        step->row_count = step->output_count = rows;
        must(pass_run(&b->service.loaded, pass, step, &result, &err), &err);
        times[n] = (double)result.elapsed_us;
    }
    return median(times, STEP_RUNS);
}

static void measure_target(struct bench *b, double *us) {
    struct loaded_model *loaded = &b->service.loaded;
    struct err err = {{0}};
    struct kv_memory kv;
    struct pass pass;
    struct step *step;
    uint32_t blocks = (b->prompt + ROWS) / 16 + 1;
    const struct kv_memory_options ko = {
        .type = KV_F16, .block_tokens = 16, .block_counts = {blocks}};
    must(kv_memory_create(loaded, &ko, &kv, &err), &err);
    const struct pass_options po = {.goal = GOAL_LOGITS,
                                    .sizes = {.rows_max = ROWS,
                                              .outputs_max = ROWS,
                                              .seqs_max = 1,
                                              .group_count = 1,
                                              .blocks_max = blocks,
                                              .edits_max = 1,
                                              .deny_words_max = 1},
                                    .kv = &kv,
                                    .slot_count = ROWS};
    must(pass_create(loaded, &po, &pass, &err), &err);
    must(step_create(&step, &loaded->device, &po.sizes, &err), &err);
    for (uint32_t r = 1; r <= ROWS; r++) us[r] = target_us(b, &pass, step, r);
    step_destroy(step, &loaded->device);
    pass_destroy(loaded, &pass);
    kv_memory_destroy(loaded, &kv);
}

/* With share a, k drafts give 1 + a + .. + a^k tokens, in the time of a step of k + 1 rows and of k
 * steps of the draft model. */
static void print_arithmetic(struct bench *b) {
    double us[ROWS + 1], draft_us = draft_model_stats(&b->inner).step_us, best = 0;
    measure_target(b, us);
    printf("draft step of one row: %.0f us\n", draft_us);
    for (uint32_t k = 0; k < ROWS; k++) {
        double tokens = 0;
        for (uint32_t i = 0; i <= k; i++) tokens += pow(b->share, i);
        double ratio = tokens * us[1] / (us[k + 1] + k * draft_us);
        if (ratio > best) best = ratio;
        printf("%u drafts: target step of %u rows %.0f us, %.2f tokens in %.0f us: %.2fx\n", k,
               k + 1, us[k + 1], tokens, us[k + 1] + k * draft_us, ratio);
    }
    printf("what these times allow: %.2fx\n", best);
    fflush(stdout);
}

/* ---- all of it ---- */

static void open_all(struct bench *b, const char *target, const char *draft) {
    struct err err = {{0}};
    struct service_options o = {.knobs = knobs_default(),
                                .ctx_tokens = b->prompt + b->answer + 1,
                                .speculate = speculate_option_default()};
    o.knobs.max_seqs = SEQS;
    o.speculate.kind = SPECULATE_MODEL; /* without a path: it is opened here */
    must(service_open(&b->service, target, &o, &err), &err);
    const struct draft_model_options d = {.load = {.kv_type = KV_F16},
                                          .block_tokens = b->service.knobs.block_size,
                                          .seq_max = sched_seq_max(&b->service.knobs)};
    struct draft_model_memory memory;
    must(draft_model_open(draft, &b->service.loaded, &d, &b->inner, &memory, &err), &err);
    const struct draft_model wrapped = {.begin = begin,
                                        .end = end,
                                        .propose = propose,
                                        .cost_us = cost_us,
                                        .close = close_inner,
                                        .self = b};
    spec_plug_model(engine_spec(b->service.engine), &wrapped);
    printf("%s, %u threads; draft model %llu MiB, %u sequences of %u tokens: %llu MiB\n",
           b->service.loaded.device.name, b->service.loaded.threads,
           (unsigned long long)memory.weight_bytes >> 20, memory.lanes, memory.tokens_max,
           (unsigned long long)memory.kv_bytes >> 20);
}

static uint32_t number(int argc, char **argv, int at, uint32_t fallback, uint32_t max) {
    uint32_t n = argc > at ? (uint32_t)strtoul(argv[at], NULL, 10) : fallback;
    return n < 1 ? 1 : n > max ? max : n;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        printf("draft_model: skipped, no models; usage: draft_model TARGET DRAFT [SHARE [ANSWER "
               "[ROUNDS [PROMPT]]]]\n");
        return 0;
    }
    static struct bench b;
    b.share = argc > 3 ? strtod(argv[3], NULL) : 0.7;
    b.answer = number(argc, argv, 4, 96, ANSWER_MAX);
    b.rounds = number(argc, argv, 5, 5, ROUNDS_MAX);
    b.prompt = number(argc, argv, 6, 32, PROMPT_MAX);
    b.rng.seed = 20;
    open_all(&b, argv[1], argv[2]);
    uint32_t vocab = b.service.loaded.model->hp.vocab;
    for (uint32_t i = 0; i < SEQS; i++) {
        b.texts[i] = mem_zalloc_array(b.prompt + b.answer, sizeof(int32_t));
        CHECK(b.texts[i]);
        for (uint32_t k = 0; k < b.prompt; k++) b.texts[i][k] = (int32_t)(rng_at(1, i, k) % vocab);
    }
    print_arithmetic(&b);
    static const uint32_t at_once[] = {1, 8, 32};
    for (uint32_t i = 0; i < sizeof(at_once) / sizeof(at_once[0]); i++) compare(&b, at_once[i]);
    service_close(&b.service);
    for (uint32_t i = 0; i < SEQS; i++) mem_free(b.texts[i]);
    return 0;
}
