/* Goal:   the simulated runner gives tokens that depend on a sequence's own text alone, takes the
 *         time of its profile, and finds every read of memory that is not the reader's own.
 * Method: plans written by hand over a real KV cache, some of them wrong on purpose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/runner_sim.h"
#include "kv/cache.h"

enum { BLOCK = 4, BLOCKS = 16, CTX = 64, SEQS = 4, MOVES = 32 };

struct rig {
    struct kv_cache *kv;
    struct runner runner;
    struct sim_clock clock;
    struct runner_sim_options options;
    struct plan plan, next; /* next: submitted behind `plan`, with depth 1 */
    struct sim_fault fault; /* of the next step */
    uint64_t owners[SEQS], seeds[SEQS];
    uint32_t wrong_count;
    struct err wrong;
};

static void on_plan(void *ctx, const struct plan *plan, struct sim_fault *fault) {
    struct rig *r = ctx;
    assert_true(plan == &r->plan || plan == &r->next);
    *fault = r->fault;
}

static void identify(void *ctx, seq_idx seq, uint64_t *owner, uint64_t *seed) {
    const struct rig *r = ctx;
    *owner = r->owners[seq];
    *seed = r->seeds[seq];
}

static void on_wrong(void *ctx, const char *sentence) {
    struct rig *r = ctx;
    r->wrong_count++;
    err_set(&r->wrong, ST_BAD, "%s", sentence);
}

static void open_rig_depth(struct rig *r, uint32_t window, uint32_t depth, uint64_t seed) {
    *r = (struct rig){.options = {.seq_max = SEQS,
                                  .row_max = SEQS,
                                  .vocab = 1000,
                                  .key = 7,
                                  .depth = depth,
                                  .delay_seed = seed}};
    struct kv_cache_options kv = {
        .block_tokens = BLOCK,
        .group_count = 2,
        .groups = {{.block_count = BLOCKS}, {.block_count = BLOCKS, .window = window}},
        .seq_max = SEQS,
        .tokens_max = CTX,
        .spill_slots = BLOCKS};
    assert_int_equal(kv_cache_create(&r->kv, &kv, NULL), ST_OK);
    sim_clock_init(&r->clock);
    r->options.clock = &r->clock;
    r->options.profile = (struct cost_profile){"test", 100, 10, 0.5, 3};
    r->options.kv = r->kv;
    r->options.block_tokens = BLOCK;
    r->options.tokens_max = CTX;
    r->options.block_count = r->options.spill_slots = BLOCKS;
    r->options.group_count = 2;
    r->options.windows[1] = window;
    r->options.watch = (struct sim_watch){on_plan, identify, on_wrong, r};
    assert_int_equal(runner_sim_open(&r->options, &r->runner, NULL), ST_OK);
    assert_int_equal(plan_init(&r->plan, SEQS, MOVES), ST_OK);
    assert_int_equal(plan_init(&r->next, SEQS, MOVES), ST_OK);
}

static void open_rig(struct rig *r, uint32_t window) { open_rig_depth(r, window, 0, 0); }

static void close_rig(struct rig *r) {
    plan_deinit(&r->plan);
    plan_deinit(&r->next);
    r->runner.close(r->runner.self);
    kv_cache_destroy(r->kv);
}

static kv_seq begin(struct rig *r, seq_idx seq, uint32_t prompt_tokens) {
    struct runner_seq info = {.prompt_tokens = prompt_tokens};
    kv_seq kv;
    r->runner.begin(r->runner.self, seq, &info);
    assert_int_equal(kv_seq_open(r->kv, (struct kv_salt){1, 0}, &kv), ST_OK);
    return kv;
}

static void add_row(struct rig *r, seq_idx seq, kv_seq kv, const int32_t *tokens, uint32_t first,
                    uint32_t end, bool samples) {
    assert_int_equal(kv_seq_grow(r->kv, kv, end, &r->plan.moves), ST_OK);
    r->plan.rows[r->plan.row_count++] = (struct plan_row){.seq = seq,
                                                          .first = first,
                                                          .count = end - first,
                                                          .samples = samples,
                                                          .kv = kv,
                                                          .tokens = tokens};
    r->plan.token_count += end - first;
    r->plan.attended_tokens += cost_attended(first, end - first);
}

/* Run the plan, commit its rows, and give the result; the plan is empty afterwards. */
static struct step_result run(struct rig *r) {
    struct step_result result = {0};
    enum status st = r->runner.submit(r->runner.self, &r->plan, NULL);
    if (st == ST_OK) assert_int_equal(r->runner.collect(r->runner.self, &result, NULL), ST_OK);
    for (uint32_t i = 0; i < r->plan.row_count; i++) {
        const struct plan_row *row = &r->plan.rows[i];
        kv_seq_commit(r->kv, row->kv, row->tokens, row->first + row->count);
    }
    plan_clear(&r->plan);
    return result;
}

static const int32_t TEXT[CTX] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static void test_a_token_depends_on_text_owner_and_seed_only(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 0);
    r.seeds[3] = 1;
    kv_seq whole = begin(&r, 0, 12), parts = begin(&r, 1, 12), seeded = begin(&r, 3, 12);
    add_row(&r, 1, parts, TEXT, 0, 5, false);
    assert_false(run(&r).rows[0].failed);
    add_row(&r, 0, whole, TEXT, 0, 12, true);
    add_row(&r, 1, parts, TEXT, 5, 12, true);
    add_row(&r, 3, seeded, TEXT, 0, 12, true);
    struct step_result result = run(&r);
    assert_int_equal(result.rows[0].token, result.rows[1].token);
    assert_int_not_equal(result.rows[0].token, result.rows[2].token);
    uint64_t text = sim_text_begin(0);
    for (int i = 0; i < 12; i++) text = sim_text_add(text, TEXT[i]);
    assert_int_equal(result.rows[0].token, sim_token(&r.options, 0, text));
    assert_int_equal(r.wrong_count, 0);
    close_rig(&r);
}

static void test_a_step_takes_the_time_of_its_profile(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 0);
    int64_t before_us = clock_now(&r.clock.clock);
    kv_seq kv = begin(&r, 0, 4);
    r.fault.slow_us = 1000;
    add_row(&r, 0, kv, TEXT, 0, 4, true); /* 100 + 4 * 10 + 10 * 0.5, and 1000 */
    assert_int_equal(run(&r).elapsed_us, 1145);
    assert_int_equal(clock_now(&r.clock.clock) - before_us, 1145);
    close_rig(&r);
}

static void test_without_a_clock_it_really_waits(void **state) {
    (void)state;
    struct runner_sim_options o = {.seq_max = 1, .row_max = 1, .vocab = 9, .step_us = 2000};
    struct runner runner;
    struct plan plan;
    struct step_result result;
    assert_int_equal(runner_sim_open(&o, &runner, NULL), ST_OK);
    assert_int_equal(plan_init(&plan, 1, MOVES), ST_OK);
    assert_int_equal(runner.submit(runner.self, &plan, NULL), ST_OK);
    assert_int_equal(runner.collect(runner.self, &result, NULL), ST_OK);
    assert_true(result.elapsed_us >= 2000);
    plan_deinit(&plan);
    runner.close(runner.self);
}

static void test_reading_memory_that_no_row_wrote_is_found(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 0);
    kv_seq kv = begin(&r, 0, 8);
    assert_int_equal(kv_seq_grow(r.kv, kv, 4, &r.plan.moves), ST_OK);
    kv_seq_commit(r.kv, kv, TEXT, 4); /* though no row computed it */
    add_row(&r, 0, kv, TEXT, 4, 8, true);
    run(&r);
    assert_true(r.wrong_count > 0);
    assert_non_null(strstr(r.wrong.text, "other text"));
    close_rig(&r);
}

static void test_another_owners_memory_is_found_though_the_text_is_the_same(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 0);
    r.owners[1] = 99;
    kv_seq a = begin(&r, 0, 8), b;
    r.runner.begin(r.runner.self, 1, &(struct runner_seq){.prompt_tokens = 8});
    add_row(&r, 0, a, TEXT, 0, 8, true);
    run(&r);
    assert_int_equal(kv_seq_fork(r.kv, a, 8, &b), ST_OK);
    add_row(&r, 1, b, TEXT, 8, 9, true);
    run(&r);
    assert_true(r.wrong_count > 0);
    close_rig(&r);
}

static void test_two_rows_that_write_one_block_are_found(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 0);
    kv_seq kv = begin(&r, 0, 8);
    r.runner.begin(r.runner.self, 1, &(struct runner_seq){.prompt_tokens = 8});
    add_row(&r, 0, kv, TEXT, 0, 4, false);
    r.plan.rows[1] = r.plan.rows[0];
    r.plan.rows[1].seq = 1;
    r.plan.row_count = 2;
    r.runner.submit(r.runner.self, &r.plan, NULL);
    assert_non_null(strstr(r.wrong.text, "another row writes"));
    close_rig(&r);
}

static void swap_there_and_back(struct rig *r, kv_seq kv, bool loses_a_move) {
    assert_int_equal(kv_seq_swap_out(r->kv, kv, &r->plan.moves), ST_OK);
    if (loses_a_move) r->plan.moves.count--;
    run(r);
    assert_int_equal(kv_seq_swap_in(r->kv, kv, &r->plan.moves), ST_OK);
}

static void test_a_swap_keeps_contents_and_a_lost_move_is_found(void **state) {
    (void)state;
    for (int loses = 0; loses < 2; loses++) {
        struct rig r;
        open_rig(&r, 6);
        kv_seq kv = begin(&r, 0, 12);
        add_row(&r, 0, kv, TEXT, 0, 12, true);
        run(&r);
        swap_there_and_back(&r, kv, loses == 1);
        add_row(&r, 0, kv, TEXT, 12, 13, true);
        run(&r);
        assert_int_equal(r.wrong_count > 0, loses);
        close_rig(&r);
    }
}

static void test_what_a_failed_step_or_row_wrote_is_garbage(void **state) {
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        struct rig r;
        open_rig(&r, 0);
        kv_seq kv = begin(&r, 0, 8);
        r.fault = (struct sim_fault){.submit_fails = whole, .row_fails = !whole};
        add_row(&r, 0, kv, TEXT, 0, 8, true);
        struct step_result result = run(&r);
        assert_true(whole ? result.rows == NULL : result.rows[0].failed);
        assert_int_equal(r.wrong_count, 0);
        r.fault = (struct sim_fault){0};
        add_row(&r, 0, kv, TEXT, 8, 9, true);
        run(&r);
        assert_true(r.wrong_count > 0);
        close_rig(&r);
    }
}

/* ---- depth 1 ---- */

static void submit_both(struct rig *r) {
    assert_int_equal(r->runner.submit(r->runner.self, &r->plan, NULL), ST_OK);
    assert_int_equal(r->runner.submit(r->runner.self, &r->next, NULL), ST_OK);
}

static struct row_result collect_one(struct rig *r) {
    struct step_result result;
    assert_int_equal(r->runner.collect(r->runner.self, &result, NULL), ST_OK);
    return result.rows[0];
}

/* The row of one token at `first` of sequence 0 in the plan behind. */
static struct plan_row *add_next(struct rig *r, seq_idx seq, kv_seq kv, const int32_t *tokens,
                                 uint32_t first) {
    assert_int_equal(kv_seq_grow(r->kv, kv, first + 1, &r->next.moves), ST_OK);
    struct plan_row *row = &r->next.rows[r->next.row_count++];
    *row = (struct plan_row){
        .seq = seq, .first = first, .count = 1, .samples = true, .kv = kv, .tokens = tokens};
    r->next.token_count++;
    return row;
}

static void test_a_row_takes_the_token_of_the_plan_before_whenever_plans_run(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rig r;
        open_rig_depth(&r, 6, 1, seed);
        kv_seq kv = begin(&r, 0, 8);
        int32_t tokens[8];
        memcpy(tokens, TEXT, sizeof(tokens));
        add_row(&r, 0, kv, tokens, 0, 8, true);
        add_next(&r, 0, kv, tokens, 8)->takes_sampled = true;
        int64_t began_us = r.clock.now_us;
        submit_both(&r);
        assert_int_equal(r.clock.now_us, began_us); /* submit does not wait */
        memset(tokens, 0, sizeof(tokens));          /* and has copied the tokens */
        uint64_t text = sim_text_begin(0);
        for (uint32_t p = 0; p < 8; p++) text = sim_text_add(text, TEXT[p]);
        int32_t first = sim_token(&r.options, 0, text);
        assert_int_equal(collect_one(&r).token, first);
        int64_t half_us = r.clock.now_us;
        assert_true(half_us > began_us);
        assert_int_equal(collect_one(&r).token,
                         sim_token(&r.options, 0, sim_text_add(text, first)));
        assert_true(r.clock.now_us > half_us);
        assert_int_equal(r.wrong_count, 0);
        close_rig(&r);
    }
}

static void test_a_token_that_was_not_sampled_cannot_be_taken(void **state) {
    (void)state;
    struct rig r;
    open_rig_depth(&r, 0, 1, 0);
    kv_seq kv = begin(&r, 0, 8);
    add_row(&r, 0, kv, TEXT, 0, 8, false);
    add_next(&r, 0, kv, TEXT, 8)->takes_sampled = true;
    submit_both(&r);
    collect_one(&r);
    collect_one(&r);
    assert_true(r.wrong_count > 0);
    close_rig(&r);
}

static void test_blocks_and_indices_of_a_plan_under_way_are_not_reused(void **state) {
    (void)state;
    for (int index = 0; index < 2; index++) {
        struct rig r;
        open_rig_depth(&r, 0, 1, 0);
        kv_seq kv = begin(&r, 0, 8);
        add_row(&r, 0, kv, TEXT, 0, 8, true);
        assert_int_equal(r.runner.submit(r.runner.self, &r.plan, NULL), ST_OK);
        r.runner.end(r.runner.self, 0);
        if (index == 0) kv_seq_close(r.kv, kv);
        kv_seq other = begin(&r, index == 0 ? 1 : 0, 1);
        add_next(&r, index == 0 ? 1 : 0, other, TEXT, 0);
        if (index == 0) assert_int_equal(r.wrong_count, 0);
        assert_int_equal(r.runner.submit(r.runner.self, &r.next, NULL), ST_OK);
        assert_true(r.wrong_count > 0);
        close_rig(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_token_depends_on_text_owner_and_seed_only),
        cmocka_unit_test(test_a_step_takes_the_time_of_its_profile),
        cmocka_unit_test(test_without_a_clock_it_really_waits),
        cmocka_unit_test(test_reading_memory_that_no_row_wrote_is_found),
        cmocka_unit_test(test_another_owners_memory_is_found_though_the_text_is_the_same),
        cmocka_unit_test(test_two_rows_that_write_one_block_are_found),
        cmocka_unit_test(test_a_swap_keeps_contents_and_a_lost_move_is_found),
        cmocka_unit_test(test_what_a_failed_step_or_row_wrote_is_garbage),
        cmocka_unit_test(test_a_row_takes_the_token_of_the_plan_before_whenever_plans_run),
        cmocka_unit_test(test_a_token_that_was_not_sampled_cannot_be_taken),
        cmocka_unit_test(test_blocks_and_indices_of_a_plan_under_way_are_not_reused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
