/* Goal:   lengths are learned by the features of prompts; the shorter job goes first, but not for
 *         ever; an answer that exceeds its prediction is displaced.
 * Method: two kinds of prompts with answers of their own lengths teach the policy; then one of
 *         each has to wait. */
#include "unit/sched/world.h"

enum { TERSE_PROMPT = 100, CHATTY_PROMPT = 10, MAX_TOKENS = 200 };

static struct sched_options options(uint32_t max_seqs) {
    struct sched_options o = world_options("sjf", 512, 8, max_seqs);
    static const struct cost_profile world_cost = {
        .name = "world", .fixed_us = 100, .per_token_us = 10, .per_attended_us = 1e-6};
    cost_init(&o.cost, &world_cost);
    return o;
}

static seq_idx submit(struct world *w, uint32_t prompt_tokens, uint32_t answer) {
    return world_submit(w, (struct world_submit){.prompt_tokens = prompt_tokens,
                                                 .max_tokens = MAX_TOKENS,
                                                 .end_after = answer});
}

/* Long prompts get short answers here, short prompts long ones. */
static void teach(struct world *w) {
    for (int i = 0; i < 40; i++) {
        submit(w, TERSE_PROMPT, 3);
        submit(w, CHATTY_PROMPT, 150);
        world_drain(w, 1000);
    }
}

static void test_answers_are_predicted_from_similar_prompts(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(4);
    world_open(&w, &o);
    seq_idx first = submit(&w, TERSE_PROMPT, 3);
    assert_int_equal(sched_seq_at(w.s, first)->policy.sjf.answer_tokens,
                     MAX_TOKENS / 2); /* nothing is known */
    world_drain(&w, 1000);
    teach(&w);
    seq_idx terse = submit(&w, TERSE_PROMPT + 20, 3), chatty = submit(&w, CHATTY_PROMPT + 3, 150);
    assert_in_range(sched_seq_at(w.s, terse)->policy.sjf.answer_tokens, 3, 5);
    assert_in_range(sched_seq_at(w.s, chatty)->policy.sjf.answer_tokens, 145, 155);
    world_close(&w);
}

/* Answers of 20 and 60 tokens in turn have a mean of 40 and a mean deviation of 20. */
static void test_a_prediction_has_half_of_the_deviation_on_top(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(4);
    world_open(&w, &o);
    for (int i = 0; i < 100; i++) {
        submit(&w, TERSE_PROMPT, i % 2 ? 60 : 20);
        world_drain(&w, 1000);
    }
    seq_idx next = submit(&w, TERSE_PROMPT, 20);
    assert_in_range(sched_seq_at(w.s, next)->policy.sjf.answer_tokens, 47, 54);
    world_close(&w);
}

static void test_the_shorter_job_goes_first(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(1);
    world_open(&w, &o);
    teach(&w);
    submit(&w, TERSE_PROMPT, 3);
    assert_true(world_step(&w));
    submit(&w, CHATTY_PROMPT, 150);
    const struct world_request *chatty = world_last(&w);
    submit(&w, TERSE_PROMPT, 3);
    const struct world_request *terse = world_last(&w);
    world_drain(&w, 1000);
    assert_true(terse->last.first_token_us < chatty->last.first_token_us);
    world_close(&w);
}

static void test_without_patience_it_is_first_come_first_served(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(1);
    o.knobs.sjf_patience = 0;
    world_open(&w, &o);
    teach(&w);
    submit(&w, TERSE_PROMPT, 3);
    assert_true(world_step(&w));
    submit(&w, CHATTY_PROMPT, 150);
    const struct world_request *chatty = world_last(&w);
    w.now_us++;
    submit(&w, TERSE_PROMPT, 3);
    const struct world_request *terse = world_last(&w);
    world_drain(&w, 1000);
    assert_true(chatty->last.first_token_us < terse->last.first_token_us);
    world_close(&w);
}

static void test_a_long_job_waits_in_proportion_to_its_own_work_at_most(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(1);
    o.knobs.sjf_patience = 5;
    world_open(&w, &o);
    teach(&w);
    submit(&w, TERSE_PROMPT, 3);
    assert_true(world_step(&w));
    int64_t came_us = w.now_us;
    submit(&w, CHATTY_PROMPT, 150);
    const struct world_request *chatty = world_last(&w);
    while (chatty->events_total <= chatty->prompt_tokens) { /* a short one always waits */
        if (sched_stats(w.s).waiting < 2) submit(&w, TERSE_PROMPT, 3);
        assert_true(world_step(&w));
    }
    /* 150 tokens at 110 us, five times; and what a short one needs. */
    assert_true(w.now_us - came_us < 5 * 160 * 110 + 5000);
    assert_true(w.now_us - came_us > 5000);
    world_close(&w);
}

static void test_an_answer_past_its_prediction_is_displaced_by_a_shorter_one(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(1);
    world_open(&w, &o);
    teach(&w);
    submit(&w, TERSE_PROMPT, 190); /* predicted: 3 */
    const struct world_request *wrong = world_last(&w);
    for (int i = 0; i < 70; i++) assert_true(world_step(&w));
    submit(&w, TERSE_PROMPT, 3);
    const struct world_request *terse = world_last(&w);
    world_drain(&w, 2000);
    assert_int_equal(wrong->last.preempt_count, 1);
    assert_true(terse->last.first_token_us > 0);
    assert_true(sched_stats(w.s).preempted == 1);
    world_close(&w);
}

static void test_an_answer_within_its_prediction_is_not_displaced(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(1);
    world_open(&w, &o);
    teach(&w);
    submit(&w, CHATTY_PROMPT, 150);
    for (int i = 0; i < 20; i++) assert_true(world_step(&w));
    submit(&w, TERSE_PROMPT, 3);
    world_drain(&w, 2000);
    assert_int_equal(sched_stats(w.s).preempted, 0);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_predicted_from_similar_prompts),
        cmocka_unit_test(test_a_prediction_has_half_of_the_deviation_on_top),
        cmocka_unit_test(test_the_shorter_job_goes_first),
        cmocka_unit_test(test_without_patience_it_is_first_come_first_served),
        cmocka_unit_test(test_a_long_job_waits_in_proportion_to_its_own_work_at_most),
        cmocka_unit_test(test_an_answer_past_its_prediction_is_displaced_by_a_shorter_one),
        cmocka_unit_test(test_an_answer_within_its_prediction_is_not_displaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
