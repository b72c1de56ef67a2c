/* Goal:   the figures that decide or are reported are right on both sides of their thresholds: the
 *         predicted wait, the cost of swapping, the watermark of a fork, the weight of answers
 *         under `fair`, the margin of `sjf`, and the cached tokens of a preempted sequence.
 * Method: each threshold from a formula of the test's own, with values just below and above it. */
#include "unit/sched/world.h"

/* ---- the predicted wait ---- */

static double wait_with(uint32_t max_seqs, uint32_t requests) {
    struct world w;
    struct sched_options o = world_options("chunked", 256, 16, max_seqs);
    world_open(&w, &o);
    w.is_timeless = true;
    for (uint32_t i = 0; i < requests; i++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 10, .max_tokens = 50});
    for (int i = 0; i < 3; i++) world_step(&w); /* the prompts are computed */
    double wait_us = sched_predict_wait_us(w.s, 10);
    world_drain(&w, 1000);
    world_close(&w);
    return wait_us;
}

/* One of two places runs a long prompt; so many further choices of it wait for the prompt. */
static double wait_with_choices(uint32_t choices) {
    struct world w;
    struct sched_options o = world_options("chunked", 256, 16, 2);
    o.knobs.max_step_tokens = 16;
    world_open(&w, &o);
    struct world_submit in = {.prompt_tokens = 200, .max_tokens = 50, .request = 7};
    in.parent = world_submit(&w, in);
    for (in.choice = 1; in.choice <= choices; in.choice++) {
        in.is_fork = true;
        world_submit(&w, in);
    }
    assert_true(world_step(&w));
    assert_int_equal(sched_stats(w.s).running, 1);
    assert_int_equal(sched_stats(w.s).waiting, choices);
    double wait_us = sched_predict_wait_us(w.s, 10);
    world_close(&w);
    return wait_us;
}

static void test_choices_that_wait_for_their_prompt_are_ahead_of_a_new_request(void **state) {
    (void)state;
    double one_us = wait_with_choices(1), three_us = wait_with_choices(3);
    assert_true(wait_with_choices(0) < one_us);
    assert_true(one_us < three_us);
}

static void test_the_predicted_wait_counts_free_seats(void **state) {
    (void)state;
    double prompt_us = wait_with(4, 0);
    for (uint32_t running = 1; running < 4;
         running++) /* a seat is free: only the prompt takes time */
        assert_true(wait_with(4, running) < 1.001 * prompt_us);
    double full_us = wait_with(4, 4);
    assert_true(full_us > 10 * prompt_us); /* one of four answers must end first */
    assert_true(wait_with(8, 4) < 1.001 * prompt_us);
    double two_wait_us = wait_with(4, 5), three_wait_us = wait_with(4, 6);
    assert_true(two_wait_us > 1.9 * full_us && two_wait_us < 2.2 * full_us);
    assert_true(three_wait_us > 2.8 * full_us && three_wait_us < 3.3 * full_us);
}

/* ---- swapping or recomputing ---- */

/* A token costs 1000 us and a block of four tokens 4000; moving one takes `move_us` each way. */
static uint64_t swapped_at(double move_us) {
    struct sched_options o = world_options("chunked", 12, 4, 2);
    static const struct cost_profile profile = {
        .name = "test", .fixed_us = 100, .per_token_us = 1000, .per_attended_us = 1e-9};
    cost_init(&o.cost, &profile);
    o.cost.per_move_us = o.cost.start_move_us = move_us;
    o.knobs.preempt = PREEMPT_AUTO;
    struct world w;
    world_run_two_that_outgrow(&w, &o);
    assert_true(sched_stats(w.s).preempted > 0);
    uint64_t swapped = sched_stats(w.s).swapped_out;
    world_close(&w);
    return swapped;
}

static void test_swapping_costs_the_way_out_and_the_way_back(void **state) {
    (void)state;
    assert_true(swapped_at(1200) > 0);     /* 2400 for both ways, 4000 to compute it again */
    assert_int_equal(swapped_at(2500), 0); /* 5000 for both ways; one way alone is 2500 */
    assert_int_equal(swapped_at(3900), 0);
}

/* ---- forks ---- */

/* `blocks` are held by another sequence when the prompt of two choices is computed. Is the second
 * choice started at once? *available: the blocks that were available then. */
static bool forks_beside(uint32_t blocks, uint32_t *available) {
    struct sched_options o = world_options("chunked", 40, 4, 4);
    o.knobs.watermark = 0.2; /* 8 blocks, and one */
    o.knobs.prefix_cache = false;
    struct world w;
    world_open(&w, &o);
    world_submit(&w, (struct world_submit){.prompt_tokens = blocks * 4 - 3, .max_tokens = 12});
    world_step(&w);
    struct world_submit in = {.prompt_tokens = 8, .max_tokens = 9, .request = 7};
    in.parent = world_submit(&w, in);
    in.choice = 1;
    in.is_fork = true;
    seq_idx child = world_submit(&w, in);
    assert_int_equal(sched_seq_at(w.s, child)->state, SEQ_FORKING);
    world_plan(&w);
    *available = kv_cache_available(sched_kv(w.s));
    world_run(&w);
    world_apply(&w);
    bool has_forked = sched_seq_at(w.s, child)->state == SEQ_RUNNING;
    bool is_computed = sched_seq_at(w.s, in.parent)->computed == 8;
    world_drain(&w, 1000);
    world_close(&w);
    if (!is_computed) *available = 0;
    return has_forked;
}

/* It needs two blocks, and the watermark stays free, as at the admission of any sequence. */
static void test_a_fork_leaves_the_watermark_free(void **state) {
    (void)state;
    uint32_t below = 0, above = 0;
    for (uint32_t blocks = 1; blocks < 34; blocks++) {
        uint32_t available;
        bool has_forked = forks_beside(blocks, &available);
        if (available == 0) continue; /* the parent had to wait */
        assert_int_equal(has_forked, available >= 2 + 9);
        below += available < 2 + 9;
        above += available >= 2 + 9;
    }
    assert_true(below > 0 && above > 0);
}

/* ---- fair ---- */

/* Two tenants that always wait: one of long prompts, one of long answers. Returns the answer tokens
 * and the prompt tokens computed for each while both wait. */
static void run_fair(double weight, double prompts[2], double answers[2]) {
    struct sched_options o = world_options("fair", 1024, 8, 4);
    o.knobs.queue_max = WORLD_REQUESTS;
    o.knobs.max_step_tokens = 64;
    o.knobs.prefix_cache = false;
    o.knobs.fair_output_weight = weight;
    struct world w;
    world_open(&w, &o);
    w.verify = false;
    for (int i = 0; i < 200; i++) {
        struct world_submit reader = {.prompt_tokens = 120, .max_tokens = 2, .tenant = 0};
        struct world_submit writer = {.prompt_tokens = 4, .max_tokens = 40, .tenant = 1};
        world_submit(&w, reader);
        world_submit(&w, writer);
    }
    for (int step = 0; step < 500; step++) {
        world_plan(&w);
        for (uint32_t r = 0; r < w.plan.row_count; r++) {
            const struct plan_row *row = &w.plan.rows[r];
            const struct sched_seq *seq = sched_seq_at(w.s, row->seq);
            bool is_answer = row->first >= seq->prompt_tokens;
            *(is_answer ? &answers[seq->tenant] : &prompts[seq->tenant]) += row->count;
        }
        world_run(&w);
        world_apply(&w);
    }
    world_close(&w);
}

static void test_fair_counts_answers_with_their_weight(void **state) {
    (void)state;
    static const double weights[] = {1, 2, 4, 8};
    for (int i = 0; i < 4; i++) {
        double prompts[2] = {0}, answers[2] = {0}, service[2];
        run_fair(weights[i], prompts, answers);
        for (int t = 0; t < 2; t++) service[t] = prompts[t] + weights[i] * answers[t];
        print_message("weight %g: service %.0f and %.0f\n", weights[i], service[0], service[1]);
        assert_true(service[0] < 1.2 * service[1]);
        assert_true(service[1] < 1.2 * service[0]);
    }
}

/* What is expected of an answer at arrival has the weight, too. */
static int64_t expected_service(double weight) {
    struct sched_options o = world_options("fair", 256, 8, 4);
    o.knobs.fair_output_weight = weight;
    struct world w;
    world_open(&w, &o);
    struct world_submit in = {.prompt_tokens = 10, .max_tokens = 100, .tenant = 1};
    for (int i = 0; i < 50; i++) { /* its answers have 100 tokens */
        world_submit(&w, in);
        world_drain(&w, 200);
    }
    seq_idx last = world_submit(&w, in);
    int64_t service = sched_seq_at(w.s, last)->policy.fair.service;
    world_drain(&w, 200);
    world_close(&w);
    return service - 10;
}

static void test_fair_expects_answers_with_their_weight(void **state) {
    (void)state;
    int64_t one = expected_service(1);
    assert_in_range(one, 45, 50); /* half of the mean */
    assert_in_range(expected_service(8), 8 * one, 8 * (one + 1));
}

/* ---- sjf ---- */

static bool sjf_displaces(int64_t waiting_us, int64_t running_us, bool has_exceeded) {
    const struct sched_policy *sjf = sched_policy_find("sjf");
    struct sched_seq waiting = {.policy.sjf.work_left_us = waiting_us};
    struct sched_seq running = {
        .policy.sjf = {.work_left_us = running_us, .has_exceeded = has_exceeded}};
    return sjf->displaces_seq(NULL, &waiting, &running, NULL);
}

static void test_sjf_displaces_only_for_less_than_half_of_the_work(void **state) {
    (void)state;
    assert_true(sjf_displaces(499, 1000, true));
    assert_false(sjf_displaces(500, 1000, true));
    assert_false(sjf_displaces(999, 1000, true));
    assert_false(sjf_displaces(1, 1000, false)); /* it is as long as predicted */
}

/* The same where it is called: a waiting request with somewhat less work displaces none. */
static uint32_t preemptions(uint32_t waiting_prompt) {
    struct world w;
    struct sched_options o = world_options("sjf", 512, 8, 1);
    static const struct cost_profile profile = {
        .name = "test", .fixed_us = 100, .per_token_us = 10, .per_attended_us = 1e-6};
    cost_init(&o.cost, &profile);
    world_open(&w, &o);
    w.is_timeless = true;
    for (uint32_t i = 0; i < 60; i++) { /* long prompts get short answers */
        uint32_t prompt = i % 3 == 0 ? 10 : i * 10;
        world_submit(&w, (struct world_submit){.prompt_tokens = prompt,
                                               .max_tokens = 400,
                                               .end_after = prompt == 10 ? 60 : 3});
        world_drain(&w, 1000);
    }
    seq_idx running =
        world_submit(&w, (struct world_submit){.prompt_tokens = 10, .max_tokens = 400});
    while (!sched_seq_at(w.s, running)->policy.sjf.has_exceeded) world_step(&w);
    int64_t left_us = sched_seq_at(w.s, running)->policy.sjf.work_left_us;
    seq_idx waiting = world_submit(
        &w,
        (struct world_submit){.prompt_tokens = waiting_prompt, .max_tokens = 400, .end_after = 3});
    bool is_much_less = 2 * sched_seq_at(w.s, waiting)->policy.sjf.work_left_us < left_us;
    bool is_less = sched_seq_at(w.s, waiting)->policy.sjf.work_left_us < left_us;
    world_plan(&w);
    uint32_t preempted = w.plan.preempted_count;
    world_run(&w);
    world_apply(&w);
    assert_int_equal(preempted > 0, is_much_less);
    world_drain(&w, 3000);
    world_close(&w);
    return preempted > 0 ? 1 : is_less ? 2 : 3;
}

static void test_sjf_preempts_for_a_large_difference_only(void **state) {
    (void)state;
    uint32_t seen[4] = {0};
    for (uint32_t prompt = 100; prompt < 900; prompt += 20) seen[preemptions(prompt)]++;
    assert_true(seen[1] > 0); /* much less work: it displaces */
    assert_true(seen[2] > 0); /* somewhat less: it waits */
}

/* ---- cached tokens ---- */

static void test_cached_tokens_stay_those_of_the_first_admission(void **state) {
    (void)state;
    static const enum preempt_mode modes[] = {PREEMPT_RECOMPUTE, PREEMPT_SWAP};
    for (int m = 0; m < 2; m++)
        for (uint32_t shared = 0; shared <= 8; shared += 4) {
            struct sched_options o = world_options("chunked", 12, 4, 2);
            o.knobs.preempt = modes[m];
            struct world w;
            world_open(&w, &o);
            struct world_submit in = {
                .prompt_tokens = 9, .max_tokens = 31, .text = 3, .shared = shared};
            struct world_submit first = in;
            first.max_tokens = 1;
            world_submit(&w, first); /* leaves its blocks in the cache */
            world_drain(&w, 100);
            world_submit(&w,
                         (struct world_submit){.prompt_tokens = 9, .max_tokens = 31, .text = 8});
            world_submit(&w, in);
            world_drain(&w, 500);
            assert_true(w.requests[2].last.preempt_count >= 1);
            assert_int_equal(w.requests[2].last.cached_tokens, shared);
            world_close(&w);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices_that_wait_for_their_prompt_are_ahead_of_a_new_request),
        cmocka_unit_test(test_the_predicted_wait_counts_free_seats),
        cmocka_unit_test(test_swapping_costs_the_way_out_and_the_way_back),
        cmocka_unit_test(test_a_fork_leaves_the_watermark_free),
        cmocka_unit_test(test_fair_counts_answers_with_their_weight),
        cmocka_unit_test(test_fair_expects_answers_with_their_weight),
        cmocka_unit_test(test_sjf_displaces_only_for_less_than_half_of_the_work),
        cmocka_unit_test(test_sjf_preempts_for_a_large_difference_only),
        cmocka_unit_test(test_cached_tokens_stay_those_of_the_first_admission),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
