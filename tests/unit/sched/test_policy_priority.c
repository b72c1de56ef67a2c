/* Goal:   a more important request does not wait for less important ones, and they lose nothing
 *         but time.
 * Method: the batch is full of requests of low priority; one of high priority arrives between or
 *         during steps, with free memory and with none. Steps are counted until its first token. */
#include "unit/sched/world.h"

enum { BATCH = 8, STEP_TOKENS = 64 };

static void fill_batch(struct world *w, uint32_t max_tokens) {
    for (uint32_t i = 0; i < BATCH; i++)
        world_submit(w, (struct world_submit){.prompt_tokens = 20, .max_tokens = max_tokens});
    while (sched_stats(w->s).running < BATCH) assert_true(world_step(w));
    for (int i = 0; i < 4; i++) assert_true(world_step(w)); /* all prompts are done */
}

static uint32_t steps_to_first_token(struct world *w, const struct world_request *r) {
    uint32_t steps = 0;
    for (; r->events_total <= r->prompt_tokens; steps++) {
        assert_true(world_step(w));
        assert_true(steps < 1000);
    }
    return steps;
}

static uint32_t prompt_steps(uint32_t tokens) {
    uint32_t per_step = STEP_TOKENS - (BATCH - 1);
    return (tokens + per_step - 1) / per_step;
}

static void open_world(struct world *w, uint32_t kv_blocks) {
    struct sched_options o = world_options("priority", kv_blocks, 8, BATCH);
    o.knobs.max_step_tokens = STEP_TOKENS;
    o.knobs.watermark = 0;
    world_open(w, &o);
}

static struct world_submit important(uint32_t prompt_tokens) {
    return (struct world_submit){
        .prompt_tokens = prompt_tokens, .max_tokens = 4, .urgency = {.priority = 5}};
}

static void test_a_high_priority_has_its_first_token_two_steps_after_its_prompt(void **state) {
    (void)state;
    const uint32_t prompts[] = {1, 30, 57, 58, 200, 500};
    for (uint32_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]); i++) {
        struct world w;
        open_world(&w, 400);
        fill_batch(&w, 300);
        world_submit(&w, important(prompts[i]));
        uint32_t steps = steps_to_first_token(&w, world_last(&w));
        assert_true(steps <= 2 + prompt_steps(prompts[i]));
        world_drain(&w, 20000);
        for (uint32_t r = 0; r < w.request_count; r++)
            assert_int_equal(w.requests[r].finish, FINISH_LENGTH);
        world_close(&w);
    }
}

static void test_a_high_priority_is_as_fast_with_all_memory_in_use(void **state) {
    (void)state;
    struct world w;
    open_world(&w, BATCH * 5);
    fill_batch(&w, 20); /* 40 tokens each: all 5 blocks in the end */
    while (kv_cache_available(sched_kv(w.s)) > 0) assert_true(world_step(&w));
    world_submit(&w, important(30));
    assert_true(steps_to_first_token(&w, world_last(&w)) <= 2 + prompt_steps(30));
    world_drain(&w, 20000);
    world_close(&w);
}

static void test_a_high_priority_is_as_fast_if_it_arrives_during_a_step(void **state) {
    (void)state;
    struct world w;
    open_world(&w, 400);
    fill_batch(&w, 300);
    world_plan(&w);
    world_submit(&w, important(30));
    const struct world_request *r = world_last(&w);
    world_run(&w);
    world_apply(&w);
    assert_true(1 + steps_to_first_token(&w, r) <= 2 + prompt_steps(30));
    world_close(&w);
}

static void test_the_youngest_of_the_lowest_priority_is_displaced(void **state) {
    (void)state;
    struct world w;
    open_world(&w, 400);
    for (int32_t i = 0; i < BATCH; i++) {
        world_submit(&w, (struct world_submit){.prompt_tokens = 10,
                                               .max_tokens = 300,
                                               .urgency = {.priority = i == 3 || i == 4 ? 0 : 1}});
        w.now_us += 10;
        assert_true(world_step(&w));
    }
    world_submit(&w, important(10));
    assert_true(world_step(&w));
    assert_int_equal(w.plan.preempted_count, 1);
    assert_int_equal(w.plan.preempted[0].request, w.requests[4].request);
    assert_int_equal(w.plan.preempted[0].why, PREEMPT_POLICY);
    world_close(&w);
}

static void test_equals_do_not_displace_each_other(void **state) {
    (void)state;
    struct world w;
    open_world(&w, 400);
    fill_batch(&w, 50);
    world_submit(&w, (struct world_submit){.prompt_tokens = 10, .max_tokens = 4});
    world_drain(&w, 20000);
    assert_int_equal(sched_stats(w.s).preempted, 0);
    world_close(&w);
}

static void test_any_priority_orders_the_queue(void **state) {
    (void)state;
    const int32_t values[] = {INT32_MIN, -7, 0, 1, 100000, INT32_MAX};
    enum { COUNT = sizeof(values) / sizeof(values[0]) };
    struct world w;
    struct sched_options o = world_options("priority", 64, 8, 1);
    world_open(&w, &o);
    world_submit(&w, (struct world_submit){
                         .prompt_tokens = 4, .max_tokens = 8, .urgency = {.priority = INT32_MAX}});
    assert_true(world_step(&w));
    for (uint32_t i = 0; i < COUNT; i++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 4,
                                               .max_tokens = 2,
                                               .urgency = {.priority = values[i]}});
    world_drain(&w, 1000);
    for (uint32_t i = 1; i < COUNT; i++)
        assert_true(w.requests[1 + i].last.first_token_us < w.requests[i].last.first_token_us);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_high_priority_has_its_first_token_two_steps_after_its_prompt),
        cmocka_unit_test(test_a_high_priority_is_as_fast_with_all_memory_in_use),
        cmocka_unit_test(test_a_high_priority_is_as_fast_if_it_arrives_during_a_step),
        cmocka_unit_test(test_the_youngest_of_the_lowest_priority_is_displaced),
        cmocka_unit_test(test_equals_do_not_displace_each_other),
        cmocka_unit_test(test_any_priority_orders_the_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
