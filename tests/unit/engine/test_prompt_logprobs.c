/* Goal:   what a model thinks of a prompt is the same bits as in one pass over all of it, whatever
 *         is cached, however it is cut up and whatever shares the steps; the answer does not change
 *         by it; and only the prompt can be asked about.
 * Method: tiny models of the tree against forward_logits; a test can make the forward pass
 *         return a NaN.
 * wrap: cpu_program_create cpu_program_submit pool_run */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/service.h"
#include "reference/forward.h"
#include "unit/kernels/cpu/edit_logits.h"
#include "unit/sample/pick.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { PROMPT = 150, ANSWER = 8, CTX = 192, TOPS = 3, BATCH = 3 };

static bool is_poisoned; /* the third output of a pass that has so many becomes NaN */

static void edit_logits(const struct logits *l) {
    if (is_poisoned && l->step->output_count > 10) l->rows[2 * l->row_floats] = NAN;
}

static int32_t prompt[BATCH][PROMPT];
static struct sample_result expected[PROMPT]; /* of prompt[0] */

/* ---- the reference ---- */

struct scoring {
    struct sampler *sampler;
    struct row_sampler *row_sampler;
    uint32_t vocab;
};

static enum status score_rows(void *ctx, uint32_t first, uint32_t count, const float *logits) {
    const struct scoring *s = ctx;
    for (uint32_t i = 0; i < count && first + i + 1 < PROMPT; i++)
        pick_score(s->sampler, s->row_sampler, logits + (size_t)i * s->vocab,
                   prompt[0][first + i + 1], &expected[first + i + 1]);
    return ST_OK;
}

static void make_reference(const char *path) {
    struct err err = {0};
    struct forward *e = NULL;
    struct forward_options o = {.threads = 1, .ctx_tokens = CTX, .tokens_only = true};
    if (forward_open(path, &o, &e, &err) != ST_OK) fail_msg("%s", err.text);
    struct scoring s = {.vocab = forward_vocab(e)};
    for (uint32_t c = 0; c < BATCH; c++)
        for (uint32_t i = 0; i < PROMPT; i++)
            prompt[c][i] = (int32_t)((i * i * 3 + i * 5 + c * 17) % s.vocab);
    struct sample_params p = sample_params_default();
    struct sample_bounds bounds = {s.vocab, 1};
    p.top_logprobs = TOPS;
    assert_int_equal(sampler_create(&p, &bounds, &s.sampler, &err), ST_OK);
    assert_int_equal(row_sampler_create(s.vocab, &s.row_sampler), ST_OK);
    assert_int_equal(forward_logits(e, prompt[0], PROMPT, score_rows, &s, &err), ST_OK);
    row_sampler_destroy(s.row_sampler);
    sampler_destroy(s.sampler);
    forward_close(e);
}

/* ---- the engine ---- */

static void open_service(struct service *s, const char *path, const char *policy,
                         uint32_t step_tokens) {
    struct err err = {0};
    struct service_options o = {.knobs = knobs_default(), .ctx_tokens = CTX, .tokens_only = true};
    o.policy = sched_policy_find(policy);
    o.knobs.threads = 2;
    o.knobs.max_seqs = BATCH + 1;
    o.knobs.max_step_tokens = step_tokens;
    if (service_open(s, path, &o, &err) != ST_OK) fail_msg("%s", err.text);
}

static struct request *ask(struct service *s, uint32_t number, bool wants, uint32_t max_tokens) {
    struct err err = {0};
    struct request *r = NULL;
    struct request_spec spec = {.prompt = prompt[number],
                                .prompt_tokens = PROMPT,
                                .max_tokens = max_tokens,
                                .n = wants && max_tokens ? 2 : 1,
                                .sample = sample_params_default(),
                                .ignore_end = true,
                                .want_logprobs = true,
                                .want_prompt_logprobs = wants};
    spec.sample.top_logprobs = TOPS;
    if (engine_submit(s->engine, &spec, &r, &err) != ST_OK) fail_msg("%s", err.text);
    return r;
}

static void run(struct service *s) {
    for (bool did_work = true; did_work;) engine_step(s->engine, &did_work);
    engine_verify(s->engine);
}

static void check_prompt(const struct request *r) {
    for (uint32_t i = 1; i < PROMPT; i++) {
        const struct sample_result *want = &expected[i], *got = &r->prompt_tops[i];
        assert_memory_equal(&r->prompt_logprobs[i], &want->chosen, sizeof(want->chosen));
        assert_memory_equal(&got->chosen, &want->chosen, sizeof(want->chosen));
        assert_int_equal(got->top_count, want->top_count);
        assert_memory_equal(got->top, want->top, want->top_count * sizeof(want->top[0]));
    }
}

static void check_model(const char *path, const char *policy, uint32_t step_tokens) {
    struct service s;
    struct request *batch[BATCH];
    make_reference(path);
    open_service(&s, path, policy, step_tokens);
    struct request *plain = ask(&s, 0, false, ANSWER); /* leaves the prompt in the cache */
    run(&s);
    struct request *r = ask(&s, 0, true, ANSWER);
    for (uint32_t i = 1; i < BATCH; i++) batch[i] = ask(&s, i, i == 1, ANSWER);
    run(&s);
    check_prompt(r);
    assert_int_equal(r->choices[0].cached_tokens, 0);
    assert_memory_equal(r->choices[0].tokens, plain->choices[0].tokens,
                        (PROMPT + ANSWER) * sizeof(int32_t));
    assert_memory_equal(r->choices[0].logprobs, plain->choices[0].logprobs,
                        ANSWER * sizeof(struct token_logprob));
    assert_int_equal(atomic_load(&r->choices[1].finish), FINISH_LENGTH);
    assert_null(plain->prompt_logprobs);
    for (uint32_t i = 1; i < BATCH; i++) request_unref(batch[i]);
    request_unref(plain);
    request_unref(r);
    service_close(&s);
}

static void test_a_prompts_logprobs_are_the_bits_of_one_pass(void **state) {
    (void)state;
    check_model(MODELS "llama", "chunked", 512);
    check_model(MODELS "llama", "chunked", 7);
    check_model(MODELS "llama", "orca", 16); /* never splits prompts */
    check_model(MODELS "gemma3", "chunked", 100);
}

static void test_a_request_can_score_its_prompt_alone(void **state) {
    (void)state;
    struct service s;
    uint32_t ready;
    make_reference(MODELS "llama");
    open_service(&s, MODELS "llama", "chunked", 64);
    struct request *r = ask(&s, 0, true, 0);
    run(&s);
    assert_int_equal(choice_poll(&r->choices[0], &ready), FINISH_LENGTH);
    assert_int_equal(ready, PROMPT);
    assert_int_equal(r->choices[0].ended_by, -1);
    check_prompt(r);
    request_unref(r);
    service_close(&s);
}

static void test_logits_that_are_not_numbers_end_that_request_alone(void **state) {
    (void)state;
    struct service s;
    open_service(&s, MODELS "llama", "chunked", 512);
    struct request *bad = ask(&s, 0, true, ANSWER), *good = ask(&s, 1, false, ANSWER);
    is_poisoned = true;
    run(&s);
    is_poisoned = false;
    assert_int_equal(atomic_load(&bad->choices[0].finish), FINISH_ERROR);
    assert_true(bad->refusal.text[0] != 0);
    assert_int_equal(atomic_load(&good->choices[0].finish), FINISH_LENGTH);
    request_unref(bad);
    request_unref(good);
    service_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prompts_logprobs_are_the_bits_of_one_pass),
        cmocka_unit_test(test_a_request_can_score_its_prompt_alone),
        cmocka_unit_test(test_logits_that_are_not_numbers_end_that_request_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
