/* Goal:   each policy does better than chunked, or than static, at what it is for.
 * Method: the real engine on simulated time with fitted costs (sim/measure.h) and drawn lengths;
 *         the numbers are exact, so the limits are those that the project promises. bench/policies
 *         shows the same with the lengths of a public trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sim/measure.h"

static struct measure run(const char *policy, const struct knobs *k, const char *profile,
                          const struct workload *w) {
    struct err err = {0};
    struct measure m;
    struct measure_options o = {
        .policy = sched_policy_find(policy), .knobs = *k, .profile = *cost_profile_find(profile)};
    assert_non_null(o.policy);
    if (measure_run(w, &o, &m, &err) != ST_OK) fail_msg("%s", err.text);
    return m;
}

static struct knobs knobs_of(uint32_t blocks, uint32_t max_seqs) {
    struct knobs k = knobs_default();
    k.kv_blocks = k.spill_blocks = blocks;
    k.max_seqs = max_seqs;
    return k;
}

static void add(struct workload *w, const struct length_shape *shape, struct work_stream s) {
    struct lengths l = {0};
    struct err err = {0};
    assert_int_equal(lengths_draw(&l, shape, s.count, s.seed + 100, &err), ST_OK);
    s.lengths = &l;
    assert_int_equal(workload_add(w, &s, &err), ST_OK);
    lengths_deinit(&l);
}

/* Requests a second that chunked finishes when it always has work. */
static double capacity(const struct knobs *k, const char *profile, const struct length_shape *shape,
                       struct work_stream s) {
    struct workload w = {0};
    s.per_s = 0;
    add(&w, shape, s);
    struct measure m = run("chunked", k, profile, &w);
    double per_s = m.count / m.elapsed_s;
    measure_deinit(&m);
    workload_deinit(&w);
    return per_s;
}

static void test_every_request_ends_with_its_own_length_under_every_policy(void **state) {
    (void)state;
    struct workload w = {0};
    struct knobs k = knobs_of(512, 8);
    add(&w, &shape_heavy, (struct work_stream){.count = 60, .per_s = 3, .seed = 1});
    for (uint32_t p = 0; sched_policies[p]; p++) {
        struct measure m = run(sched_policies[p]->name, &k, "this-cpu", &w);
        uint64_t tokens = 0;
        for (uint32_t i = 0; i < w.count; i++) {
            assert_int_equal(m.outcomes[i].tokens, w.requests[i].answer_tokens);
            assert_true(m.outcomes[i].ttft_us > 0);
            assert_true(m.outcomes[i].done_us >= m.outcomes[i].ttft_us);
            tokens += w.requests[i].answer_tokens;
        }
        assert_int_equal(m.output_tokens, tokens);
        measure_deinit(&m);
    }
    workload_deinit(&w);
}

static void test_chunked_gives_twice_the_tokens_of_static_in_the_same_memory(void **state) {
    (void)state;
    struct workload w = {0};
    struct knobs k = knobs_of(2048, 64);
    k.max_step_tokens = 2048;
    add(&w, &shape_chat, (struct work_stream){.count = 600, .max_tokens = 1000});
    struct measure chunked = run("chunked", &k, "h200-8b", &w);
    struct measure fixed = run("static", &k, "h200-8b", &w);
    assert_true(chunked.output_tokens_per_s >= 2 * fixed.output_tokens_per_s);
    assert_true(chunked.waste < 0.04);
    measure_deinit(&chunked);
    measure_deinit(&fixed);
    workload_deinit(&w);
}

static void test_deadline_meets_more_targets_than_chunked_at_twice_the_load(void **state) {
    (void)state;
    struct workload w = {0};
    struct knobs k = knobs_of(2048, 16);
    struct work_stream s = {.count = 400,
                            .divisor = 8,
                            .seed = 2,
                            .max_tokens = 125,
                            .ttft_target_us = 2000000,
                            .tpot_target_us = 250000};
    s.per_s = 2 * capacity(&k, "this-cpu", &shape_chat, s);
    add(&w, &shape_chat, s);
    struct measure chunked = run("chunked", &k, "this-cpu", &w);
    struct measure deadline = run("deadline", &k, "this-cpu", &w);
    double met = measure_share_met(&deadline, &w);
    assert_true(met >= 1.5 * measure_share_met(&chunked, &w));
    assert_true(met > 0.35); /* there is time for half of them */
    measure_deinit(&chunked);
    measure_deinit(&deadline);
    workload_deinit(&w);
}

static void test_deadline_costs_nothing_while_all_can_be_met(void **state) {
    (void)state;
    struct workload w = {0};
    struct knobs k = knobs_of(2048, 16);
    struct work_stream s = {.count = 300,
                            .divisor = 8,
                            .seed = 2,
                            .max_tokens = 125,
                            .ttft_target_us = 2000000,
                            .tpot_target_us = 250000};
    s.per_s = 0.5 * capacity(&k, "this-cpu", &shape_chat, s);
    add(&w, &shape_chat, s);
    struct measure chunked = run("chunked", &k, "this-cpu", &w);
    struct measure deadline = run("deadline", &k, "this-cpu", &w);
    assert_true(measure_share_met(&deadline, &w) >= measure_share_met(&chunked, &w) - 0.01);
    assert_true(measure_share_met(&deadline, &w) > 0.95);
    measure_deinit(&chunked);
    measure_deinit(&deadline);
    workload_deinit(&w);
}

static void test_fair_gives_a_busy_tenant_a_tenth_more_at_most(void **state) {
    (void)state;
    struct workload w = {0};
    struct knobs k = knobs_of(2048, 16);
    struct work_stream s = {.count = 120, .divisor = 8, .seed = 3, .max_tokens = 125};
    s.per_s = capacity(&k, "this-cpu", &shape_chat, s);
    add(&w, &shape_chat, s);
    s.tenant = 1;
    s.seed = 4;
    s.count *= 10;
    s.per_s *= 10;
    add(&w, &shape_chat, s);
    struct measure chunked = run("chunked", &k, "this-cpu", &w);
    struct measure fair = run("fair", &k, "this-cpu", &w);
    const uint64_t *loudly = chunked.contended_tokens, *fairly = fair.contended_tokens;
    assert_true((double)loudly[1] > 5.0 * (double)loudly[0]); /* the test can fail */
    assert_true((double)fairly[1] <= 1.1 * (double)fairly[0]);
    assert_true((double)fairly[0] <= 1.1 * (double)fairly[1]);
    measure_deinit(&chunked);
    measure_deinit(&fair);
    workload_deinit(&w);
}

static void test_short_answers_are_done_sooner_under_mlfq_and_sjf(void **state) {
    (void)state;
    struct workload w = {0};
    struct knobs k = knobs_of(2048, 4);
    struct work_stream s = {.count = 500, .seed = 5, .max_tokens = 3000};
    s.per_s = 0.9 * capacity(&k, "this-cpu", &shape_heavy, s);
    add(&w, &shape_heavy, s);
    struct measure chunked = run("chunked", &k, "this-cpu", &w);
    struct measure mlfq = run("mlfq", &k, "this-cpu", &w);
    struct measure sjf = run("sjf", &k, "this-cpu", &w);
    assert_true(measure_done_ms(&mlfq, 0.5) < 0.9 * measure_done_ms(&chunked, 0.5));
    assert_true(measure_ttft_ms(&mlfq, 0.5) < 0.85 * measure_ttft_ms(&chunked, 0.5));
    assert_true(measure_done_ms(&sjf, 0.5) < 0.8 * measure_done_ms(&chunked, 0.5));
    assert_true(measure_mean_done_ms(&sjf) < measure_mean_done_ms(&chunked));
    assert_true(sjf.output_tokens_per_s > 0.97 * chunked.output_tokens_per_s);
    assert_true(mlfq.output_tokens_per_s > 0.97 * chunked.output_tokens_per_s);
    measure_deinit(&chunked);
    measure_deinit(&mlfq);
    measure_deinit(&sjf);
    workload_deinit(&w);
}

static void test_first_tokens_come_sooner_and_pauses_are_longer_with_whole_prompts(void **state) {
    (void)state;
    struct workload w = {0};
    struct knobs k = knobs_of(4096, 32);
    k.step_target_ms = 30;
    struct work_stream s = {.count = 500, .seed = 6, .max_tokens = 1000};
    s.per_s = 0.5 * capacity(&k, "h200-8b", &shape_chat, s);
    add(&w, &shape_chat, s);
    struct measure chunked = run("chunked", &k, "h200-8b", &w);
    struct measure orca = run("orca", &k, "h200-8b", &w);
    assert_true(measure_tpot_ms(&chunked, 0.99) < measure_tpot_ms(&orca, 0.99));
    assert_true(orca.preemptions == 0);
    assert_true(orca.waste > 0.2); /* reserved and never used */
    measure_deinit(&chunked);
    measure_deinit(&orca);
    workload_deinit(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_request_ends_with_its_own_length_under_every_policy),
        cmocka_unit_test(test_chunked_gives_twice_the_tokens_of_static_in_the_same_memory),
        cmocka_unit_test(test_deadline_meets_more_targets_than_chunked_at_twice_the_load),
        cmocka_unit_test(test_deadline_costs_nothing_while_all_can_be_met),
        cmocka_unit_test(test_fair_gives_a_busy_tenant_a_tenth_more_at_most),
        cmocka_unit_test(test_short_answers_are_done_sooner_under_mlfq_and_sjf),
        cmocka_unit_test(test_first_tokens_come_sooner_and_pauses_are_longer_with_whole_prompts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
