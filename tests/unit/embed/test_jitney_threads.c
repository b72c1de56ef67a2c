/* Goal:   the library may be called from many threads at once: submitting, reading, cancelling and
 *         asking for statistics, and stopping while others wait.
 * Method: threads on one tiny model; each compares what it received with the same request alone.
 *         Also run under the thread sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "unit/embed/embed_rig.h"

enum { KINDS = 4, THREADS = 6, ROUNDS = 5 };

struct scene {
    struct jitney *j;
    struct received expected[KINDS];
    atomic_int wrong, read_count;
};

static struct jitney_request request_of(uint32_t kind) {
    static const char *const texts[KINDS] = {"Hello", "The quick brown fox jumps over", "A", "1 2"};
    struct jitney_request r = steady(texts[kind], 8 + kind * 5, kind);
    if (kind == 3) r.temperature = 0;
    return r;
}

static int setup(void **state) {
    struct scene *s = calloc(1, sizeof(*s));
    if (!s) return -1;
    s->j = open_with(LLAMA, (const char *const[]){"max_seqs=4", NULL});
    if (!s->j) return -1;
    for (uint32_t i = 0; i < KINDS; i++) {
        struct jitney_request r = request_of(i);
        uint64_t id;
        if (jitney_submit(s->j, &r, &id, NULL) != JITNEY_OK) return -1;
        read_all_of(s->j, id, &s->expected[i]);
    }
    *state = s;
    return 0;
}

static int teardown(void **state) {
    struct scene *s = *state;
    jitney_close(s->j);
    free(s);
    return 0;
}

/* Submits and reads its own, with a cancelled one now and then, and looks at the statistics. */
static void *submit_and_read(void *arg) {
    struct scene *s = arg;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct jitney_request r = request_of(round % KINDS);
        struct received *got = calloc(1, sizeof(*got));
        uint64_t id, cancelled;
        if (jitney_submit(s->j, &r, &id, NULL) != JITNEY_OK) s->wrong++;
        if (jitney_submit(s->j, &r, &cancelled, NULL) != JITNEY_OK) s->wrong++;
        jitney_cancel(s->j, cancelled);
        if (read_all_of(s->j, id, got) != JITNEY_IDLE) s->wrong++;
        if (!received_same(got, &s->expected[round % KINDS])) s->wrong++;
        memset(got, 0, sizeof(*got));
        if (read_all_of(s->j, cancelled, got) != JITNEY_IDLE) s->wrong++;
        if (got->last_count != 1) s->wrong++;
        struct jitney_stats stats = {.size = sizeof(stats)};
        jitney_stats(s->j, &stats);
        s->read_count++;
        free(got);
    }
    return NULL;
}

static void test_threads_that_read_their_own_request_get_its_answer(void **state) {
    struct scene *s = *state;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, submit_and_read, s), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(s->wrong, 0);
    assert_int_equal(s->read_count, THREADS * ROUNDS);
}

/* What several threads received of one request, added up. */
struct shared_got {
    pthread_mutex_t lock;
    struct received got;
    uint32_t kind;
};

static void *read_any(void *arg) {
    struct scene *s = arg;
    struct jitney_event ev = jitney_event_default();
    while (jitney_next(s->j, &ev, -1) == JITNEY_OK) {
        struct shared_got *t = ev.user;
        pthread_mutex_lock(&t->lock);
        t->got.count += ev.token_count;
        t->got.text_bytes += ev.text_bytes;
        t->got.last_count += ev.finish != JITNEY_MORE;
        pthread_mutex_unlock(&t->lock);
    }
    jitney_event_clear(&ev);
    return NULL;
}

static void test_threads_that_read_any_request_share_all_events(void **state) {
    enum { REQUESTS = 20 };
    struct scene *s = *state;
    struct shared_got *all = calloc(REQUESTS, sizeof(*all));
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < REQUESTS; i++) {
        all[i].kind = i % KINDS;
        pthread_mutex_init(&all[i].lock, NULL);
        struct jitney_request r = request_of(all[i].kind);
        r.user = &all[i];
        assert_int_equal(jitney_submit(s->j, &r, NULL, NULL), JITNEY_OK);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_any, s), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const struct received *expected = &s->expected[all[i].kind];
        assert_int_equal(all[i].got.count, expected->count);
        assert_int_equal(all[i].got.text_bytes, expected->text_bytes);
        assert_int_equal(all[i].got.last_count, 1);
        pthread_mutex_destroy(&all[i].lock);
    }
    free(all);
}

/* Submits and reads until the library is closed. */
static void *loop_until_closed(void *arg) {
    struct scene *s = arg;
    struct jitney_event ev = jitney_event_default();
    enum jitney_status st = JITNEY_OK;
    while (st != JITNEY_CLOSED) {
        struct jitney_request r = steady("Hello", 200, 1);
        uint64_t id;
        st = jitney_submit(s->j, &r, &id, NULL);
        while (st == JITNEY_OK) {
            st = jitney_next_of(s->j, id, &ev, -1);
            s->read_count++;
        }
    }
    jitney_event_clear(&ev);
    return NULL;
}

static void test_stop_ends_the_loops_of_reading_threads(void **state) {
    struct scene *s = *state;
    pthread_t threads[THREADS];
    s->read_count = 0;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, loop_until_closed, s), 0);
    while (s->read_count < 4 * THREADS) sched_yield();
    jitney_stop(s->j);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_that_read_their_own_request_get_its_answer),
        cmocka_unit_test(test_threads_that_read_any_request_share_all_events),
        cmocka_unit_test(test_stop_ends_the_loops_of_reading_threads),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
