/* Goal:   everyone starts high and sinks with the time it uses; a short answer does not wait for a
 *         long one; no request starves; few are preempted at one time.
 * Method: a batch full of long answers, then short ones arrive; the world's step times (100 us and
 *         10 us a token) are the cost model's start, so quanta are known numbers of steps. */
#include "unit/sched/world.h"

static const struct cost_profile world_cost = {.name = "world",
                                               .fixed_us = 100,
                                               .per_token_us = 10,
                                               .per_attended_us = 1e-6,
                                               .per_move_us = 1};

static struct sched_options options(uint32_t max_seqs) {
    struct sched_options o = world_options("mlfq", 256, 8, max_seqs);
    cost_init(&o.cost, &world_cost);
    o.knobs.mlfq_quantum_ms = 1; /* nine steps of one token */
    o.knobs.mlfq_levels = 5;
    o.knobs.mlfq_starve_ms = 100000;
    return o;
}

static seq_idx submit(struct world *w, uint32_t prompt_tokens, uint32_t max_tokens) {
    return world_submit(
        w, (struct world_submit){.prompt_tokens = prompt_tokens, .max_tokens = max_tokens});
}

static void test_a_request_joins_the_queue_whose_quantum_covers_its_prompt(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(4);
    world_open(&w, &o);
    seq_idx small = submit(&w, 10, 4), large = submit(&w, 250, 4), huge = submit(&w, 2000, 4);
    assert_int_equal(sched_seq_at(w.s, small)->policy.mlfq.level, 0); /* 0.2 ms */
    assert_int_equal(sched_seq_at(w.s, large)->policy.mlfq.level, 2); /* 2.6 ms: quantum 4 ms */
    assert_int_equal(sched_seq_at(w.s, huge)->policy.mlfq.level, 4);  /* the last takes all */
    world_close(&w);
}

static void test_a_request_moves_down_when_its_quantum_is_used_up(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(1);
    world_open(&w, &o);
    seq_idx i = submit(&w, 1, 200);
    uint32_t last = 0, steps_in_level[5] = {0};
    while (w.live_count > 0) {
        assert_true(world_step(&w));
        if (w.live_count == 0) break;
        uint32_t level = sched_seq_at(w.s, i)->policy.mlfq.level;
        assert_true(level == last || level == last + 1);
        steps_in_level[level]++;
        last = level;
    }
    assert_int_equal(last, 4);
    assert_in_range(steps_in_level[0], 8, 13);
    assert_in_range(steps_in_level[1], 17, 23); /* twice as long */
    assert_in_range(steps_in_level[2], 35, 43);
    world_close(&w);
}

static void test_a_short_answer_displaces_long_ones_of_a_full_batch(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(4);
    world_open(&w, &o);
    for (int i = 0; i < 4; i++) submit(&w, 8, 400);
    for (int i = 0; i < 60; i++) assert_true(world_step(&w)); /* all have sunk two queues */
    submit(&w, 8, 5);
    const struct world_request *r = world_last(&w);
    uint32_t steps = 0;
    for (; r->is_live; steps++) assert_true(world_step(&w));
    assert_true(steps <= 7);
    world_drain(&w, 5000);
    world_close(&w);
}

/* One queue below is not enough: requests of neighbouring queues would take turns. */
static void test_only_two_queues_below_a_request_is_displaced(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(1);
    world_open(&w, &o);
    const seq_idx running = submit(&w, 8, 400);
    while (sched_seq_at(w.s, running)->policy.mlfq.level < 1) assert_true(world_step(&w));
    const seq_idx waiting = submit(&w, 8, 5);
    assert_int_equal(sched_seq_at(w.s, waiting)->policy.mlfq.level, 0);
    while (sched_seq_at(w.s, running)->policy.mlfq.level == 1) {
        assert_int_equal(sched_seq_at(w.s, running)->state, SEQ_RUNNING);
        assert_int_equal(sched_stats(w.s).preempted, 0);
        assert_true(world_step(&w));
    }
    assert_int_equal(sched_seq_at(w.s, running)->policy.mlfq.level, 2);
    assert_true(world_step(&w));
    assert_int_equal(sched_stats(w.s).preempted, 1);
    assert_int_equal(sched_seq_at(w.s, waiting)->state, SEQ_RUNNING);
    world_drain(&w, 5000);
    world_close(&w);
}

static void test_at_most_a_quarter_of_max_seqs_are_preempted_at_one_time(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(8);
    world_open(&w, &o);
    for (int i = 0; i < 200; i++) submit(&w, 8, 60);
    uint32_t most = 0;
    while (w.live_count > 0) {
        if (!world_step(&w)) w.now_us = sched_next_timer_us(w.s);
        uint32_t out = 0;
        for (uint32_t i = 0; i < w.options.knobs.queue_max; i++) {
            const struct sched_seq *seq = sched_seq_at(w.s, i);
            bool waits = seq->state == SEQ_WAITING || seq->state == SEQ_SWAPPED;
            out += waits && seq->preempt_count > 0;
        }
        if (out > most) most = out;
    }
    assert_in_range(most, 1, 2);
    world_close(&w);
}

static void test_a_request_that_waits_too_long_moves_to_the_first_queue(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(1);
    o.knobs.mlfq_starve_ms = 20;
    world_open(&w, &o);
    submit(&w, 8, 300);
    assert_true(world_step(&w));
    seq_idx i = submit(&w, 250, 4);
    assert_int_equal(sched_seq_at(w.s, i)->policy.mlfq.level, 2);
    int64_t came_us = w.now_us;
    const struct world_request *r = world_last(&w);
    while (r->is_live) assert_true(world_step(&w));
    assert_true(w.now_us - came_us < 20000 + 5000);
    world_close(&w);
}

/* The policy wants a block for each of eight running sequences; a quarter of 16 are four. The
 * sequences fill their blocks one after the other. */
static void test_at_most_a_quarter_of_the_pool_is_kept_free(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("mlfq", 16, 8, 8);
    o.knobs.mlfq_starve_ms = 100000;
    o.knobs.watermark = 0;
    world_open(&w, &o);
    for (uint32_t i = 0; i < 9; i++) submit(&w, i % 8 + 1, 40); /* the ninth waits */
    uint32_t least = 16;
    while (sched_stats(w.s).swapped_out == 0) {
        uint32_t free_blocks = kv_cache_available(sched_kv(w.s));
        if (sched_stats(w.s).running == 8 && free_blocks < least) least = free_blocks;
        assert_true(world_step(&w));
    }
    assert_in_range(least, 3, 4); /* with fewer one is swapped out */
    world_drain(&w, 5000);
    world_close(&w);
}

/* A short prompt and many drafts, all refused: the step had more rows than the sequence has tokens.
 * They are charged as computed, and no more. */
static void test_refused_drafts_are_charged_as_tokens_computed(void **state) {
    (void)state;
    enum { PROMPT = 2, DRAFTS = 24 };
    const struct sched_policy *mlfq = sched_policy_find("mlfq");
    const struct sched_options o = options(4);
    const struct sched_view view = {.knobs = &o.knobs, .cost = &o.cost};
    void *policy = test_calloc(1, mlfq->state_bytes + 1);
    struct sched_seq seq = {.prompt_tokens = PROMPT, .total = PROMPT, .total_max = 100};
    mlfq->on_arrive(policy, &seq, &view);
    seq.state = SEQ_RUNNING;
    seq.total = PROMPT + 2; /* a sampled token, computed with the drafts, and the next one */
    seq.computed = PROMPT + 1;
    mlfq->on_step(policy, &seq, 1 + DRAFTS, &view);
    assert_int_equal(seq.policy.mlfq.level, 0);
    const int64_t used_us = seq.policy.mlfq.used_us;
    assert_true(used_us >= 100 + 10 * (1 + DRAFTS) && used_us < 110 + 10 * (1 + DRAFTS));
    test_free(policy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_joins_the_queue_whose_quantum_covers_its_prompt),
        cmocka_unit_test(test_a_request_moves_down_when_its_quantum_is_used_up),
        cmocka_unit_test(test_a_short_answer_displaces_long_ones_of_a_full_batch),
        cmocka_unit_test(test_only_two_queues_below_a_request_is_displaced),
        cmocka_unit_test(test_at_most_a_quarter_of_max_seqs_are_preempted_at_one_time),
        cmocka_unit_test(test_a_request_that_waits_too_long_moves_to_the_first_queue),
        cmocka_unit_test(test_at_most_a_quarter_of_the_pool_is_kept_free),
        cmocka_unit_test(test_refused_drafts_are_charged_as_tokens_computed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
