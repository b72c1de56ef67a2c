/* Goal:   creating a scheduler and a plan survives the failure of any one allocation, with a
 *         sentence and nothing lost; and once created, no step allocates.
 * Method: the N-th allocation fails, for every N, under every policy; then a whole run with every
 *         allocation failing. Leaks show in the sanitizer build. */
#include "unit/sched/world.h"

#include "fault/fail_alloc.h"

enum { ALLOCATIONS_MAX = 1000 };

static long walk(const struct sched_options *o) {
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct err err = {0};
        struct sched *s = NULL;
        fail_alloc_at(n);
        enum status st = sched_create(&s, o, &err);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            sched_destroy(s);
            return n;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_true(err.text[0] != 0);
        assert_null(s);
    }
    fail_msg("more than %d allocations", ALLOCATIONS_MAX);
    return 0;
}

static void test_creating_survives_any_failed_allocation(void **state) {
    (void)state;
    for (const struct sched_policy *const *p = sched_policies; *p; p++) {
        struct sched_options o = world_options((*p)->name, 16, 4, 4);
        assert_in_range(walk(&o), 10, ALLOCATIONS_MAX);
    }
}

static void test_a_plan_survives_any_failed_allocation(void **state) {
    (void)state;
    for (long n = 0;; n++) {
        struct plan plan;
        fail_alloc_at(n);
        enum status st = plan_init(&plan, 4, 16);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            plan_deinit(&plan);
            assert_int_equal(n, 4);
            return;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_null(plan.rows);
    }
}

static void test_no_step_allocates(void **state) {
    (void)state;
    for (const struct sched_policy *const *p = sched_policies; *p; p++) {
        struct sched_options o = world_options((*p)->name, 12, 4, 4);
        struct world w;
        world_open(&w, &o);
        for (uint32_t n = 0; n < 12; n++)
            world_submit(&w, (struct world_submit){.prompt_tokens = 5 + n, .max_tokens = 20});
        fail_alloc_at(0);
        world_drain(&w, 2000);
        assert_false(fail_alloc_stop());
        world_close(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_creating_survives_any_failed_allocation),
        cmocka_unit_test(test_a_plan_survives_any_failed_allocation),
        cmocka_unit_test(test_no_step_allocates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
