/* Goal:   work that has begun learns that its client has left, and work that waits is not done.
 * Method: tasks on a loop, with one thread in the pool, which a gate holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <uv.h>

#include "base/check.h"
#include "server/accounts.h"
#include "server/server_int.h"
#include "server/task_int.h"

struct job {
    struct task base;
    atomic_bool has_begun;
    uint32_t done;
    bool saw_client_leave;
};

static struct server server;

static void wait_for_leave(struct task *task) {
    struct job *j = (struct job *)task;
    atomic_store(&j->has_begun, true);
    for (int n = 0; n < 60000 && !atomic_load(&task->is_left); n++) uv_sleep(1);
    j->saw_client_leave = atomic_load(&task->is_left);
}

static void do_at_once(struct task *task) { atomic_store(&((struct job *)task)->has_begun, true); }

static void count_done(struct task *task) { ((struct job *)task)->done++; }

static struct job job_of(void (*work)(struct task *task)) {
    return (struct job){.base = {.work = work, .done = count_done, .bytes = 100}};
}

static void open_server(void) {
    server = (struct server){.tasks = 0};
    CHECK(uv_loop_init(&server.loop) == 0);
    const struct work_queue_options options = {
        .loop = &server.loop, .threads = 1, .items_max = 2, .bytes_max = 1000, .is_single = true};
    assert_int_equal(accounts_create(&server.accounts), ST_OK);
    assert_int_equal(work_queue_create(&options, &server.work), ST_OK);
}

static void close_server(void) {
    uv_run(&server.loop, UV_RUN_DEFAULT);
    assert_int_equal(server.tasks, 0);
    work_queue_destroy(server.work);
    accounts_destroy(server.accounts);
    CHECK(uv_loop_close(&server.loop) == 0);
}

static void test_a_client_that_leaves_ends_work_that_runs_and_work_that_waits(void **state) {
    (void)state;
    open_server();
    struct job runs = job_of(wait_for_leave), waits = job_of(do_at_once);
    task_run_alone(&runs.base, &server, true);
    while (!atomic_load(&runs.has_begun)) uv_sleep(1);
    task_run_alone(&waits.base, &server, true);
    assert_int_equal(server.tasks, 2);
    assert_int_equal(work_queue_stats(server.work).bytes, 200);
    task_cancel(&waits.base);
    assert_int_equal(waits.done, 1); /* at once, and without the work */
    assert_false(atomic_load(&waits.has_begun));
    assert_int_equal(server.tasks, 1);
    assert_int_equal(work_queue_stats(server.work).bytes, 100);
    task_cancel(&runs.base);
    assert_int_equal(runs.done, 0); /* when its thread has ended */
    close_server();
    assert_true(runs.saw_client_leave);
    assert_int_equal(runs.done, 1);
    assert_int_equal(waits.done, 1);
}

/* The first work of a request is refused where there is no room; what continues it is not. */
static void test_work_beyond_the_room_is_refused_and_ends_at_once(void **state) {
    (void)state;
    open_server();
    struct job jobs[4] = {job_of(wait_for_leave), job_of(do_at_once), job_of(do_at_once),
                          job_of(do_at_once)};
    for (uint32_t i = 0; i < 3; i++) task_run_alone(&jobs[i].base, &server, true);
    assert_int_equal(server.tasks, 2);
    assert_int_equal(jobs[2].done, 1);
    assert_int_equal(jobs[2].base.status, ST_UNAVAILABLE);
    assert_int_equal(jobs[2].base.error.status, 503);
    assert_int_equal(work_queue_stats(server.work).refused, 1);
    jobs[3].base.item.is_continuing = true;
    task_run_alone(&jobs[3].base, &server, true);
    assert_int_equal(server.tasks, 3);
    assert_int_equal(jobs[3].base.status, ST_OK);
    task_cancel(&jobs[0].base);
    close_server();
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(jobs[i].done, 1);
        assert_int_equal(atomic_load(&jobs[i].has_begun), i != 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_client_that_leaves_ends_work_that_runs_and_work_that_waits),
        cmocka_unit_test(test_work_beyond_the_room_is_refused_and_ends_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
