/* Goal:   a draft model that is the target itself guesses all that the target samples, at any
 *         temperature, for several sequences at once, after refusals and behind long texts; another
 *         model of the same vocabulary leaves the answers as they are; files that cannot draft are
 *         refused with a sentence.
 * Method: tiny models of the tree. The plug is asked directly. How many calls it takes to read a
 *         prompt depends on measured times, so tests ask until there are drafts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/file.h"
#include "base/rng.h"
#include "engine/draft_checks.h"
#include "engine/draft_model.h"
#include "engine/request_run.h"
#include "engine/service.h"
#include "format/model_file.h"
#include "text/tokenizer.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { CTX = 128, ANSWER = 24, SEQS = 4, PROMPT_MAX = 100 };

static const uint32_t prompt_lengths[SEQS] = {3, 20, 70,
                                              100}; /* the last two: caught up in parts */

static struct service_options usual(void) {
    struct service_options o = {
        .knobs = knobs_default(), .ctx_tokens = CTX, .tokens_only = true, .isa = "portable"};
    o.knobs.max_seqs = SEQS;
    o.knobs.threads = 1;
    o.knobs.queue_max = 8;
    return o;
}

static void open_service(struct service *s, const struct service_options *o) {
    struct err err = {0};
    if (service_open(s, MODELS "llama", o, &err) != ST_OK) fail_msg("%s", err.text);
}

static struct draft_model_options draft_options(const struct service *s) {
    return (struct draft_model_options){
        .load = {.tokens_only = true, .isa = "portable", .kv_type = KV_F16},
        .block_tokens = s->knobs.block_size,
        .seq_max = SEQS};
}

static struct sample_params sampling_of(uint32_t i) {
    struct sample_params p = sample_params_default();
    p.seed = 7 + i;
    p.temperature = i % 2 ? 0.9F : 0;
    p.top_p = i == 3 ? 0.9F : 1;
    return p;
}

/* The whole text of each sequence: the prompt, and what the target answers. */
struct texts {
    int32_t tokens[SEQS][PROMPT_MAX + ANSWER];
};

static bool keep_token(void *ctx, const struct token_event *event) {
    int32_t **next = ctx;
    if (event->token >= 0) *(*next)++ = event->token;
    return true;
}

static void make_texts(struct service *s, struct texts *t) {
    struct rng rng = {.seed = 3};
    for (uint32_t i = 0; i < SEQS; i++) {
        struct err err = {0};
        struct request_usage usage;
        int32_t *next = t->tokens[i] + prompt_lengths[i];
        for (uint32_t k = 0; k < prompt_lengths[i]; k++)
            t->tokens[i][k] = (int32_t)rng_below(&rng, s->loaded.model->hp.vocab);
        const struct request_spec spec = {.prompt = t->tokens[i],
                                          .prompt_tokens = prompt_lengths[i],
                                          .max_tokens = ANSWER,
                                          .n = 1,
                                          .sample = sampling_of(i),
                                          .ignore_end = true};
        const struct request_run run = {
            .engine = s->engine, .spec = &spec, .on_event = keep_token, .ctx = &next};
        if (request_run(&run, &usage, &err) != ST_OK) fail_msg("%s", err.text);
        assert_int_equal(usage.completion_tokens, ANSWER);
    }
}

static void begin(const struct draft_model *m, uint32_t i) {
    struct err err = {0};
    struct sampler *sampler;
    struct sampling draw;
    const struct sample_params params = sampling_of(i);
    const struct sample_bounds bounds = {288, CTX};
    assert_int_equal(sampler_create(&params, &bounds, &sampler, &err), ST_OK);
    sampler_describe_guess(sampler, 0, &draw);
    sampler_destroy(sampler);
    m->begin(m->self, i, &draw);
}

/* Ask for `max` drafts behind the first at[i] tokens of an answer, for all sequences at once. */
static void ask_all(const struct draft_model *m, const struct texts *t, const uint32_t *at,
                    uint32_t max, int32_t (*out)[DRAFT_MAX], uint32_t *given) {
    struct draft_ask asks[SEQS], *list[SEQS];
    for (uint32_t i = 0; i < SEQS; i++) {
        uint32_t count = prompt_lengths[i] + at[i];
        asks[i] = (struct draft_ask){.seq = i,
                                     .tokens = t->tokens[i],
                                     .known = count,
                                     .count = count,
                                     .max = max,
                                     .out = out[i]};
        list[i] = &asks[i];
    }
    m->propose(m->self, list, SEQS);
    draft_model_verify(m);
    for (uint32_t i = 0; i < SEQS; i++) given[i] = asks[i].given;
}

/* The same until every sequence has `max` drafts. A call reads 32 tokens of prompts at least. */
static void ask_until_given(const struct draft_model *m, const struct texts *t, const uint32_t *at,
                            uint32_t max, int32_t (*out)[DRAFT_MAX]) {
    uint32_t given[SEQS], calls = 0, with_drafts;
    do {
        assert_true(calls++ < 2 + SEQS * (PROMPT_MAX + ANSWER) / 32);
        ask_all(m, t, at, max, out, given);
        with_drafts = 0;
        for (uint32_t i = 0; i < SEQS; i++) with_drafts += given[i] == max;
    } while (with_drafts < SEQS);
}

/* All are right, wherever the text stands, also where it goes on with another token than the one
 * that was drafted: the keys and values of that one must not be read. */
static void test_a_model_drafts_for_itself(void **state) {
    (void)state;
    static struct texts t;
    struct service s;
    const struct service_options o = usual();
    open_service(&s, &o);
    make_texts(&s, &t);
    struct err err = {0};
    struct draft_model m;
    struct draft_model_memory memory;
    const struct draft_model_options options = draft_options(&s);
    if (draft_model_open(MODELS "llama", &s.loaded, &options, &m, &memory, &err) != ST_OK)
        fail_msg("%s", err.text);
    assert_int_equal(memory.lanes, SEQS);
    assert_true(memory.weight_bytes > 0 && memory.kv_bytes > 0);
    for (uint32_t i = 0; i < SEQS; i++) begin(&m, i);
    uint32_t at[SEQS] = {0}, given[SEQS], drafted = 0;
    struct rng rng = {.seed = 4};
    for (uint32_t round = 0; round < 40; round++) {
        int32_t out[SEQS][DRAFT_MAX];
        uint32_t max = 1 + (uint32_t)rng_below(&rng, 6);
        ask_all(&m, &t, at, max, out, given);
        for (uint32_t i = 0; i < SEQS; i++) {
            const int32_t *want = t.tokens[i] + prompt_lengths[i] + at[i];
            uint32_t rest = ANSWER - at[i];
            uint32_t fit = given[i] < rest ? given[i] : rest;
            assert_true(given[i] <= max);
            assert_memory_equal(out[i], want, fit * sizeof(want[0]));
            drafted += fit;
            /* Sometimes the answer goes back: a sequence that was taken back and computed again. */
            at[i] = (uint32_t)rng_below(&rng, at[i] + fit + 1);
        }
    }
    assert_true(drafted > 200);
    const struct draft_model_stats stats = draft_model_stats(&m);
    assert_false(stats.has_failed);
    assert_true(stats.caught_up >= 170 && stats.step_us > 0);
    for (uint32_t i = 0; i < SEQS; i++) m.end(m.self, i);
    draft_model_verify(&m);
    m.close(m.self);
    service_close(&s);
}

/* In the middle of a text, another token takes the place of a draft. */
static void test_refused_drafts_are_overwritten(void **state) {
    (void)state;
    static struct texts t;
    struct service s;
    const struct service_options o = usual();
    open_service(&s, &o);
    make_texts(&s, &t);
    struct err err = {0};
    struct draft_model m;
    struct draft_model_memory memory;
    const struct draft_model_options options = draft_options(&s);
    if (draft_model_open(MODELS "llama", &s.loaded, &options, &m, &memory, &err) != ST_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < SEQS; i++) begin(&m, i);
    const uint32_t at[SEQS] = {0}, later[SEQS] = {4, 4, 4, 4};
    int32_t first[SEQS][DRAFT_MAX], again[SEQS][DRAFT_MAX], fresh[SEQS][DRAFT_MAX];
    uint32_t given[SEQS];
    ask_until_given(&m, &t, at, 6, first);
    for (uint32_t i = 0; i < SEQS; i++) {
        int32_t *token = &t.tokens[i][prompt_lengths[i] + 3];
        *token = (*token + 1) % 288;
    }
    ask_all(&m, &t, later, 6, again, given);
    for (uint32_t i = 0; i < SEQS; i++) {
        assert_int_equal(given[i], 6);
        m.end(m.self, i);
        begin(&m, i);
    }
    ask_until_given(&m, &t, later, 6, fresh);
    for (uint32_t i = 0; i < SEQS; i++)
        assert_memory_equal(again[i], fresh[i], 6 * sizeof(int32_t));
    m.close(m.self);
    service_close(&s);
}

/* cmocka handles SIGBUS itself while a test runs; this is the handler of base/map_guard.h. */
static struct sigaction guard_action;

static void keep_guard_action(void) {
    struct file_map map;
    struct err err = {0};
    CHECK(file_map_open(MODELS "llama/model.gguf", &map, &err) == ST_OK);
    CHECK(sigaction(SIGBUS, NULL, &guard_action) == 0);
    file_map_close(&map);
}

/* The draft model's file is cut while it is in use. */
static void test_a_model_that_fails_gives_no_drafts(void **state) {
    (void)state;
    static struct texts t;
    static const char path[] = "test_draft_model.gguf";
    struct service s;
    struct err err = {0};
    struct draft_model m;
    struct draft_model_memory memory;
    struct buf bytes;
    const struct service_options o = usual();
    open_service(&s, &o);
    make_texts(&s, &t);
    struct draft_model_options options = draft_options(&s);
    options.load.isa = "ref"; /* reads weights where they lie */
    buf_init(&bytes, 1 << 24);
    assert_int_equal(file_read(MODELS "llama/model.gguf", &bytes, &err), ST_OK);
    assert_int_equal(file_write_atomic(path, buf_str(&bytes), &err), ST_OK);
    buf_deinit(&bytes);
    if (draft_model_open(path, &s.loaded, &options, &m, &memory, &err) != ST_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < SEQS; i++) begin(&m, i);
    const uint32_t at[SEQS] = {0};
    uint32_t given[SEQS];
    int32_t out[SEQS][DRAFT_MAX];
    ask_all(&m, &t, at, 2, out, given);
    assert_int_equal(given[0], 2);
    assert_true(m.cost_us(m.self, 1, 1) > 0);
    assert_int_equal(sigaction(SIGBUS, &guard_action, NULL), 0);
    assert_int_equal(truncate(path, 4096), 0);
    for (uint32_t call = 0; call < 3; call++) ask_all(&m, &t, at, 6, out, given);
    for (uint32_t i = 0; i < SEQS; i++) {
        assert_int_equal(given[i], 0);
        m.end(m.self, i);
    }
    assert_true(draft_model_stats(&m).has_failed);
    assert_true(m.cost_us(m.self, 1, 1) == 0);
    m.close(m.self);
    service_close(&s);
    unlink(path);
}

/* A quarter of what is free beside the weights is for keys and values; one sequence at least. */
static void test_fewer_sequences_where_memory_is_short(void **state) {
    (void)state;
    struct service s;
    struct err err = {0};
    const struct service_options o = usual();
    open_service(&s, &o);
    struct draft_needs needs;
    struct draft_model_options options = draft_options(&s);
    assert_int_equal(draft_checks_run(MODELS "llama", &s.loaded, &options, &needs, &err), ST_OK);
    assert_int_equal(needs.lanes, SEQS);
    const uint64_t weights = needs.weight_bytes, lane = needs.lane_bytes;
    const struct {
        uint64_t bytes;
        uint32_t lanes;
    } cases[] = {{weights + lane, 1},
                 {weights + 8 * lane - 1, 1},
                 {weights + 8 * lane, 2},
                 {weights + 12 * lane, 3},
                 {weights + 4000 * lane, SEQS}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        options.memory_bytes = cases[i].bytes;
        assert_int_equal(draft_checks_run(MODELS "llama", &s.loaded, &options, &needs, &err),
                         ST_OK);
        assert_int_equal(needs.lanes, cases[i].lanes);
    }
    options.memory_bytes = weights + lane - 1;
    assert_int_equal(draft_checks_run(MODELS "llama", &s.loaded, &options, &needs, &err), ST_NOMEM);
    service_close(&s);
}

static void assert_refused(const char *target, const char *draft, const struct service_options *o,
                           enum status want, const char *const *parts) {
    struct service s;
    struct err err = {0};
    struct service_options options = *o;
    options.speculate = speculate_option_default();
    options.speculate.kind = SPECULATE_MODEL;
    options.speculate.path = str_of(draft);
    assert_int_equal(service_open(&s, target, &options, &err), want);
    for (; *parts; parts++)
        if (!strstr(err.text, *parts)) fail_msg("\"%s\" does not say \"%s\"", err.text, *parts);
}

static void test_models_that_cannot_draft(void **state) {
    (void)state;
    struct service_options o = usual();
    assert_refused(MODELS "llama", MODELS "bert", &o, ST_BAD,
                   (const char *[]){"--speculate model", "is an encoder", "cannot draft", NULL});
    assert_refused(MODELS "llama", MODELS "llama-tied", &o, ST_BAD,
                   (const char *[]){"64 tokens", "has 288", NULL});
    assert_refused(MODELS "llama", MODELS "missing", &o, ST_MISSING,
                   (const char *[]){"--speculate model", "missing", NULL});
    o.draft_bytes = 100000;
    assert_refused(MODELS "llama", MODELS "qwen2", &o, ST_NOMEM,
                   (const char *[]){"needs", "weights", "128 tokens", "free", NULL});
    o.draft_bytes = 0;
    o.is_sim = true;
    assert_refused(MODELS "llama", MODELS "qwen2", &o, ST_BAD, (const char *[]){"simulated", NULL});
}

static struct tokenizer *open_tokenizer(const char *path) {
    struct err err = {0};
    struct model_file *file;
    struct tokenizer *t;
    if (model_file_open(path, &file, &err) != ST_OK) fail_msg("%s", err.text);
    if (tokenizer_create(file, &t, &err) != ST_OK) fail_msg("%s", err.text);
    model_file_close(file);
    return t;
}

static void test_the_first_other_token_is_named(void **state) {
    (void)state;
    struct err err = {0};
    struct tokenizer *llama = open_tokenizer(MODELS "llama"),
                     *qwen = open_tokenizer(MODELS "qwen2");
    struct tokenizer *bert = open_tokenizer(MODELS "bert");
    assert_int_equal(draft_checks_vocab(llama, qwen, &err), ST_OK);
    assert_int_equal(draft_checks_vocab(llama, bert, &err), ST_BAD);
    char want[128];
    struct str a = tokenizer_piece(llama, 0), b = tokenizer_piece(bert, 0);
    snprintf(want, sizeof(want),
             "token 0 is \"%.*s\", in the model that it drafts for it is \"%.*s\"", STR_ARG(b),
             STR_ARG(a));
    if (!strstr(err.text, want)) fail_msg("\"%s\" does not say \"%s\"", err.text, want);
    tokenizer_destroy(llama);
    tokenizer_destroy(qwen);
    tokenizer_destroy(bert);
}

static void test_vocabularies(void **state) {
    (void)state;
    struct service_options o = usual();
    o.tokens_only = false;
    assert_refused(MODELS "llama", MODELS "llama-q8_0/model.gguf", &o, ST_BAD,
                   (const char *[]){"no vocabulary", NULL});
    o.speculate = speculate_option_default();
    o.speculate.kind = SPECULATE_MODEL;
    o.speculate.path = STR(MODELS "qwen2");
    struct service s;
    open_service(&s, &o);
    assert_int_equal(s.memory.draft.lanes, SEQS);
    assert_int_equal(s.memory.draft.tokens_max, CTX);
    service_close(&s);
}

static void test_free_memory_is_known(void **state) {
    (void)state;
    assert_true(draft_checks_free_bytes() > 1 << 20);
}

int main(void) {
    keep_guard_action();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_drafts_for_itself),
        cmocka_unit_test(test_refused_drafts_are_overwritten),
        cmocka_unit_test(test_a_model_that_fails_gives_no_drafts),
        cmocka_unit_test(test_models_that_cannot_draft),
        cmocka_unit_test(test_the_first_other_token_is_named),
        cmocka_unit_test(test_vocabularies),
        cmocka_unit_test(test_fewer_sequences_where_memory_is_short),
        cmocka_unit_test(test_free_memory_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
