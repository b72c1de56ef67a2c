/* Goal:   with a runner of depth 1 the engine has the next step submitted while one computes; every
 *         request ends as it does with depth 0, and nothing that was computed in vain is counted.
 * Method: the engine over the simulated runner of depth 1, stepped by hand; each case with several
 *         seeds of when a plan runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <time.h>

#include "unit/engine/await.h"
#include "unit/engine/rig.h"

enum { SEEDS = 8 };

static void open_ahead(struct rig *rig, const struct knobs *k, const struct sim_watch *watch,
                       uint64_t seed) {
    rig_open_depth(rig, k, watch, false, 0, 1, seed);
}

/* Collect what is under way; then nothing is held but idle prefixes. */
static void assert_all_given_back(const struct rig *rig) {
    for (bool did_work = true; did_work;) engine_step(rig->engine, &did_work);
    engine_verify(rig->engine);
    assert_true(sched_is_idle(engine_sched(rig->engine)));
    assert_int_equal(kv_cache_available(engine_kv(rig->engine)), rig_knobs().kv_blocks);
    assert_int_equal(runner_sim_begun(&rig->runner), 0);
}

static uint32_t answer_tokens(const struct request *r) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t ready;
        choice_poll(&r->choices[i], &ready);
        sum += ready - r->choices[i].prompt_tokens;
    }
    return sum;
}

/* ---- steps ---- */

static void test_the_first_turn_submits_and_later_ones_collect_one_step(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    open_ahead(&rig, &k, NULL, 1);
    struct request *r = rig_submit(&rig, 1, 20, 12, 1);
    bool did_work;
    engine_step(rig.engine, &did_work);
    assert_true(did_work);
    assert_int_equal(engine_liveness(rig.engine).steps, 0);
    for (uint32_t n = 1; n <= 12; n++) {
        uint32_t ready;
        engine_step(rig.engine, &did_work);
        engine_verify(rig.engine);
        choice_poll(&r->choices[0], &ready);
        assert_int_equal(ready, 20 + n);
        assert_int_equal(engine_liveness(rig.engine).steps, n);
    }
    assert_int_equal(rig_finish(r, 0), FINISH_LENGTH);
    engine_step(rig.engine, &did_work);
    assert_false(did_work); /* no step was computed in vain */
    rig_check_answer(&rig, &r->choices[0]);
    request_unref(r);
    engine_destroy(rig.engine);
}

/* An end token comes as a surprise: the row behind it is computed and dropped. */
static void test_what_is_computed_after_an_end_is_not_counted(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct rig rig;
        struct knobs k = rig_knobs();
        open_ahead(&rig, &k, NULL, seed);
        struct request *whole = rig_submit(&rig, 1, 20, 30, 1), *r = NULL;
        rig_run(&rig, whole);
        int32_t prompt[RIG_CTX], stop = whole->choices[0].tokens[20 + 11];
        struct request_spec spec = rig_spec(prompt, 20, 1, 30);
        spec.stop_tokens = &stop;
        spec.stop_token_count = 1;
        assert_int_equal(engine_submit(rig.engine, &spec, &r, NULL), ST_OK);
        rig_run(&rig, r);
        assert_int_equal(rig_finish(r, 0), FINISH_STOP);
        assert_all_given_back(&rig);
        struct engine_stats n = engine_stats(rig.engine);
        assert_int_equal(n.sched.dropped_rows, 1);
        assert_int_equal(n.answer_tokens, answer_tokens(whole) + answer_tokens(r));
        assert_int_equal(n.step_tokens, n.prompt_tokens + n.answer_tokens - 2);
        request_unref(whole);
        request_unref(r);
        engine_destroy(rig.engine);
    }
}

/* Each record begins where the one before it ends, from `began_us` to now; returns their number. */
static uint32_t check_records(const struct rig *rig, int64_t began_us) {
    static uint64_t bytes[1 << 16];
    struct record_cursor cursor = {.next = 0};
    int64_t end_us = began_us;
    uint32_t steps = 0;
    for (size_t used;
         (used = record_read(engine_records(rig->engine), &cursor, bytes, sizeof(bytes))) > 0;) {
        const void *at = bytes, *end = (const char *)bytes + used;
        for (struct record r; record_next(&at, end, &r);) {
            if (!r.head->has_step) continue;
            assert_int_equal(r.head->times.step, steps++);
            assert_int_equal(r.head->times.at_us, end_us);
            assert_true(r.head->times.elapsed_us > 0);
            end_us = r.head->times.at_us + r.head->times.elapsed_us;
        }
    }
    assert_int_equal(end_us, rig->clock.now_us);
    return steps;
}

static void test_records_of_steps_follow_one_another(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    open_ahead(&rig, &k, NULL, 3);
    struct request *r = rig_submit(&rig, 1, 100, 10, 2);
    int64_t began_us = rig.clock.now_us;
    rig_run(&rig, r);
    assert_all_given_back(&rig);
    struct engine_stats n = engine_stats(rig.engine);
    assert_int_equal(n.step_us, rig.clock.now_us - began_us); /* no time is counted twice */
    assert_int_equal(check_records(&rig, began_us), n.sched.steps);
    assert_int_equal(n.sched.steps, engine_liveness(rig.engine).steps);
    request_unref(r);
    engine_destroy(rig.engine);
}

/* ---- ends ---- */

static void test_a_request_can_be_cancelled_at_any_moment(void **state) {
    (void)state;
    for (uint32_t moment = 0; moment < 40; moment++) {
        struct rig rig;
        struct knobs k = rig_knobs();
        k.max_step_tokens = 16;
        open_ahead(&rig, &k, NULL, moment);
        struct request *other = rig_submit(&rig, 2, 40, 30, 1);
        struct request *r = rig_submit(&rig, 1, 50, 25, 1 + moment % 3);
        bool did_work;
        for (uint32_t i = 0; i < moment; i++) engine_step(rig.engine, &did_work);
        engine_cancel(rig.engine, r);
        engine_step(rig.engine, &did_work); /* ends it, whatever is under way */
        for (uint32_t i = 0; i < r->n; i++) {
            assert_int_not_equal(rig_finish(r, i), FINISH_NONE);
            rig_check_answer(&rig, &r->choices[i]);
        }
        request_unref(r); /* its memory is gone before its rows are collected */
        rig_run(&rig, other);
        assert_int_equal(rig_finish(other, 0), FINISH_LENGTH);
        rig_check_answer(&rig, &other->choices[0]);
        assert_all_given_back(&rig);
        request_unref(other);
        engine_destroy(rig.engine);
    }
}

static void test_destroying_collects_what_is_under_way_and_ends_the_rest(void **state) {
    (void)state;
    for (uint32_t steps = 0; steps < 12; steps++) {
        struct rig rig;
        struct knobs k = rig_knobs();
        open_ahead(&rig, &k, NULL, steps);
        struct request *r[6];
        bool did_work;
        for (uint32_t i = 0; i < 6; i++) r[i] = rig_submit(&rig, i, 40, 30, 1 + i % 2);
        for (uint32_t i = 0; i < steps; i++) engine_step(rig.engine, &did_work);
        engine_destroy(rig.engine);
        for (uint32_t i = 0; i < 6; i++) {
            for (uint32_t c = 0; c < r[i]->n; c++)
                assert_int_equal(rig_finish(r[i], c), FINISH_CANCELLED);
            request_unref(r[i]);
        }
    }
}

static void test_an_engine_that_runs_by_itself_can_be_stopped_and_started(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    struct err err = {0};
    rig_open_depth(&rig, &k, NULL, true, 500, 1, 5);
    assert_int_equal(engine_start(rig.engine, &err), ST_OK);
    struct request *r[8];
    for (uint32_t i = 0; i < 8; i++) r[i] = rig_submit(&rig, i, 20, 200, 1);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    engine_stop(rig.engine);
    for (uint32_t i = 0; i < 8; i++) assert_int_equal(rig_finish(r[i], 0), FINISH_CANCELLED);
    assert_int_equal(engine_start(rig.engine, &err), ST_OK);
    struct request *again = rig_submit(&rig, 9, 20, 5, 1);
    await_answer(rig.engine, again);
    assert_int_equal(rig_finish(again, 0), FINISH_LENGTH);
    engine_destroy(rig.engine);
    for (uint32_t i = 0; i < 8; i++) request_unref(r[i]);
    request_unref(again);
}

/* ---- faults ---- */

struct trouble {
    uint32_t plans, at, times; /* the at-th plan goes wrong, and so many in all */
};

static void cause_trouble(void *ctx, const struct plan *plan, struct sim_fault *fault) {
    struct trouble *t = ctx;
    (void)plan;
    t->plans++;
    fault->submit_fails = t->plans >= t->at && t->plans < t->at + t->times;
}

/* submit or collect fails, by the seed; also two plans one after the other. */
static void test_a_failed_step_ends_those_in_it_and_no_others(void **state) {
    (void)state;
    for (uint32_t n = 0; n < 20 * SEEDS; n++) {
        struct trouble trouble = {.at = 1 + n % 20, .times = 1 + n / 20 % 2};
        struct sim_watch watch = {.on_plan = cause_trouble, .ctx = &trouble};
        struct rig rig;
        struct knobs k = rig_knobs();
        k.max_seqs = 2; /* the others wait */
        open_ahead(&rig, &k, &watch, n / 20);
        struct request *r[6];
        uint32_t errors = 0, tokens = 0;
        for (uint32_t i = 0; i < 6; i++) r[i] = rig_submit(&rig, i, 30, 20, 1);
        for (uint32_t i = 0; i < 6; i++) rig_run(&rig, r[i]);
        assert_all_given_back(&rig);
        for (uint32_t i = 0; i < 6; i++) {
            errors += rig_finish(r[i], 0) == FINISH_ERROR;
            tokens += answer_tokens(r[i]);
            assert_int_equal(r[i]->refusal.text[0] != 0, rig_finish(r[i], 0) == FINISH_ERROR);
            rig_check_answer(&rig, &r[i]->choices[0]);
            request_unref(r[i]);
        }
        assert_in_range(errors, 1, 2 * trouble.times);
        assert_int_equal(engine_stats(rig.engine).answer_tokens, tokens);
        assert_int_equal(engine_liveness(rig.engine).failed_steps,
                         0); /* since one that could be used */
        engine_destroy(rig.engine);
    }
}

/* ---- prompts that are scored ---- */

static void test_a_prompt_that_is_scored_has_one_row_under_way(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct rig rig;
        struct knobs k = rig_knobs();
        k.max_step_tokens = 16;
        open_ahead(&rig, &k, NULL, seed);
        int32_t prompt[RIG_CTX];
        struct request_spec spec = rig_spec(prompt, 50, 1, 5);
        spec.want_prompt_logprobs = true;
        struct request *r = NULL;
        assert_int_equal(engine_submit(rig.engine, &spec, &r, NULL), ST_OK);
        rig_run(&rig, r);
        uint64_t text = sim_text_begin(0);
        for (uint32_t p = 0; p < 50; p++) {
            if (p > 0) assert_int_equal(r->prompt_logprobs[p].token, prompt[p]);
            if (p > 0) assert_true(r->prompt_logprobs[p].logprob == sim_logprob(&rig.sim, 0, text));
            text = sim_text_add(text, prompt[p]);
        }
        rig_check_answer(&rig, &r->choices[0]);
        /* None while the prompt is computed, and behind it one for each token but the first two. */
        assert_int_equal(engine_stats(rig.engine).sched.ahead_plans, 3);
        request_unref(r);
        engine_destroy(rig.engine);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_turn_submits_and_later_ones_collect_one_step),
        cmocka_unit_test(test_what_is_computed_after_an_end_is_not_counted),
        cmocka_unit_test(test_records_of_steps_follow_one_another),
        cmocka_unit_test(test_a_request_can_be_cancelled_at_any_moment),
        cmocka_unit_test(test_destroying_collects_what_is_under_way_and_ends_the_rest),
        cmocka_unit_test(test_an_engine_that_runs_by_itself_can_be_stopped_and_started),
        cmocka_unit_test(test_a_failed_step_ends_those_in_it_and_no_others),
        cmocka_unit_test(test_a_prompt_that_is_scored_has_one_row_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
