/* Goal:   a request with a prediction knows which tokens of its answer were drafts.
 * Method: rightly predicted answers from a tiny model, on a device whose steps take long. The first
 *         token is sampled behind the prompt and the last behind the last drafts, so neither can be
 *         one. The scheduler believes that rows are free, so that there are drafts however busy the
 *         machine is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/service.h"
#include "sched/sched_int.h"

enum { PROMPT = 20, ANSWER = 100, VOCAB = 288, REQUESTS_MAX = 200 };

struct answered {
    int32_t tokens[ANSWER];
    bool predicted[ANSWER];
    unsigned drafted, accepted;
};

static void make_drafts_free(struct sched *sched) {
    for (uint32_t rows = 1; rows <= COST_ROWS_MAX; rows++) sched->lines.cost.us[rows] = 1e6;
}

/* `prediction` NULL: none. */
static struct answered answer(struct service *s, uint64_t seed, const int32_t *prediction) {
    struct err err = {0};
    struct request *r;
    int32_t prompt[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++) prompt[i] = i * 7 % VOCAB;
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = PROMPT,
                                .max_tokens = ANSWER,
                                .n = 1,
                                .sample = sample_params_default(),
                                .ignore_end = true};
    spec.sample.temperature = 1.0F;
    spec.sample.seed = seed;
    spec.speculation.max = 1 + (uint32_t)(seed % 12); /* so that steps end at other places */
    spec.speculation.prediction = prediction;
    spec.speculation.prediction_tokens = prediction ? ANSWER : 0;
    if (engine_submit(s->engine, &spec, &r, &err) != ST_OK) fail_msg("%s", err.text);
    for (bool did_work = true; did_work;) {
        make_drafts_free(engine_sched(s->engine));
        engine_step(s->engine, &did_work);
        for (struct choice *c; (c = engine_next(s->engine, 0));) request_unref(c->request);
    }
    const struct choice *c = &r->choices[0];
    struct answered a = {.drafted = atomic_load(&c->drafted), .accepted = c->accepted};
    memcpy(a.tokens, c->tokens + PROMPT, sizeof(a.tokens));
    for (uint32_t i = 0; i < ANSWER; i++) a.predicted[i] = choice_was_predicted(c, i);
    request_unref(r);
    return a;
}

static void test_only_drafts_count_as_predicted(void **state) {
    (void)state;
    struct service s;
    struct err err = {0};
    struct service_options o = {.knobs = knobs_default(),
                                .ctx_tokens = 128,
                                .tokens_only = true,
                                .device = "delayed:depth=1,jitter=0",
                                .speculate = speculate_option_default()};
    o.knobs.threads = 1;
    if (service_open(&s, TEST_SOURCE_DIR "/golden/models/llama", &o, &err) != ST_OK)
        fail_msg("%s", err.text);
    uint32_t ended_by_drafts = 0; /* answers with drafts up to the place before the last */
    for (uint64_t seed = 1; seed <= REQUESTS_MAX && ended_by_drafts < 3; seed++) {
        const struct answered plain = answer(&s, seed, NULL);
        const struct answered with = answer(&s, seed, plain.tokens);
        assert_memory_equal(plain.tokens, with.tokens, sizeof(plain.tokens));
        assert_int_equal(plain.drafted, 0);
        uint32_t predicted = 0;
        for (uint32_t i = 0; i < ANSWER; i++) predicted += with.predicted[i];
        assert_int_equal(predicted, with.accepted);
        assert_false(with.predicted[0]);
        assert_false(with.predicted[ANSWER - 1]);
        ended_by_drafts += with.predicted[ANSWER - 2];
    }
    assert_int_equal(ended_by_drafts, 3);
    service_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_drafts_count_as_predicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
