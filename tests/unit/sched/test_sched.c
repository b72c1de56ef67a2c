/* Goal:   the mechanism that all policies share: budgets, chunks, admission, prefixes, who gives
 *         way, choices, ends of every kind, and what it costs.
 * Method: small worlds (unit/sched/world.h), one fact each; sched_verify after every call; every
 *         answer is compared with one computed without a scheduler. */
#include "unit/sched/world.h"

static struct world open_chunked(uint32_t blocks, uint32_t block_size, uint32_t max_seqs) {
    struct world w;
    struct sched_options o = world_options("chunked", blocks, block_size, max_seqs);
    world_open(&w, &o);
    return w;
}

/* The row of a sequence in the plan, or NULL. */
static const struct plan_row *row_of(const struct world *w, seq_idx i) {
    for (uint32_t r = 0; r < w->plan.row_count; r++)
        if (w->plan.rows[r].seq == i) return &w->plan.rows[r];
    return NULL;
}

static uint32_t row_count_of(const struct world *w, seq_idx i) {
    const struct plan_row *row = row_of(w, i);
    return row ? row->count : 0;
}

static enum seq_state state_of(const struct world *w, seq_idx i) {
    return sched_seq_at(w->s, i)->state;
}

/* `n` choices of request 77. */
static void submit_choices(struct world *w, uint32_t n, uint32_t prompt, uint32_t max_tokens,
                           seq_idx *out) {
    struct world_submit in = {
        .prompt_tokens = prompt, .max_tokens = max_tokens, .request = 77, .text = 9};
    for (uint32_t choice = 0; choice < n; choice++) {
        in.choice = choice;
        out[choice] = world_submit(w, in);
        in.is_fork = true;
        in.parent = out[0];
    }
}

/* ---- what is refused ---- */

static void refused(struct world *w, struct world_submit in, enum status st, const char *part) {
    struct err err = {0};
    seq_idx i;
    assert_int_equal(world_try_submit(w, in, &i, &err), st);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void test_what_can_never_fit_is_refused_with_the_numbers(void **state) {
    (void)state;
    struct sched_options o = world_options("chunked", 10, 4, 2);
    o.ctx_tokens = 100;
    o.knobs.queue_max = 2;
    struct world w;
    world_open(&w, &o);
    refused(&w, (struct world_submit){.prompt_tokens = 30, .max_tokens = 11}, ST_BAD,
            "11 KV blocks for 41 tokens, the pool has 10");
    refused(&w, (struct world_submit){.prompt_tokens = 91, .max_tokens = 10}, ST_BAD,
            "101 tokens (91 of prompt and 10 of answer), the context has 100");
    refused(&w, (struct world_submit){.prompt_tokens = 5}, ST_BAD, "no room for an answer");
    refused(&w, (struct world_submit){.max_tokens = 5}, ST_BAD, "prompt is empty");
    world_submit(&w, (struct world_submit){.prompt_tokens = 30, .max_tokens = 10});
    /* Four may run or wait, whether steps were made in between or not. */
    for (uint32_t i = 0; i < 3; i++) {
        world_submit(&w, (struct world_submit){.prompt_tokens = 1, .max_tokens = 9});
        if (i == 1) world_step(&w);
    }
    refused(&w, (struct world_submit){.prompt_tokens = 1, .max_tokens = 1}, ST_FULL,
            "queue is full: 4 sequences run or wait, at most 4 may");
    world_drain(&w, 200);
    world_close(&w);
}

static void test_options_that_make_no_sense_are_refused(void **state) {
    (void)state;
    struct sched *s = NULL;
    struct err err = {0};
    struct sched_options o = world_options("chunked", 0, 4, 2);
    assert_int_equal(sched_create(&s, &o, &err), ST_BAD);
    o = world_options("chunked", 8, 4, 0);
    assert_int_equal(sched_create(&s, &o, &err), ST_BAD);
    o = world_options("chunked", 8, 4, 2);
    o.group_count = 0;
    assert_int_equal(sched_create(&s, &o, &err), ST_BAD);
    o.group_count = KV_CACHE_GROUPS_MAX + 1;
    assert_int_equal(sched_create(&s, &o, &err), ST_BAD);
    assert_null(s);
}

/* ---- tokens ---- */

static void test_decodes_go_first_and_prompts_fill_the_rest(void **state) {
    (void)state;
    struct world w = open_chunked(64, 4, 4);
    w.options.knobs.max_step_tokens = 512;
    seq_idx a = world_submit(&w, (struct world_submit){.prompt_tokens = 3, .max_tokens = 9});
    seq_idx b = world_submit(&w, (struct world_submit){.prompt_tokens = 5, .max_tokens = 9});
    world_step(&w);
    seq_idx c = world_submit(&w, (struct world_submit){.prompt_tokens = 80, .max_tokens = 2});
    world_plan(&w);
    assert_int_equal(row_count_of(&w, a), 1);
    assert_int_equal(row_count_of(&w, b), 1);
    assert_int_equal(row_count_of(&w, c), 80);
    assert_int_equal(w.plan.rows[2].seq, c);
    world_run(&w);
    world_apply(&w);
    world_drain(&w, 100);
    world_close(&w);
}

static void test_prompts_are_cut_to_the_budget_and_the_chunk(void **state) {
    (void)state;
    struct sched_options o = world_options("chunked", 64, 4, 4);
    o.knobs.max_step_tokens = 20;
    o.knobs.chunk_tokens = 12;
    struct world w;
    world_open(&w, &o);
    seq_idx a = world_submit(&w, (struct world_submit){.prompt_tokens = 30, .max_tokens = 3});
    seq_idx b = world_submit(&w, (struct world_submit){.prompt_tokens = 30, .max_tokens = 3});
    world_plan(&w);
    assert_int_equal(row_count_of(&w, a), 12);
    assert_int_equal(row_count_of(&w, b), 8);
    assert_int_equal(w.plan.sample_count, 0);
    world_run(&w);
    world_apply(&w);
    world_drain(&w, 100);
    world_close(&w);
}

static void test_a_target_in_time_bounds_prompts_but_never_decodes(void **state) {
    (void)state;
    struct sched_options o = world_options("chunked", 64, 4, 8);
    o.knobs.step_target_ms = 20;
    struct world w;
    world_open(&w, &o);
    seq_idx first = world_submit(&w, (struct world_submit){.prompt_tokens = 2, .max_tokens = 40});
    for (int n = 0; n < 3; n++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 2, .max_tokens = 40});
    sched_plan(w.s, w.now_us, &w.plan);
    world_run(&w);
    struct step_result result = {.rows = w.results, .row_count = w.plan.row_count};
    sched_apply(w.s, &w.plan, &result, w.now_us); /* no time: nothing is learned */
    seq_idx c = world_submit(&w, (struct world_submit){.prompt_tokens = 150, .max_tokens = 2});
    world_plan(&w);
    const struct cost_model *m = sched_cost(w.s);
    double us = cost_predict_us(m, w.plan.token_count, w.plan.attended_tokens);
    assert_int_equal(row_count_of(&w, first), 1);
    assert_int_equal(w.plan.sample_count, 4);
    assert_in_range(row_count_of(&w, c), 1, 149);
    assert_true(us <= 20000);
    assert_true(us + m->weight[1] * 2 > 20000);
    world_run(&w);
    world_apply(&w);
    world_drain(&w, 400);
    world_close(&w);
}

static void test_more_decodes_than_tokens_alternate(void **state) {
    (void)state;
    struct sched_options o = world_options("chunked", 64, 4, 6);
    o.knobs.max_step_tokens = 2;
    struct world w;
    world_open(&w, &o);
    seq_idx seqs[6];
    submit_choices(&w, 6, 4, 60, seqs); /* all run when the first has its prompt */
    for (int n = 0; n < 60; n++) world_step(&w);
    for (int n = 0; n < 6; n++) assert_true(seq_generated(sched_seq_at(w.s, seqs[n])) >= 8);
    world_drain(&w, 400);
    world_close(&w);
}

static void test_a_whole_prompt_longer_than_a_step_runs_by_itself(void **state) {
    (void)state;
    struct sched_options o = world_options("orca", 64, 4, 4);
    o.knobs.max_step_tokens = 16;
    struct world w;
    world_open(&w, &o);
    seq_idx a = world_submit(&w, (struct world_submit){.prompt_tokens = 4, .max_tokens = 9});
    world_step(&w);
    seq_idx b = world_submit(&w, (struct world_submit){.prompt_tokens = 40, .max_tokens = 2});
    world_plan(&w);
    assert_int_equal(w.plan.row_count, 1);
    assert_int_equal(row_count_of(&w, b), 40);
    world_run(&w);
    world_apply(&w);
    seq_idx c = world_submit(&w, (struct world_submit){.prompt_tokens = 16, .max_tokens = 2});
    world_plan(&w); /* fits a step, but not beside decodes: they wait too */
    assert_int_equal(row_count_of(&w, c), 16);
    assert_null(row_of(&w, a));
    world_run(&w);
    world_apply(&w);
    world_plan(&w);
    assert_int_equal(row_count_of(&w, a), 1);
    world_run(&w);
    world_apply(&w);
    world_drain(&w, 100);
    world_close(&w);
}

/* ---- prefixes ---- */

static void test_a_prefix_that_another_computes_is_waited_for(void **state) {
    (void)state;
    struct sched_options o = world_options("chunked", 64, 4, 4);
    o.knobs.max_step_tokens = 20;
    struct world w;
    world_open(&w, &o);
    struct world_submit same = {.prompt_tokens = 40, .max_tokens = 3, .text = 5, .shared = 36};
    world_submit(&w, same);
    seq_idx b = world_submit(&w, same);
    seq_idx c = world_submit(&w, (struct world_submit){.prompt_tokens = 3, .max_tokens = 1});
    world_step(&w);
    world_plan(&w); /* the second half of the first; the third passes the second */
    assert_int_equal(state_of(&w, b), SEQ_WAITING);
    assert_null(row_of(&w, b));
    world_run(&w);
    world_apply(&w);
    world_drain(&w, 100);
    assert_int_equal(w.requests[0].last.cached_tokens, 0);
    assert_int_equal(w.requests[1].last.cached_tokens, 36);
    assert_true(w.requests[2].last.first_token_us <= w.requests[1].last.first_token_us);
    (void)c;
    world_close(&w);
}

static void test_a_prefix_promised_by_one_that_is_cancelled_is_computed(void **state) {
    (void)state;
    struct sched_options o = world_options("chunked", 64, 4, 4);
    o.knobs.max_step_tokens = 8;
    struct world w;
    world_open(&w, &o);
    struct world_submit same = {.prompt_tokens = 40, .max_tokens = 3, .text = 5, .shared = 40};
    world_submit(&w, same);
    seq_idx b = world_submit(&w, same);
    world_step(&w);
    assert_int_equal(state_of(&w, b), SEQ_WAITING);
    sched_cancel(w.s, w.requests[0].request, 0, FINISH_CANCELLED, w.now_us);
    world_plan(&w);
    assert_int_equal(state_of(&w, b), SEQ_RUNNING);
    assert_int_equal(sched_seq_at(w.s, b)->cached_tokens, 8);
    world_run(&w);
    world_apply(&w);
    world_drain(&w, 100);
    world_close(&w);
}

/* ---- memory ---- */

/* Two answers that outgrow the pool together: `preempt` decides how the younger is preempted. */
static struct sched_stats run_two_that_outgrow(enum preempt_mode mode, uint32_t preempt_max) {
    struct sched_options o = world_options("chunked", 12, 4, 2);
    o.knobs.preempt = mode;
    o.knobs.preempt_max = preempt_max;
    struct world w;
    world_run_two_that_outgrow(&w, &o);
    assert_int_equal(w.requests[0].last.preempt_count, 0);
    assert_true(w.requests[1].last.preempt_count >= 1);
    struct sched_stats stats = sched_stats(w.s);
    world_close(&w);
    return stats;
}

static void test_the_younger_is_preempted_and_recomputed(void **state) {
    (void)state;
    struct sched_stats stats = run_two_that_outgrow(PREEMPT_RECOMPUTE, 3);
    assert_int_equal(stats.swapped_out, 0);
    assert_true(stats.recomputed_tokens > 0);
}

static void test_the_younger_is_preempted_and_swapped(void **state) {
    (void)state;
    struct sched_stats stats = run_two_that_outgrow(PREEMPT_SWAP, 3);
    assert_true(stats.swapped_out > 0);
    assert_int_equal(stats.recomputed_tokens, 0);
}

static void test_auto_takes_the_cheaper(void **state) {
    (void)state;
    /* On this-cpu a token costs 1.35 ms and a block 60 us: swapping is cheaper. */
    assert_true(run_two_that_outgrow(PREEMPT_AUTO, 3).swapped_out > 0);
    struct sched_options o = world_options("chunked", 12, 4, 2);
    o.cost.per_move_us = 1e6;
    o.knobs.prefix_cache = false;
    struct world w;
    world_open(&w, &o);
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 32});
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 32});
    world_drain(&w, 300);
    assert_int_equal(sched_stats(w.s).swapped_out, 0);
    assert_true(sched_stats(w.s).preempted > 0);
    world_close(&w);
}

static void test_past_preempt_max_only_the_oldest_takes_blocks(void **state) {
    (void)state;
    struct sched_options o = world_options("chunked", 12, 4, 3);
    o.knobs.preempt_max = 0;
    o.knobs.prefix_cache = false;
    struct world w;
    world_open(&w, &o);
    seq_idx seqs[3];
    for (int n = 0; n < 3; n++)
        seqs[n] = world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 36});
    while (state_of(&w, seqs[0]) != SEQ_FREE && sched_seq_at(w.s, seqs[0])->request == 1000) {
        uint32_t generated = seq_generated(sched_seq_at(w.s, seqs[0]));
        world_step(&w);
        if (state_of(&w, seqs[0]) == SEQ_FREE) break;
        assert_int_equal(seq_generated(sched_seq_at(w.s, seqs[0])), generated + 1);
    }
    assert_int_equal(w.requests[0].last.preempt_count, 0);
    world_drain(&w, 500);
    world_close(&w);
}

/* Requests of higher priority displace a lower one preempt_max times, no more. */
static void test_a_sequence_is_preempted_preempt_max_times_at_most(void **state) {
    (void)state;
    struct sched_options o = world_options("priority", 64, 4, 1);
    o.knobs.preempt_max = 2;
    struct world w;
    world_open(&w, &o);
    seq_idx low = world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 60});
    for (int n = 0; n < 12; n++) {
        while (state_of(&w, low) == SEQ_WAITING || state_of(&w, low) == SEQ_SWAPPED) world_step(&w);
        struct urgency high = {.priority = 5};
        world_submit(&w,
                     (struct world_submit){.prompt_tokens = 4, .max_tokens = 2, .urgency = high});
        world_step(&w);
        assert_int_equal(state_of(&w, low) != SEQ_RUNNING, n < 2);
    }
    world_drain(&w, 500);
    assert_int_equal(w.requests[0].last.preempt_count, 2);
    world_close(&w);
}

static void test_admission_leaves_what_running_prompts_still_need(void **state) {
    (void)state;
    struct sched_options o = world_options("chunked", 20, 4, 4);
    o.knobs.max_step_tokens = 16;
    struct world w;
    world_open(&w, &o);
    world_submit(&w, (struct world_submit){.prompt_tokens = 60, .max_tokens = 4}); /* 15 blocks */
    seq_idx b = world_submit(&w, (struct world_submit){.prompt_tokens = 20, .max_tokens = 4});
    world_step(&w); /* 4 blocks held, 11 to come: 5 + 1 of watermark do not fit beside them */
    for (int n = 0; n < 4; n++) {
        assert_int_equal(state_of(&w, b), SEQ_WAITING);
        world_step(&w);
    }
    world_drain(&w, 100);
    assert_int_equal(sched_stats(w.s).preempted, 0);
    world_close(&w);
}

static void test_reserving_policies_never_preempt(void **state) {
    (void)state;
    static const char *const names[] = {"orca", "static", "dynamic"};
    for (int k = 0; k < 3; k++) {
        struct sched_options o = world_options(names[k], 20, 4, 4);
        struct world w;
        world_open(&w, &o);
        for (uint32_t n = 0; n < 10; n++)
            world_submit(&w, (struct world_submit){.prompt_tokens = 8 + n, .max_tokens = 30});
        world_drain(&w, 1000);
        assert_int_equal(sched_stats(w.s).preempted, 0);
        world_close(&w);
    }
}

static void test_kept_blocks_are_released_when_nothing_else_can_be(void **state) {
    (void)state;
    struct world w = open_chunked(12, 4, 2);
    world_submit(&w, (struct world_submit){.prompt_tokens = 20, .max_tokens = 3});
    world_plan(&w);
    kv_seq_keep(sched_kv(w.s), w.plan.rows[0].kv, INT64_MAX);
    world_run(&w);
    world_apply(&w);
    world_drain(&w, 10);
    assert_true(sched_stats(w.s).kv.groups[0].kept_count > 0);
    world_submit(&w, (struct world_submit){.prompt_tokens = 40, .max_tokens = 8});
    world_drain(&w, 100);
    assert_int_equal(w.requests[1].finish, FINISH_LENGTH);
    world_close(&w);
}

static void test_waste_is_what_blocks_hold_beyond_tokens(void **state) {
    (void)state;
    struct world w = open_chunked(64, 16, 1);
    world_submit(&w, (struct world_submit){.prompt_tokens = 33, .max_tokens = 1});
    world_drain(&w, 10);
    assert_int_equal(sched_stats(w.s).held_positions, 48);
    assert_int_equal(sched_stats(w.s).used_positions, 33);
    world_close(&w);
}

/* ---- choices ---- */

static uint64_t drain_counting_tokens(struct world *w) {
    uint64_t tokens = 0;
    while (!sched_is_idle(w->s)) {
        world_step(w);
        tokens += w->plan.token_count;
    }
    return tokens;
}

static void test_choices_share_their_prompt(void **state) {
    (void)state;
    for (uint32_t prompt = 30; prompt <= 33; prompt++) { /* the last block partly full, and full */
        struct sched_options o = world_options("chunked", 64, 16, 8);
        o.knobs.prefix_cache = false;
        struct world w;
        seq_idx seqs[4];
        world_open(&w, &o);
        submit_choices(&w, 4, prompt, 5, seqs);
        assert_int_equal(state_of(&w, seqs[3]), SEQ_FORKING);
        uint64_t tokens = drain_counting_tokens(&w);
        assert_int_equal(tokens, prompt + 3 + 4 * 4); /* one prompt, its last token thrice more */
        for (uint32_t n = 0; n < 4; n++) assert_int_equal(w.requests[n].finish, FINISH_LENGTH);
        world_close(&w);
    }
}

static void test_choices_share_also_when_the_first_ends_at_once(void **state) {
    (void)state;
    struct sched_options o = world_options("chunked", 64, 16, 8);
    o.knobs.prefix_cache = false;
    struct world w;
    seq_idx seqs[3];
    world_open(&w, &o);
    submit_choices(&w, 3, 40, 1, seqs);
    assert_int_equal(drain_counting_tokens(&w), 40 + 2);
    world_close(&w);
}

static void test_choices_that_do_not_fit_into_the_batch_wait(void **state) {
    (void)state;
    struct world w = open_chunked(64, 16, 2);
    seq_idx seqs[5];
    submit_choices(&w, 5, 40, 4, seqs);
    world_step(&w);
    assert_int_equal(sched_stats(w.s).running, 2);
    assert_int_equal(sched_stats(w.s).waiting, 3);
    world_drain(&w, 100);
    for (uint32_t n = 0; n < 5; n++) assert_int_equal(w.requests[n].finish, FINISH_LENGTH);
    world_close(&w);
}

static void test_choices_outlive_a_parent_that_is_cancelled(void **state) {
    (void)state;
    struct world w = open_chunked(64, 16, 4);
    seq_idx seqs[3];
    submit_choices(&w, 3, 40, 4, seqs);
    sched_cancel(w.s, 77, 0, FINISH_CANCELLED, w.now_us);
    sched_verify(w.s);
    assert_int_equal(state_of(&w, seqs[1]), SEQ_WAITING);
    world_drain(&w, 100);
    assert_int_equal(w.requests[0].finish, FINISH_CANCELLED);
    assert_int_equal(w.requests[1].finish, FINISH_LENGTH);
    assert_int_equal(w.requests[2].finish, FINISH_LENGTH);
    world_close(&w);
}

/* ---- ends ---- */

static void test_a_cancel_under_way_ends_at_once_and_keeps_blocks_until_the_apply(void **state) {
    (void)state;
    struct world w = open_chunked(64, 4, 2);
    seq_idx a = world_submit(&w, (struct world_submit){.prompt_tokens = 9, .max_tokens = 9});
    world_plan(&w);
    uint32_t available = kv_cache_available(sched_kv(w.s));
    sched_cancel(w.s, w.requests[0].request, 0, FINISH_CANCELLED, w.now_us);
    sched_cancel(w.s, w.requests[0].request, 0, FINISH_ERROR, w.now_us); /* the first one counts */
    sched_verify(w.s);
    world_events(&w);
    assert_int_equal(w.requests[0].finish, FINISH_CANCELLED);
    assert_int_equal(kv_cache_available(sched_kv(w.s)), available);
    assert_int_equal(state_of(&w, a), SEQ_LINGERING);
    assert_true(sched_is_idle(w.s));
    sched_verify(w.s);
    world_run(&w);
    world_apply(&w);
    assert_true(w.plan.rows[0].is_dropped);
    assert_int_equal(w.requests[0].last.total, 9); /* what the plan sampled is not there */
    assert_int_equal(state_of(&w, a), SEQ_FREE);
    assert_int_equal(kv_cache_available(sched_kv(w.s)), 64);
    sched_cancel(w.s, w.requests[0].request, 0, FINISH_CANCELLED, w.now_us); /* it has ended */
    world_close(&w);
}

static void test_a_cancel_ends_a_sequence_in_any_state_once(void **state) {
    (void)state;
    struct sched_options o = world_options("chunked", 12, 4, 2);
    o.knobs.preempt = PREEMPT_SWAP;
    o.knobs.prefix_cache = false;
    struct world w;
    world_open(&w, &o);
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 32});
    seq_idx b = world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 32});
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 32});
    while (state_of(&w, b) != SEQ_SWAPPED) world_step(&w);
    for (uint32_t n = 1; n < 3; n++) { /* one swapped out, one waiting */
        sched_cancel(w.s, w.requests[n].request, 0, FINISH_CANCELLED, w.now_us);
        sched_verify(w.s);
        world_events(&w);
        assert_int_equal(w.requests[n].finish, FINISH_CANCELLED);
    }
    w.requests[0].is_cancelled = true;
    sched_cancel(w.s, w.requests[0].request, 0, FINISH_STOP, w.now_us); /* running */
    world_events(&w);
    assert_true(sched_is_idle(w.s));
    assert_int_equal(sched_stats(w.s).finished, 3);
    assert_int_equal(sched_stats(w.s).kv.spilled_blocks, 0);
    world_close(&w);
}

static void test_requests_end_when_their_time_is_over(void **state) {
    (void)state;
    struct world w = open_chunked(64, 4, 1);
    struct urgency soon = {.expires_us = 5000}, later = {.expires_us = 900000};
    world_submit(&w, (struct world_submit){.prompt_tokens = 4, .max_tokens = 60, .urgency = later});
    world_submit(&w, (struct world_submit){.prompt_tokens = 4, .max_tokens = 60, .urgency = soon});
    assert_int_equal(sched_next_timer_us(w.s), 5000);
    world_step(&w);
    w.now_us = 5000;
    world_step(&w);
    assert_int_equal(w.requests[1].finish, FINISH_EXPIRED); /* it never ran */
    assert_int_equal(w.requests[1].last.total, 4);
    w.now_us = 900000;
    assert_false(world_step(&w));
    assert_int_equal(w.requests[0].finish, FINISH_EXPIRED);
    assert_true(w.requests[0].last.total > 4);
    assert_int_equal(sched_next_timer_us(w.s), INT64_MAX);
    world_close(&w);
}

static void test_a_failed_row_ends_only_its_own_sequence(void **state) {
    (void)state;
    struct world w = open_chunked(64, 4, 4);
    for (int n = 0; n < 3; n++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 6, .max_tokens = 6});
    world_step(&w);
    world_plan(&w);
    world_run(&w);
    w.results[1].failed = true;
    uint64_t failed = sched_seq_at(w.s, w.plan.rows[1].seq)->request;
    world_apply(&w);
    world_drain(&w, 100);
    for (int n = 0; n < 3; n++)
        assert_int_equal(w.requests[n].finish,
                         w.requests[n].request == failed ? FINISH_ERROR : FINISH_LENGTH);
    world_close(&w);
}

static void test_a_failed_plan_ends_its_sequences_and_the_others_continue(void **state) {
    (void)state;
    struct world w = open_chunked(64, 4, 2);
    for (int n = 0; n < 4; n++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 6, .max_tokens = 6});
    world_step(&w);
    world_plan(&w);
    assert_int_equal(w.plan.row_count, 2);
    sched_fail(w.s, &w.plan, w.now_us);
    sched_verify(w.s);
    world_drain(&w, 100);
    for (int n = 0; n < 4; n++)
        assert_int_equal(w.requests[n].finish, n < 2 ? FINISH_ERROR : FINISH_LENGTH);
    world_close(&w);
}

/* The moves of a plan that failed did not happen: what it swapped out is computed again. */
static void test_what_a_failed_plan_moved_is_recomputed(void **state) {
    (void)state;
    struct sched_options o = world_options("chunked", 12, 4, 2);
    o.knobs.preempt = PREEMPT_SWAP;
    o.knobs.prefix_cache = false;
    struct world w;
    world_open(&w, &o);
    world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 32});
    seq_idx b = world_submit(&w, (struct world_submit){.prompt_tokens = 8, .max_tokens = 32});
    for (;;) {
        world_plan(&w);
        if (w.plan.moves.count > 0) break;
        world_run(&w);
        world_apply(&w);
    }
    assert_int_equal(state_of(&w, b), SEQ_SWAPPED);
    sched_fail(w.s, &w.plan, w.now_us);
    sched_verify(w.s);
    assert_int_equal(state_of(&w, b), SEQ_WAITING);
    world_drain(&w, 100);
    assert_int_equal(w.requests[0].finish, FINISH_ERROR);
    assert_int_equal(w.requests[1].finish, FINISH_LENGTH);
    world_close(&w);
}

/* ---- policies of the mechanism ---- */

static void test_static_waits_for_a_full_batch_or_its_time(void **state) {
    (void)state;
    struct sched_options o = world_options("static", 64, 4, 3);
    o.knobs.static_wait_ms = 50;
    struct world w;
    world_open(&w, &o);
    int64_t start = w.now_us;
    world_submit(&w, (struct world_submit){.prompt_tokens = 4, .max_tokens = 3});
    world_submit(&w, (struct world_submit){.prompt_tokens = 4, .max_tokens = 20});
    assert_false(world_step(&w));
    assert_int_equal(sched_next_timer_us(w.s), start + 50000);
    w.now_us = start + 50000;
    assert_true(world_step(&w));
    assert_int_equal(w.plan.row_count, 2);
    seq_idx c = world_submit(&w, (struct world_submit){.prompt_tokens = 4, .max_tokens = 3});
    w.now_us += 100000;
    for (int n = 0; n < 10; n++)
        world_step(&w); /* the first has ended, its batch slot stays unused */
    assert_int_equal(w.requests[0].finish, FINISH_LENGTH);
    assert_int_equal(w.plan.row_count, 1);
    assert_int_equal(state_of(&w, c), SEQ_WAITING);
    for (int n = 0; n < 2; n++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 4, .max_tokens = 3});
    while (w.requests[1].finish == FINISH_NONE) world_step(&w);
    world_plan(&w); /* three wait: a full batch, at once */
    assert_int_equal(w.plan.row_count, 3);
    world_run(&w);
    world_apply(&w);
    world_drain(&w, 100);
    world_close(&w);
}

static void test_dynamic_starts_with_enough_or_after_its_window(void **state) {
    (void)state;
    struct sched_options o = world_options("dynamic", 64, 4, 8);
    o.knobs.dynamic_batch = 2;
    o.knobs.dynamic_window_ms = 10;
    struct world w;
    world_open(&w, &o);
    for (int n = 0; n < 3; n++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 4, .max_tokens = 3});
    world_plan(&w);
    assert_int_equal(w.plan.row_count, 2);
    world_run(&w);
    world_apply(&w);
    while (sched_stats(w.s).running > 0) world_step(&w);
    w.now_us = w.requests[2].last.admitted_us + 1000 + 10000;
    world_plan(&w);
    assert_int_equal(w.plan.row_count, 1);
    world_run(&w);
    world_apply(&w);
    world_drain(&w, 100);
    world_close(&w);
}

static void test_prefill_first_does_prompts_or_decodes(void **state) {
    (void)state;
    struct sched_options o = world_options("prefill-first", 64, 4, 8);
    o.knobs.waiting_served_ratio = 1;
    o.knobs.max_waiting_tokens = 5;
    struct world w;
    world_open(&w, &o);
    for (int n = 0; n < 3; n++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 9, .max_tokens = 30});
    world_step(&w);
    seq_idx d = world_submit(&w, (struct world_submit){.prompt_tokens = 9, .max_tokens = 30});
    for (int n = 0; n < 5; n++) { /* one waits, three run: below the ratio */
        world_plan(&w);
        assert_int_equal(w.plan.sample_count, 3);
        assert_int_equal(state_of(&w, d), SEQ_WAITING);
        world_run(&w);
        world_apply(&w);
    }
    world_plan(&w); /* patience is over */
    assert_int_equal(w.plan.row_count, 1);
    assert_int_equal(row_count_of(&w, d), 9);
    world_run(&w);
    world_apply(&w);
    world_drain(&w, 200);
    world_close(&w);
}

/* Under overload requests are admitted in order of arrival, and all are served. */
static void test_requests_are_served_in_order_of_arrival_under_overload(void **state) {
    (void)state;
    static const char *const names[] = {"chunked", "orca", "prefill-first", "static", "dynamic"};
    for (int k = 0; k < 5; k++) {
        struct sched_options o = world_options(names[k], 24, 4, 3);
        o.knobs.max_step_tokens = 24;
        struct world w;
        world_open(&w, &o);
        w.rng.seed = 11;
        for (int n = 0; n < 300; n++) {
            if (w.live_count < 60) {
                uint32_t prompt = 1 + (uint32_t)rng_below(&w.rng, 40);
                world_submit(&w, (struct world_submit){.prompt_tokens = prompt, .max_tokens = 30});
            }
            world_step(&w);
        }
        world_drain(&w, 20000);
        for (uint32_t n = 1; n < w.request_count; n++)
            assert_true(w.requests[n].last.admitted_us >= w.requests[n - 1].last.admitted_us);
        world_close(&w);
    }
}

/* ---- what it costs ---- */

/* Heap moves in 100 steps of eight decoding sequences, with so many others waiting. */
static uint64_t moves_with_waiting(const char *policy, uint32_t waiting) {
    struct sched_options o = world_options(policy, 8 * 64, 16, 8);
    o.knobs.queue_max = waiting + 8;
    o.knobs.dynamic_batch = 8;
    struct world w;
    world_open(&w, &o);
    w.verify = false;
    for (int n = 0; n < 8; n++)
        world_submit(&w, (struct world_submit){.prompt_tokens = 4, .max_tokens = 400});
    for (int n = 0; n < 20; n++) world_step(&w);
    struct sched_submit in = {.request = 1000000,
                              .parent = SEQ_NONE,
                              .tokens = w.requests[0].tokens, /* they never run */
                              .prompt_tokens = 4,
                              .total_max = 400};
    for (uint32_t n = 0; n < waiting; n++, in.request++) {
        seq_idx i;
        assert_int_equal(sched_submit(w.s, &in, ++w.now_us, &i, NULL), ST_OK);
    }
    uint64_t before = sched_stats(w.s).heap_moves;
    for (int n = 0; n < 100; n++) world_step(&w);
    uint64_t moves = sched_stats(w.s).heap_moves - before;
    world_close(&w);
    return moves;
}

static void test_a_step_does_not_cost_more_when_more_wait(void **state) {
    (void)state;
    static const char *const names[] = {"chunked",       "orca",     "static",   "dynamic",
                                        "prefill-first", "priority", "deadline", "fair"};
    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
        uint64_t few = moves_with_waiting(names[k], 10);
        uint64_t many = moves_with_waiting(names[k], 100000);
        print_message("%s: %lu heap moves with 10 waiting, %lu with 100,000\n", names[k],
                      (unsigned long)few, (unsigned long)many);
        assert_true(many <= few + 100 * 20); /* at most the depth of the heap a step */
    }
}

static void test_the_predicted_wait_grows_with_the_queue(void **state) {
    (void)state;
    struct world w = open_chunked(64, 16, 2);
    double idle = sched_predict_wait_us(w.s, 10);
    assert_true(idle > 0 && idle < 100000);
    double last = idle;
    for (int n = 0; n < 6; n++) {
        world_submit(&w, (struct world_submit){.prompt_tokens = 10, .max_tokens = 10});
        world_step(&w);
        double wait = sched_predict_wait_us(w.s, 10);
        if (n >= 2) assert_true(wait > last);
        last = wait;
    }
    assert_true(sched_predict_wait_us(w.s, 100) > last);
    world_drain(&w, 200);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_can_never_fit_is_refused_with_the_numbers),
        cmocka_unit_test(test_options_that_make_no_sense_are_refused),
        cmocka_unit_test(test_decodes_go_first_and_prompts_fill_the_rest),
        cmocka_unit_test(test_prompts_are_cut_to_the_budget_and_the_chunk),
        cmocka_unit_test(test_a_target_in_time_bounds_prompts_but_never_decodes),
        cmocka_unit_test(test_more_decodes_than_tokens_alternate),
        cmocka_unit_test(test_a_whole_prompt_longer_than_a_step_runs_by_itself),
        cmocka_unit_test(test_a_prefix_that_another_computes_is_waited_for),
        cmocka_unit_test(test_a_prefix_promised_by_one_that_is_cancelled_is_computed),
        cmocka_unit_test(test_the_younger_is_preempted_and_recomputed),
        cmocka_unit_test(test_the_younger_is_preempted_and_swapped),
        cmocka_unit_test(test_auto_takes_the_cheaper),
        cmocka_unit_test(test_past_preempt_max_only_the_oldest_takes_blocks),
        cmocka_unit_test(test_a_sequence_is_preempted_preempt_max_times_at_most),
        cmocka_unit_test(test_admission_leaves_what_running_prompts_still_need),
        cmocka_unit_test(test_reserving_policies_never_preempt),
        cmocka_unit_test(test_kept_blocks_are_released_when_nothing_else_can_be),
        cmocka_unit_test(test_waste_is_what_blocks_hold_beyond_tokens),
        cmocka_unit_test(test_choices_share_their_prompt),
        cmocka_unit_test(test_choices_share_also_when_the_first_ends_at_once),
        cmocka_unit_test(test_choices_that_do_not_fit_into_the_batch_wait),
        cmocka_unit_test(test_choices_outlive_a_parent_that_is_cancelled),
        cmocka_unit_test(test_a_cancel_under_way_ends_at_once_and_keeps_blocks_until_the_apply),
        cmocka_unit_test(test_a_cancel_ends_a_sequence_in_any_state_once),
        cmocka_unit_test(test_requests_end_when_their_time_is_over),
        cmocka_unit_test(test_a_failed_row_ends_only_its_own_sequence),
        cmocka_unit_test(test_a_failed_plan_ends_its_sequences_and_the_others_continue),
        cmocka_unit_test(test_what_a_failed_plan_moved_is_recomputed),
        cmocka_unit_test(test_static_waits_for_a_full_batch_or_its_time),
        cmocka_unit_test(test_dynamic_starts_with_enough_or_after_its_window),
        cmocka_unit_test(test_prefill_first_does_prompts_or_decodes),
        cmocka_unit_test(test_requests_are_served_in_order_of_arrival_under_overload),
        cmocka_unit_test(test_a_step_does_not_cost_more_when_more_wait),
        cmocka_unit_test(test_the_predicted_wait_grows_with_the_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
