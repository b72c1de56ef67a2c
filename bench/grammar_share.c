/* bench/grammar_share.c - how much of the steps' processor time goes into grammars.
 *
 * Usage: bench/grammar_share [model]   (else smollm2 from the model cache)
 *
 * A real model writes JSON of three schemas at temperature 1, with 32 sequences and with one. The
 * calls that the sampler makes of a matcher are timed where they are made, by the processor time of
 * their thread; each includes the time of one look at the clock. Everything else that the process
 * does meanwhile is the steps. Compiling is done before.
 *
 * Prints CSV: sequences, tokens, microseconds of processor time for a token, microseconds of the
 * matcher in it, their share, the limit.
 *
 * wrap: matcher_mask matcher_accept */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "config/env.h"
#include "engine/engine.h"
#include "engine/grammars.h"
#include "engine/service.h"
#include "hub/model_cache.h"

enum { PROMPT = 16, TOKENS_MAX = 256, SEQS = 32, SCHEMAS = 3 };

static const char *const schemas[SCHEMAS] = {
    "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"get_weather\"},\"arguments\":{"
    "\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":40},\"days\":{"
    "\"type\":\"integer\",\"minimum\":1,\"maximum\":14},\"unit\":{\"enum\":[\"celsius\","
    "\"fahrenheit\"]}},\"required\":[\"city\",\"days\",\"unit\"],\"additionalProperties\":false}},"
    "\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}",
    "{\"type\":\"array\",\"minItems\":3,\"maxItems\":8,\"items\":{\"type\":\"object\","
    "\"properties\":{\"id\":{\"type\":\"integer\",\"minimum\":0},\"email\":{\"type\":\"string\","
    "\"format\":\"email\",\"maxLength\":40},\"born\":{\"type\":\"string\",\"format\":\"date\"},"
    "\"score\":{\"type\":\"number\",\"minimum\":0,\"maximum\":1}},\"required\":[\"id\",\"born\","
    "\"score\"],\"additionalProperties\":false}}",
    "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\",\"minLength\":10,"
    "\"maxLength\":80},\"text\":{\"type\":\"string\",\"minLength\":100,\"maxLength\":600},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[a-z]{2,12}$\"},"
    "\"maxItems\":5}},\"required\":[\"title\",\"text\",\"tags\"],\"additionalProperties\":false}",
};

/* Of the engine's thread and those that it leaves long work to; read when they have stopped. */
static _Atomic int64_t matcher_ns;

bool __real_matcher_accept(struct matcher *m, struct str bytes, size_t *accepted);
bool __wrap_matcher_accept(struct matcher *m, struct str bytes, size_t *accepted);
void __real_matcher_mask(struct matcher *m, const struct vocabulary *v, uint64_t *allowed);
void __wrap_matcher_mask(struct matcher *m, const struct vocabulary *v, uint64_t *allowed);

static double cpu_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

bool __wrap_matcher_accept(struct matcher *m, struct str bytes, size_t *accepted) {
    double began = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    bool is_accepted = __real_matcher_accept(m, bytes, accepted);
    matcher_ns += (int64_t)(cpu_ns(CLOCK_THREAD_CPUTIME_ID) - began);
    return is_accepted;
}

void __wrap_matcher_mask(struct matcher *m, const struct vocabulary *v, uint64_t *allowed) {
    double began = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    __real_matcher_mask(m, v, allowed);
    matcher_ns += (int64_t)(cpu_ns(CLOCK_THREAD_CPUTIME_ID) - began);
}

static void must(enum status st, const struct err *err) {
    if (st == ST_OK) return;
    fprintf(stderr, "grammar_share: %s\n", err->text);
    exit(EXIT_FAILURE); /* NOLINT */
}

static void compile(const struct service *s, struct answer_grammar *out[SCHEMAS]) {
    for (int i = 0; i < SCHEMAS; i++) {
        struct grammar_refusal why;
        struct grammar_source source = {.kind = GRAMMAR_SCHEMA, .text = str_of(schemas[i])};
        must(grammars_compile(s->grammars, &source, &out[i], &why), &why.err);
    }
}

static void submit(const struct service *s, struct answer_grammar *const *grammars, uint32_t n) {
    struct err err = {0};
    struct request *r = NULL;
    int32_t prompt[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++) prompt[i] = (int32_t)(100 + (n * 7919 + i * 31) % 10000);
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = PROMPT,
                                .max_tokens = TOKENS_MAX,
                                .n = 1,
                                .sample = sample_params_default(),
                                .grammar = grammars[n % SCHEMAS]};
    spec.sample.temperature = 1;
    spec.sample.seed = n;
    must(engine_submit(s->engine, &spec, &r, &err), &err);
}

/* Take events until all are answered; returns the tokens of the answers. */
static uint64_t take_all(const struct service *s, uint32_t count) {
    uint64_t tokens = 0;
    while (count > 0) {
        struct choice *c = engine_next(s->engine, 100000);
        uint32_t ready = 0;
        if (!c || choice_poll(c, &ready) == FINISH_NONE) continue;
        tokens += ready - c->prompt_tokens;
        request_unref(c->request);
        count--;
    }
    return tokens;
}

static void measure(const char *model, uint32_t seqs, uint32_t count, double limit) {
    struct err err = {0};
    struct service s;
    struct answer_grammar *grammars[SCHEMAS];
    struct service_options o = {.knobs = knobs_default(), .ctx_tokens = 1024};
    o.knobs.max_seqs = seqs;
    o.knobs.queue_max = count;
    must(service_open(&s, model, &o, &err), &err);
    compile(&s, grammars);
    matcher_ns = 0;
    for (uint32_t i = 0; i < count; i++) submit(&s, grammars, i);
    double began = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    must(engine_start(s.engine, &err), &err);
    double tokens = (double)take_all(&s, count);
    engine_stop(s.engine);
    double all_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - began;
    double share = (double)matcher_ns / all_ns;
    printf("%u,%.0f,%.1f,%.2f,%.4f,%.2f %s\n", seqs, tokens, all_ns / tokens / 1e3,
           (double)matcher_ns / tokens / 1e3, share, limit, share <= limit ? "met" : "MISSED");
    for (int i = 0; i < SCHEMAS; i++) answer_grammar_unref(grammars[i]);
    service_close(&s);
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct env_settings env;
    struct model_cache cache = {{0}};
    char model[MODEL_PATH_BYTES];
    env_read(&env);
    must(model_cache_init(&cache, &env, &err), &err);
    if (model_cache_resolve(&cache, argc > 1 ? argv[1] : "smollm2", model, &err) != ST_OK) {
        printf("skipped: %s\n", err.text);
        return EXIT_SUCCESS;
    }
    printf("sequences,tokens,us_a_token,matcher_us_a_token,share,limit\n");
    measure(model, SEQS, 4 * SEQS, 0.02);
    measure(model, 1, 6, 0.03);
    return EXIT_SUCCESS;
}
