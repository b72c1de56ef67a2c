/* Goal:   an engine that runs by itself serves clients on many threads, loses no cancellation,
 *         wakes who waits, tells of a stall once, and ends cleanly; several live side by side.
 * Method: the real clock, the simulated runner, real threads; clean under the thread sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <time.h>

#include "unit/engine/await.h"
#include "unit/engine/rig.h"

enum { CLIENTS = 4, REQUESTS_EACH = 25 };

static void start(struct rig *rig) {
    struct err err = {0};
    if (engine_start(rig->engine, &err) != ST_OK) fail_msg("%s", err.text);
}

static void nap_us(int64_t us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static bool wait_for(const struct request *r, uint32_t choice) {
    for (uint32_t i = 0; i < 10000; i++) {
        if (rig_finish(r, choice) != FINISH_NONE) return true;
        nap_us(1000);
    }
    return false;
}

/* ---- clients on threads ---- */

struct client {
    struct rig *rig;
    uint32_t number;
    struct request *requests[REQUESTS_EACH];
};

/* Reads tokens while they come, as a stream would, without the outbox. */
static void *client_main(void *arg) {
    struct client *c = arg;
    for (uint32_t i = 0; i < REQUESTS_EACH; i++) {
        uint32_t number = c->number * REQUESTS_EACH + i;
        c->requests[i] = rig_submit(c->rig, number, 5 + number % 40, 3 + number % 20, 1);
        if (number % 5 == 0) engine_cancel(c->rig->engine, c->requests[i]);
        uint32_t ready;
        int64_t sum = 0;
        choice_poll(&c->requests[i]->choices[0], &ready);
        for (uint32_t k = 0; k < ready; k++) sum += c->requests[i]->choices[0].tokens[k];
        assert_true(sum >= 0);
    }
    return NULL;
}

static void test_clients_on_many_threads_all_get_their_answers(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    k.queue_max = CLIENTS * REQUESTS_EACH;
    rig_open(&rig, &k, NULL, true, 0);
    start(&rig);
    pthread_t threads[CLIENTS];
    struct client clients[CLIENTS];
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.rig = &rig, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, client_main, &clients[i]), 0);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < CLIENTS * REQUESTS_EACH; i++) {
        struct request *r = clients[i / REQUESTS_EACH].requests[i % REQUESTS_EACH];
        await_answer(rig.engine, r);
        if (i % 5) assert_int_equal(rig_finish(r, 0), FINISH_LENGTH);
        rig_check_answer(&rig, &r->choices[0]);
        request_unref(r);
    }
    engine_destroy(rig.engine);
}

/* Keep long answers from their end until what was submitted has been cancelled: a client's thread
 * may have to wait for a processor in between. */
static void hold_long_answers(void *ctx, const struct plan *plan, struct sim_fault *fault) {
    (void)fault;
    atomic_bool *is_cancelled = ctx;
    bool is_long = false;
    for (uint32_t i = 0; i < plan->row_count; i++) is_long = is_long || plan->rows[i].first > 200;
    while (is_long && !atomic_load(is_cancelled)) nap_us(100);
}

/* Submitted and cancelled while the engine looks into its inbox. */
static void test_a_cancellation_right_after_its_request_is_never_lost(void **state) {
    (void)state;
    atomic_bool is_cancelled = true;
    struct sim_watch watch = {.on_plan = hold_long_answers, .ctx = &is_cancelled};
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, &watch, true, 0);
    start(&rig);
    struct request *busy = rig_submit(&rig, 999, 10, 240, 1); /* so that it never sleeps */
    for (uint32_t i = 0; i < 2000; i++) {
        atomic_store(&is_cancelled, false);
        struct request *r = rig_submit(&rig, i, 4, 250, 1);
        engine_cancel(rig.engine, r);
        atomic_store(&is_cancelled, true);
        await_answer(rig.engine, r);
        assert_int_equal(rig_finish(r, 0), FINISH_CANCELLED);
        request_unref(r);
        if (rig_finish(busy, 0) == FINISH_NONE) continue;
        request_unref(busy);
        busy = rig_submit(&rig, 999, 10, 240, 1);
    }
    request_unref(busy);
    engine_destroy(rig.engine);
}

static void test_an_idle_engine_wakes_for_a_request(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, NULL, true, 0);
    start(&rig);
    int64_t least_us = INT64_MAX;
    for (uint32_t i = 0; i < 3; i++) {
        nap_us(30000);
        int64_t began_us = clock_now(&clock_real);
        struct request *r = rig_submit(&rig, i, 8, 3, 1);
        await_answer(rig.engine, r);
        int64_t us = clock_now(&clock_real) - began_us;
        if (us < least_us) least_us = us;
        request_unref(r);
    }
    assert_true(least_us < 500000); /* its nap is a second */
    engine_destroy(rig.engine);
}

static void count_call(void *ctx) { atomic_fetch_add((atomic_uint *)ctx, 1); }

static void test_the_hook_is_called_for_steps_with_new_tokens(void **state) {
    (void)state;
    atomic_uint calls = 0;
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, NULL, true, 0);
    engine_set_hook(rig.engine, count_call, &calls);
    start(&rig);
    struct request *r = rig_submit(&rig, 1, 8, 10, 1);
    assert_true(wait_for(r, 0));
    engine_stop(rig.engine);
    assert_int_equal(atomic_load(&calls), 10);
    request_unref(r);
    engine_destroy(rig.engine);
}

/* ---- watchdog ---- */

struct stall {
    atomic_uint reports;
    atomic_bool hangs, release;
};

static void count_report(void *ctx, int64_t stalled_us) {
    assert_true(stalled_us > 20000);
    atomic_fetch_add(&((struct stall *)ctx)->reports, 1);
}

static void hang(void *ctx, const struct plan *plan, struct sim_fault *fault) {
    (void)plan;
    (void)fault;
    struct stall *s = ctx;
    while (atomic_load(&s->hangs) && !atomic_load(&s->release)) nap_us(1000);
}

static void test_a_runner_that_hangs_is_reported_once(void **state) {
    (void)state;
    struct stall stall = {0};
    struct sim_watch watch = {.on_plan = hang, .ctx = &stall};
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, &watch, true, 0);
    engine_watch(rig.engine, 20000, count_report, &stall);
    start(&rig);
    nap_us(60000); /* idling is no stall */
    assert_int_equal(atomic_load(&stall.reports), 0);
    atomic_store(&stall.hangs, true);
    struct request *r = rig_submit(&rig, 1, 8, 3, 1);
    for (uint32_t i = 0; i < 5000 && atomic_load(&stall.reports) == 0; i++) nap_us(1000);
    nap_us(60000);
    assert_int_equal(atomic_load(&stall.reports), 1);
    assert_true(engine_stats(rig.engine).stalled_us > 20000); /* asked from outside meanwhile */
    atomic_store(&stall.release, true);
    await_answer(rig.engine, r); /* and it goes on */
    assert_int_equal(rig_finish(r, 0), FINISH_LENGTH);
    request_unref(r);
    engine_destroy(rig.engine);
}

/* ---- ends ---- */

static void test_stopping_ends_what_is_left_as_cancelled(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, NULL, true, 1000);
    start(&rig);
    struct request *r[8];
    for (uint32_t i = 0; i < 8; i++) r[i] = rig_submit(&rig, i, 20, 200, 1);
    nap_us(20000);
    engine_stop(rig.engine);
    for (uint32_t i = 0; i < 8; i++) assert_int_equal(rig_finish(r[i], 0), FINISH_CANCELLED);
    start(&rig); /* and it can run again */
    struct request *again = rig_submit(&rig, 9, 20, 5, 1);
    await_answer(rig.engine, again);
    assert_int_equal(rig_finish(again, 0), FINISH_LENGTH);
    engine_destroy(rig.engine);
    for (uint32_t i = 0; i < 8; i++) request_unref(r[i]);
    request_unref(again);
}

static void test_several_engines_run_in_one_process(void **state) {
    (void)state;
    struct rig rigs[3];
    struct request *r[3];
    struct knobs k = rig_knobs();
    for (uint32_t i = 0; i < 3; i++) {
        rig_open(&rigs[i], &k, NULL, true, 500);
        start(&rigs[i]);
        r[i] = rig_submit(&rigs[i], i, 20, 60, 1);
    }
    engine_destroy(rigs[1].engine);
    assert_int_not_equal(rig_finish(r[1], 0), FINISH_NONE);
    for (uint32_t i = 0; i < 3; i += 2) {
        await_answer(rigs[i].engine, r[i]);
        assert_int_equal(rig_finish(r[i], 0), FINISH_LENGTH);
        rig_check_answer(&rigs[i], &r[i]->choices[0]);
        engine_destroy(rigs[i].engine);
    }
    for (uint32_t i = 0; i < 3; i++) request_unref(r[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clients_on_many_threads_all_get_their_answers),
        cmocka_unit_test(test_a_cancellation_right_after_its_request_is_never_lost),
        cmocka_unit_test(test_an_idle_engine_wakes_for_a_request),
        cmocka_unit_test(test_the_hook_is_called_for_steps_with_new_tokens),
        cmocka_unit_test(test_a_runner_that_hangs_is_reported_once),
        cmocka_unit_test(test_stopping_ends_what_is_left_as_cancelled),
        cmocka_unit_test(test_several_engines_run_in_one_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
