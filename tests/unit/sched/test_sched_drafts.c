/* Goal:   drafts take no blocks that are kept for others, a sequence whose drafts are refused gets
 *         fewer, and steps with drafts say nothing about the price of a prompt.
 * Method: one sequence whose drafter always answers, on a scheduler alone: the test says how many
 *         drafts were accepted and how long the step took. */
#include "unit/sched/world.h"

enum { BLOCK = 4 };

static const struct cost_profile draft_cost = {
    .name = "drafts", .fixed_us = 1000, .per_token_us = 10, .per_attended_us = 1e-6};

static void propose_ones(void *ctx, struct draft_ask *asks, uint32_t count) {
    (void)ctx;
    for (uint32_t i = 0; i < count; i++)
        for (asks[i].given = 0; asks[i].given < asks[i].max; asks[i].given++)
            asks[i].out[asks[i].given] = 1;
}

/* A prompt of `prompt` tokens is computed, and the answer has one token. */
static void open_decoding(struct world *w, uint32_t blocks, uint32_t prompt, uint32_t answer) {
    struct sched_options o = world_options("chunked", blocks, BLOCK, 4);
    cost_init(&o.cost, &draft_cost);
    o.drafts.propose = propose_ones;
    o.draft_rows_max = DRAFT_MAX;
    o.knobs.draft_max = DRAFT_MAX;
    o.knobs.prefix_cache = false;
    world_open(w, &o);
    w->is_timeless = true;
    world_submit(w, (struct world_submit){
                        .prompt_tokens = prompt, .max_tokens = answer, .draft_max = DRAFT_MAX});
    assert_true(world_step(w));
    w->verify = false; /* the rules of world.h are those of rows without drafts */
}

/* One step; returns how many drafts it had. */
static uint32_t step(struct world *w, bool accepts, int64_t us) {
    world_plan(w);
    assert_int_equal(w->plan.row_count, 1);
    uint32_t drafts = w->plan.draft_count;
    struct row_result row = {.token = 1, .checked = drafts, .accepted = accepts ? drafts : 0};
    struct step_result result = {.rows = &row, .row_count = 1, .elapsed_us = us};
    w->now_us += 1000;
    sched_apply(w->s, &w->plan, &result, w->now_us);
    sched_verify(w->s);
    return drafts;
}

static void test_refused_drafts_become_fewer(void **state) {
    (void)state;
    struct world w;
    open_decoding(&w, 256, 8, 300);
    uint32_t first = step(&w, false, 0), last = first;
    assert_true(first >= 3);
    for (int n = 0; n < 10; n++) last = step(&w, false, 0);
    assert_true(last < first);
    world_close(&w);
}

static void test_accepted_drafts_become_more(void **state) {
    (void)state;
    struct world w;
    open_decoding(&w, 256, 8, 300);
    uint32_t first = step(&w, true, 0), last = first;
    for (int n = 0; n < 5; n++) last = step(&w, true, 0);
    assert_true(last > first);
    world_close(&w);
}

static void test_steps_with_drafts_do_not_change_the_price_of_a_prompt(void **state) {
    (void)state;
    struct world w;
    open_decoding(&w, 256, 8, 300);
    double before_us = cost_predict_us(sched_cost(w.s), 512, 0);
    for (int n = 0; n < 5; n++) assert_true(step(&w, true, 50000) > 0);
    assert_true(cost_predict_us(sched_cost(w.s), 512, 0) == before_us);
    world_close(&w);
}

/* The watermark is one block, and a hundredth of all. */
static void test_drafts_leave_the_watermark(void **state) {
    (void)state;
    for (uint32_t blocks = 3; blocks <= 5; blocks++) {
        struct world w;
        open_decoding(&w, blocks, 2 * BLOCK - 1,
                      BLOCK + 1); /* the answer's first token fills two blocks */
        uint32_t drafts = step(&w, false, 0), kept = blocks - 2;
        if (kept < 2)
            assert_int_equal(drafts, 0);
        else
            assert_true(drafts > 0);
        world_close(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_drafts_become_fewer),
        cmocka_unit_test(test_accepted_drafts_become_more),
        cmocka_unit_test(test_steps_with_drafts_do_not_change_the_price_of_a_prompt),
        cmocka_unit_test(test_drafts_leave_the_watermark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
