/* Goal:   news of requests reach each of their readers once and in order, whatever each of
 *         them waits for, and stopping wakes all who wait.
 * Method: tickets without an engine: the test plays the engine's part, threads the readers'. Also
 *         run under the thread sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "embed/tickets.h"

enum { VOCAB = 8, PROMPT = 2, ANSWER = 6 };

static const int32_t prompt[PROMPT] = {1, 2};

/* A request that the engine would have accepted, and its ticket. */
static struct request *make(uint64_t id, uint32_t n, struct ticket **t) {
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = PROMPT,
                                .max_tokens = ANSWER,
                                .n = n,
                                .sample = sample_params_default()};
    static const struct request_bounds bounds = {.vocab = VOCAB, .ctx_tokens = 100};
    struct request *r;
    *t = ticket_create(n);
    assert_non_null(*t);
    spec.user = *t;
    assert_int_equal(request_create(&spec, id, &bounds, 0, &r, NULL), ST_OK);
    return r;
}

/* The engine: `count` tokens are there, and perhaps that is all. */
static void move(struct tickets *ts, struct request *r, uint32_t choice, uint32_t count,
                 enum finish_reason finish) {
    atomic_store(&r->choices[choice].ready, PROMPT + count);
    if (finish != FINISH_NONE) atomic_store(&r->choices[choice].finish, finish);
    tickets_note(ts, &r->choices[choice]);
}

static int setup(void **state) {
    return tickets_create((struct tickets **)state) == ST_OK ? 0 : -1;
}

static int teardown(void **state) {
    tickets_destroy(*state);
    return 0;
}

static void test_tickets_are_claimed_in_order_of_arrival(void **state) {
    struct tickets *ts = *state;
    struct ticket *a, *b;
    struct request *ra = make(1, 1, &a), *rb = make(2, 1, &b);
    struct claim c;
    assert_int_equal(tickets_claim(ts, 0, INT64_MAX, &c), WAIT_IDLE);
    tickets_add(ts, a, ra);
    tickets_add(ts, b, rb);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_TIMEOUT);
    move(ts, rb, 0, 1, FINISH_NONE);
    move(ts, ra, 0, 1, FINISH_NONE);
    move(ts, rb, 0, 3, FINISH_NONE);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_CLAIMED);
    assert_ptr_equal(c.ticket, b);
    assert_int_equal(c.ready, PROMPT + 3);
    tickets_unclaim(ts, &c, false);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_CLAIMED);
    assert_ptr_equal(c.ticket, a);
    tickets_unclaim(ts, &c, false);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_TIMEOUT);
}

static void test_tokens_before_the_ticket_is_added_are_kept(void **state) {
    struct tickets *ts = *state;
    struct ticket *t;
    struct request *r = make(7, 1, &t);
    struct claim c;
    move(ts, r, 0, 2, FINISH_LENGTH);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_IDLE);
    tickets_add(ts, t, r);
    assert_int_equal(tickets_claim(ts, 7, 0, &c), WAIT_CLAIMED);
    assert_int_equal(c.finish, FINISH_LENGTH);
    tickets_unclaim(ts, &c, true);
    assert_int_equal(tickets_claim(ts, 7, 0, &c), WAIT_IDLE);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_IDLE);
}

static void test_a_claimed_ticket_cannot_be_claimed_again(void **state) {
    struct tickets *ts = *state;
    struct ticket *t;
    struct request *r = make(1, 2, &t);
    struct claim c, other;
    tickets_add(ts, t, r);
    move(ts, r, 0, 1, FINISH_NONE);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_CLAIMED);
    move(ts, r, 0, 2, FINISH_NONE);
    move(ts, r, 1, 1, FINISH_NONE);
    assert_int_equal(tickets_claim(ts, 0, 0, &other), WAIT_TIMEOUT);
    assert_int_equal(tickets_claim(ts, 1, 0, &other), WAIT_TIMEOUT);
    tickets_unclaim(ts, &c, false);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_CLAIMED);
    assert_int_equal(c.choice, 1); /* choices take turns */
    tickets_unclaim(ts, &c, false);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_CLAIMED);
    assert_int_equal(c.choice, 0);
    assert_int_equal(c.ready, PROMPT + 2);
    tickets_unclaim(ts, &c, false);
}

/* A stop string ends an answer before the engine does; the engine's own end comes later. */
static void test_a_choice_that_ended_early_has_no_more_events(void **state) {
    struct tickets *ts = *state;
    struct ticket *t;
    struct request *r = make(1, 1, &t);
    struct claim c;
    tickets_add(ts, t, r);
    request_ref(r); /* the engine's */
    move(ts, r, 0, 1, FINISH_NONE);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_CLAIMED);
    move(ts, r, 0, 2, FINISH_NONE);
    tickets_unclaim(ts, &c, true);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_IDLE);
    assert_null(tickets_find(ts, 1));
    move(ts, r, 0, 2, FINISH_STOP);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_IDLE);
    request_unref(r);
}

/* --- threads ---------------------------------------------------------------------------- */

enum { WAITERS = 6 };

struct waiter {
    struct tickets *ts;
    pthread_barrier_t *inside;
    uint64_t id; /* 0: any */
    pthread_t thread;
    enum wait_result result;
};

static void *wait_for_ever(void *arg) {
    struct waiter *w = arg;
    struct claim c;
    bool entered = tickets_enter(w->ts);
    pthread_barrier_wait(w->inside);
    w->result = tickets_claim(w->ts, w->id, INT64_MAX, &c);
    if (entered) tickets_leave(w->ts);
    return NULL;
}

static void start(struct waiter *waiters, struct tickets *ts, pthread_barrier_t *inside) {
    pthread_barrier_init(inside, NULL, WAITERS + 1);
    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = (struct waiter){.ts = ts, .inside = inside, .id = (uint64_t)i % 3};
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_ever, &waiters[i]), 0);
    }
    pthread_barrier_wait(inside);
}

static void join(struct waiter *waiters, pthread_barrier_t *inside, enum wait_result expected) {
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].result, expected);
    }
    pthread_barrier_destroy(inside);
}

static void test_stopping_wakes_all_waiting_threads_and_refuses_new_ones(void **state) {
    struct tickets *ts = *state;
    struct ticket *a, *b;
    struct waiter waiters[WAITERS];
    pthread_barrier_t inside;
    struct request *ra = make(1, 1, &a), *rb = make(2, 1, &b);
    tickets_add(ts, a, ra);
    tickets_add(ts, b, rb);
    start(waiters, ts, &inside);
    tickets_stop(ts);
    tickets_empty(ts);
    assert_false(tickets_enter(ts));
    join(waiters, &inside, WAIT_CLOSED);
}

static void test_the_last_event_wakes_all_other_waiting_threads(void **state) {
    struct tickets *ts = *state;
    struct ticket *a, *b;
    struct waiter waiters[WAITERS];
    pthread_barrier_t inside;
    struct claim c;
    struct request *ra = make(1, 1, &a), *rb = make(2, 1, &b);
    tickets_add(ts, a, ra);
    tickets_add(ts, b, rb);
    /* Both are in hand, so that those who wait get nothing but the end. */
    struct claim ca, cb;
    move(ts, ra, 0, 1, FINISH_LENGTH);
    move(ts, rb, 0, 1, FINISH_LENGTH);
    assert_int_equal(tickets_claim(ts, 1, 0, &ca), WAIT_CLAIMED);
    assert_int_equal(tickets_claim(ts, 2, 0, &cb), WAIT_CLAIMED);
    start(waiters, ts, &inside);
    tickets_unclaim(ts, &ca, true);
    tickets_unclaim(ts, &cb, true);
    join(waiters, &inside, WAIT_IDLE);
    assert_int_equal(tickets_claim(ts, 0, 0, &c), WAIT_IDLE);
}

enum { REQUESTS = 40, READERS = 4 };

struct reading {
    struct tickets *ts;
    atomic_uint seen[REQUESTS + 1][2]; /* by id and choice: tokens in events */
    atomic_uint ends[REQUESTS + 1][2];
    atomic_uint next_id;
};

static void read_one(struct reading *g, const struct claim *c) {
    uint64_t id = c->ticket->id;
    struct ticket_choice *a = &c->ticket->choices[c->choice];
    assert_true(c->ready >= a->seen);
    atomic_fetch_add(&g->seen[id][c->choice], c->ready - a->seen);
    a->seen = c->ready;
    bool is_over = c->finish != FINISH_NONE;
    if (is_over) atomic_fetch_add(&g->ends[id][c->choice], 1);
    tickets_unclaim(g->ts, c, is_over);
}

/* Half of the readers take whatever comes, half go through the ids. */
static void *read_any(void *arg) {
    struct reading *g = arg;
    struct claim c;
    while (tickets_claim(g->ts, 0, INT64_MAX, &c) == WAIT_CLAIMED) read_one(g, &c);
    return NULL;
}

static void *read_by_id(void *arg) {
    struct reading *g = arg;
    struct claim c;
    for (uint64_t id; (id = atomic_fetch_add(&g->next_id, 1) + 1) <= REQUESTS;)
        while (tickets_claim(g->ts, id, INT64_MAX, &c) == WAIT_CLAIMED) read_one(g, &c);
    return NULL;
}

static void test_every_token_is_in_one_event_for_any_number_of_readers(void **state) {
    struct reading *g = calloc(1, sizeof(*g));
    struct ticket *t[REQUESTS];
    struct request *r[REQUESTS];
    pthread_t readers[READERS];
    g->ts = *state;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        r[i] = make(i + 1, 2, &t[i]);
        t[i]->choices[0].seen = t[i]->choices[1].seen = PROMPT;
        request_ref(r[i]); /* the engine's */
        tickets_add(g->ts, t[i], r[i]);
    }
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, i % 2 ? read_any : read_by_id, g), 0);
    for (uint32_t step = 1; step <= ANSWER; step++)
        for (uint32_t i = 0; i < REQUESTS; i++)
            for (uint32_t c = 0; c < 2; c++)
                move(g->ts, r[i], c, step, step == ANSWER ? FINISH_LENGTH : FINISH_NONE);
    for (int i = 0; i < READERS; i++) pthread_join(readers[i], NULL);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        for (uint32_t c = 0; c < 2; c++) {
            assert_int_equal(g->seen[i + 1][c], ANSWER);
            assert_int_equal(g->ends[i + 1][c], 1);
        }
        request_unref(r[i]);
    }
    free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tickets_are_claimed_in_order_of_arrival, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_tokens_before_the_ticket_is_added_are_kept, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_claimed_ticket_cannot_be_claimed_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_choice_that_ended_early_has_no_more_events, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_stopping_wakes_all_waiting_threads_and_refuses_new_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_last_event_wakes_all_other_waiting_threads, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_every_token_is_in_one_event_for_any_number_of_readers,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
