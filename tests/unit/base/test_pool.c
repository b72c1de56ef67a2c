/* Goal: a pool's barriers are correct whether it spins or sleeps, and an idle pool costs nothing.
 *
 * Method: jobs in which every thread checks at every barrier what all others wrote before it, with
 * fewer and more threads than processors, with threads that are late by less and by more than
 * the patience, and beside processes that burn the processors until the threads must wait in
 * another way.
 * A lost wake-up is a hang, which the alarm turns into a failure. Time used is the process's own
 * clock of processor time, which other programs do not move.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/pool.h"

enum { ALARM_S = 240, THREADS_MAX = 8, BARRIERS = 50, BURNERS = 4, BURN_S = 20 };

static int64_t now_us(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void sleep_us(int64_t us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

struct job {
    struct pool *pool;
    uint64_t slots[THREADS_MAX]; /* the barrier that a thread has come to */
    uint64_t wrong[THREADS_MAX]; /* how often another's was not seen */
    int64_t late_us;             /* thread (barrier % count) is so late, every tenth time */
};

/* Between two barriers everybody writes, between the next two everybody reads. */
static void meet_often(void *ctx, uint32_t idx, uint32_t count) {
    struct job *j = ctx;
    for (uint64_t barrier = 1; barrier <= BARRIERS; barrier++) {
        if (j->late_us && barrier % 10 == 0 && barrier / 10 % count == idx) sleep_us(j->late_us);
        j->slots[idx] = barrier;
        pool_barrier(j->pool);
        for (uint32_t i = 0; i < count; i++) j->wrong[idx] += j->slots[i] != barrier;
        pool_barrier(j->pool);
    }
}

static void run_often(uint32_t threads, uint32_t runs, int64_t late_us, int64_t pause_us) {
    struct job j = {.late_us = late_us};
    assert_int_equal(pool_create(&j.pool, threads, NULL), ST_OK);
    assert_int_equal(pool_threads(j.pool), threads);
    for (uint32_t run = 0; run < runs; run++) {
        for (uint32_t i = 0; i < threads; i++) j.slots[i] = 0;
        pool_run(j.pool, meet_often, &j);
        for (uint32_t i = 0; i < threads; i++) assert_int_equal(j.slots[i], BARRIERS);
        for (uint32_t i = 0; i < threads; i++) assert_int_equal(j.wrong[i], 0);
        if (pause_us) sleep_us(pause_us);
    }
    pool_destroy(j.pool);
}

static void test_everything_written_before_a_barrier_is_seen_after_it(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= THREADS_MAX; threads++) run_often(threads, 20, 0, 0);
}

static void test_mates_that_are_late_are_waited_for_awake_and_asleep(void **state) {
    (void)state;
    run_often(2, 4, 50, 0);
    run_often(2, 4, 1500, 0);
    run_often(5, 4, 1500, 0);
}

static void test_workers_that_have_gone_to_sleep_between_runs_come_back(void **state) {
    (void)state;
    run_often(2, 20, 0, 2000);
    run_often(4, 20, 0, 2000);
}

/* A sum that the last thread to arrive makes for all. */
struct sums {
    struct job job;
    uint64_t sum, calls;
    uint64_t mine[THREADS_MAX];
    uint32_t threads;
};

static void add_slots(void *ctx) {
    struct sums *s = ctx;
    s->sum = 0;
    s->calls++;
    for (uint32_t i = 0; i < s->threads; i++) s->sum += s->job.slots[i];
}

static void sum_often(void *ctx, uint32_t idx, uint32_t count) {
    struct sums *s = ctx;
    for (uint64_t barrier = 1; barrier <= BARRIERS; barrier++) {
        if (barrier % 10 == 0 && barrier / 10 % count == idx) sleep_us(s->job.late_us);
        s->job.slots[idx] = barrier * (idx + 1);
        s->mine[idx] += pool_barrier_then(s->job.pool, add_slots, s);
        s->job.wrong[idx] += s->sum != barrier * count * (count + 1) / 2;
        s->job.wrong[idx] += s->calls != barrier;
        pool_barrier(s->job.pool);
    }
}

static void test_the_last_thread_to_arrive_works_for_all(void **state) {
    (void)state;
    static const int64_t late_us[] = {0, 1500};
    for (uint32_t threads = 1; threads <= THREADS_MAX; threads++)
        for (int i = 0; i < 2; i++) {
            struct sums s = {.threads = threads, .job.late_us = late_us[i]};
            uint64_t mine = 0;
            assert_int_equal(pool_create(&s.job.pool, threads, NULL), ST_OK);
            pool_run(s.job.pool, sum_often, &s);
            for (uint32_t t = 0; t < threads; t++) {
                assert_int_equal(s.job.wrong[t], 0);
                mine += s.mine[t];
            }
            assert_int_equal(mine, BARRIERS);
            pool_destroy(s.job.pool);
        }
}

static pid_t start_burner(void) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    alarm(BURN_S);
    for (volatile uint64_t i = 0;; i++) continue;
}

static void test_busy_neighbours_change_how_threads_wait_and_nothing_else(void **state) {
    (void)state;
    pid_t burners[BURNERS];
    for (int i = 0; i < BURNERS; i++) assert_true((burners[i] = start_burner()) > 0);
    int64_t end_us = now_us(CLOCK_MONOTONIC) + 1500000;
    while (now_us(CLOCK_MONOTONIC) < end_us) run_often(pool_processors() + 1, 4, 0, 0);
    end_us = now_us(CLOCK_MONOTONIC) + 1500000;
    while (now_us(CLOCK_MONOTONIC) < end_us) run_often(2, 40, 0, 0);
    for (int i = 0; i < BURNERS; i++) {
        kill(burners[i], SIGKILL);
        waitpid(burners[i], NULL, 0);
    }
    run_often(2, 100, 0, 0);
}

static void do_nothing(void *ctx, uint32_t idx, uint32_t count) {
    (void)ctx;
    (void)idx;
    (void)count;
}

static void test_an_idle_team_uses_no_processor(void **state) {
    (void)state;
    struct pool *p;
    assert_int_equal(pool_create(&p, 2, NULL), ST_OK);
    pool_run(p, do_nothing, NULL);
    sleep_us(20000); /* the spin of 300 us, and some for a busy machine */
    int64_t before_us = now_us(CLOCK_PROCESS_CPUTIME_ID);
    sleep_us(500000);
    int64_t used_us = now_us(CLOCK_PROCESS_CPUTIME_ID) - before_us;
    assert_true(used_us < 1000);
    pool_destroy(p);
}

static void wait_a_while(void *ctx, uint32_t idx, uint32_t count) {
    (void)count;
    if (idx == 0) sleep_us(300000);
    pool_barrier(ctx);
}

static void test_waiting_for_a_mate_uses_little_processor(void **state) {
    (void)state;
    struct pool *p;
    assert_int_equal(pool_create(&p, 2, NULL), ST_OK);
    int64_t before_us = now_us(CLOCK_PROCESS_CPUTIME_ID);
    pool_run(p, wait_a_while, p);
    assert_true(now_us(CLOCK_PROCESS_CPUTIME_ID) - before_us < 20000);
    pool_destroy(p);
}

static void test_of_eight_processors_and_more_one_is_left_to_others(void **state) {
    (void)state;
    for (uint32_t processors = 1; processors < 8; processors++)
        assert_int_equal(pool_threads_for(processors), processors);
    for (uint32_t processors = 8; processors <= POOL_THREADS_MAX; processors++)
        assert_int_equal(pool_threads_for(processors), processors - 1);
    assert_int_equal(pool_default_threads(), pool_threads_for(pool_processors()));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_written_before_a_barrier_is_seen_after_it),
        cmocka_unit_test(test_the_last_thread_to_arrive_works_for_all),
        cmocka_unit_test(test_of_eight_processors_and_more_one_is_left_to_others),
        cmocka_unit_test(test_mates_that_are_late_are_waited_for_awake_and_asleep),
        cmocka_unit_test(test_workers_that_have_gone_to_sleep_between_runs_come_back),
        cmocka_unit_test(test_busy_neighbours_change_how_threads_wait_and_nothing_else),
        cmocka_unit_test(test_an_idle_team_uses_no_processor),
        cmocka_unit_test(test_waiting_for_a_mate_uses_little_processor),
    };
    alarm(ALARM_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
