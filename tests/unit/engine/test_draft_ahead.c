/* Goal:   at depth 1, a row that is planned behind drafts is sampled with the penalties of the text
 *         that it stands behind: the drafts of the plan under way count, and a token whose guess
 *         was wrong does not.
 * Method: a device whose results are late, sampling with penalties, and drafters that know the
 *         answer: one that gives drafts in every second ask, and one whose first guess is wrong and
 *         whose others are right. The latter also in plans of three device steps, the first of
 *         which is collected before the plan under way is applied. At both depths, a drafter that
 *         is right while logits behind its drafts are often not numbers. The answer is that of the
 *         CPU device without drafts.
 * wrap: pass_collect */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/service.h"
#include "sched/sched_int.h"
#include "spec/spec.h"

enum { PROMPT = 20, ANSWER = 100, TOTAL = PROMPT + ANSWER, VOCAB = 288 };

struct scripted {
    const int32_t *right; /* [TOTAL] */
    bool skips_asks, spoils_first, has_taps;
    bool spoils_logits; /* behind drafts; there are no other requests */
    uint32_t asks;
};

static bool spoils_logits;
static uint32_t spoiled;

enum status __real_pass_collect(struct loaded_model *loaded, const struct pass *p,
                                struct device_result *out, struct err *err);
enum status __wrap_pass_collect(struct loaded_model *loaded, const struct pass *p,
                                struct device_result *out, struct err *err);
/* The outputs behind the first one are those of drafts. */
enum status __wrap_pass_collect(struct loaded_model *loaded, const struct pass *p,
                                struct device_result *out, struct err *err) {
    static struct row_output outputs[DRAFT_MAX + 1];
    enum status st = __real_pass_collect(loaded, p, out, err);
    if (st != ST_OK || !spoils_logits || out->output_count < 2) return st;
    assert_in_range(out->output_count, 2, DRAFT_MAX + 1);
    memcpy(outputs, out->outputs, out->output_count * sizeof(outputs[0]));
    struct row_output *spoil = &outputs[1 + spoiled++ % (out->output_count - 1)];
    spoil->failed = true;
    spoil->sample.chosen.token = 0;
    out->outputs = outputs;
    return st;
}

static void begin(void *self, seq_idx seq, const struct sampling *draw) {
    (void)self, (void)seq, (void)draw;
}
static void end(void *self, seq_idx seq) { (void)self, (void)seq; }

static double cost_us(void *self, uint32_t seqs, uint32_t tokens) {
    (void)self, (void)seqs, (void)tokens;
    return 0;
}

static void propose(void *self, struct draft_ask *const *asks, uint32_t count) {
    struct scripted *s = self;
    for (uint32_t i = 0; i < count; i++) {
        struct draft_ask *ask = asks[i];
        if (s->skips_asks && s->asks++ % 2 == 1) continue;
        for (; ask->given < ask->max && ask->count + ask->given < TOTAL; ask->given++)
            ask->out[ask->given] = s->right[ask->count + ask->given];
        if (s->spoils_first && s->asks++ % 4 == 1) ask->out[0] = (ask->out[0] + 1) % VOCAB;
    }
}

static void tap(void *ctx, uint32_t pos, const float *logits) {
    (void)ctx, (void)pos, (void)logits;
}

static struct request *submit(struct service *s, const int32_t *prompt, uint64_t seed, bool drafts,
                              bool is_tapped) {
    struct err err = {0};
    struct request *r;
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = PROMPT,
                                .max_tokens = ANSWER,
                                .n = 1,
                                .sample = sample_params_default(),
                                .ignore_end = true,
                                .on_logits = is_tapped ? tap : NULL};
    spec.speculation.is_chosen = !drafts;
    spec.speculation.choice = speculate_option_default();
    spec.sample.temperature = 0.8F;
    spec.sample.repetition_penalty = 1.3F;
    spec.sample.presence_penalty = 0.7F;
    spec.sample.seed = seed;
    if (engine_submit(s->engine, &spec, &r, &err) != ST_OK) fail_msg("%s", err.text);
    return r;
}

/* Steps of any number of rows take a second, so rows have as many drafts as they may, however busy
 * the machine is. */
static void make_drafts_free(struct sched *sched) {
    for (uint32_t rows = 1; rows <= COST_ROWS_MAX; rows++) sched->lines.cost.us[rows] = 1e6;
}

/* The whole text of an answer with this seed, beside another request; returns how many drafts were
 * accepted. */
static uint64_t answer(const char *device, struct scripted *drafter, uint64_t seed, int32_t *text) {
    struct service s;
    struct err err = {0};
    struct service_options o = {.knobs = knobs_default(),
                                .ctx_tokens = 128,
                                .tokens_only = true,
                                .device = device,
                                .speculate = speculate_option_default()};
    o.knobs.threads = 1;
    o.knobs.max_seqs = 3;
    if (drafter) o.speculate.kind = SPECULATE_MODEL;
    if (service_open(&s, TEST_SOURCE_DIR "/golden/models/llama", &o, &err) != ST_OK)
        fail_msg("%s", err.text);
    const struct draft_model plug = {
        .begin = begin, .end = end, .propose = propose, .cost_us = cost_us, .self = drafter};
    if (drafter) spec_plug_model(engine_spec(s.engine), &plug);
    int32_t prompt[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++) prompt[i] = i * 7 % VOCAB;
    bool has_taps = drafter && drafter->has_taps; /* a tapped row is a step of its own */
    spoils_logits = drafter && drafter->spoils_logits;
    struct request *others[2] = {NULL};
    for (uint32_t i = 0; i < 2 && !spoils_logits; i++)
        others[i] = submit(&s, prompt, 1000 * (i + 1) + seed, false, has_taps);
    struct request *r = submit(&s, prompt, seed, drafter != NULL, false);
    for (bool did_work = true; did_work;) {
        make_drafts_free(engine_sched(s.engine));
        engine_step(s.engine, &did_work);
        for (struct choice *c; (c = engine_next(s.engine, 0));) request_unref(c->request);
    }
    assert_int_equal(atomic_load(&r->choices[0].finish), FINISH_LENGTH);
    memcpy(text, r->choices[0].tokens, TOTAL * sizeof(text[0]));
    uint64_t accepted = sched_stats(engine_sched(s.engine)).drafts.accepted;
    request_unref(r);
    for (int i = 0; i < 2; i++)
        if (others[i]) request_unref(others[i]);
    service_close(&s);
    return accepted;
}

static void check_on(const char *device, struct scripted drafter) {
    enum { SEEDS = 8, ACCEPTED_LEAST = 10 };
    uint64_t accepted = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        int32_t right[TOTAL], got[TOTAL];
        answer("cpu", NULL, seed, right);
        drafter.right = right;
        accepted += answer(device, &drafter, seed, got);
        assert_memory_equal(got, right, sizeof(right));
    }
    assert_true(accepted >= ACCEPTED_LEAST);
}

static void check(struct scripted drafter) { check_on("delayed:depth=1,jitter=0", drafter); }

static void test_drafts_under_way_count(void **state) {
    (void)state;
    check((struct scripted){.skips_asks = true});
}

static void test_a_wrong_guess_of_a_pending_token_does_not_count(void **state) {
    (void)state;
    check((struct scripted){.spoils_first = true});
}

static void test_a_wrong_guess_does_not_count_in_a_plan_of_several_steps(void **state) {
    (void)state;
    check((struct scripted){.spoils_first = true, .has_taps = true});
}

/* The place is computed again in a later step, this time with logits that are numbers. */
static void test_logits_that_are_not_numbers_refuse_a_draft(void **state) {
    (void)state;
    check_on("cpu", (struct scripted){.spoils_logits = true});
    check((struct scripted){.spoils_logits = true});
    assert_true(spoiled > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drafts_under_way_count),
        cmocka_unit_test(test_a_wrong_guess_of_a_pending_token_does_not_count),
        cmocka_unit_test(test_a_wrong_guess_does_not_count_in_a_plan_of_several_steps),
        cmocka_unit_test(test_logits_that_are_not_numbers_refuse_a_draft),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
