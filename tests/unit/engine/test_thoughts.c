/* Goal:   a budget of thoughts ends them after that many tokens, in every choice, beside others,
 *         with the next step submitted ahead and with preemptions, and the answer is the same each
 *         time.
 * Method: a golden model on the devices cpu and delayed (depth 1), stepped by hand; the tokens of
 *         the closing text are looked for at their place, and whole answers are compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/service.h"
#include "text/tokenizer.h"

enum { REQUESTS = 6, CHOICES = 2, ANSWER = 40, TURNS_MAX = 20000, CLOSING = 3, FEW_BLOCKS = 14 };

static const uint32_t budgets[REQUESTS] = {0, 1, 5, 17, 36, 39};
static const int32_t closing[CLOSING] = {'a', 'b', 'c'};

struct answers {
    int32_t tokens[REQUESTS][CHOICES][ANSWER];
    uint32_t preempted;
};

static struct request_spec spec_of(const struct service *s, uint32_t i) {
    static const int32_t prompt[] = {5, 6, 7, 8, 9};
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = 5,
                                .max_tokens = ANSWER,
                                .n = CHOICES,
                                .ignore_end = true,
                                .sample = sample_params_default()};
    spec.sample.temperature = 1.0f;
    spec.sample.seed = 10 * i;
    spec.sample.thinking = (struct sample_thinking){.has_budget = true,
                                                    .in_thought = true,
                                                    .budget = budgets[i],
                                                    .open = "<never written>",
                                                    .close = "</never written>",
                                                    .tokenizer = s->loaded.tokenizer,
                                                    .closing = closing,
                                                    .closing_count = CLOSING};
    return spec;
}

static bool has_ended(const struct request *q) {
    for (uint32_t c = 0; c < q->n; c++)
        if (atomic_load(&q->choices[c].finish) == FINISH_NONE) return false;
    return true;
}

static void run(struct service *s, struct request *const *requests, uint32_t count) {
    bool did_work;
    uint32_t ended = 0;
    for (uint32_t turn = 0; turn < TURNS_MAX && ended < count; turn++) {
        assert_int_equal(engine_step(s->engine, &did_work), ST_OK);
        engine_verify(s->engine);
        for (ended = 0; ended < count && has_ended(requests[ended]);) ended++;
    }
    assert_int_equal(ended, count);
}

static void take(const struct request *q, uint32_t i, struct answers *out) {
    for (uint32_t c = 0; c < CHOICES; c++) {
        const struct choice *choice = &q->choices[c];
        assert_int_equal(atomic_load(&choice->finish), FINISH_LENGTH);
        memcpy(out->tokens[i][c], choice->tokens + choice->prompt_tokens,
               sizeof(out->tokens[i][c]));
        out->preempted += choice->preempt_count;
        for (uint32_t k = 0; k < CLOSING && budgets[i] + k < ANSWER; k++)
            assert_int_equal(out->tokens[i][c][budgets[i] + k], closing[k]);
    }
}

static void answer(const char *device, uint32_t kv_blocks, struct answers *out) {
    struct err err = {{0}};
    struct service s;
    struct request *requests[REQUESTS];
    struct service_options o = {.knobs = knobs_default(), .device = device, .ctx_tokens = 128};
    o.knobs.max_seqs = REQUESTS * CHOICES;
    if (kv_blocks > 0) o.knobs.kv_blocks = kv_blocks;
    o.knobs.threads = 1;
    if (service_open(&s, TEST_SOURCE_DIR "/golden/models/llama", &o, &err) != ST_OK)
        fail_msg("%s", err.text);
    *out = (struct answers){.preempted = 0};
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const struct request_spec spec = spec_of(&s, i);
        if (engine_submit(s.engine, &spec, &requests[i], &err) != ST_OK) fail_msg("%s", err.text);
    }
    run(&s, requests, REQUESTS);
    for (uint32_t i = 0; i < REQUESTS; i++) take(requests[i], i, out);
    for (struct choice *c; (c = engine_next(s.engine, 0));) request_unref(c->request);
    for (uint32_t i = 0; i < REQUESTS; i++) request_unref(requests[i]);
    service_close(&s);
}

static void test_a_budget_gives_the_same_answers_ahead_and_with_preemptions(void **state) {
    (void)state;
    static struct answers plain, ahead, short_of_memory;
    answer("cpu", 0, &plain);
    answer("delayed:depth=1,jitter=50", 0, &ahead);
    answer("cpu", FEW_BLOCKS, &short_of_memory);
    assert_memory_equal(plain.tokens, ahead.tokens, sizeof(plain.tokens));
    assert_memory_equal(plain.tokens, short_of_memory.tokens, sizeof(plain.tokens));
    assert_int_equal(plain.preempted, 0);
    assert_true(short_of_memory.preempted > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_budget_gives_the_same_answers_ahead_and_with_preemptions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
