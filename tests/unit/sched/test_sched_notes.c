/* Goal:   a plan says who was admitted to which seat, who waits for which reason, and who was
 *         preempted for whom, and it says the truth.
 * Method: for each reason a batch, a pool or a budget in which nothing else stands in the way; the
 *         first of a long queue against its order; seats are followed through random traffic. */
#include "unit/sched/world.h"

static void fill(struct world *w, uint32_t count, uint32_t prompt_tokens, uint32_t max_tokens) {
    for (uint32_t i = 0; i < count; i++)
        world_submit(
            w, (struct world_submit){.prompt_tokens = prompt_tokens, .max_tokens = max_tokens});
}

static void check_waits(const struct plan *plan, uint32_t count, enum wait_why why) {
    assert_int_equal(plan->wait_count, count);
    for (uint32_t i = 0; i < count; i++) assert_int_equal(plan->waits[i].why, why);
}

static void test_they_wait_for_a_seat(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 400, 8, 2);
    world_open(&w, &o);
    fill(&w, 5, 8, 4);
    world_plan(&w);
    assert_int_equal(w.plan.admitted_count, 2);
    assert_int_equal(w.plan.admitted[0].seat, 0);
    assert_int_equal(w.plan.admitted[1].seat, 1);
    check_waits(&w.plan, 3, WAIT_SEAT);
    assert_int_equal(w.plan.waits[0].request, w.requests[2].request);
    assert_int_equal(w.plan.waits[2].request, w.requests[4].request);
    world_run(&w);
    world_apply(&w);
    assert_true(world_step(&w)); /* nothing has changed: the list is the same */
    check_waits(&w.plan, 3, WAIT_SEAT);
    assert_int_equal(w.plan.admitted_count, 0);
    world_drain(&w, 1000);
    world_close(&w);
}

static void test_they_wait_for_blocks(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 10, 8, 4);
    world_open(&w, &o);
    fill(&w, 3, 40, 8);
    assert_true(world_step(&w));
    check_waits(&w.plan, 2, WAIT_BLOCKS);
    world_drain(&w, 1000);
    world_close(&w);
}

static void test_they_wait_for_tokens_of_the_step(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 400, 8, 8);
    o.knobs.max_step_tokens = 32;
    world_open(&w, &o);
    fill(&w, 4, 32, 8);
    assert_true(world_step(&w));
    check_waits(&w.plan, 3, WAIT_BUDGET);
    world_drain(&w, 1000);
    world_close(&w);
}

static void test_they_wait_because_of_the_policy(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("static", 400, 8, 2);
    world_open(&w, &o);
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 3});
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 30});
    fill(&w, 1, 8, 4);
    for (uint32_t n = 0; sched_stats(w.s).finished == 0; n++) assert_true(world_step(&w) && n < 99);
    assert_true(world_step(&w)); /* one has ended, and its place stays empty */
    assert_int_equal(w.plan.running_count, 1);
    check_waits(&w.plan, 1, WAIT_POLICY);
    world_drain(&w, 1000);
    world_close(&w);
}

static void test_they_wait_for_a_prefix_that_another_computes(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 400, 8, 8);
    o.knobs.chunk_tokens = 64;
    world_open(&w, &o);
    for (int i = 0; i < 2; i++)
        world_submit(&w, (struct world_submit){
                             .prompt_tokens = 100, .max_tokens = 4, .text = 5, .shared = 90});
    assert_true(world_step(&w));
    assert_int_equal(w.plan.admitted_count, 1);
    check_waits(&w.plan, 1, WAIT_PREFIX);
    uint32_t cached = 0;
    while (world_step(&w))
        if (w.plan.admitted_count > 0) cached = w.plan.admitted[0].cached;
    assert_int_equal(cached, 88); /* whole blocks */
    world_close(&w);
}

static void test_choices_wait_for_the_prompt_that_they_share(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 400, 8, 8);
    world_open(&w, &o);
    seq_idx parent = world_submit(
        &w, (struct world_submit){.prompt_tokens = 20, .max_tokens = 4, .request = 7, .text = 1});
    for (uint32_t i = 1; i < 3; i++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 20,
                                               .max_tokens = 4,
                                               .request = 7,
                                               .choice = i,
                                               .is_fork = true,
                                               .parent = parent,
                                               .text = 1});
    assert_true(world_step(&w));
    assert_int_equal(w.plan.admitted_count, 1);
    check_waits(&w.plan, 2, WAIT_PREFIX);
    assert_true(world_step(&w)); /* they have joined after the step, and are in the next plan */
    assert_int_equal(w.plan.admitted_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(w.plan.admitted[i].cached, 19);
        assert_int_not_equal(w.plan.admitted[i].seat, 0);
        assert_int_equal(w.plan.admitted[i].waited_us, 100 + 10 * 20);
    }
    assert_int_equal(w.plan.wait_count, 0);
    world_drain(&w, 1000);
    world_close(&w);
}

static void test_a_preemption_for_memory_names_the_sequence_that_needed_it(void **state) {
    (void)state;
    for (int swaps = 0; swaps < 2; swaps++) {
        struct world w;
        struct sched_options o = world_options("chunked", 12, 8, 4);
        o.knobs.watermark = 0;
        o.knobs.preempt = swaps ? PREEMPT_SWAP : PREEMPT_RECOMPUTE;
        world_open(&w, &o);
        fill(&w, 2, 24, 60);
        for (uint32_t n = 0; w.plan.preempted_count == 0; n++)
            assert_true(world_step(&w) && n < 99);
        const struct plan_preempted *p = &w.plan.preempted[0];
        assert_int_equal(p->request, w.requests[1].request);
        assert_int_equal(p->for_request, w.requests[0].request);
        assert_int_equal(p->why, PREEMPT_MEMORY);
        assert_int_equal(p->swapped, swaps);
        assert_int_equal(p->seat, 1);
        check_waits(&w.plan, 1, swaps ? WAIT_SWAPPED : WAIT_BLOCKS);
        int64_t preempted_us = w.now_us - 100 - 10 * (int64_t)w.plan.token_count;
        for (uint32_t n = 0; w.plan.admitted_count == 0; n++) {
            assert_true(n < 999);
            world_plan(&w);
            if (w.plan.admitted_count > 0)
                assert_int_equal(w.plan.admitted[0].waited_us, w.now_us - preempted_us);
            world_run(&w);
            world_apply(&w);
        }
        world_drain(&w, 1000);
        world_close(&w);
    }
}

static void test_a_displaced_sequence_names_the_more_important_one(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("priority", 400, 8, 2);
    world_open(&w, &o);
    fill(&w, 2, 8, 50);
    assert_true(world_step(&w));
    world_submit(
        &w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 4, .urgency = {.priority = 3}});
    assert_true(world_step(&w));
    assert_int_equal(w.plan.preempted_count, 1);
    assert_int_equal(w.plan.preempted[0].for_request, w.requests[2].request);
    assert_int_equal(w.plan.preempted[0].why, PREEMPT_POLICY);
    assert_int_equal(w.plan.preempted[0].seat, w.plan.admitted[0].seat);
    world_drain(&w, 1000);
    world_close(&w);
}

/* The first 32 of a queue of 200, in the order of the policy. */
static void test_the_front_of_a_long_queue_is_listed_in_order(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("priority", 800, 8, 1);
    world_open(&w, &o);
    for (int32_t i = 0; i < 200; i++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 4,
                                               .max_tokens = 2,
                                               .urgency = {.priority = i * 37 % 50}});
    for (int n = 0; n < 100; n++) {
        assert_true(world_step(&w));
        assert_int_equal(w.plan.wait_count, PLAN_WAITS_MAX);
        for (uint32_t i = 1; i < PLAN_WAITS_MAX; i++) {
            uint32_t a = (uint32_t)(w.plan.waits[i - 1].request - 1000);
            uint32_t b = (uint32_t)(w.plan.waits[i].request - 1000);
            assert_true(a * 37 % 50 > b * 37 % 50 || (a * 37 % 50 == b * 37 % 50 && a < b));
        }
    }
    world_close(&w);
}

/* Follows the notes of plans alone: who is in which seat. */
struct seats {
    uint64_t request[8];
    uint32_t choice[8];
};

static void follow(struct seats *s, const struct world *w, const struct plan *plan) {
    for (uint32_t i = 0; i < plan->preempted_count; i++) {
        const struct plan_preempted *p = &plan->preempted[i];
        assert_int_equal(s->request[p->seat], p->request);
        s->request[p->seat] = 0;
    }
    for (uint32_t i = 0; i < plan->admitted_count; i++) {
        const struct plan_admitted *a = &plan->admitted[i];
        s->request[a->seat] = a->request; /* who had it has ended, or the seat was free */
        s->choice[a->seat] = a->choice;
    }
    for (uint32_t r = 0; r < plan->row_count; r++) {
        const struct sched_seq *seq = sched_seq_at(w->s, plan->rows[r].seq);
        assert_int_equal(s->request[seq->seat], seq->request);
        assert_int_equal(s->choice[seq->seat], seq->choice);
    }
}

static void test_seats_can_be_followed_through_random_traffic(void **state) {
    (void)state;
    static const char *const policies[] = {"chunked", "mlfq", "priority", "fair", "static"};
    for (uint32_t p = 0; p < sizeof(policies) / sizeof(policies[0]); p++) {
        struct world w;
        struct sched_options o = world_options(policies[p], 40, 8, 8);
        o.knobs.max_step_tokens = 48;
        world_open(&w, &o);
        w.rng = (struct rng){.seed = p};
        struct seats seats = {{0}, {0}};
        for (int n = 0; n < 1500; n++) {
            if (rng_below(&w.rng, 4) == 0 && w.live_count < 30)
                world_submit(&w, (struct world_submit){
                                     .prompt_tokens = 1 + (uint32_t)rng_below(&w.rng, 90),
                                     .max_tokens = 1 + (uint32_t)rng_below(&w.rng, 60),
                                     .tenant = (uint32_t)rng_below(&w.rng, 3),
                                     .urgency = {.priority = (int32_t)rng_below(&w.rng, 3)}});
            const struct world_request *r =
                &w.requests[w.request_count ? rng_below(&w.rng, w.request_count) : 0];
            if (rng_below(&w.rng, 40) == 0 && r->is_live)
                sched_cancel(w.s, r->request, r->choice, FINISH_CANCELLED, w.now_us);
            world_plan(&w);
            follow(&seats, &w, &w.plan);
            if (world_is_empty_plan(&w)) {
                world_events(&w);
                continue;
            }
            world_run(&w);
            world_apply(&w);
        }
        world_close(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_they_wait_for_a_seat),
        cmocka_unit_test(test_they_wait_for_blocks),
        cmocka_unit_test(test_they_wait_for_tokens_of_the_step),
        cmocka_unit_test(test_they_wait_because_of_the_policy),
        cmocka_unit_test(test_they_wait_for_a_prefix_that_another_computes),
        cmocka_unit_test(test_choices_wait_for_the_prompt_that_they_share),
        cmocka_unit_test(test_a_preemption_for_memory_names_the_sequence_that_needed_it),
        cmocka_unit_test(test_a_displaced_sequence_names_the_more_important_one),
        cmocka_unit_test(test_the_front_of_a_long_queue_is_listed_in_order),
        cmocka_unit_test(test_seats_can_be_followed_through_random_traffic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
