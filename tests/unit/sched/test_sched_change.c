/* Goal:   the policy and the knobs of a scheduler can be changed at any time between two plans, and
 *         every sequence goes on: none is lost, ended, or preempted by the change.
 * Method: random traffic that is switched among all policies every few steps, with every invariant
 *         checked after each; answers are compared with those that no scheduler changes. */
#include "unit/sched/world.h"

#include <stdlib.h>

static void change(struct world *w, const char *policy) {
    w->options.policy = sched_policy_find(policy);
    sched_change(w->s, w->options.policy, &w->options.knobs, w->now_us);
    sched_verify(w->s);
}

static uint32_t policy_count(void) {
    uint32_t count = 0;
    while (sched_policies[count]) count++;
    return count;
}

static void test_a_change_keeps_every_sequence_where_it_is(void **state) {
    (void)state;
    for (uint32_t p = 0; p < policy_count(); p++) {
        struct world w;
        struct sched_options o = world_options("chunked", 200, 8, 4);
        o.knobs.max_step_tokens = 32;
        world_open(&w, &o);
        for (uint32_t i = 0; i < 9; i++)
            world_submit(&w, (struct world_submit){.prompt_tokens = 20, .max_tokens = 30});
        for (int n = 0; n < 6; n++) assert_true(world_step(&w));
        struct sched_stats before = sched_stats(w.s);
        change(&w, sched_policies[p]->name);
        struct sched_stats after = sched_stats(w.s);
        assert_int_equal(after.running, before.running);
        assert_int_equal(after.waiting, before.waiting);
        assert_int_equal(after.swapped, before.swapped);
        assert_int_equal(after.preempted, before.preempted);
        world_drain(&w, 5000);
        for (uint32_t i = 0; i < w.request_count; i++)
            assert_int_equal(w.requests[i].finish, FINISH_LENGTH);
        world_close(&w);
    }
}

/* The queue follows the new order at once. */
static void test_the_next_admission_is_the_new_policys(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 400, 8, 1);
    world_open(&w, &o);
    for (int32_t i = 0; i < 5; i++)
        world_submit(&w, (struct world_submit){
                             .prompt_tokens = 4, .max_tokens = 3, .urgency = {.priority = i}});
    assert_true(world_step(&w));
    assert_int_equal(w.plan.waits[0].request, w.requests[1].request);
    change(&w, "priority");
    assert_true(world_step(&w)); /* the last one displaces the first */
    assert_int_equal(w.plan.preempted_count, 1);
    assert_int_equal(w.plan.admitted[0].request, w.requests[4].request);
    assert_int_equal(w.plan.waits[0].request, w.requests[3].request);
    world_drain(&w, 1000);
    world_close(&w);
}

/* What a policy notes when a sequence arrives is there after a change: fair lets the one request of
 * a tenant pass all but the first of another's. */
static void test_the_new_policy_knows_those_that_wait(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 400, 8, 1);
    world_open(&w, &o);
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 4});
    assert_true(world_step(&w));
    for (uint32_t i = 0; i < 6; i++)
        world_submit(&w, (struct world_submit){
                             .prompt_tokens = 8, .max_tokens = 4, .tenant = i < 5 ? 1 : 2});
    uint64_t lone = world_last(&w)->request;
    change(&w, "fair");
    uint32_t place = 0, count = 0;
    while (world_step(&w))
        for (uint32_t i = 0; i < w.plan.admitted_count; i++) {
            count++;
            if (w.plan.admitted[i].request == lone) place = count;
        }
    assert_int_equal(count, 6);
    assert_in_range(place, 1, 2);
    world_close(&w);
}

/* sjf predicts the work of a request when it arrives. */
static void test_the_new_policy_has_predicted_those_that_wait(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 400, 8, 1);
    world_open(&w, &o);
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 4});
    assert_true(world_step(&w));
    world_submit(&w, (struct world_submit){.prompt_tokens = 900, .max_tokens = 4});
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 4});
    change(&w, "sjf");
    do assert_true(world_step(&w));
    while (w.plan.admitted_count == 0);
    assert_int_equal(w.plan.admitted[0].request, w.requests[2].request);
    world_drain(&w, 1000);
    world_close(&w);
}

static void test_a_policy_that_reserves_does_so_for_newcomers(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 20, 8, 4);
    o.knobs.watermark = 0;
    world_open(&w, &o);
    for (uint32_t i = 0; i < 3; i++) /* 11 blocks each when they end */
        world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 80});
    for (int n = 0; n < 3; n++) assert_true(world_step(&w));
    assert_int_equal(sched_stats(w.s).running, 3);
    change(&w, "orca"); /* the reservations of two do not fit */
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 80});
    assert_true(world_step(&w));
    assert_int_equal(sched_stats(w.s).running, 3);
    assert_int_equal(w.plan.waits[0].why, WAIT_BLOCKS);
    world_drain(&w, 5000);
    for (uint32_t i = 0; i < w.request_count; i++)
        assert_int_equal(w.requests[i].finish, FINISH_LENGTH);
    world_close(&w);
}

static void submit_random(struct world *w) {
    world_submit(w, (struct world_submit){.prompt_tokens = 1 + (uint32_t)rng_below(&w->rng, 90),
                                          .max_tokens = 1 + (uint32_t)rng_below(&w->rng, 60),
                                          .tenant = (uint32_t)rng_below(&w->rng, 3),
                                          .text = rng_below(&w->rng, 3),
                                          .shared = 24,
                                          .urgency = {.priority = (int32_t)rng_below(&w->rng, 3)}});
}

static void change_random(struct world *w) {
    struct knobs *k = &w->options.knobs;
    k->chunk_tokens = rng_below(&w->rng, 2) ? 0 : 16;
    k->watermark = rng_below(&w->rng, 2) ? 0 : 0.05;
    k->preempt = (enum preempt_mode)rng_below(&w->rng, 3);
    k->preempt_max = 1 + (uint32_t)rng_below(&w->rng, 4);
    change(w, sched_policies[rng_below(&w->rng, policy_count())]->name);
}

static void test_nobody_is_lost_among_all_policies(void **state) {
    (void)state;
    const char *text = getenv("JITNEY_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 1;
    print_message("JITNEY_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t round = 0; round < 12; round++) {
        struct world w;
        struct sched_options o = world_options("chunked", 40, 8, 8);
        o.knobs.max_step_tokens = 48;
        world_open(&w, &o);
        w.rng = (struct rng){.seed = seed * 100 + round};
        for (int n = 0; n < 600; n++) {
            if (rng_below(&w.rng, 4) == 0 && w.live_count < 30) submit_random(&w);
            if (rng_below(&w.rng, 5) == 0) change_random(&w);
            if (!world_step(&w)) w.now_us += 10000;
        }
        world_drain(&w, 20000);
        for (uint32_t i = 0; i < w.request_count; i++)
            assert_int_equal(w.requests[i].finish, FINISH_LENGTH);
        world_close(&w);
    }
}

/* Down to one token in a step, and up again to what it was. */
static void test_max_step_tokens_can_be_lowered_and_raised_again(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 200, 8, 4);
    o.knobs.max_step_tokens = 32;
    world_open(&w, &o);
    for (uint32_t i = 0; i < 6; i++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 20, .max_tokens = 10});
    const uint32_t sizes[] = {32, 3, 1, 7, 32};
    for (uint32_t n = 0; n < 12; n++) {
        w.options.knobs.max_step_tokens = sizes[n % 5];
        change(&w, "chunked");
        assert_true(world_step(&w));
        assert_in_range(w.plan.token_count, 1, sizes[n % 5]);
    }
    world_drain(&w, 5000);
    for (uint32_t i = 0; i < w.request_count; i++)
        assert_int_equal(w.requests[i].finish, FINISH_LENGTH);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_change_keeps_every_sequence_where_it_is),
        cmocka_unit_test(test_the_next_admission_is_the_new_policys),
        cmocka_unit_test(test_the_new_policy_knows_those_that_wait),
        cmocka_unit_test(test_the_new_policy_has_predicted_those_that_wait),
        cmocka_unit_test(test_a_policy_that_reserves_does_so_for_newcomers),
        cmocka_unit_test(test_nobody_is_lost_among_all_policies),
        cmocka_unit_test(test_max_step_tokens_can_be_lowered_and_raised_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
