/* Goal:   opening an engine on simulated time, and a world, survive the failure of any one
 *         allocation, with a sentence and nothing lost.
 * Method: the N-th allocation fails, for every N. Leaks show in the sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/fail_alloc.h"
#include "sim/replay.h"
#include "sim/world.h"

enum { ALLOCATIONS_MAX = 300 };

static void test_opening_an_engine_survives_any_failed_allocation(void **state) {
    (void)state;
    struct sim_engine_options o = {.profile = {"test", 1000, 100, 0, 10}};
    o.engine.vocab = 50;
    o.engine.sched.policy = sched_policies[0];
    o.engine.sched.knobs = knobs_default();
    o.engine.sched.knobs.kv_blocks = 64;
    o.engine.sched.ctx_tokens = 128;
    o.engine.sched.group_count = 1;
    for (long n = 0;; n++) {
        struct sim_clock clock;
        struct engine *e = NULL;
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = sim_engine_open(&e, &clock, &o, &err);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            engine_destroy(e);
            assert_in_range(n, 10, ALLOCATIONS_MAX);
            return;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_true(err.text[0] != 0);
        assert_null(e);
    }
}

/* Past its own allocations come those of its requests: a world that ran at all is far enough. */
static void test_opening_a_world_survives_any_failed_allocation(void **state) {
    (void)state;
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct world_options o = {.seed = 5, .load_steps = 1};
        struct world_outcome out;
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = world_run(&o, &out, &err);
        fail_alloc_stop();
        if (st == ST_OK) {
            assert_in_range(n, 10, ALLOCATIONS_MAX);
            return;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_true(err.text[0] != 0);
    }
    fail();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening_an_engine_survives_any_failed_allocation),
        cmocka_unit_test(test_opening_a_world_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
