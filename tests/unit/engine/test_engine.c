/* Goal:   every request ends exactly once with its reason, whatever clients, runner and clock do,
 *         and a fault stays with whom it belongs to.
 * Method: the engine over the simulated runner, whose tokens can be checked; stepped by hand to
 *         hit every moment. tests/unit/engine/test_engine_threads.c lets it run by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "unit/engine/rig.h"

static void drop(struct rig *rig, struct request *r) {
    request_unref(r);
    engine_destroy(rig->engine);
}

/* Nothing lives and nothing is held but idle prefixes. */
static void assert_all_given_back(const struct rig *rig) {
    assert_true(sched_is_idle(engine_sched(rig->engine)));
    assert_int_equal(kv_cache_available(engine_kv(rig->engine)), rig_knobs().kv_blocks);
}

static void test_an_answer_comes_token_by_token(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, NULL, false, 0);
    struct request *r = rig_submit(&rig, 1, 20, 12, 1);
    uint32_t seen = 20, events = 0;
    while (rig_finish(r, 0) == FINISH_NONE) {
        bool did_work;
        assert_int_equal(engine_step(rig.engine, &did_work), ST_OK);
        for (struct choice *c; (c = engine_next(rig.engine, 0)); events++) {
            uint32_t ready;
            choice_poll(c, &ready);
            assert_int_equal(ready, ++seen);
            request_unref(c->request);
        }
    }
    assert_int_equal(events, 12);
    assert_int_equal(rig_finish(r, 0), FINISH_LENGTH);
    rig_check_answer(&rig, &r->choices[0]);
    const struct choice *c = &r->choices[0];
    assert_true(c->submitted_us < c->first_token_us);
    assert_true(c->first_token_us < c->finished_us);
    assert_all_given_back(&rig);
    drop(&rig, r);
}

static void test_all_choices_end(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, NULL, false, 0);
    struct request *r = rig_submit(&rig, 1, 33, 20, CHOICES_MAX);
    rig_run(&rig, r);
    for (uint32_t i = 0; i < r->n; i++) {
        assert_int_equal(rig_finish(r, i), FINISH_LENGTH);
        rig_check_answer(&rig, &r->choices[i]);
    }
    assert_all_given_back(&rig);
    drop(&rig, r);
}

/* Between any two steps, with company that must not notice. */
static void test_a_request_can_be_cancelled_at_any_moment(void **state) {
    (void)state;
    for (uint32_t moment = 0; moment < 40; moment++) {
        struct rig rig;
        struct knobs k = rig_knobs();
        k.max_step_tokens = 16;
        rig_open(&rig, &k, NULL, false, 0);
        struct request *other = rig_submit(&rig, 2, 40, 30, 1);
        struct request *r = rig_submit(&rig, 1, 50, 25, 1 + moment % 3);
        bool did_work;
        for (uint32_t i = 0; i < moment; i++) engine_step(rig.engine, &did_work);
        engine_cancel(rig.engine, r);
        engine_cancel(rig.engine, r); /* twice is once */
        rig_run(&rig, r);
        for (uint32_t i = 0; i < r->n; i++) {
            if (rig_finish(r, i) != FINISH_LENGTH)
                assert_int_equal(rig_finish(r, i), FINISH_CANCELLED);
            rig_check_answer(&rig, &r->choices[i]);
        }
        rig_run(&rig, other);
        assert_int_equal(rig_finish(other, 0), FINISH_LENGTH);
        rig_check_answer(&rig, &other->choices[0]);
        assert_all_given_back(&rig);
        engine_cancel(rig.engine, r); /* long over: fine */
        engine_step(rig.engine, &did_work);
        request_unref(other);
        drop(&rig, r);
    }
}

static void test_one_choice_stops_and_the_others_go_on(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, NULL, false, 0);
    struct request *r = rig_submit(&rig, 1, 10, 20, 3);
    bool did_work;
    for (uint32_t i = 0; i < 5; i++) engine_step(rig.engine, &did_work);
    engine_cancel_choice(rig.engine, r, 1, FINISH_STOP);
    engine_cancel_choice(rig.engine, r, 2, FINISH_CANCELLED);
    rig_run(&rig, r);
    assert_int_equal(rig_finish(r, 0), FINISH_LENGTH);
    assert_int_equal(rig_finish(r, 1), FINISH_STOP);
    assert_int_equal(rig_finish(r, 2), FINISH_CANCELLED);
    drop(&rig, r);
}

static void test_a_stop_token_ends_an_answer_and_is_named(void **state) {
    (void)state;
    enum { PROMPT = 20, ANSWER = 30 };
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, NULL, false, 0);
    struct request *whole = rig_submit(&rig, 1, PROMPT, ANSWER, 1), *r = NULL;
    rig_run(&rig, whole);
    assert_int_equal(whole->choices[0].ended_by, -1);
    int32_t prompt[RIG_CTX], stops[] = {0, whole->choices[0].tokens[PROMPT + 11]};
    struct request_spec spec = rig_spec(prompt, PROMPT, 1, ANSWER);
    uint32_t first = PROMPT, ready;
    while (whole->choices[0].tokens[first] != stops[1]) first++;
    spec.stop_tokens = stops; /* although the model's own ends are ignored */
    spec.stop_token_count = 2;
    assert_int_equal(engine_submit(rig.engine, &spec, &r, NULL), ST_OK);
    rig_run(&rig, r);
    assert_int_equal(choice_poll(&r->choices[0], &ready), FINISH_STOP);
    assert_int_equal(ready, first + 1);
    assert_int_equal(r->choices[0].ended_by, stops[1]);
    request_unref(whole);
    drop(&rig, r);
}

static void test_what_can_never_fit_is_refused_with_the_numbers(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    k.kv_blocks = 4;
    rig_open(&rig, &k, NULL, false, 0);
    struct request *r = rig_submit(&rig, 1, 60, 30, 2);
    rig_run(&rig, r);
    assert_int_equal(rig_finish(r, 0), FINISH_REFUSED);
    assert_int_equal(rig_finish(r, 1), FINISH_REFUSED);
    assert_non_null(strstr(r->refusal.text, "6 KV blocks for 90 tokens, the pool has 4"));
    assert_int_equal(engine_stats(rig.engine).refused, 2);
    struct request *fits = rig_submit(&rig, 2, 40, 24, 1);
    rig_run(&rig, fits);
    assert_int_equal(rig_finish(fits, 0), FINISH_LENGTH);
    request_unref(fits);
    drop(&rig, r);
}

static void test_a_full_queue_is_reported(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    k.queue_max = 1;
    k.max_seqs = 2;
    rig_open(&rig, &k, NULL, false, 0);
    struct request *r[4];
    for (uint32_t i = 0; i < 3; i++) r[i] = rig_submit(&rig, i, 10, 5, 1);
    int32_t prompt[RIG_CTX];
    struct err err = {0};
    struct request_spec spec = rig_spec(prompt, 10, 3, 5);
    assert_int_equal(engine_submit(rig.engine, &spec, &r[3], &err), ST_FULL);
    assert_non_null(strstr(err.text, "at most 3 sequences"));
    for (uint32_t i = 0; i < 3; i++) rig_run(&rig, r[i]);
    r[3] = rig_submit(&rig, 3, 10, 5, 1); /* there is room again */
    rig_run(&rig, r[3]);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(rig_finish(r[i], 0), FINISH_LENGTH);
        request_unref(r[i]);
    }
    engine_destroy(rig.engine);
}

/* A submit fails at once, also when the engine has taken the waiting requests from the mailbox. */
static void test_choices_waiting_in_the_scheduler_count_as_queued(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    k.queue_max = 3;
    k.max_seqs = 1;
    rig_open(&rig, &k, NULL, false, 0);
    struct request *r[4];
    int32_t prompt[RIG_CTX];
    struct err err = {0};
    bool did_work;
    for (uint32_t i = 0; i < 4; i++) {
        r[i] = rig_submit(&rig, i, 10, 20, 1); /* the first runs, the others wait */
        engine_step(rig.engine, &did_work);
    }
    struct request_spec spec = rig_spec(prompt, 10, 4, 20);
    struct request *late = NULL;
    assert_int_equal(engine_submit(rig.engine, &spec, &late, &err), ST_FULL);
    rig_run(&rig, r[0]);
    engine_step(rig.engine, &did_work); /* the next one is admitted */
    assert_int_equal(engine_submit(rig.engine, &spec, &late, &err), ST_OK);
    rig_run(&rig, late);
    for (uint32_t i = 0; i < 4; i++) {
        rig_run(&rig, r[i]);
        assert_int_equal(rig_finish(r[i], 0), FINISH_LENGTH);
        request_unref(r[i]);
    }
    assert_int_equal(rig_finish(late, 0), FINISH_LENGTH);
    assert_int_equal(engine_stats(rig.engine).refused, 0);
    drop(&rig, late);
}

/* As many as are accepted one after the other, while steps are made. */
static void test_a_burst_at_an_idle_engine_is_accepted_up_to_its_capacity(void **state) {
    (void)state;
    for (uint32_t steps = 0; steps <= 3; steps++)
        for (uint32_t n = 1; n <= 3; n++) {
            struct rig rig;
            struct knobs k = rig_knobs();
            k.queue_max = 3;
            k.max_seqs = 3;
            rig_open(&rig, &k, NULL, false, 0);
            struct request *r[8];
            uint32_t accepted = 0;
            for (uint32_t i = 0; i < 8; i++) {
                int32_t prompt[RIG_CTX];
                struct err err = {0};
                bool did_work;
                struct request_spec spec = rig_spec(prompt, 10, i, 50);
                spec.n = n;
                if (engine_submit(rig.engine, &spec, &r[accepted], &err) == ST_OK) accepted++;
                for (uint32_t step = 0; step < steps; step++) engine_step(rig.engine, &did_work);
            }
            assert_int_equal(accepted, 6 / n);
            for (uint32_t i = 0; i < accepted; i++) {
                rig_run(&rig, r[i]);
                for (uint32_t c = 0; c < n; c++)
                    assert_int_equal(rig_finish(r[i], c), FINISH_LENGTH);
                request_unref(r[i]);
            }
            assert_int_equal(engine_stats(rig.engine).refused, 0);
            engine_destroy(rig.engine);
        }
}

static void test_more_choices_than_may_live_are_refused_one_by_one(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    k.queue_max = 1;
    k.max_seqs = 2;
    rig_open(&rig, &k, NULL, false, 0);
    struct request *r = rig_submit(&rig, 1, 10, 5, 6);
    rig_run(&rig, r);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(rig_finish(r, i), i < 3 ? FINISH_LENGTH : FINISH_REFUSED);
    assert_non_null(strstr(r->refusal.text, "3"));
    drop(&rig, r);
}

static void test_a_request_expires(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, NULL, false, 0);
    int32_t prompt[RIG_CTX];
    struct request_spec spec = rig_spec(prompt, 10, 1, 200);
    struct request *r;
    spec.urgency.expires_us = 100000; /* the profile's steps take 5 ms */
    assert_int_equal(engine_submit(rig.engine, &spec, &r, NULL), ST_OK);
    rig_run(&rig, r);
    uint32_t ready;
    assert_int_equal(choice_poll(&r->choices[0], &ready), FINISH_EXPIRED);
    assert_true(ready > 10 && ready < 100);
    assert_all_given_back(&rig);
    drop(&rig, r);
}

/* ---- faults ---- */

struct trouble {
    uint32_t plans, at; /* the at-th plan goes wrong */
    bool whole_step;
    seq_idx victim; /* whose row it was */
};

static void cause_trouble(void *ctx, const struct plan *plan, struct sim_fault *fault) {
    struct trouble *t = ctx;
    if (++t->plans != t->at || plan->row_count == 0) return;
    fault->submit_fails = t->whole_step;
    fault->row_fails = !t->whole_step;
    fault->failed_row = plan->row_count - 1;
    t->victim = plan->rows[fault->failed_row].seq;
}

static void test_a_failed_row_ends_its_request_alone(void **state) {
    (void)state;
    for (uint32_t at = 1; at < 20; at++) {
        struct trouble trouble = {.at = at};
        struct sim_watch watch = {.on_plan = cause_trouble, .ctx = &trouble};
        struct rig rig;
        struct knobs k = rig_knobs();
        rig_open(&rig, &k, &watch, false, 0);
        struct request *r[3];
        uint32_t errors = 0;
        for (uint32_t i = 0; i < 3; i++) r[i] = rig_submit(&rig, i, 30, 20, 1);
        for (uint32_t i = 0; i < 3; i++) rig_run(&rig, r[i]);
        for (uint32_t i = 0; i < 3; i++) {
            errors += rig_finish(r[i], 0) == FINISH_ERROR;
            assert_int_equal(r[i]->refusal.text[0] != 0, rig_finish(r[i], 0) == FINISH_ERROR);
            if (rig_finish(r[i], 0) != FINISH_ERROR)
                assert_int_equal(rig_finish(r[i], 0), FINISH_LENGTH);
            rig_check_answer(&rig, &r[i]->choices[0]);
            request_unref(r[i]);
        }
        assert_int_equal(errors, 1);
        assert_all_given_back(&rig);
        engine_destroy(rig.engine);
    }
}

static void test_a_failed_step_ends_those_in_it_and_no_others(void **state) {
    (void)state;
    for (uint32_t at = 1; at < 20; at++) {
        struct trouble trouble = {.at = at, .whole_step = true};
        struct sim_watch watch = {.on_plan = cause_trouble, .ctx = &trouble};
        struct rig rig;
        struct knobs k = rig_knobs();
        k.max_seqs = 2; /* the others wait */
        rig_open(&rig, &k, &watch, false, 0);
        struct request *r[4];
        uint32_t errors = 0;
        for (uint32_t i = 0; i < 4; i++) r[i] = rig_submit(&rig, i, 30, 20, 1);
        for (uint32_t i = 0; i < 4; i++) rig_run(&rig, r[i]);
        for (uint32_t i = 0; i < 4; i++) {
            errors += rig_finish(r[i], 0) == FINISH_ERROR;
            assert_int_equal(r[i]->refusal.text[0] != 0, rig_finish(r[i], 0) == FINISH_ERROR);
            rig_check_answer(&rig, &r[i]->choices[0]);
            request_unref(r[i]);
        }
        assert_in_range(errors, 1, 2);
        assert_all_given_back(&rig);
        engine_destroy(rig.engine);
    }
}

/* ---- ends ---- */

static void test_destroying_ends_what_is_in_flight(void **state) {
    (void)state;
    for (uint32_t steps = 0; steps < 12; steps++) {
        struct rig rig;
        struct knobs k = rig_knobs();
        rig_open(&rig, &k, NULL, false, 0);
        struct request *r[6];
        bool did_work;
        for (uint32_t i = 0; i < 6; i++) r[i] = rig_submit(&rig, i, 40, 30, 1 + i % 2);
        for (uint32_t i = 0; i < steps; i++) engine_step(rig.engine, &did_work);
        engine_destroy(rig.engine);
        for (uint32_t i = 0; i < 6; i++) {
            for (uint32_t c = 0; c < r[i]->n; c++) /* the clients' part outlives the engine */
                assert_int_equal(rig_finish(r[i], c), FINISH_CANCELLED);
            request_unref(r[i]);
        }
    }
}

static void test_an_engine_without_a_runner_can_be_destroyed(void **state) {
    (void)state;
    struct knobs k = rig_knobs();
    struct engine_options o = rig_options(&k);
    struct engine *e = NULL;
    int32_t prompt[RIG_CTX];
    struct request_spec spec = rig_spec(prompt, 10, 1, 5);
    struct request *r;
    assert_int_equal(engine_create(&e, &o, NULL), ST_OK);
    assert_int_equal(engine_submit(e, &spec, &r, NULL), ST_OK);
    engine_destroy(e);
    request_unref(r);
    engine_destroy(NULL);
}

/* ---- what the engine reports ---- */

/* A prompt of ten tokens, one a step: the last one samples, as a decode does, and counts there. */
static void test_chunks_of_one_token_are_of_the_prompt(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    k.chunk_tokens = 1;
    rig_open(&rig, &k, NULL, false, 0);
    struct request *r = rig_submit(&rig, 1, 10, 5, 1);
    rig_run(&rig, r);
    struct engine_stats s = engine_stats(rig.engine);
    assert_int_equal(s.prompt_tokens, 9);
    assert_int_equal(s.answer_tokens, 5);
    assert_int_equal(s.step_tokens, 14); /* the last answer token is not computed */
    drop(&rig, r);
}

/* Three places in all: one sequence runs, one is swapped out for it, one waits. */
static void test_a_sequence_that_is_swapped_out_keeps_its_place_in_the_queue(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    k.max_seqs = 2;
    k.queue_max = 1;
    k.kv_blocks = 8;
    k.spill_blocks = 16;
    k.preempt = PREEMPT_SWAP;
    rig_open(&rig, &k, NULL, false, 0);
    struct request *r[3], *more;
    for (uint32_t i = 0; i < 3; i++) r[i] = rig_submit(&rig, i, 40, 60, 1);
    int32_t prompt[RIG_CTX];
    struct request_spec spec = rig_spec(prompt, 10, 1, 5);
    struct err err = {0};
    for (bool did_work = true; engine_stats(rig.engine).sched.swapped == 0;) {
        assert_true(did_work);
        engine_step(rig.engine, &did_work);
    }
    assert_int_equal(engine_stats(rig.engine).sched.running, 1);
    assert_int_equal(engine_submit(rig.engine, &spec, &more, &err), ST_FULL);
    for (uint32_t i = 0; i < 3; i++) {
        rig_run(&rig, r[i]);
        assert_int_equal(rig_finish(r[i], 0), FINISH_LENGTH);
        request_unref(r[i]);
    }
    engine_destroy(rig.engine);
}

static void test_statistics_report_who_waits_and_how_long(void **state) {
    (void)state;
    enum { COUNT = 8, RUNNING = 4 };
    struct rig rig;
    struct request *r[COUNT];
    struct knobs k = rig_knobs();
    k.max_step_tokens = 512;
    rig_open(&rig, &k, NULL, false, 0);
    bool did_work;
    engine_step(rig.engine, &did_work);
    double idle_us = engine_predict_wait_us(rig.engine, 16);
    for (uint32_t i = 0; i < COUNT; i++) r[i] = rig_submit(&rig, i, 40, 30, 1);
    assert_int_equal(engine_stats(rig.engine).waiting, COUNT); /* nobody has looked yet */
    engine_step(rig.engine, &did_work);
    struct engine_stats s = engine_stats(rig.engine);
    assert_int_equal(s.waiting, COUNT - RUNNING);
    assert_int_equal(s.sched.running, RUNNING);
    double used = RUNNING * 3.0 / k.kv_blocks; /* 40 tokens are 3 blocks of 16 */
    assert_true(s.kv_used_share > used - 1e-9 && s.kv_used_share < used + 1e-9);
    assert_int_equal(s.prompt_tokens, RUNNING * 40);
    assert_int_equal(s.answer_tokens, RUNNING);
    double busy_us = engine_predict_wait_us(rig.engine, 16);
    assert_true(busy_us > idle_us);
    double direct_us = sched_predict_wait_us(engine_sched(rig.engine), 200);
    double predicted_us = engine_predict_wait_us(rig.engine, 200);
    assert_true(predicted_us > busy_us);
    assert_true(predicted_us > direct_us * 0.999999 && predicted_us < direct_us * 1.000001);
    assert_true(engine_stats(rig.engine).predicted_wait_us ==
                engine_predict_wait_us(rig.engine, 512));
    for (uint32_t i = 0; i < COUNT; i++) rig_run(&rig, r[i]);
    for (uint32_t i = RUNNING; i < COUNT; i++) /* they were admitted when others had ended */
        assert_true(r[i]->choices[0].admitted_us >= r[0]->choices[0].finished_us);
    for (uint32_t i = 0; i < RUNNING; i++)
        assert_true(r[i]->choices[0].admitted_us <= r[i]->choices[0].first_token_us);
    for (uint32_t i = 0; i < COUNT; i++) request_unref(r[i]);
    sim_clock_advance(&rig.clock, 5000);
    assert_true(engine_liveness(rig.engine).quiet_us >= 5000);
    assert_int_equal(engine_liveness(rig.engine).stalled_us, 0);
    engine_destroy(rig.engine);
}

static void test_statistics_and_trace_report_what_happened(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, NULL, false, 0);
    struct request *r = rig_submit(&rig, 1, 20, 12, 1);
    rig_run(&rig, r);
    struct engine_stats s = engine_stats(rig.engine);
    assert_int_equal(s.submitted, 1);
    assert_int_equal(s.refused, 0);
    assert_int_equal(s.stalled_us, 0);
    assert_int_equal(s.sched.finished, 1);
    assert_int_equal(s.sched.steps, 12);
    assert_true(s.step_us > 0);
    assert_int_equal(s.prompt_tokens, 20);
    assert_int_equal(s.answer_tokens, 12);
    assert_int_equal(s.step_tokens, 20 + 11); /* the last one is nobody's context */
    assert_int_equal(s.step_sizes[0], 11);
    assert_int_equal(s.step_sizes[5], 1); /* 17 to 32 tokens */
    assert_int_equal(engine_liveness(rig.engine).steps, 12);
    assert_true(s.kv_used_share == 0.0);
    struct buf trace;
    buf_init(&trace, 1 << 20);
    record_put_json(engine_records(rig.engine), &trace);
    uint32_t steps = 0;
    for (const char *at = buf_text(&trace); (at = strstr(at, "\"ph\":\"X\"")); at++) steps++;
    assert_int_equal(steps, 12);
    buf_deinit(&trace);
    drop(&rig, r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_comes_token_by_token),
        cmocka_unit_test(test_all_choices_end),
        cmocka_unit_test(test_a_request_can_be_cancelled_at_any_moment),
        cmocka_unit_test(test_one_choice_stops_and_the_others_go_on),
        cmocka_unit_test(test_a_stop_token_ends_an_answer_and_is_named),
        cmocka_unit_test(test_what_can_never_fit_is_refused_with_the_numbers),
        cmocka_unit_test(test_a_full_queue_is_reported),
        cmocka_unit_test(test_choices_waiting_in_the_scheduler_count_as_queued),
        cmocka_unit_test(test_a_burst_at_an_idle_engine_is_accepted_up_to_its_capacity),
        cmocka_unit_test(test_more_choices_than_may_live_are_refused_one_by_one),
        cmocka_unit_test(test_a_request_expires),
        cmocka_unit_test(test_a_failed_row_ends_its_request_alone),
        cmocka_unit_test(test_a_failed_step_ends_those_in_it_and_no_others),
        cmocka_unit_test(test_destroying_ends_what_is_in_flight),
        cmocka_unit_test(test_an_engine_without_a_runner_can_be_destroyed),
        cmocka_unit_test(test_chunks_of_one_token_are_of_the_prompt),
        cmocka_unit_test(test_a_sequence_that_is_swapped_out_keeps_its_place_in_the_queue),
        cmocka_unit_test(test_statistics_report_who_waits_and_how_long),
        cmocka_unit_test(test_statistics_and_trace_report_what_happened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
