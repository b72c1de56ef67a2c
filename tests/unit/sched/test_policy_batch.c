/* Goal:   static and dynamic form batches as they say, run them to the end, and do nothing for
 *         rows that have ended.
 * Method: batches of two lengths while the test watches which sequences run and have rows. */
#include "unit/sched/world.h"

static void open_world(struct world *w, const char *policy, uint32_t max_seqs) {
    struct sched_options o = world_options(policy, 256, 8, max_seqs);
    o.knobs.static_wait_ms = 5;
    o.knobs.dynamic_batch = 3;
    o.knobs.dynamic_window_ms = 2;
    world_open(w, &o);
}

static void submit(struct world *w, uint32_t count, uint32_t max_tokens) {
    for (uint32_t i = 0; i < count; i++)
        world_submit(w, (struct world_submit){.prompt_tokens = 6, .max_tokens = max_tokens});
}

static void test_static_starts_when_the_batch_can_be_filled(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "static", 4);
    submit(&w, 3, 8);
    assert_false(world_step(&w));
    submit(&w, 1, 8);
    assert_true(world_step(&w));
    assert_int_equal(w.plan.row_count, 4);
    world_close(&w);
}

static void test_static_starts_a_part_batch_after_its_wait(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "static", 4);
    submit(&w, 2, 8);
    assert_false(world_step(&w));
    assert_int_equal(sched_next_timer_us(w.s), w.now_us + 5000);
    w.now_us += 5000;
    assert_true(world_step(&w));
    assert_int_equal(w.plan.row_count, 2);
    world_close(&w);
}

static void
test_slots_stay_taken_until_the_last_row_ends_and_ended_rows_are_not_computed(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "static", 4);
    submit(&w, 3, 4);
    submit(&w, 1, 20);
    submit(&w, 4, 4); /* the next batch */
    for (int i = 0; i < 20; i++) {
        assert_true(world_step(&w));
        assert_int_equal(w.plan.row_count, i < 4 ? 4 : 1);
    }
    assert_true(world_step(&w));
    assert_int_equal(w.plan.row_count, 4);
    world_close(&w);
}

static void test_dynamic_starts_at_its_number(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "dynamic", 8);
    submit(&w, 2, 8);
    assert_false(world_step(&w));
    submit(&w, 1, 8);
    assert_true(world_step(&w));
    assert_int_equal(w.plan.row_count, 3);
    world_close(&w);
}

static void test_dynamic_starts_when_its_window_has_passed(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "dynamic", 8);
    submit(&w, 1, 8);
    w.now_us += 1000;
    submit(&w, 1, 8);
    assert_false(world_step(&w));
    assert_int_equal(sched_next_timer_us(w.s), w.now_us + 1000);
    w.now_us += 1000;
    assert_true(world_step(&w));
    assert_int_equal(w.plan.row_count, 2);
    world_close(&w);
}

static void test_memory_is_reserved_so_none_is_preempted(void **state) {
    (void)state;
    const char *const names[] = {"static", "dynamic", "orca"};
    for (int p = 0; p < 3; p++) {
        struct world w;
        struct sched_options o = world_options(names[p], 12, 8, 8);
        o.knobs.static_wait_ms = o.knobs.dynamic_window_ms = 0;
        world_open(&w, &o);
        submit(&w, 20, 40); /* 6 blocks each: two at a time */
        while (w.live_count > 0) {
            assert_true(world_step(&w));
            assert_true(w.plan.row_count <= 2);
        }
        assert_int_equal(sched_stats(w.s).preempted, 0);
        world_close(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_static_starts_when_the_batch_can_be_filled),
        cmocka_unit_test(test_static_starts_a_part_batch_after_its_wait),
        cmocka_unit_test(
            test_slots_stay_taken_until_the_last_row_ends_and_ended_rows_are_not_computed),
        cmocka_unit_test(test_dynamic_starts_at_its_number),
        cmocka_unit_test(test_dynamic_starts_when_its_window_has_passed),
        cmocka_unit_test(test_memory_is_reserved_so_none_is_preempted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
