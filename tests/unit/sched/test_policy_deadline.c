/* Goal:   what can be in time goes first, what cannot makes room for it, and steps are as long as
 *         the tightest target allows.
 * Method: a few requests whose deadlines are known to be feasible or not under the world's own
 *         step times (100 us and 10 us a token), which the cost model is given to start with. */
#include "unit/sched/world.h"

static const struct cost_profile world_cost = {
    .name = "world", .fixed_us = 100, .per_token_us = 10, .per_attended_us = 1e-6};

static struct sched_options options(uint32_t max_seqs, double shed) {
    struct sched_options o = world_options("deadline", 256, 8, max_seqs);
    cost_init(&o.cost, &world_cost);
    o.knobs.deadline_shed = shed;
    return o;
}

static struct world_submit timed(uint32_t prompt, uint32_t answer, int64_t ttft_us,
                                 int64_t tpot_us) {
    return (struct world_submit){.prompt_tokens = prompt,
                                 .max_tokens = answer,
                                 .urgency = {.ttft_target_us = ttft_us, .tpot_target_us = tpot_us}};
}

static void test_the_earliest_deadline_goes_first(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(1, 0);
    world_open(&w, &o);
    world_submit(&w, timed(10, 20, 0, 0));
    assert_true(world_step(&w));
    world_submit(&w, timed(10, 2, 0, 0)); /* whenever */
    world_submit(&w, timed(10, 2, 90000, 0));
    world_submit(&w, timed(10, 2, 30000, 0));
    world_drain(&w, 1000);
    assert_true(w.requests[3].last.first_token_us < w.requests[2].last.first_token_us);
    assert_true(w.requests[2].last.first_token_us < w.requests[1].last.first_token_us);
    world_close(&w);
}

static void test_a_request_past_its_latest_start_goes_behind_the_others(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(1, 0);
    world_open(&w, &o);
    world_submit(&w, timed(400, 4, 1000, 0)); /* 4.1 ms of prompt: too late when it comes */
    world_submit(&w, timed(10, 4, 100000, 0));
    world_drain(&w, 1000);
    assert_true(w.requests[1].last.first_token_us < w.requests[0].last.first_token_us);
    assert_int_equal(w.requests[0].finish, FINISH_LENGTH);
    world_close(&w);
}

static void test_an_impossible_tpot_target_slows_no_other_request(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(4, 0);
    world_open(&w, &o);
    world_submit(&w, timed(10, 200, 0, 5)); /* a step alone takes 110 us */
    assert_true(world_step(&w));
    world_submit(&w, timed(10, 4, 0, 0));
    world_drain(&w, 2000);
    assert_true(w.requests[1].last.first_token_us - w.requests[0].last.first_token_us < 2000);
    world_close(&w);
}

static void test_a_request_late_by_deadline_shed_is_ended(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(1, 0.5);
    world_open(&w, &o);
    world_submit(&w, timed(10, 500, 0, 0)); /* 55 ms while no other can run */
    assert_true(world_step(&w));
    world_submit(&w, timed(10, 4, 4000, 0));
    int64_t came_us = w.now_us;
    const struct world_request *r = world_last(&w);
    while (r->is_live) assert_true(world_step(&w));
    assert_int_equal(r->finish, FINISH_EXPIRED);
    assert_true(w.now_us - came_us > 4000);
    assert_true(w.now_us - came_us < 7000);
    world_close(&w);
}

static void test_a_request_with_a_first_token_is_never_shed(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(2, 0.1);
    world_open(&w, &o);
    world_submit(&w, timed(10, 300, 2000, 0));
    world_drain(&w, 1000);
    assert_int_equal(w.requests[0].finish, FINISH_LENGTH);
    world_close(&w);
}

static void test_prompt_tokens_are_limited_by_running_tpot_targets(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(4, 0);
    world_open(&w, &o);
    world_submit(&w, timed(10, 200, 0, 1000)); /* a token a millisecond: 90 tokens a step */
    for (int i = 0; i < 3; i++) assert_true(world_step(&w));
    world_submit(&w, timed(900, 4, 0, 0));
    uint32_t steps = 0;
    for (; w.requests[1].is_live; steps++) {
        assert_true(world_step(&w));
        if (w.requests[0].is_live) assert_true(w.plan.token_count <= 90);
    }
    assert_true(steps >= 900 / 90);
    world_close(&w);
}

static void test_no_request_is_admitted_that_would_break_a_running_target(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(64, 0);
    world_open(&w, &o);
    for (int i = 0; i < 40; i++) world_submit(&w, timed(4, 100, 0, 400)); /* 22 rows take 320 us */
    uint32_t most = 0;
    while (w.live_count > 0) {
        assert_true(world_step(&w));
        if (w.step > 3 && w.plan.row_count > most) most = w.plan.row_count;
    }
    assert_in_range(most, 15, 26);
    world_close(&w);
}

static void propose_zeros(void *ctx, struct draft_ask *asks, uint32_t count) {
    (void)ctx;
    for (uint32_t i = 0; i < count; i++) {
        asks[i].given = asks[i].max;
        memset(asks[i].out, 0, asks[i].max * sizeof(asks[i].out[0]));
    }
}

/* How many drafts the first decode row has; a sequence beside it has the target. */
static uint32_t drafts_beside(int64_t tpot_us, double step_target_ms) {
    struct world w;
    struct sched_options o = options(4, 0);
    o.drafts.propose = propose_zeros;
    o.draft_rows_max = 24;
    o.knobs.draft_max = 24;
    o.knobs.step_target_ms = step_target_ms;
    world_open(&w, &o);
    struct world_submit in = timed(1, 100, 0, 0);
    in.draft_max = 24;
    world_submit(&w, in);
    world_submit(&w, timed(1, 100, 0, tpot_us));
    assert_true(world_step(&w));
    w.verify = false;
    world_plan(&w);
    assert_int_equal(w.plan.row_count, 2);
    uint32_t drafts = w.plan.draft_count;
    world_close(&w);
    return drafts;
}

static void test_drafts_are_limited_by_running_tpot_targets(void **state) {
    (void)state;
    uint32_t most = drafts_beside(0, 0);
    assert_true(most >= 3);
    assert_int_equal(drafts_beside(1000, 0), most);
    assert_int_equal(drafts_beside(1000, 0.132), 1); /* three tokens take 130 us */
    assert_int_equal(drafts_beside(165, 0), 1);      /* of which 0.8 are planned */
    assert_int_equal(drafts_beside(165, 5), 1);
    assert_int_equal(drafts_beside(152, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_earliest_deadline_goes_first),
        cmocka_unit_test(test_a_request_past_its_latest_start_goes_behind_the_others),
        cmocka_unit_test(test_an_impossible_tpot_target_slows_no_other_request),
        cmocka_unit_test(test_a_request_late_by_deadline_shed_is_ended),
        cmocka_unit_test(test_a_request_with_a_first_token_is_never_shed),
        cmocka_unit_test(test_prompt_tokens_are_limited_by_running_tpot_targets),
        cmocka_unit_test(test_no_request_is_admitted_that_would_break_a_running_target),
        cmocka_unit_test(test_drafts_are_limited_by_running_tpot_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
