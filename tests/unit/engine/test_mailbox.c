/* Goal:   nothing that is put into a mailbox is lost, doubled or leaked, with any
 *         threads that put and take.
 * Method: each promise of the header alone; then clients that submit and cancel on four threads
 *         against an engine that takes and answers on another (clean under the thread
 *         sanitizer). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "engine/mailbox.h"

enum { CLIENTS = 4, REQUESTS_EACH = 200, QUEUE = 16 };

static struct request *make(uint64_t id, uint32_t n) {
    static const int32_t prompt[] = {1, 2};
    static const struct request_bounds bounds = {.vocab = 16, .ctx_tokens = 32};
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = 2,
                                .max_tokens = 2,
                                .n = n,
                                .sample = sample_params_default()};
    struct request *r = NULL;
    assert_int_equal(request_create(&spec, id, &bounds, 0, &r, NULL), ST_OK);
    return r;
}

static struct mailbox *box(uint32_t max) {
    struct mailbox *m = NULL;
    assert_int_equal(mailbox_create(&m, max, 8), ST_OK);
    return m;
}

static void test_requests_are_taken_in_their_order(void **state) {
    (void)state;
    struct mailbox *m = box(8);
    struct request *sent[3];
    for (uint32_t i = 0; i < 3; i++) {
        sent[i] = make(i, 1);
        assert_int_equal(mailbox_submit(m, sent[i], true), ST_OK);
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct request *r = mailbox_take_submitted(m);
        assert_ptr_equal(r, sent[i]);
        request_unref(r);
        request_unref(sent[i]);
    }
    assert_null(mailbox_take_submitted(m));
    mailbox_destroy(m);
}

static void test_one_more_than_fits_is_full_until_one_has_ended(void **state) {
    (void)state;
    struct mailbox *m = box(2);
    struct request *r[3] = {make(1, 1), make(2, 1), make(3, 1)};
    assert_int_equal(mailbox_submit(m, r[0], true), ST_OK);
    assert_int_equal(mailbox_submit(m, r[1], true), ST_OK);
    assert_int_equal(mailbox_submit(m, r[2], true), ST_FULL);
    assert_int_equal(atomic_load(&r[2]->refs), 1); /* the caller's alone */
    request_unref(mailbox_take_submitted(m));
    assert_int_equal(mailbox_submit(m, r[2], true), ST_FULL); /* it waits elsewhere now */
    mailbox_set_live(m, false, 0, 1);
    assert_int_equal(mailbox_submit(m, r[2], true),
                     ST_FULL); /* it runs now, and one is in the inbox */
    mailbox_set_live(m, false, 0, 0);
    assert_int_equal(mailbox_submit(m, r[2], true), ST_OK);
    for (uint32_t i = 0; i < 3; i++) request_unref(r[i]);
    mailbox_destroy(m); /* releases the two that are left */
}

static void test_batch_requests_have_places_of_their_own(void **state) {
    (void)state;
    struct mailbox *m = NULL;
    assert_int_equal(mailbox_create(&m, 2, 3), ST_OK);
    struct request *line = make(1, 3), *more = make(2, 1), *other = make(3, 2);
    line->is_batch = more->is_batch = true;
    assert_int_equal(mailbox_submit(m, line, true), ST_OK);
    assert_int_equal(mailbox_submit(m, more, true), ST_FULL);
    assert_int_equal(mailbox_submit(m, other, true), ST_OK); /* lines take no place of others */
    assert_int_equal(mailbox_waiting(m), 5);
    request_unref(mailbox_take_submitted(m));
    request_unref(mailbox_take_submitted(m));
    mailbox_set_live(m, true, 1, 2);
    assert_int_equal(mailbox_submit(m, more, true), ST_FULL);
    mailbox_set_live(m, true, 1, 1);
    assert_int_equal(mailbox_submit(m, more, true), ST_OK);
    request_unref(line);
    request_unref(more);
    request_unref(other);
    mailbox_destroy(m);
}

static void test_the_queue_is_counted_in_choices(void **state) {
    (void)state;
    struct mailbox *m = box(4);
    struct request *wide = make(1, 6), *three = make(2, 3), *two = make(3, 2);
    assert_int_equal(mailbox_submit(m, wide, true), ST_OK); /* nobody waits: later is no better */
    request_unref(mailbox_take_submitted(m));
    mailbox_set_live(m, false, 0, 0);
    assert_int_equal(mailbox_submit(m, three, true), ST_OK);
    assert_int_equal(mailbox_submit(m, two, true), ST_FULL);
    request_unref(mailbox_take_submitted(m));
    assert_int_equal(mailbox_waiting(m), 3);
    assert_int_equal(mailbox_submit(m, two, true),
                     ST_FULL); /* the engine has them, and has said nothing */
    mailbox_set_live(m, false, 1, 1);
    assert_int_equal(mailbox_submit(m, two, true), ST_OK);
    request_unref(wide);
    request_unref(three);
    request_unref(two);
    mailbox_destroy(m);
}

static void test_cancellations_gather_and_come_once(void **state) {
    (void)state;
    struct mailbox *m = box(2);
    struct request *r = make(1, 3);
    uint32_t choices;
    enum finish_reason why;
    mailbox_cancel(m, r, 1u << 1, FINISH_CANCELLED);
    mailbox_cancel(m, r, 1u << 2, FINISH_CANCELLED);
    mailbox_cancel(m, r, 1u << 2, FINISH_STOP); /* too late: the first reason stands */
    assert_ptr_equal(mailbox_take_cancelled(m, &choices, &why), r);
    assert_int_equal(choices, 6);
    assert_int_equal(why, FINISH_CANCELLED);
    request_unref(r);
    assert_null(mailbox_take_cancelled(m, &choices, &why));
    mailbox_cancel(m, r, UINT32_MAX, FINISH_CANCELLED); /* again is fine */
    assert_ptr_equal(mailbox_take_cancelled(m, &choices, &why), r);
    request_unref(r);
    request_unref(r);
    mailbox_destroy(m);
}

static void test_choices_cancelled_for_several_reasons_keep_them(void **state) {
    (void)state;
    struct mailbox *m = box(2);
    struct request *r = make(1, 2);
    uint32_t choices, all = 0;
    enum finish_reason why;
    mailbox_cancel(m, r, 1, FINISH_STOP);
    mailbox_cancel(m, r, 2, FINISH_CANCELLED);
    for (uint32_t i = 0; i < 2; i++) {
        assert_ptr_equal(mailbox_take_cancelled(m, &choices, &why), r);
        assert_int_equal(choices, why == FINISH_STOP ? 1 : 2);
        all |= choices;
        request_unref(r);
    }
    assert_int_equal(all, 3);
    assert_null(mailbox_take_cancelled(m, &choices, &why));
    request_unref(r);
    mailbox_destroy(m);
}

static void test_a_choice_is_in_the_outbox_at_most_once(void **state) {
    (void)state;
    struct mailbox *m = box(2);
    struct request *r = make(1, 2);
    mailbox_post_output(m, &r->choices[1]);
    mailbox_post_output(m, &r->choices[0]);
    mailbox_post_output(m, &r->choices[1]);
    assert_null(mailbox_take_output(m, 0)); /* not before the step is over */
    mailbox_flush(m);
    mailbox_post_output(m, &r->choices[0]); /* again, before anyone looked */
    mailbox_flush(m);
    assert_ptr_equal(mailbox_take_output(m, 0), &r->choices[1]);
    request_unref(r);
    mailbox_post_output(m, &r->choices[1]); /* taken, so it may come again */
    mailbox_flush(m);
    assert_ptr_equal(mailbox_take_output(m, 0), &r->choices[0]);
    request_unref(r);
    assert_ptr_equal(mailbox_take_output(m, 0), &r->choices[1]);
    request_unref(r);
    assert_null(mailbox_take_output(m, 0));
    mailbox_post_output(m, &r->choices[0]); /* left inside: destroy releases it */
    mailbox_flush(m);
    mailbox_post_output(m, &r->choices[1]);
    request_unref(r);
    mailbox_destroy(m);
}

static void test_many_are_taken_at_once_in_their_order(void **state) {
    (void)state;
    struct mailbox *m = box(8);
    struct request *r = make(1, 5);
    struct choice *out[8];
    assert_int_equal(mailbox_take_outputs(m, out, 8), 0);
    for (uint32_t i = 0; i < 5; i++) mailbox_post_output(m, &r->choices[4 - i]);
    mailbox_flush(m);
    assert_int_equal(mailbox_take_outputs(m, out, 3), 3);
    assert_int_equal(mailbox_take_outputs(m, out + 3, 5), 2);
    for (uint32_t i = 0; i < 5; i++) {
        assert_ptr_equal(out[i], &r->choices[4 - i]);
        request_unref(r);
    }
    assert_int_equal(mailbox_take_outputs(m, out, 8), 0);
    request_unref(r);
    mailbox_destroy(m);
}

static void count_call(void *ctx) { ++*(uint32_t *)ctx; }

static void test_the_hook_is_called_once_a_flush_that_has_something(void **state) {
    (void)state;
    struct mailbox *m = box(2);
    struct request *r = make(1, 2);
    uint32_t calls = 0;
    mailbox_set_hook(m, count_call, &calls);
    mailbox_flush(m);
    assert_int_equal(calls, 0);
    mailbox_post_output(m, &r->choices[0]);
    mailbox_post_output(m, &r->choices[1]);
    mailbox_flush(m);
    mailbox_flush(m);
    assert_int_equal(calls, 1);
    request_unref(r);
    mailbox_destroy(m);
}

static void test_waiting_ends_in_time_or_when_woken(void **state) {
    (void)state;
    struct mailbox *m = box(2);
    int64_t began_us = clock_now(&clock_real);
    mailbox_wait(m, 20000);
    assert_null(mailbox_take_output(m, 20000));
    assert_true(clock_now(&clock_real) - began_us >= 39000);
    mailbox_wake(m);
    mailbox_wait(m, -1); /* remembered: returns at once */
    struct request *r = make(1, 1);
    mailbox_submit(m, r, true);
    mailbox_wait(m, -1);
    request_unref(r);
    mailbox_destroy(m);
}

/* ---- threads ---- */

static void *wait_main(void *arg) {
    mailbox_wait(arg, -1);
    return NULL;
}

/* In many rounds, so that the thread sleeps when it is woken, in most of them. */
static void test_several_requests_need_one_notification(void **state) {
    (void)state;
    struct mailbox *m = box(2);
    for (uint32_t round = 0; round < 100; round++) {
        struct request *r[] = {make(1, 1), make(2, 1)};
        pthread_t waiter;
        assert_int_equal(pthread_create(&waiter, NULL, wait_main, m), 0);
        for (uint32_t i = 0; i < round; i++) sched_yield();
        for (uint32_t i = 0; i < 2; i++) assert_int_equal(mailbox_submit(m, r[i], false), ST_OK);
        mailbox_notify(m);
        pthread_join(waiter, NULL);
        for (uint32_t i = 0; i < 2; i++) {
            request_unref(mailbox_take_submitted(m));
            request_unref(r[i]);
        }
        mailbox_set_live(m, false, 0, 0);
    }
    mailbox_destroy(m);
}

struct rush {
    struct mailbox *box;
    atomic_uint cancelled, accepted;
    atomic_bool over;
};

static void *client_main(void *arg) {
    struct rush *rush = arg;
    for (uint32_t i = 0; i < REQUESTS_EACH; i++) {
        struct request *r = make(i, 1 + i % 3);
        while (mailbox_submit(rush->box, r, true) != ST_OK) sched_yield();
        atomic_fetch_add(&rush->accepted, r->n);
        if (i % 2) mailbox_cancel(rush->box, r, UINT32_MAX, FINISH_CANCELLED);
        request_unref(r);
    }
    return NULL;
}

/* Answers whatever comes; a request that is cancelled was submitted before. */
static void *engine_main(void *arg) {
    struct rush *rush = arg;
    uint32_t choices;
    enum finish_reason why;
    while (!atomic_load(&rush->over)) {
        struct request *r = mailbox_take_cancelled(rush->box, &choices, &why);
        if (r) atomic_fetch_add(&rush->cancelled, 1);
        request_unref(r);
        while ((r = mailbox_take_submitted(rush->box))) {
            for (uint32_t i = 0; i < r->n; i++) {
                atomic_store(&r->choices[i].finish, FINISH_STOP);
                mailbox_post_output(rush->box, &r->choices[i]);
            }
            request_unref(r);
        }
        mailbox_set_live(rush->box, false, 0, 0);
        mailbox_flush(rush->box);
        mailbox_wait(rush->box, 1000);
    }
    return NULL;
}

/* Client threads of the rush never take, so every choice comes out here, once. */
static void test_threads_lose_nothing(void **state) {
    (void)state;
    struct rush rush = {.box = box(QUEUE)};
    pthread_t clients[CLIENTS], engine;
    uint32_t want = 0, got = 0;
    for (uint32_t i = 0; i < REQUESTS_EACH; i++) want += CLIENTS * (1 + i % 3);
    assert_int_equal(pthread_create(&engine, NULL, engine_main, &rush), 0);
    for (uint32_t i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&clients[i], NULL, client_main, &rush), 0);
    while (got < want) {
        struct choice *outputs[7];
        outputs[0] = mailbox_take_output(rush.box, 10000000);
        assert_non_null(outputs[0]);
        uint32_t count = 1 + mailbox_take_outputs(rush.box, outputs + 1, got % 7), ready;
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(choice_poll(outputs[i], &ready), FINISH_STOP);
            request_unref(outputs[i]->request);
        }
        got += count;
    }
    for (uint32_t i = 0; i < CLIENTS; i++) pthread_join(clients[i], NULL);
    while (atomic_load(&rush.cancelled) < CLIENTS * REQUESTS_EACH / 2) mailbox_wake(rush.box);
    atomic_store(&rush.over, true);
    pthread_join(engine, NULL);
    assert_null(mailbox_take_output(rush.box, 0));
    assert_int_equal(atomic_load(&rush.accepted), want);
    mailbox_destroy(rush.box);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_are_taken_in_their_order),
        cmocka_unit_test(test_one_more_than_fits_is_full_until_one_has_ended),
        cmocka_unit_test(test_batch_requests_have_places_of_their_own),
        cmocka_unit_test(test_the_queue_is_counted_in_choices),
        cmocka_unit_test(test_cancellations_gather_and_come_once),
        cmocka_unit_test(test_choices_cancelled_for_several_reasons_keep_them),
        cmocka_unit_test(test_a_choice_is_in_the_outbox_at_most_once),
        cmocka_unit_test(test_many_are_taken_at_once_in_their_order),
        cmocka_unit_test(test_the_hook_is_called_once_a_flush_that_has_something),
        cmocka_unit_test(test_waiting_ends_in_time_or_when_woken),
        cmocka_unit_test(test_several_requests_need_one_notification),
        cmocka_unit_test(test_threads_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
