/* Goal:   a model file becomes a running engine with the memory that was given, settings that the
 *         device cannot serve are refused with a sentence, and engines with models of their own
 *         live in one process and die one by one.
 * Method: tiny models of the tree; answers compared with the same request elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/kv_budget.h"
#include "engine/service.h"
#include "text/tokenizer.h"
#include "unit/engine/await.h"

#define MODELS TEST_SOURCE_DIR "/golden/models/"

enum { PROMPT = 70, ANSWER = 20, CTX = 128 };

static struct service_options usual(void) {
    struct service_options o = {
        .knobs = knobs_default(), .ctx_tokens = CTX, .tokens_only = true, .isa = "portable"};
    o.knobs.max_seqs = 4;
    o.knobs.threads = 1;
    o.knobs.spill_blocks = 8;
    o.knobs.queue_max = 16;
    return o;
}

static void open_ok(struct service *s, const char *path, const struct service_options *o) {
    struct err err = {0};
    if (service_open(s, path, o, &err) != ST_OK) fail_msg("%s", err.text);
}

static void refused(const char *path, const struct service_options *o, const char *part) {
    struct service s;
    struct err err = {0};
    assert_int_equal(service_open(&s, path, o, &err), ST_BAD);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    service_close(&s); /* a refused one is fine */
}

static struct request *submit(struct service *s, uint32_t seed) {
    int32_t prompt[PROMPT];
    struct err err = {0};
    struct request *r = NULL;
    for (uint32_t i = 0; i < PROMPT; i++) prompt[i] = (int32_t)((i * 7 + seed) % 60);
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = PROMPT,
                                .max_tokens = ANSWER,
                                .n = 2,
                                .sample = sample_params_default(),
                                .ignore_end = true,
                                .want_logprobs = true};
    if (engine_submit(s->engine, &spec, &r, &err) != ST_OK) fail_msg("%s", err.text);
    return r;
}

static void assert_same(const struct request *a, const struct request *b) {
    for (uint32_t i = 0; i < a->n; i++) {
        assert_int_equal(atomic_load(&a->choices[i].finish), FINISH_LENGTH);
        assert_int_equal(atomic_load(&b->choices[i].finish), FINISH_LENGTH);
        assert_memory_equal(a->choices[i].tokens, b->choices[i].tokens,
                            (PROMPT + ANSWER) * sizeof(int32_t));
        assert_memory_equal(a->choices[i].logprobs, b->choices[i].logprobs,
                            ANSWER * sizeof(struct token_logprob));
    }
}

static void test_blocks_follow_from_memory(void **state) {
    (void)state;
    struct service s;
    struct service_options o = usual();
    open_ok(&s, MODELS "llama", &o);
    assert_int_equal(s.knobs.kv_blocks, 4 * CTX / 16); /* more could not be used */
    assert_int_equal(s.knobs.threads, 1);
    service_close(&s);
    o.kv_bytes = 1 << 20;
    open_ok(&s, MODELS "llama", &o);
    uint32_t f16_blocks = s.knobs.kv_blocks;
    service_close(&s);
    o.knobs.kv_type = 2; /* int8: a byte for two, and two bytes of scale a token and head */
    open_ok(&s, MODELS "llama", &o);
    uint32_t dim = s.loaded.model->hp.head_dim;
    assert_in_range(s.knobs.kv_blocks, f16_blocks * 2 * dim / (dim + 2),
                    (f16_blocks + 1) * 2 * dim / (dim + 2));
    service_close(&s);
    o.knobs.kv_type = 3; /* fp8: a byte for two */
    open_ok(&s, MODELS "llama", &o);
    assert_in_range(s.knobs.kv_blocks, 2 * f16_blocks, 2 * f16_blocks + 1);
    service_close(&s);
    o.knobs.kv_type = 1;
    open_ok(&s, MODELS "llama", &o);
    assert_int_equal(s.knobs.kv_blocks, f16_blocks / 2);
    service_close(&s);
    o.knobs.block_size = 64;
    open_ok(&s, MODELS "llama", &o);
    assert_int_equal(s.knobs.kv_blocks, f16_blocks / 8);
    service_close(&s);
    o.knobs.kv_blocks = 33; /* said is said */
    open_ok(&s, MODELS "llama", &o);
    assert_int_equal(s.knobs.kv_blocks, 33);
    service_close(&s);
}

static void expect_prefix_blocks(const struct service_options *o, uint32_t blocks) {
    struct service s;
    open_ok(&s, MODELS "llama", o);
    assert_int_equal(s.knobs.prefix_blocks, blocks);
    uint64_t block_bytes = s.memory.kv_bytes / s.knobs.kv_blocks;
    assert_true(block_bytes > 0);
    assert_int_equal(s.memory.prefix_bytes, blocks * block_bytes);
    assert_int_equal(s.memory.block_bytes[0], block_bytes); /* it has one group */
    assert_true(s.memory.scratch_bytes > 0);
    service_close(&s);
}

static void test_cached_prefixes_fill_a_quarter_or_a_context_unless_a_size_is_set(void **state) {
    (void)state;
    struct service_options o = usual();
    expect_prefix_blocks(&o, CTX / 16); /* of four contexts: a quarter is one */
    o.knobs.max_seqs = 2;
    expect_prefix_blocks(&o, CTX / 16); /* of two: more than a quarter, or no text would stay */
    o.knobs.max_seqs = 8;
    expect_prefix_blocks(&o, 2 * CTX / 16);
    o.knobs.prefix_blocks = 3;
    expect_prefix_blocks(&o, 3);
    o.knobs.prefix_blocks = 0;
    o.knobs.kv_blocks = 33; /* who says how much wants it used */
    expect_prefix_blocks(&o, 33);
}

/* ---- a device with memory of its own ---- */

enum { DEVICE_BYTES = 400000000, LONG_CTX = 32768 };

static struct service_options on_device(void) {
    struct service_options o = usual();
    o.device = "delayed:memory=400000000,jitter=0";
    o.ctx_tokens = LONG_CTX;
    return o;
}

static void test_the_kv_cache_takes_what_a_share_of_device_memory_leaves(void **state) {
    (void)state;
    struct service s;
    struct service_options o = on_device();
    o.knobs.max_seqs = 16;
    open_ok(&s, MODELS "llama", &o);
    uint64_t allowed = DEVICE_BYTES / 10 * 9 - KV_BUDGET_RESERVE_BYTES;
    assert_true(s.memory.kv_bytes < allowed);
    assert_true(s.memory.kv_bytes > allowed - (16 << 20)); /* the tables of a step */
    assert_int_equal(s.knobs.prefix_blocks, s.knobs.kv_blocks);
    uint64_t free_bytes = s.loaded.device.memory(s.loaded.device.self).free_bytes;
    assert_int_equal(free_bytes, DEVICE_BYTES - s.memory.kv_bytes);
    uint64_t at_09 = s.memory.kv_bytes;
    struct err err = {0};
    assert_int_equal(engine_start(s.engine, &err), ST_OK);
    struct request *r = submit(&s, 1);
    await_answer(s.engine, r);
    assert_int_equal(atomic_load(&r->choices[0].finish), FINISH_LENGTH);
    request_unref(r);
    service_close(&s);
    o.memory_share = 1;
    open_ok(&s, MODELS "llama", &o);
    assert_true(s.memory.kv_bytes > at_09);
    service_close(&s);
}

static void test_device_memory_goes_no_further_than_sequences_can_use(void **state) {
    (void)state;
    struct service s;
    struct service_options o = on_device();
    o.ctx_tokens = CTX;
    open_ok(&s, MODELS "llama", &o);
    assert_int_equal(s.knobs.kv_blocks, 4 * CTX / 16);
    service_close(&s);
    o.kv_bytes = 1 << 20; /* the user's size, whatever the share */
    o.memory_share = 0.01;
    open_ok(&s, MODELS "llama", &o);
    assert_in_range(s.memory.kv_bytes, 1, 1 << 20);
    service_close(&s);
}

static void test_too_little_device_memory_is_told_with_numbers(void **state) {
    (void)state;
    struct service s;
    struct err err = {0};
    struct service_options o = on_device();
    o.memory_share = 0.68;
    assert_int_equal(service_open(&s, MODELS "llama", &o, &err), ST_NOMEM);
    assert_non_null(strstr(err.text, "one sequence of 32768 tokens needs"));
    assert_non_null(strstr(err.text, "Of 381 MiB, 381 were free"));
    assert_non_null(strstr(err.text, "--gpu-memory 0.68 of that is 259"));
    assert_non_null(strstr(err.text, "weights take 0"));
    o.kv_bytes = 2ull * DEVICE_BYTES;
    assert_int_equal(service_open(&s, MODELS "llama", &o, &err), ST_NOMEM);
    assert_non_null(strstr(err.text, "lower --kv-memory"));
}

static void test_what_the_device_cannot_do_is_refused(void **state) {
    (void)state;
    struct service_options o = usual();
    o.knobs.block_size = 24;
    refused(MODELS "llama", &o, "block_size is 24");
    o = usual();
    o.kv_bytes = 10;
    refused(MODELS "llama", &o, "10 bytes of KV memory do not hold a block");
    o.kv_bytes = UINT64_MAX;
    refused(MODELS "llama", &o, "at most 16777216 may be");
    o = usual();
    o.knobs.threads = 1000;
    refused(MODELS "llama", &o, "threads is set to 1000; the maximum is 256");
    o = usual();
    refused(MODELS "bert", &o, "gives embeddings");
    o.spill_dir = "/no/such/folder";
    struct service s;
    struct err err = {0};
    assert_int_equal(service_open(&s, MODELS "llama", &o, &err), ST_CREATE);
    assert_non_null(strstr(err.text, "/no/such/folder"));
    assert_int_equal(service_open(&s, MODELS "no-such-model", &o, &err), ST_MISSING);
}

/* A policy that never splits prompts computes one that is longer than a step may be. */
static void test_whole_prompts_may_be_longer_than_a_step(void **state) {
    (void)state;
    struct service split, whole;
    struct err err = {0};
    struct service_options o = usual();
    o.knobs.max_step_tokens = 8;
    open_ok(&split, MODELS "llama", &o);
    o.policy = sched_policy_find("orca");
    open_ok(&whole, MODELS "llama", &o);
    assert_int_equal(engine_start(split.engine, &err), ST_OK);
    assert_int_equal(engine_start(whole.engine, &err), ST_OK);
    struct request *a = submit(&split, 1), *b = submit(&whole, 1);
    await_answer(split.engine, a);
    await_answer(whole.engine, b);
    assert_same(a, b);
    request_unref(a);
    request_unref(b);
    service_close(&split);
    service_close(&whole);
}

static void test_several_models_are_open_in_one_process(void **state) {
    (void)state;
    struct service s[3];
    struct request *r[3], *again;
    struct err err = {0};
    struct service_options o = usual();
    const char *paths[] = {MODELS "llama", MODELS "gemma3", MODELS "llama"};
    for (uint32_t i = 0; i < 3; i++) {
        open_ok(&s[i], paths[i], &o);
        assert_int_equal(engine_start(s[i].engine, &err), ST_OK);
        r[i] = submit(&s[i], 1);
    }
    service_close(&s[1]); /* in the middle of its work */
    await_answer(s[0].engine, r[0]);
    await_answer(s[2].engine, r[2]);
    assert_same(r[0], r[2]);
    service_close(&s[0]);
    open_ok(&s[1], paths[1], &o); /* and one can come back */
    assert_int_equal(engine_start(s[1].engine, &err), ST_OK);
    again = submit(&s[1], 1);
    await_answer(s[1].engine, again);
    service_close(&s[1]);
    service_close(&s[2]);
    for (uint32_t i = 0; i < 3; i++) request_unref(r[i]);
    request_unref(again);
}

static struct request *ask(struct service *s, const int32_t *stop, uint32_t min_tokens) {
    int32_t prompt[PROMPT];
    struct request *r = NULL;
    struct err err = {0};
    for (uint32_t i = 0; i < PROMPT; i++) prompt[i] = (int32_t)(i * 7 % 60);
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = PROMPT,
                                .max_tokens = ANSWER,
                                .min_tokens = min_tokens,
                                .n = 1,
                                .sample = sample_params_default(),
                                .stop_tokens = stop,
                                .stop_token_count = stop ? 1 : 0};
    spec.sample.temperature = 0;
    if (engine_submit(s->engine, &spec, &r, &err) != ST_OK) fail_msg("%s", err.text);
    await_answer(s->engine, r);
    return r;
}

/* The token that would come as the third of the answer ends it, unless it may not. */
static void test_a_stop_token_ends_an_answer_but_not_before_min_tokens(void **state) {
    (void)state;
    struct service s;
    struct err err = {0};
    struct service_options o = usual();
    open_ok(&s, MODELS "llama", &o);
    assert_int_equal(engine_start(s.engine, &err), ST_OK);
    struct request *free = ask(&s, NULL, 0);
    int32_t stop = free->choices[0].tokens[PROMPT + 2];
    struct request *cut = ask(&s, &stop, 0), *held = ask(&s, &stop, ANSWER / 2);
    assert_int_equal(atomic_load(&cut->choices[0].finish), FINISH_STOP);
    assert_in_range(atomic_load(&cut->choices[0].ready), PROMPT + 1, PROMPT + 3);
    assert_int_equal(cut->choices[0].ended_by, stop);
    assert_true(atomic_load(&held->choices[0].ready) > PROMPT + ANSWER / 2);
    for (uint32_t i = PROMPT; i < PROMPT + ANSWER / 2; i++)
        assert_int_not_equal(held->choices[0].tokens[i], stop);
    request_unref(free);
    request_unref(cut);
    request_unref(held);
    service_close(&s);
}

static enum status count_prepared(void *ctx, struct weight *w, struct err *err) {
    (void)err;
    *(uint32_t *)ctx += w->prepared != NULL;
    return ST_OK;
}

/* The device only says how KV would lie: it has one thread and none of the weights. */
static void test_a_simulated_model_answers_with_ordinary_words_up_to_max_tokens(void **state) {
    (void)state;
    struct service s;
    struct err err = {0};
    struct service_options o = usual();
    o.tokens_only = false;
    o.is_sim = true;
    open_ok(&s, MODELS "llama", &o);
    uint32_t prepared = 0;
    assert_false(s.loaded.has_weights);
    assert_int_equal(model_each_weight(s.loaded.model, count_prepared, &prepared, &err), ST_OK);
    assert_int_equal(prepared, 0);
    assert_int_equal(s.loaded.device.threads, 1);
    assert_int_equal(s.knobs.kv_blocks, 4 * CTX / 16); /* accounted for as if it were there */
    assert_int_equal(engine_start(s.engine, &err), ST_OK);
    struct request *a = submit(&s, 1), *b = submit(&s, 1);
    await_answer(s.engine, a);
    await_answer(s.engine, b);
    assert_same(a, b); /* the same question and seed, the same answer */
    for (uint32_t i = PROMPT; i < PROMPT + ANSWER; i++) {
        int32_t token = a->choices[0].tokens[i];
        assert_in_range(token, 0, tokenizer_vocab(s.loaded.tokenizer) - 1);
        assert_false(tokenizer_is_special(s.loaded.tokenizer, token));
        assert_false(tokenizer_is_end(s.loaded.tokenizer, token));
    }
    assert_memory_not_equal(a->choices[0].tokens + PROMPT, a->choices[1].tokens + PROMPT,
                            ANSWER * sizeof(int32_t)); /* another choice, another seed */
    request_unref(a);
    request_unref(b);
    service_close(&s);
    refused(MODELS "bert", &o, "gives embeddings");
}

static void on_stall(void *ctx, int64_t stalled_us) {
    (void)stalled_us;
    (void)ctx;
    _exit(7);
}

/* In a process of its own: a step that hangs can only be left with the process. */
static void test_a_step_that_hangs_is_reported_by_the_watchdog(void **state) {
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct service s;
        struct err err = {0};
        struct service_options o = usual();
        o.is_sim = true;
        o.sim_hang_after = 5;
        alarm(30);
        if (service_open(&s, MODELS "llama", &o, &err) != ST_OK) _exit(1);
        engine_watch(s.engine, 50000, on_stall, NULL);
        if (engine_start(s.engine, &err) != ST_OK) _exit(2);
        struct request *r = submit(&s, 1);
        while (atomic_load(&r->choices[0].finish) == FINISH_NONE) {
            struct choice *c = engine_next(s.engine, 1000000);
            if (c) request_unref(c->request);
        }
        _exit(3);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

static void test_failing_steps_in_a_row_are_counted_until_one_succeeds(void **state) {
    (void)state;
    struct service s;
    struct err err = {0};
    struct service_options o = usual();
    o.is_sim = true;
    o.sim_fail_after = 2;
    assert_int_equal(service_open(&s, MODELS "llama", &o, &err), ST_OK);
    for (uint32_t failed = 0; failed < 4; failed++) {
        assert_int_equal(engine_liveness(s.engine).failed_steps, failed);
        struct request *r = submit(&s, 1);
        while (atomic_load(&r->choices[0].finish) == FINISH_NONE) {
            bool did_work;
            engine_step(s.engine, &did_work);
        }
        for (struct choice *c; (c = engine_next(s.engine, 0));) request_unref(c->request);
        assert_int_equal(atomic_load(&r->choices[0].finish), FINISH_ERROR);
        request_unref(r);
    }
    service_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_follow_from_memory),
        cmocka_unit_test(test_cached_prefixes_fill_a_quarter_or_a_context_unless_a_size_is_set),
        cmocka_unit_test(test_the_kv_cache_takes_what_a_share_of_device_memory_leaves),
        cmocka_unit_test(test_device_memory_goes_no_further_than_sequences_can_use),
        cmocka_unit_test(test_too_little_device_memory_is_told_with_numbers),
        cmocka_unit_test(test_what_the_device_cannot_do_is_refused),
        cmocka_unit_test(test_whole_prompts_may_be_longer_than_a_step),
        cmocka_unit_test(test_several_models_are_open_in_one_process),
        cmocka_unit_test(test_a_stop_token_ends_an_answer_but_not_before_min_tokens),
        cmocka_unit_test(test_a_simulated_model_answers_with_ordinary_words_up_to_max_tokens),
        cmocka_unit_test(test_a_step_that_hangs_is_reported_by_the_watchdog),
        cmocka_unit_test(test_failing_steps_in_a_row_are_counted_until_one_succeeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
