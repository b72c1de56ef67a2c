/* Goal:   batch lines get what other sequences leave, under every policy: a seat, blocks, tokens
 *         and time of a step. They are preempted in the plan in which another sequence needs
 *         these, run with all there is if nobody else asks, and end with the right answer.
 * Method: worlds of a few sequences (world.h checks every block that a row reads, and every
 *         answer). The same interactive traffic with and without lines gives the same plans. */
#include "sched/line_pace.h"
#include "unit/sched/world.h"

enum { BATCH = 4, BLOCK = 4, STEP_TOKENS = 64, LINES = 6 };

static const struct world_submit line = {.prompt_tokens = 10, .max_tokens = 30, .is_batch = true};
static const struct world_submit other = {.prompt_tokens = 9, .max_tokens = 12};

static struct sched_options options(const struct sched_policy *p, uint32_t kv_blocks) {
    struct sched_options o = world_options(p->name, kv_blocks, BLOCK, BATCH);
    o.knobs.max_step_tokens = STEP_TOKENS;
    o.knobs.static_wait_ms = o.knobs.dynamic_window_ms = 0;
    o.knobs.batch_slowdown = 10; /* time is no limit, where no test is about it */
    return o;
}

static void send(struct world *w, uint32_t count, struct world_submit in) {
    for (uint32_t i = 0; i < count; i++) {
        in.text = w->request_count;
        world_submit(w, in);
    }
}

static void run(struct world *w, uint32_t steps) {
    while (steps-- > 0) assert_true(world_step(w));
}

static struct sched_stats stats(const struct world *w) { return sched_stats(w->s); }

static bool is_batch_row(const struct world *w, const struct plan_row *row) {
    return sched_seq_at(w->s, row->seq)->is_batch;
}

/* Rows of lines in the plan. */
static uint32_t line_rows(const struct world *w, const struct plan *plan) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < plan->row_count; r++) count += is_batch_row(w, &plan->rows[r]);
    return count;
}

static uint32_t rows_of(const struct world *w, uint64_t request) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < w->plan.row_count; r++)
        count += sched_seq_at(w->s, w->plan.rows[r].seq)->request == request;
    return count;
}

static void finish(struct world *w) {
    world_drain(w, 100000);
    for (uint32_t r = 0; r < w->request_count; r++)
        assert_int_equal(w->requests[r].finish, FINISH_LENGTH);
    world_close(w);
}

#define FOR_EACH_POLICY(p) for (const struct sched_policy *const *p = sched_policies; *p; p++)

/* ---- alone ---- */

static void test_lines_take_the_whole_machine_when_nobody_asks(void **state) {
    (void)state;
    FOR_EACH_POLICY(p) {
        struct world w;
        struct sched_options o = options(*p, 200);
        world_open(&w, &o);
        send(&w, LINES, line);
        run(&w, 2);
        assert_int_equal(stats(&w).batch_running, BATCH);
        assert_int_equal(stats(&w).batch_waiting, LINES - BATCH);
        world_plan(&w);
        assert_int_equal(w.plan.row_count, BATCH);
        assert_int_equal(w.plan.batch_running_count, BATCH);
        world_run(&w);
        world_apply(&w);
        finish(&w);
    }
}

static void test_lines_run_in_the_order_of_submission(void **state) {
    (void)state;
    FOR_EACH_POLICY(p) {
        struct world w;
        struct sched_options o = options(*p, 200);
        world_open(&w, &o);
        send(&w, 2 * BATCH, line);
        world_drain(&w, 1000);
        for (uint32_t r = 1; r < w.request_count; r++)
            assert_true(w.requests[r - 1].last.first_token_us <= w.requests[r].last.first_token_us);
        finish(&w);
    }
}

/* Lines that outgrow the pool together preempt each other, the youngest first. */
static void test_lines_that_outgrow_the_pool_all_end(void **state) {
    (void)state;
    FOR_EACH_POLICY(p) {
        for (uint32_t blocks = 11; blocks < 30; blocks += 6) {
            struct world w;
            struct sched_options o = options(*p, blocks);
            world_open(&w, &o);
            send(&w, LINES, line);
            world_drain(&w, 10000);
            assert_int_equal(w.requests[0].last.preempt_count, 0);
            finish(&w);
        }
    }
}

/* ---- a seat ---- */

static void test_a_line_leaves_its_seat_in_the_plan_that_needs_it(void **state) {
    (void)state;
    FOR_EACH_POLICY(p) {
        struct world w;
        struct sched_options o = options(*p, 400);
        o.knobs.dynamic_batch = 2;
        world_open(&w, &o);
        send(&w, LINES, line);
        run(&w, 3);
        send(&w, 2, other);
        world_plan(&w);
        assert_int_equal(rows_of(&w, w.requests[LINES].request), 1);
        assert_int_equal(rows_of(&w, w.requests[LINES + 1].request), 1);
        assert_int_equal(w.plan.preempted_count, 2);
        for (uint32_t n = 0; n < 2; n++) { /* the youngest lines of those that run */
            assert_int_equal(w.plan.preempted[n].why, PREEMPT_BATCH);
            assert_int_equal(w.plan.preempted[n].request, w.requests[BATCH - 1 - n].request);
        }
        assert_int_equal(stats(&w).batch_running, BATCH - 2);
        world_run(&w);
        world_apply(&w);
        finish(&w);
    }
}

/* However often: preempt_max is about other sequences. */
static void test_a_line_may_be_preempted_any_number_of_times(void **state) {
    (void)state;
    FOR_EACH_POLICY(p) {
        struct world w;
        struct sched_options o = options(*p, 400);
        o.knobs.preempt_max = 1;
        o.knobs.dynamic_batch = BATCH;
        world_open(&w, &o);
        send(&w, BATCH, line);
        for (uint32_t n = 0; n < 4; n++) {
            run(&w, 2);
            struct world_submit one = other;
            one.max_tokens = 1;
            send(&w, BATCH, one);
            run(&w, 1);
            assert_int_equal(stats(&w).batch_running, 0);
            run(&w, 1);
        }
        world_drain(&w, 10000);
        assert_int_equal(w.requests[BATCH - 1].last.preempt_count, 4);
        finish(&w);
    }
}

/* Static and dynamic: no line of the batch delays the next batch. */
static void test_lines_hold_no_slot_of_a_batch(void **state) {
    (void)state;
    const char *const names[] = {"static", "dynamic"};
    for (uint32_t n = 0; n < 2; n++) {
        struct world w;
        struct sched_options o = options(sched_policy_find(names[n]), 400);
        o.knobs.static_wait_ms = o.knobs.dynamic_window_ms = 1000;
        o.knobs.dynamic_batch = BATCH;
        world_open(&w, &o);
        send(&w, BATCH, line);
        run(&w, 2);
        send(&w, BATCH - 1, other); /* not a batch yet */
        run(&w, 2);
        assert_int_equal(stats(&w).batch_running, BATCH);
        send(&w, 1, other);
        run(&w, 1);
        assert_int_equal(stats(&w).batch_running, 0);
        assert_int_equal(stats(&w).running, BATCH);
        finish(&w);
    }
}

/* ---- blocks ---- */

static void test_lines_leave_their_blocks_to_a_sequence_that_waits(void **state) {
    (void)state;
    FOR_EACH_POLICY(p) {
        struct world w;
        struct sched_options o = options(*p, 32);
        o.knobs.dynamic_batch = 1;
        world_open(&w, &o);
        send(&w, 3, line);
        run(&w, 25); /* 9 blocks each */
        struct world_submit large = {.prompt_tokens = 60, .max_tokens = 20};
        send(&w, 1, large);
        world_plan(&w);
        assert_int_equal(rows_of(&w, w.requests[3].request), 1);
        assert_true(w.plan.preempted_count > 0);
        world_run(&w);
        world_apply(&w);
        world_drain(&w, 10000);
        assert_int_equal(w.requests[3].last.preempt_count, 0);
        finish(&w);
    }
}

/* Answers that outgrow the pool with lines, but fit without them, are never preempted. */
static void test_lines_leave_their_blocks_to_answers_that_grow(void **state) {
    (void)state;
    FOR_EACH_POLICY(p) {
        struct world w;
        struct sched_options o = options(*p, 40);
        o.knobs.dynamic_batch = 2;
        world_open(&w, &o);
        struct world_submit answer = {.prompt_tokens = 8, .max_tokens = 50};
        send(&w, 2, answer);
        run(&w, 2);
        send(&w, LINES, line);
        run(&w, 2);
        assert_true(stats(&w).batch_running > 0);
        uint64_t steps = stats(&w).steps;
        while (w.requests[0].is_live || w.requests[1].is_live) run(&w, 1);
        assert_true(stats(&w).steps - steps <= 50);
        for (uint32_t r = 0; r < 2; r++) assert_int_equal(w.requests[r].last.preempt_count, 0);
        finish(&w);
    }
}

static void test_swapped_lines_leave_their_spill_slots(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(sched_policy_find("chunked"), 24);
    o.knobs.preempt = PREEMPT_SWAP;
    o.knobs.spill_blocks = 14;
    o.knobs.prefix_cache = false;
    o.cost.per_move_us = 1;
    world_open(&w, &o);
    w.is_timeless = true;
    send(&w, 1, line);
    run(&w, 20); /* 8 blocks */
    struct world_submit answer = {.prompt_tokens = 30, .max_tokens = 40};
    send(&w, 2, answer);
    run(&w, 1);
    assert_int_equal(stats(&w).batch_swapped, 1);
    while (stats(&w).swapped_out < 2) run(&w, 1); /* the two outgrow the pool */
    assert_int_equal(stats(&w).batch_swapped, 0);
    assert_int_equal(stats(&w).swapped, 1);
    finish(&w);
}

/* ---- time ---- */

/* A decode row of a line beside others only while the step stays within the target. */
static void test_rows_of_lines_stay_within_the_step_target(void **state) {
    (void)state;
    FOR_EACH_POLICY(p) {
        for (uint32_t target_ms = 2; target_ms < 60; target_ms += 7) {
            struct world w;
            struct sched_options o = options(*p, 400);
            o.knobs.max_seqs = 16;
            o.knobs.step_target_ms = target_ms;
            o.knobs.dynamic_batch = 2;
            world_open(&w, &o);
            w.is_timeless = true;
            send(&w, 2, other);
            send(&w, 14, line);
            for (uint32_t n = 0; n < 60; n++) {
                world_plan(&w);
                if (world_is_empty_plan(&w)) break;
                double us = sched_step_us(w.s, w.plan.row_count, w.plan.token_count,
                                          w.plan.attended_tokens);
                uint32_t lines = line_rows(&w, &w.plan);
                if (lines > 0 && us > target_ms * 1000) { /* one row by itself, of 16 tokens */
                    assert_int_equal(w.plan.row_count, 1);
                    assert_true(w.plan.token_count <= 16);
                }
                world_run(&w);
                world_apply(&w);
            }
            finish(&w);
        }
    }
}

/* What lines add to steps of others is never more than the share of those steps' time so far. */
static void test_lines_lengthen_the_steps_of_others_by_a_share(void **state) {
    (void)state;
    for (uint32_t share = 0; share < 4; share++) {
        struct world w;
        struct sched_options o = options(sched_policy_find("chunked"), 400);
        o.knobs.max_seqs = 16;
        o.knobs.batch_slowdown = 0.3 * share;
        world_open(&w, &o);
        w.is_timeless = true;
        send(&w, 2, other);
        send(&w, 14, line);
        double earned_us = 0, added_us = 0;
        while (w.requests[0].is_live) {
            world_plan(&w);
            uint64_t attended = 0;
            uint32_t rows = 0, tokens = 0;
            for (uint32_t r = 0; r < w.plan.row_count; r++) {
                const struct plan_row *row = &w.plan.rows[r];
                if (is_batch_row(&w, row)) continue;
                rows++;
                tokens += row->count;
                attended += cost_attended(row->first, row->count);
            }
            assert_true(rows > 0);
            assert_true(tokens == rows || rows == w.plan.row_count); /* none beside a prompt */
            double alone_us = sched_step_us(w.s, rows, tokens, attended);
            earned_us += alone_us * o.knobs.batch_slowdown;
            added_us +=
                sched_step_us(w.s, w.plan.row_count, w.plan.token_count, w.plan.attended_tokens) -
                alone_us;
            assert_true(added_us <= earned_us * 1.000001);
            world_run(&w);
            world_apply(&w);
        }
        if (share > 0) assert_true(added_us > 0.5 * earned_us);
        assert_int_equal(added_us > 0, share > 0);
        finish(&w);
    }
}

/* ---- the pace ---- */

enum { MANY = 16, TOGETHER = 12, ANSWER = 40 };

/* Twelve requests at a time: a step of n rows takes 100 + 10 n us, so a token takes 220 us. Lines
 * that come later have the next numbers of requests. */
static void open_with_pace(struct world *w, double slowdown) {
    struct sched_options o = options(sched_policy_find("chunked"), 800);
    o.knobs.max_seqs = MANY;
    o.knobs.batch_slowdown = slowdown;
    o.knobs.prefix_cache = false;
    o.cost = (struct cost_model){0};
    cost_init(&o.cost,
              &(struct cost_profile){.fixed_us = 100, .per_token_us = 10, .per_attended_us = 1e-6});
    world_open(w, &o);
    for (uint32_t round = 0; round < 3; round++) {
        send(w, TOGETHER, (struct world_submit){.prompt_tokens = 1, .max_tokens = ANSWER});
        world_drain(w, 1000);
    }
    assert_true(sched_pace_us(w->s) > 215);
    assert_true(sched_pace_us(w->s) < 225);
}

static void test_requests_that_end_without_a_token_leave_the_pace(void **state) {
    (void)state;
    struct world w;
    open_with_pace(&w, 0.5);
    double before_us = sched_pace_us(w.s);
    for (uint32_t n = 0; n < LINE_PACE_REQUESTS; n++) {
        send(&w, 1, (struct world_submit){.prompt_tokens = 1, .max_tokens = ANSWER});
        struct world_request *one = &w.requests[w.request_count - 1];
        one->is_cancelled = true;
        sched_cancel(w.s, one->request, 0, FINISH_STOP, w.now_us);
        world_events(&w);
    }
    assert_true(sched_pace_us(w.s) == before_us);
    world_drain(&w, 1000);
    world_close(&w);
}

/* Returns its mean time per token, beside lines that have begun to decode. */
static double run_one(struct world *w) {
    send(w, MANY - 1,
         (struct world_submit){.prompt_tokens = 1, .max_tokens = 400, .is_batch = true});
    run(w, 2);
    send(w, 1, (struct world_submit){.prompt_tokens = 1, .max_tokens = ANSWER});
    const struct world_request *one = world_last(w);
    while (one->is_live && one->last.total == 0) run(w, 1);
    int64_t first_us = w->now_us;
    while (one->is_live) run(w, 1);
    return (double)(w->now_us - first_us) / (ANSWER - 1);
}

/* Alone it takes 110 us per token, beside all lines 260 us. */
static void test_lines_slow_a_fast_request_by_a_share(void **state) {
    (void)state;
    for (uint32_t percent = 0; percent <= 60; percent += 20) {
        struct world w;
        open_with_pace(&w, 0.01 * percent);
        double us = run_one(&w), share = 0.01 * percent;
        assert_true(us > 110 * (1 + share) - 11);
        assert_true(us <= 111 * (1 + share + (share < 0.1 ? share : 0.1)));
        finish(&w);
    }
}

static void test_lines_slow_a_fast_request_to_the_pace_at_most(void **state) {
    (void)state;
    struct world w;
    open_with_pace(&w, 10);
    double pace_us = sched_pace_us(w.s), us = run_one(&w);
    assert_true(us > 0.95 * pace_us);
    assert_true(us <= 1.16 * pace_us); /* a tenth of it, and a tenth of the steps without lines */
    finish(&w);
}

/* A request that has waited since its first token gets its tokens almost as if there were no
 * lines: what they add is what its steps earn, 11 us of 110, about a row. */
static void test_lines_do_not_slow_a_request_that_is_slow_already(void **state) {
    (void)state;
    for (uint32_t is_late = 0; is_late < 2; is_late++) {
        struct world w;
        open_with_pace(&w, 10);
        send(&w, MANY - 1,
             (struct world_submit){.prompt_tokens = 1, .max_tokens = 400, .is_batch = true});
        run(&w, 2);
        send(&w, 1, (struct world_submit){.prompt_tokens = 1, .max_tokens = ANSWER});
        run(&w, 3);
        if (is_late) w.now_us += 100 * 220;
        uint32_t rows = 0;
        for (uint32_t n = 0; n < 30; n++) {
            world_plan(&w);
            rows += line_rows(&w, &w.plan);
            world_run(&w);
            world_apply(&w);
        }
        if (is_late)
            assert_true(rows <= 35);
        else
            assert_true(rows > 30 * 8);
        finish(&w);
    }
}

/* What lines add to requests is not taken for slowness of the requests. */
static void test_the_pace_stays_where_it_is_while_lines_use_it(void **state) {
    (void)state;
    struct world w;
    open_with_pace(&w, 10);
    double before_us = sched_pace_us(w.s);
    for (uint32_t n = 0; n < 2 * LINE_PACE_REQUESTS; n++) {
        uint32_t lines = stats(&w).batch_running + stats(&w).batch_waiting;
        if (lines < MANY)
            send(&w, MANY,
                 (struct world_submit){.prompt_tokens = 1, .max_tokens = 60, .is_batch = true});
        send(&w, 1, (struct world_submit){.prompt_tokens = 1, .max_tokens = ANSWER});
        const struct world_request *one = world_last(&w);
        while (one->is_live) run(&w, 1);
        assert_true(sched_pace_us(w.s) <= before_us * 1.01);
    }
    assert_true(sched_pace_us(w.s) < 130); /* one at a time: 110 us */
    finish(&w);
}

/* Otherwise the model would be shown what follows from its own predictions. */
static void test_steps_shared_with_lines_do_not_teach_the_cost_model(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(sched_policy_find("chunked"), 800);
    o.knobs.max_seqs = MANY;
    world_open(&w, &o);
    send(&w, 2, (struct world_submit){.prompt_tokens = 8, .max_tokens = 100});
    run(&w, 3);
    struct cost_model before = *sched_cost(w.s);
    send(&w, MANY - 2, line);
    for (uint32_t n = 0; n < 25; n++) {
        world_plan(&w);
        assert_true(line_rows(&w, &w.plan) > 0);
        assert_true(line_rows(&w, &w.plan) < w.plan.row_count);
        world_run(&w);
        world_apply(&w);
    }
    assert_memory_equal(&before, sched_cost(w.s), sizeof(before));
    finish(&w);
}

/* ---- ahead plans ---- */

static void test_an_ahead_plan_asks_for_a_drain_to_preempt_a_line(void **state) {
    (void)state;
    FOR_EACH_POLICY(p) {
        struct world w;
        struct sched_options o = options(*p, 400);
        o.knobs.dynamic_batch = 1;
        world_open(&w, &o);
        send(&w, BATCH, line);
        /* A plan of lines alone is never made ahead: every second turn makes none. */
        for (uint32_t n = 0; n < 5; n++) assert_true(world_step_ahead(&w));
        assert_non_null(w.oldest);
        send(&w, 1, other);
        struct plan *ahead = world_plan_next(&w);
        assert_true(w.is_draining);
        assert_null(ahead); /* lines have no rows in it: they would delay the drain */
        world_finish_oldest(&w, ahead);
        struct plan *next = world_plan_next(&w);
        assert_non_null(next);
        assert_int_equal(next->preempted_count, 1);
        assert_int_equal(next->row_count - line_rows(&w, next), 1);
        world_finish_oldest(&w, next);
        world_drain_by(&w, world_step_ahead, 10000);
        finish(&w);
    }
}

/* A sequence that waits for its token is planned as soon as it has it. */
static void test_lines_do_not_delay_a_sequence_that_waits_for_its_token(void **state) {
    (void)state;
    FOR_EACH_POLICY(p) {
        uint64_t steps[2];
        for (uint32_t with = 0; with < 2; with++) {
            struct world w;
            struct sched_options o = options(*p, 400);
            o.knobs.dynamic_batch = 1;
            world_open(&w, &o);
            struct world_submit one = other;
            one.waits_for_token = true;
            one.max_tokens = 30;
            send(&w, 1, one);
            if (with) send(&w, 2, line);
            while (w.requests[0].is_live) assert_true(world_step_ahead(&w));
            steps[with] = w.step;
            world_drain_by(&w, world_step_ahead, 10000);
            finish(&w);
        }
        if (steps[0] != steps[1]) fail_msg("%s: %lu, %lu", (*p)->name, steps[0], steps[1]);
    }
}

/* ---- choices and prefixes ---- */

static void send_choices(struct world *w, uint32_t n, struct world_submit in) {
    in.request = 1000 + w->request_count;
    in.text = w->request_count;
    for (in.choice = 0; in.choice < n; in.choice++) {
        seq_idx i = world_submit(w, in);
        if (in.choice == 0) in.parent = i;
        in.is_fork = true;
    }
}

/* They share the prompt although lines have had all seats. */
static void test_choices_find_seats_beside_lines(void **state) {
    (void)state;
    for (uint32_t depth = 0; depth < 2; depth++) {
        FOR_EACH_POLICY(p) {
            struct world w;
            struct sched_options o = options(*p, 400);
            o.knobs.prefix_cache = false;
            o.knobs.dynamic_batch = 1;
            world_open(&w, &o);
            send(&w, LINES, line);
            bool (*step)(struct world *) = depth > 0 ? world_step_ahead : world_step;
            for (uint32_t n = 0; n < 3; n++) assert_true(step(&w));
            send_choices(&w, BATCH, (struct world_submit){.prompt_tokens = 20, .max_tokens = 4});
            uint32_t computed = 0;
            while (world_last(&w)->is_live) {
                assert_true(step(&w));
                computed++;
            }
            if (computed > 8) fail_msg("%s: %u steps", (*p)->name, computed);
            world_drain_by(&w, step, 10000);
            finish(&w);
        }
    }
}

/* The line that computes the prefix may stop at any time. */
static void test_no_sequence_waits_for_the_prefix_of_a_line(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(sched_policy_find("chunked"), 400);
    o.knobs.chunk_tokens = 8;
    world_open(&w, &o);
    struct world_submit in = {.prompt_tokens = 90, .shared = 90, .text = 7, .max_tokens = 4};
    send(&w, 1, other); /* otherwise nobody waits */
    in.is_batch = true;
    world_submit(&w, in);
    run(&w, 1);
    in.is_batch = false;
    world_submit(&w, in);
    world_submit(&w, in);
    world_plan(&w);
    assert_int_equal(rows_of(&w, w.requests[2].request), 1);
    assert_int_equal(rows_of(&w, w.requests[3].request), 0); /* it waits for the one before it */
    world_run(&w);
    world_apply(&w);
    finish(&w);
}

static void test_lines_with_one_prefix_compute_it_once(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(sched_policy_find("chunked"), 400);
    world_open(&w, &o);
    struct world_submit in = {
        .prompt_tokens = 90, .shared = 84, .text = 7, .max_tokens = 4, .is_batch = true};
    for (uint32_t n = 0; n < BATCH; n++) world_submit(&w, in);
    world_drain(&w, 1000);
    for (uint32_t n = 1; n < BATCH; n++) assert_true(w.requests[n].last.cached_tokens >= 80);
    finish(&w);
}

/* ---- the queue ---- */

static void test_lines_do_not_fill_the_queue_of_others(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = options(sched_policy_find("chunked"), 400);
    o.knobs.queue_max = 2;
    world_open(&w, &o);
    double before = sched_predict_wait_us(w.s, 100);
    send(&w, 2 * BATCH, line);
    struct err err = {0};
    seq_idx i;
    assert_int_equal(world_try_submit(&w, line, &i, &err), ST_FULL);
    assert_true(strstr(err.text, "batch lines"));
    run(&w, 2);
    assert_true(sched_predict_wait_us(w.s, 100) <= before * 1.5);
    w.is_timeless = true;
    send(&w, BATCH + 2, other);
    assert_int_equal(world_try_submit(&w, other, &i, &err), ST_FULL);
    assert_true(strstr(err.text, "queue_max"));
    finish(&w);
}

static void test_a_line_can_expire_and_be_cancelled_in_any_state(void **state) {
    (void)state;
    for (uint32_t steps = 0; steps < 6; steps++) {
        struct world w;
        struct sched_options o = options(sched_policy_find("static"), 30);
        world_open(&w, &o);
        send(&w, LINES, line);
        struct world_submit short_lived = line;
        short_lived.urgency.expires_us = w.now_us + 1;
        send(&w, 1, short_lived);
        run(&w, steps);
        for (uint32_t n = 0; n < LINES; n += 2) {
            w.requests[n].is_cancelled = true;
            sched_cancel(w.s, w.requests[n].request, 0, FINISH_CANCELLED, w.now_us);
            sched_verify(w.s);
        }
        world_drain(&w, 1000);
        assert_int_equal(w.requests[0].finish, FINISH_CANCELLED);
        assert_int_equal(w.requests[1].finish, FINISH_LENGTH);
        assert_int_equal(w.requests[LINES].finish, FINISH_EXPIRED);
        world_close(&w);
    }
}

/* ---- as if there were none ---- */

enum { TRACE_STEPS = 400, TRACE_ROWS = 8192 };

struct trace_row {
    uint64_t request, step, first, count; /* no padding: they are compared as bytes */
};

struct trace {
    struct trace_row rows[TRACE_ROWS];
    uint32_t count;
};

static void add_rows(const struct world *w, uint32_t step, struct trace *t) {
    struct trace_row found[64];
    uint32_t count = 0;
    for (uint32_t r = 0; r < w->plan.row_count; r++) {
        const struct plan_row *row = &w->plan.rows[r];
        if (is_batch_row(w, row)) continue;
        found[count++] =
            (struct trace_row){sched_seq_at(w->s, row->seq)->request, step, row->first, row->count};
    }
    for (uint32_t r = 0; r < count && t->count < TRACE_ROWS; r++) t->rows[t->count++] = found[r];
}

/* Interactive traffic that depends on the seed alone; a step without interactive rows takes no
 * time. With lines: two thirds of the steps submit one. */
static void trace_traffic(const struct sched_policy *p, uint64_t seed, bool with, struct trace *t) {
    struct world w;
    struct rng rng = {.seed = seed}, line_rng = {.seed = seed + 1000};
    struct sched_options o = options(p, 24 + (uint32_t)rng_below(&rng, 60));
    o.knobs.prefix_cache = false;
    o.knobs.spill_blocks = seed % 2 ? 32 : 0;
    o.knobs.chunk_tokens = seed % 3 ? 0 : 7;
    o.knobs.step_target_ms = seed % 4 == 3 ? 12 : 0;
    o.knobs.static_wait_ms = o.knobs.dynamic_window_ms = 2;
    o.knobs.dynamic_batch = 3;
    world_open(&w, &o);
    w.is_timeless = true;
    t->count = 0;
    for (uint32_t step = 0; step < TRACE_STEPS; step++) {
        w.now_us = 1000 + (int64_t)step * 1000;
        if (rng_below(&rng, 6) == 0) {
            struct world_submit in = {.prompt_tokens = 1 + (uint32_t)rng_below(&rng, 60),
                                      .max_tokens = 1 + (uint32_t)rng_below(&rng, 30),
                                      .request = 100000 + step,
                                      .tenant = 1 + (uint32_t)rng_below(&rng, 3),
                                      .has_share = seed % 5 == 0};
            in.urgency.priority = (int32_t)rng_below(&rng, 3);
            seq_idx i;
            struct err err;
            world_try_submit(&w, in, &i, &err);
        }
        if (with && rng_below(&line_rng, 3) > 0) {
            struct world_submit in = {.prompt_tokens = 1 + (uint32_t)rng_below(&line_rng, 60),
                                      .max_tokens = 1 + (uint32_t)rng_below(&line_rng, 30),
                                      .request = 200000 + step,
                                      .is_batch = true};
            seq_idx i;
            struct err err;
            world_try_submit(&w, in, &i, &err);
        }
        world_plan(&w);
        add_rows(&w, step, t);
        if (world_is_empty_plan(&w)) continue;
        world_run(&w);
        world_apply(&w);
    }
    w.now_us = 1000 + TRACE_STEPS * 1000;
    world_drain(&w, 100000);
    world_close(&w);
}

/* Without a prefix cache, at one plan a step, the rows of the others are the same in every plan. */
static void test_others_get_the_same_rows_as_without_lines(void **state) {
    (void)state;
    static struct trace without, with;
    FOR_EACH_POLICY(p) {
        for (uint64_t seed = 1; seed <= 30; seed++) {
            trace_traffic(*p, seed, false, &without);
            trace_traffic(*p, seed, true, &with);
            assert_true(without.count > 100);
            for (uint32_t r = 0; r < without.count && r < with.count; r++)
                if (memcmp(&without.rows[r], &with.rows[r], sizeof(without.rows[r])) != 0)
                    fail_msg("%s, seed %lu: row %u of step %lu, with lines of step %lu", (*p)->name,
                             (unsigned long)seed, r, (unsigned long)without.rows[r].step,
                             (unsigned long)with.rows[r].step);
            assert_int_equal(without.count, with.count);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_take_the_whole_machine_when_nobody_asks),
        cmocka_unit_test(test_lines_run_in_the_order_of_submission),
        cmocka_unit_test(test_lines_that_outgrow_the_pool_all_end),
        cmocka_unit_test(test_a_line_leaves_its_seat_in_the_plan_that_needs_it),
        cmocka_unit_test(test_a_line_may_be_preempted_any_number_of_times),
        cmocka_unit_test(test_lines_hold_no_slot_of_a_batch),
        cmocka_unit_test(test_lines_leave_their_blocks_to_a_sequence_that_waits),
        cmocka_unit_test(test_lines_leave_their_blocks_to_answers_that_grow),
        cmocka_unit_test(test_swapped_lines_leave_their_spill_slots),
        cmocka_unit_test(test_rows_of_lines_stay_within_the_step_target),
        cmocka_unit_test(test_lines_lengthen_the_steps_of_others_by_a_share),
        cmocka_unit_test(test_lines_slow_a_fast_request_by_a_share),
        cmocka_unit_test(test_requests_that_end_without_a_token_leave_the_pace),
        cmocka_unit_test(test_lines_slow_a_fast_request_to_the_pace_at_most),
        cmocka_unit_test(test_lines_do_not_slow_a_request_that_is_slow_already),
        cmocka_unit_test(test_the_pace_stays_where_it_is_while_lines_use_it),
        cmocka_unit_test(test_steps_shared_with_lines_do_not_teach_the_cost_model),
        cmocka_unit_test(test_an_ahead_plan_asks_for_a_drain_to_preempt_a_line),
        cmocka_unit_test(test_lines_do_not_delay_a_sequence_that_waits_for_its_token),
        cmocka_unit_test(test_choices_find_seats_beside_lines),
        cmocka_unit_test(test_no_sequence_waits_for_the_prefix_of_a_line),
        cmocka_unit_test(test_lines_with_one_prefix_compute_it_once),
        cmocka_unit_test(test_lines_do_not_fill_the_queue_of_others),
        cmocka_unit_test(test_a_line_can_expire_and_be_cancelled_in_any_state),
        cmocka_unit_test(test_others_get_the_same_rows_as_without_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
