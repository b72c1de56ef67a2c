/* Goal:   drafts take no blocks that are kept for others, a sequence whose drafts are refused gets
 *         fewer, the time of the drafter counts, and steps with drafts say nothing about the price
 *         of a prompt. At depth 1 a sequence whose drafts are under way has a row in the next plan
 *         only if that is worth its time.
 * Method: one sequence whose drafter always answers, on a scheduler alone: the test says how many
 *         drafts were accepted and how long the step took. */
#include <math.h>

#include "sched/sched_int.h"
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

/* However many drafts were accepted before, what counts is how it goes now, and the other way
 * round. */
static void test_old_drafts_are_forgotten(void **state) {
    (void)state;
    enum { STEPS = 40, FEW = 3 };
    struct world w;
    uint32_t last = 0;
    open_decoding(&w, 2048, 8, 4000);
    for (int n = 0; n < STEPS; n++) last = step(&w, true, 0);
    assert_int_equal(last, DRAFT_MAX);
    for (int n = 0; n < STEPS; n++) last = step(&w, false, 0);
    assert_in_range(last, 1, FEW);
    for (int n = 0; n < STEPS; n++) last = step(&w, true, 0);
    assert_int_equal(last, DRAFT_MAX);
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

static double fixed_cost_us(void *ctx, uint32_t seqs, uint32_t tokens) {
    assert_int_equal(seqs, 1);
    assert_true(tokens > 0);
    return *(const double *)ctx;
}

static void test_the_time_of_a_drafter_counts(void **state) {
    (void)state;
    const struct {
        double us;
        bool has_drafts;
    } cases[] = {{0, true}, {100, true}, {5000, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        double us = cases[i].us;
        open_decoding(&w, 256, 8, 300);
        w.s->drafts.cost_us = fixed_cost_us;
        w.s->drafts.ctx = &us;
        assert_int_equal(step(&w, true, 0) > 0, cases[i].has_drafts);
        world_close(&w);
    }
}

/* Where drafts were bad, they are tried again after some time without. */
static void test_bad_drafts_are_forgotten_while_there_are_none(void **state) {
    (void)state;
    enum { STEPS = 40, PAUSE = 300 };
    struct world w;
    double us = 0;
    open_decoding(&w, 2048, 8, 4000);
    w.s->drafts.cost_us = fixed_cost_us;
    w.s->drafts.ctx = &us;
    uint32_t first = step(&w, false, 0), last = first;
    for (int n = 0; n < STEPS; n++) last = step(&w, false, 0);
    assert_true(last < first);
    us = 5000;
    for (int n = 0; n < PAUSE; n++) assert_int_equal(step(&w, false, 0), 0);
    us = 0;
    assert_true(step(&w, false, 0) > last);
    world_close(&w);
}

/* ---- depth 1 ---- */

/* Two decoding sequences, the second one with drafts, and a plan of both under way. Is a row of the
 * second in the ahead plan, if the row adds `worth` times the time that it may take? */
static bool is_ahead(double worth) {
    struct world w;
    struct sched_options o = world_options("chunked", 256, BLOCK, 4);
    cost_init(&o.cost, &draft_cost);
    o.drafts.propose = propose_ones;
    o.draft_rows_max = DRAFT_MAX;
    o.knobs.prefix_cache = false;
    world_open(&w, &o);
    w.is_timeless = true;
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 90});
    seq_idx i = world_submit(
        &w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 90, .draft_max = DRAFT_MAX});
    assert_true(world_step(&w));
    w.verify = false;
    world_plan(&w);
    assert_int_equal(w.plan.row_count, 2);
    const struct slot *slot = &w.s->slots[i];
    const uint32_t drafts = slot->planned_drafts;
    assert_true(drafts > 0);
    /* 1.2 of 2 is what is assumed of a sequence without drafts so far. */
    const double likely = pow(1.2 / 2, drafts), us = 1000;
    w.s->cost.weight[2] = 0;
    for (uint32_t n = 1; n <= COST_ROWS_MAX; n++)
        w.s->lines.cost.us[n] = n == 1 ? us : us * (1 + worth * likely);
    sched_plan(w.s, w.now_us, &w.other);
    sched_verify(w.s);
    bool found = false;
    for (uint32_t r = 0; r < w.other.row_count; r++) found = found || w.other.rows[r].seq == i;
    assert_int_equal(w.other.row_count, found ? 2 : 1);
    world_close(&w);
    return found;
}

static void test_a_sequence_waits_for_unlikely_drafts(void **state) {
    (void)state;
    assert_true(is_ahead(0.5));
    assert_true(is_ahead(0.9));
    assert_false(is_ahead(1.1));
    assert_false(is_ahead(2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_drafts_become_fewer),
        cmocka_unit_test(test_accepted_drafts_become_more),
        cmocka_unit_test(test_old_drafts_are_forgotten),
        cmocka_unit_test(test_steps_with_drafts_do_not_change_the_price_of_a_prompt),
        cmocka_unit_test(test_drafts_leave_the_watermark),
        cmocka_unit_test(test_the_time_of_a_drafter_counts),
        cmocka_unit_test(test_bad_drafts_are_forgotten_while_there_are_none),
        cmocka_unit_test(test_a_sequence_waits_for_unlikely_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
