/* Goal:   opening a model as an engine, and submitting to it, survive the failure of any one
 *         allocation: ST_NOMEM with a sentence, nothing lost, and an engine that stands goes on.
 * Method: the whole way once with the first allocation failing, then the second, until no more
 *         are needed; leaks show under the address sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>

#include "engine/control.h"
#include "engine/embedder.h"
#include "engine/runner_sim.h"
#include "engine/service.h"
#include "fault/fail_alloc.h"

enum { ALLOCATIONS_MAX = 100000 };

static struct service_options options(void) {
    struct service_options o = {
        .knobs = knobs_default(), .ctx_tokens = 64, .isa = "portable", .tokens_only = true};
    o.knobs.max_seqs = 2;
    o.knobs.threads = 1;
    o.knobs.queue_max = 4;
    o.knobs.block_size = 32; /* tables of tiles are needed */
    return o;
}

static struct request_spec spec(void) {
    static const int32_t prompt[] = {1, 2, 3};
    struct request_spec s = {.prompt = prompt,
                             .prompt_tokens = 3,
                             .max_tokens = 4,
                             .n = 3,
                             .sample = sample_params_default(),
                             .ignore_end = true,
                             .stop_tokens = prompt,
                             .stop_token_count = 1,
                             .min_tokens = 4,
                             .want_logprobs = true,
                             .want_prompt_logprobs = true};
    s.sample.top_logprobs = 2;
    s.sample.repetition_penalty = 1.1f;
    return s;
}

static void check(enum status st, const struct err *err, long n) {
    if (st != ST_NOMEM)
        fail_msg("allocation %ld failed and the answer is %s: %s", n, status_name(st), err->text);
    if (!err->text[0]) fail_msg("allocation %ld failed without a sentence", n);
}

static void open_with_failures(const char *path, bool tokens_only) {
    struct service_options o = options();
    o.tokens_only = tokens_only;
    long n = 0;
    for (; n < ALLOCATIONS_MAX; n++) {
        struct service s;
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = service_open(&s, path, &o, &err);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            service_close(&s);
            break;
        }
        if (st == ST_OK) { /* it did without */
            service_close(&s);
            continue;
        }
        check(st, &err, n);
    }
    assert_in_range(n, 10, ALLOCATIONS_MAX - 1);
}

static void test_any_allocation_of_opening_may_fail(void **state) {
    (void)state;
    open_with_failures(TEST_SOURCE_DIR "/golden/models/llama", false);
    open_with_failures(TEST_SOURCE_DIR "/golden/models/gemma3", true);
}

/* The engine serves one request while another one cannot be made. */
static void test_any_allocation_of_a_request_may_fail(void **state) {
    (void)state;
    struct service s;
    struct err err = {0};
    struct service_options o = options();
    struct request_spec in = spec();
    assert_int_equal(service_open(&s, TEST_SOURCE_DIR "/golden/models/llama", &o, &err), ST_OK);
    for (long n = 0;; n++) {
        struct request *r = NULL;
        err = (struct err){0};
        fail_alloc_at(n);
        enum status st = engine_submit(s.engine, &in, &r, &err);
        bool failed = fail_alloc_stop();
        if (failed) {
            check(st, &err, n);
            continue;
        }
        assert_int_equal(st, ST_OK);
        assert_true(n > 5);
        fail_alloc_at(0); /* steps allocate nothing at all */
        for (bool did_work = true; did_work;) engine_step(s.engine, &did_work);
        assert_false(fail_alloc_stop());
        for (uint32_t i = 0; i < r->n; i++)
            assert_int_equal(atomic_load(&r->choices[i].finish), FINISH_LENGTH);
        request_unref(r);
        break;
    }
    service_close(&s);
}

static void test_any_allocation_of_control_may_fail(void **state) {
    (void)state;
    const struct control_rules rules = {sched_policies[0], options().knobs};
    for (long n = 0;; n++) {
        struct control *c = NULL;
        fail_alloc_at(n);
        enum status st = control_create(&c, &rules);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            assert_true(n >= 2);
            control_destroy(c);
            return;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_null(c);
    }
}

/* While requests run, a map and other rules are made and taken without memory. */
static void test_what_is_asked_of_an_engine_takes_no_memory(void **state) {
    (void)state;
    struct service s;
    struct err err = {0};
    struct service_options o = options();
    struct request_spec in = spec();
    struct request *r = NULL;
    uint64_t change = 0;
    assert_int_equal(service_open(&s, TEST_SOURCE_DIR "/golden/models/llama", &o, &err), ST_OK);
    assert_int_equal(engine_submit(s.engine, &in, &r, &err), ST_OK);
    struct control *c = engine_control(s.engine);
    struct control_rules rules = control_rules(c);
    rules.knobs.queue_max = rules.knobs.max_step_tokens = 1;
    for (uint32_t i = 0; sched_policies[i]; i++) {
        bool did_work;
        rules.policy = sched_policies[i];
        fail_alloc_at(0);
        uint64_t map = engine_ask_map(s.engine);
        assert_int_equal(engine_ask_change(s.engine, &rules, &change), ST_OK);
        for (int n = 0; n < 3; n++) engine_step(s.engine, &did_work);
        assert_false(fail_alloc_stop());
        assert_true(control_is_done(c, map));
        assert_true(control_is_done(c, change));
        assert_ptr_equal(control_rules(c).policy, sched_policies[i]);
    }
    for (bool did_work = true; did_work;) engine_step(s.engine, &did_work);
    for (uint32_t i = 0; i < r->n; i++)
        assert_int_equal(atomic_load(&r->choices[i].finish), FINISH_LENGTH);
    request_unref(r);
    service_close(&s);
}

static void test_any_allocation_of_a_simulated_runner_may_fail(void **state) {
    (void)state;
    for (long n = 0;; n++) {
        struct runner runner;
        struct err err = {0};
        struct runner_sim_options o = {.seq_max = 4,
                                       .row_max = 4,
                                       .vocab = 100,
                                       .depth = 1,
                                       .block_tokens = 16,
                                       .tokens_max = 64,
                                       .block_count = 8,
                                       .spill_slots = 4,
                                       .group_count = 2};
        fail_alloc_at(n);
        enum status st = runner_sim_open(&o, &runner, &err);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            runner.close(runner.self);
            break;
        }
        check(st, &err, n);
    }
}

static void embed_with_failures(const char *path) {
    struct loaded_model loaded;
    struct err err = {0};
    struct loaded_model_options o = {
        .threads = 1, .ctx_tokens = 64, .tokens_only = true, .isa = "portable"};
    struct embedder_options eo = {.batch_tokens = 32};
    assert_int_equal(loaded_model_open(&loaded, path, &o, &err), ST_OK);
    for (long n = 0;; n++) {
        struct embedder *e = NULL;
        err = (struct err){0};
        fail_alloc_at(n);
        enum status st = embedder_open(&e, &loaded, &eo, &err);
        bool failed = fail_alloc_stop();
        embedder_close(e);
        if (!failed) {
            assert_int_equal(st, ST_OK);
            assert_true(n > 5);
            break;
        }
        check(st, &err, n);
    }
    loaded_model_close(&loaded);
}

static void test_any_allocation_of_an_embedder_may_fail(void **state) {
    (void)state;
    embed_with_failures(TEST_SOURCE_DIR "/golden/models/bert");
    embed_with_failures(TEST_SOURCE_DIR "/golden/models/llama");
}

static void test_any_allocation_of_a_simulated_model_may_fail(void **state) {
    (void)state;
    struct service_options o = options();
    o.tokens_only = false;
    o.is_sim = true;
    for (long n = 0;; n++) {
        struct service s;
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = service_open(&s, TEST_SOURCE_DIR "/golden/models/llama", &o, &err);
        bool failed = fail_alloc_stop();
        if (st == ST_OK) service_close(&s);
        if (!failed) {
            assert_int_equal(st, ST_OK);
            break;
        }
        if (st != ST_OK) check(st, &err, n);
        assert_true(n < ALLOCATIONS_MAX);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_allocation_of_opening_may_fail),
        cmocka_unit_test(test_any_allocation_of_a_request_may_fail),
        cmocka_unit_test(test_any_allocation_of_control_may_fail),
        cmocka_unit_test(test_what_is_asked_of_an_engine_takes_no_memory),
        cmocka_unit_test(test_any_allocation_of_a_simulated_runner_may_fail),
        cmocka_unit_test(test_any_allocation_of_an_embedder_may_fail),
        cmocka_unit_test(test_any_allocation_of_a_simulated_model_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
