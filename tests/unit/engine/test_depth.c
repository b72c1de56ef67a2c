/* Goal:   an engine on a device that is late keeps its promises: a failed step ends the sequences
 *         in it and no others, what is under way is collected before the end, and settings whose
 *         description depends on a token that is not known yet give the answers of depth 0.
 * Method: the device `delayed` at depth 0 and 1 on a tiny model, stepped by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "engine/service.h"

enum { REQUESTS = 8, PROMPT = 40, ANSWER = 24, TURNS_MAX = 20000 };

struct rig {
    struct service s;
    struct request *requests[REQUESTS];
    uint32_t count;
};

static void rig_open(struct rig *r, const char *device) {
    struct err err = {{0}};
    struct service_options o = {
        .knobs = knobs_default(), .device = device, .ctx_tokens = 256, .tokens_only = true};
    o.knobs.max_seqs = REQUESTS;
    o.knobs.threads = 2;
    o.knobs.prefix_cache = false;
    *r = (struct rig){.count = 0};
    if (service_open(&r->s, TEST_SOURCE_DIR "/golden/models/llama", &o, &err) != ST_OK)
        fail_msg("%s", err.text);
}

static void rig_close(struct rig *r) {
    for (struct choice *c; (c = engine_next(r->s.engine, 0));) request_unref(c->request);
    for (uint32_t i = 0; i < r->count; i++) request_unref(r->requests[i]);
    service_close(&r->s);
}

/* Which settings a request has. */
enum kind { PLAIN, PENALTIES, BIASES, PROMPT_LOGPROBS, MIN_TOKENS };

static void submit(struct rig *r, enum kind kind) {
    static struct logit_bias biases[LOGIT_BIAS_MAX];
    struct err err = {{0}};
    uint32_t vocab = r->s.loaded.model->hp.vocab, n = r->count;
    int32_t prompt[PROMPT], end = 5;
    for (uint32_t t = 0; t < PROMPT; t++) prompt[t] = (int32_t)((n * 31 + t * 7 + t * t) % vocab);
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = PROMPT,
                                .max_tokens = ANSWER,
                                .n = 1,
                                .sample = sample_params_default(),
                                .ignore_end = true,
                                .want_logprobs = true,
                                .want_prompt_logprobs = kind == PROMPT_LOGPROBS};
    spec.sample.seed = n;
    spec.sample.top_logprobs = 3;
    if (kind == PENALTIES || kind == BIASES) {
        spec.sample.penalty_window = kind == PENALTIES ? 9 : -1;
        spec.sample.repetition_penalty = 1.3f;
        spec.sample.frequency_penalty = 0.4f;
        spec.sample.presence_penalty = 0.2f;
        spec.sample.penalty_answer_only = n % 2;
    }
    for (uint32_t i = 0; kind == BIASES && i < LOGIT_BIAS_MAX; i++)
        biases[i] = (struct logit_bias){(int32_t)(i * 3 % vocab), (float)(i % 7) / 5.0f};
    if (kind == BIASES) {
        spec.sample.bias = biases;
        spec.sample.bias_count = LOGIT_BIAS_MAX;
    }
    if (kind == MIN_TOKENS) {
        spec.min_tokens = 10;
        spec.stop_tokens = &end;
        spec.stop_token_count = 1;
    }
    if (engine_submit(r->s.engine, &spec, &r->requests[r->count++], &err) != ST_OK)
        fail_msg("%s", err.text);
}

static bool all_ended(const struct rig *r) {
    for (uint32_t i = 0; i < r->count; i++)
        if (atomic_load(&r->requests[i]->choices[0].finish) == FINISH_NONE) return false;
    return true;
}

/* Until all have ended; statuses of failed steps are counted. */
static uint32_t run(struct rig *r) {
    uint32_t failed = 0;
    for (uint32_t turn = 0; turn < TURNS_MAX && !all_ended(r); turn++) {
        bool did_work;
        failed += engine_step(r->s.engine, &did_work) != ST_OK;
        engine_verify(r->s.engine);
    }
    assert_true(all_ended(r));
    return failed;
}

static enum finish_reason finish_of(const struct rig *r, uint32_t i) {
    return (enum finish_reason)atomic_load(&r->requests[i]->choices[0].finish);
}

static void assert_no_blocks_held(struct rig *r) {
    struct kv_cache_stats kv = engine_stats(r->s.engine).sched.kv;
    bool did_work;
    for (int i = 0; i < 3; i++) engine_step(r->s.engine, &did_work);
    kv = engine_stats(r->s.engine).sched.kv;
    assert_int_equal(kv.groups[0].held_count, 0);
}

/* Request i of both has the same answer, log-probabilities and all. */
static void assert_same(const struct rig *a, const struct rig *b) {
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        const struct choice *x = &a->requests[i]->choices[0], *y = &b->requests[i]->choices[0];
        uint32_t total = x->ready, answer = total - x->prompt_tokens;
        assert_int_equal(finish_of(a, i), finish_of(b, i));
        assert_int_equal(total, y->ready);
        assert_memory_equal(x->tokens, y->tokens, total * sizeof(x->tokens[0]));
        assert_memory_equal(x->logprobs, y->logprobs, answer * sizeof(x->logprobs[0]));
        for (uint32_t t = 0; t < answer; t++)
            assert_memory_equal(&x->tops[t].top, &y->tops[t].top,
                                x->tops[t].top_count * sizeof(x->tops[t].top[0]));
        if (!a->requests[i]->prompt_logprobs) continue;
        assert_memory_equal(a->requests[i]->prompt_logprobs + 1,
                            b->requests[i]->prompt_logprobs + 1,
                            (PROMPT - 1) * sizeof(struct token_logprob));
    }
}

static void test_every_setting_gives_the_answers_of_depth_0(void **state) {
    (void)state;
    static const enum kind kinds[] = {PLAIN, PENALTIES, BIASES, PROMPT_LOGPROBS, MIN_TOKENS};
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct rig cpu, late;
        rig_open(&cpu, "cpu");
        rig_open(&late, "delayed:depth=1,jitter=50");
        for (int i = 0; i < REQUESTS; i++) {
            submit(&cpu, kinds[k]);
            submit(&late, kinds[k]);
        }
        assert_int_equal(run(&cpu), 0);
        assert_int_equal(run(&late), 0);
        assert_same(&cpu, &late);
        assert_int_equal(engine_stats(cpu.s.engine).answer_tokens,
                         engine_stats(late.s.engine).answer_tokens);
        assert_no_blocks_held(&late);
        rig_close(&cpu);
        rig_close(&late);
    }
}

/* Of many biases and penalties the edits of all rows do not fit one step: the plan becomes several,
 * and the answers are those that each has alone. */
static void test_a_full_list_of_edits_changes_no_token(void **state) {
    (void)state;
    struct rig together;
    rig_open(&together, "delayed:depth=1,jitter=0");
    for (int i = 0; i < REQUESTS; i++) submit(&together, BIASES);
    assert_int_equal(run(&together), 0);
    for (int i = 0; i < REQUESTS; i++) {
        struct rig alone;
        rig_open(&alone, "cpu");
        alone.count = (uint32_t)i; /* the prompt and the seed of request i */
        submit(&alone, BIASES);
        alone.requests[0] = alone.requests[i];
        alone.count = 1;
        assert_int_equal(run(&alone), 0);
        const struct choice *x = &together.requests[i]->choices[0];
        const struct choice *y = &alone.requests[0]->choices[0];
        assert_int_equal(x->ready, y->ready);
        assert_memory_equal(x->tokens, y->tokens, x->ready * sizeof(x->tokens[0]));
        rig_close(&alone);
    }
    rig_close(&together);
}

static void check_failed_step(const char *device) {
    struct rig r, good;
    rig_open(&r, device);
    for (int i = 0; i < REQUESTS / 2; i++) submit(&r, PENALTIES);
    assert_int_equal(run(&r), 1);
    for (uint32_t i = 0; i < REQUESTS / 2; i++) {
        assert_int_equal(finish_of(&r, i), FINISH_ERROR);
        assert_non_null(strstr(r.requests[i]->refusal.text, "because of the option fail"));
    }
    rig_open(&good, "cpu");
    for (int i = 0; i < REQUESTS / 2; i++) submit(&good, PENALTIES);
    for (int i = 0; i < REQUESTS / 2; i++) {
        submit(&r, PENALTIES); /* those that come later are served */
        submit(&good, PENALTIES);
    }
    assert_int_equal(run(&r), 0);
    run(&good);
    for (uint32_t i = REQUESTS / 2; i < REQUESTS; i++) {
        const struct choice *x = &r.requests[i]->choices[0], *y = &good.requests[i]->choices[0];
        assert_int_equal(finish_of(&r, i), FINISH_LENGTH);
        assert_memory_equal(x->tokens, y->tokens, x->ready * sizeof(x->tokens[0]));
    }
    assert_no_blocks_held(&r);
    rig_close(&r);
    rig_close(&good);
}

static void test_a_failed_step_ends_its_sequences_and_no_others(void **state) {
    (void)state;
    check_failed_step("delayed:depth=0,jitter=0,fail=5");
    check_failed_step("delayed:depth=1,jitter=0,fail=5");
    check_failed_step("delayed:depth=1,jitter=0,fail=1");
    check_failed_step("delayed:depth=1,jitter=200,fail=6");
}

static void test_a_lost_device_fails_everything(void **state) {
    (void)state;
    for (int depth = 0; depth <= 1; depth++) {
        struct rig r;
        char device[64];
        snprintf(device, sizeof(device), "delayed:depth=%d,jitter=0,lose=4", depth);
        rig_open(&r, device);
        for (int i = 0; i < 4; i++) submit(&r, PLAIN);
        assert_true(run(&r) >= 1);
        submit(&r, PLAIN);
        assert_true(run(&r) >= 1);
        for (uint32_t i = 0; i < r.count; i++) assert_int_equal(finish_of(&r, i), FINISH_ERROR);
        assert_true(engine_liveness(r.s.engine).failed_steps >= 2);
        assert_no_blocks_held(&r);
        rig_close(&r);
    }
}

static void test_an_engine_is_closed_while_steps_are_under_way(void **state) {
    (void)state;
    for (uint32_t turns = 1; turns < 6; turns++) {
        struct rig r;
        rig_open(&r, "delayed:depth=1,delay=2000,jitter=0");
        for (int i = 0; i < REQUESTS; i++) submit(&r, PLAIN);
        for (uint32_t i = 0; i < turns; i++) {
            bool did_work;
            assert_int_equal(engine_step(r.s.engine, &did_work), ST_OK);
        }
        if (turns % 2) engine_cancel(r.s.engine, r.requests[0]);
        rig_close(&r);
    }
}

static void test_the_engine_thread_serves_at_depth_1(void **state) {
    (void)state;
    struct err err = {{0}};
    struct rig late, cpu;
    rig_open(&late, "delayed:depth=1,jitter=100");
    rig_open(&cpu, "cpu");
    assert_int_equal(engine_start(late.s.engine, &err), ST_OK);
    for (int i = 0; i < REQUESTS; i++) {
        submit(&late, PENALTIES);
        submit(&cpu, PENALTIES);
    }
    run(&cpu);
    for (int turn = 0; turn < TURNS_MAX && !all_ended(&late); turn++) {
        struct choice *c = engine_next(late.s.engine, 10000);
        if (c) request_unref(c->request);
    }
    assert_true(all_ended(&late));
    assert_same(&cpu, &late);
    engine_stop(late.s.engine);
    rig_close(&late);
    rig_close(&cpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_setting_gives_the_answers_of_depth_0),
        cmocka_unit_test(test_a_full_list_of_edits_changes_no_token),
        cmocka_unit_test(test_a_failed_step_ends_its_sequences_and_no_others),
        cmocka_unit_test(test_a_lost_device_fails_everything),
        cmocka_unit_test(test_an_engine_is_closed_while_steps_are_under_way),
        cmocka_unit_test(test_the_engine_thread_serves_at_depth_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
