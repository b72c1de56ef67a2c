/* Goal:   chunked never stalls an answer, orca merges whole prompts with answers, prefill-first
 *         lets prompts in by ratio, interval or patience and pauses the answers meanwhile.
 * Method: answers run while a prompt comes; the rows of every plan are looked at. */
#include "unit/sched/world.h"

enum { STEP_TOKENS = 64 };

static void open_world(struct world *w, const char *policy, struct knobs *knobs) {
    struct sched_options o = world_options(policy, 512, 8, 16);
    o.knobs.max_step_tokens = STEP_TOKENS;
    if (knobs) {
        o.knobs.waiting_served_ratio = knobs->waiting_served_ratio;
        o.knobs.max_waiting_tokens = knobs->max_waiting_tokens;
        o.knobs.prefill_every = knobs->prefill_every;
        o.knobs.chunk_tokens = knobs->chunk_tokens;
        o.knobs.step_target_ms = knobs->step_target_ms;
    }
    world_open(w, &o);
}

static void submit(struct world *w, uint32_t count, uint32_t prompt_tokens, uint32_t max_tokens) {
    for (uint32_t i = 0; i < count; i++)
        world_submit(
            w, (struct world_submit){.prompt_tokens = prompt_tokens, .max_tokens = max_tokens});
}

/* `count` answers under way. */
static void start_answers(struct world *w, uint32_t count) {
    submit(w, count, 4, 400);
    while (w->plan.sample_count < count) assert_true(world_step(w));
}

static uint32_t decode_rows(const struct world *w) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < w->plan.row_count; r++)
        n += w->plan.rows[r].count == 1 && w->plan.rows[r].samples;
    return n;
}

/* Steps until the last request submitted has its first token. */
static uint32_t steps_to_first_token(struct world *w) {
    const struct world_request *r = world_last(w);
    uint32_t steps = 0;
    for (; r->events_total <= r->prompt_tokens; steps++) assert_true(world_step(w));
    return steps;
}

static void test_chunked_gives_every_answer_its_token_in_every_step(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "chunked", NULL);
    start_answers(&w, 4);
    submit(&w, 1, 300, 4);
    for (int i = 0; i < 5; i++) {
        assert_true(world_step(&w));
        assert_int_equal(decode_rows(&w), 4);
        assert_int_equal(w.plan.token_count, STEP_TOKENS);
    }
    assert_int_equal(steps_to_first_token(&w), 0);
    world_close(&w);
}

static void test_chunk_tokens_bounds_the_part_of_one_prompt(void **state) {
    (void)state;
    struct world w;
    struct knobs k = knobs_default();
    k.chunk_tokens = 16;
    open_world(&w, "chunked", &k);
    start_answers(&w, 4);
    submit(&w, 1, 160, 4);
    assert_int_equal(steps_to_first_token(&w), 10);
    world_close(&w);
}

static void test_step_target_bounds_the_time_of_a_step(void **state) {
    (void)state;
    struct world w;
    struct knobs k = knobs_default();
    k.step_target_ms = 0.4; /* the world's steps: 100 us and 10 us a token */
    open_world(&w, "chunked", &k);
    start_answers(&w, 4);
    for (int i = 0; i < 200; i++) assert_true(world_step(&w)); /* the cost model learns */
    submit(&w, 1, 200, 4);
    for (int i = 0; i < 4; i++) {
        assert_true(world_step(&w));
        assert_in_range(w.plan.token_count, 20, 40);
        assert_int_equal(decode_rows(&w), 4);
    }
    world_close(&w);
}

static void test_orca_computes_a_whole_prompt_together_with_decodes(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "orca", NULL);
    start_answers(&w, 4);
    submit(&w, 1, 50, 4);
    assert_true(world_step(&w));
    assert_int_equal(w.plan.token_count, 54);
    assert_int_equal(w.plan.row_count, 5);
    world_close(&w);
}

static void test_orca_stalls_answers_for_a_prompt_that_fills_the_step(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "orca", NULL);
    start_answers(&w, 4);
    submit(&w, 1, 200, 4);
    assert_true(world_step(&w));
    assert_int_equal(w.plan.row_count, 1);
    assert_int_equal(w.plan.token_count, 200);
    world_close(&w);
}

static void test_prefill_first_pauses_decodes_while_prompts_are_computed(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "prefill-first", NULL); /* ratio 0.3 */
    start_answers(&w, 3);
    submit(&w, 1, 20, 4);
    assert_true(world_step(&w));
    assert_int_equal(w.plan.row_count, 1);
    assert_int_equal(w.plan.token_count, 20);
    assert_true(world_step(&w));
    assert_int_equal(decode_rows(&w), 4);
    world_close(&w);
}

static void test_prefill_first_admits_by_ratio_or_after_max_waiting_tokens(void **state) {
    (void)state;
    struct world w;
    struct knobs k = knobs_default();
    k.waiting_served_ratio = 1;
    k.max_waiting_tokens = 10;
    open_world(&w, "prefill-first", &k);
    start_answers(&w, 4);
    submit(&w, 1, 20, 4);
    uint32_t steps = steps_to_first_token(&w); /* one waits and four run: patience */
    assert_in_range(steps, 8, 11);
    submit(&w, 5, 8, 4); /* as many as run */
    assert_int_equal(steps_to_first_token(&w), 1);
    world_close(&w);
}

static void test_prefill_first_checks_the_ratio_every_prefill_every_steps(void **state) {
    (void)state;
    struct world w;
    struct knobs k = knobs_default();
    k.waiting_served_ratio = 0;
    k.max_waiting_tokens = 1000;
    k.prefill_every = 8;
    open_world(&w, "prefill-first", &k);
    start_answers(&w, 4);
    while (sched_stats(w.s).steps % 8 != 1) assert_true(world_step(&w));
    submit(&w, 1, 20, 4);
    assert_int_equal(steps_to_first_token(&w), 8);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunked_gives_every_answer_its_token_in_every_step),
        cmocka_unit_test(test_chunk_tokens_bounds_the_part_of_one_prompt),
        cmocka_unit_test(test_step_target_bounds_the_time_of_a_step),
        cmocka_unit_test(test_orca_computes_a_whole_prompt_together_with_decodes),
        cmocka_unit_test(test_orca_stalls_answers_for_a_prompt_that_fills_the_step),
        cmocka_unit_test(test_prefill_first_pauses_decodes_while_prompts_are_computed),
        cmocka_unit_test(test_prefill_first_admits_by_ratio_or_after_max_waiting_tokens),
        cmocka_unit_test(test_prefill_first_checks_the_ratio_every_prefill_every_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
