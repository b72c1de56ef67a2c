/* Goal:   a plan made while another one is under way assumes what that one computes, does nothing
 *         that could harm it, and leaves no trace where the assumption was wrong.
 * Method: small worlds (unit/sched/world.h), one fact each; sched_verify after every call; every
 *         answer is compared with one computed without a scheduler. */
#include "unit/sched/world.h"

static struct world open_world(const char *policy, uint32_t blocks, uint32_t max_seqs) {
    struct world w;
    struct sched_options o = world_options(policy, blocks, 4, max_seqs);
    world_open(&w, &o);
    return w;
}

static seq_idx submit(struct world *w, uint32_t prompt_tokens, uint32_t max_tokens) {
    return world_submit(
        w, (struct world_submit){.prompt_tokens = prompt_tokens, .max_tokens = max_tokens});
}

static const struct plan_row *row_of(const struct plan *plan, seq_idx i) {
    for (uint32_t r = 0; plan && r < plan->row_count; r++)
        if (plan->rows[r].seq == i) return &plan->rows[r];
    return NULL;
}

static const struct sched_seq *seq_of(const struct world *w, seq_idx i) {
    return sched_seq_at(w->s, i);
}

static uint32_t available(const struct world *w) { return kv_cache_available(sched_kv(w->s)); }

/* The first plan is under way. */
static struct plan *begin(struct world *w) {
    struct plan *first = world_plan_next(w);
    assert_non_null(first);
    world_advance(w, first);
    return first;
}

static void fail_oldest(struct world *w, struct plan *next) {
    struct plan *oldest = w->oldest;
    world_advance(w, next);
    w->is_draining = next != NULL;
    sched_fail(w->s, oldest, w->now_us);
    sched_verify(w->s);
    world_events(w);
}

/* ---- what is assumed ---- */

static void test_a_decode_is_planned_before_its_token_is_known(void **state) {
    (void)state;
    struct world w = open_world("chunked", 64, 2);
    seq_idx a = submit(&w, 9, 9);
    begin(&w);
    struct plan *next = world_plan_next(&w);
    const struct plan_row *row = row_of(next, a);
    assert_non_null(row);
    assert_true(row->takes_sampled && row->samples);
    assert_int_equal(row->first, 9);
    assert_int_equal(row->count, 1);
    assert_int_equal(seq_of(&w, a)->total, 10);
    world_finish_oldest(&w, next);
    assert_int_equal(w.requests[0].last.total, 10); /* and not 11: the rest is under way */
    assert_int_equal(seq_of(&w, a)->computed, 9);
    assert_int_equal(seq_of(&w, a)->planned, 1);
    world_drain_by(&w, world_step_ahead, 100);
    assert_int_equal(w.requests[0].finish, FINISH_LENGTH);
    assert_int_equal(w.step, 9); /* no step was lost, and none was for nothing */
    assert_int_equal(sched_stats(w.s).dropped_rows, 0);
    world_close(&w);
}

static void test_a_long_prompt_continues_in_ahead_plans(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 64, 4, 2);
    o.knobs.chunk_tokens = 8;
    world_open(&w, &o);
    seq_idx a = submit(&w, 30, 3);
    begin(&w);
    struct plan *next = world_plan_next(&w);
    assert_int_equal(row_of(next, a)->first, 8);
    assert_int_equal(row_of(next, a)->count, 8);
    assert_false(row_of(next, a)->takes_sampled);
    world_finish_oldest(&w, next);
    world_drain_by(&w, world_step_ahead, 100);
    assert_int_equal(w.requests[0].finish, FINISH_LENGTH);
    world_close(&w);
}

static void test_an_empty_ahead_plan_changes_nothing(void **state) {
    (void)state;
    struct world w = open_world("chunked", 64, 2);
    seq_idx a = submit(&w, 9, 1); /* it ends with its first token */
    begin(&w);
    assert_null(world_plan_next(&w));
    assert_null(world_plan_next(&w));
    sched_verify(w.s);
    assert_int_equal(seq_of(&w, a)->total, 10);
    world_finish_oldest(&w, NULL);
    assert_int_equal(w.requests[0].finish, FINISH_LENGTH);
    assert_int_equal(available(&w), 64);
    world_close(&w);
}

/* ---- who rests ---- */

static void test_one_row_at_a_time_has_one_row_under_way(void **state) {
    (void)state;
    struct world w = open_world("chunked", 64, 2);
    seq_idx a = world_submit(
        &w, (struct world_submit){.prompt_tokens = 9, .max_tokens = 4, .one_row_at_a_time = true});
    seq_idx b = submit(&w, 9, 4);
    begin(&w);
    struct plan *next = world_plan_next(&w);
    assert_null(row_of(next, a));
    assert_non_null(row_of(next, b));
    world_finish_oldest(&w, next);
    next = world_plan_next(&w);
    assert_non_null(row_of(next, a));
    assert_false(row_of(next, a)->takes_sampled);
    world_finish_oldest(&w, next);
    world_drain_by(&w, world_step_ahead, 100);
    world_close(&w);
}

static void test_who_waits_for_a_token_has_no_row_before_it_is_known(void **state) {
    (void)state;
    struct world w = open_world("chunked", 64, 2);
    seq_idx a = world_submit(
        &w, (struct world_submit){.prompt_tokens = 9, .max_tokens = 4, .waits_for_token = true});
    seq_idx b = submit(&w, 9, 6);
    begin(&w);
    for (int turn = 0; turn < 2; turn++) {
        struct plan *next = world_plan_next(&w); /* while a token of both is sampled */
        assert_null(row_of(next, a));
        assert_true(row_of(next, b)->takes_sampled);
        world_finish_oldest(&w, next);
        next = world_plan_next(&w);
        assert_false(row_of(next, a)->takes_sampled);
        world_finish_oldest(&w, next);
    }
    world_drain_by(&w, world_step_ahead, 100);
    assert_int_equal(w.requests[0].finish, FINISH_LENGTH);
    world_close(&w);
}

static void test_a_parent_has_no_row_until_its_choices_share_its_prompt(void **state) {
    (void)state;
    struct world w = open_world("chunked", 64, 4);
    struct world_submit in = {.prompt_tokens = 10, .max_tokens = 6, .request = 77};
    seq_idx parent = world_submit(&w, in);
    in.choice = 1;
    in.is_fork = true;
    in.parent = parent;
    seq_idx child = world_submit(&w, in);
    begin(&w);
    struct plan *next = world_plan_next(&w);
    assert_null(next); /* the prompt is complete when the plan under way is applied */
    world_finish_oldest(&w, NULL);
    assert_int_equal(seq_of(&w, child)->state, SEQ_RUNNING);
    world_drain_by(&w, world_step_ahead, 100);
    assert_int_equal(w.requests[0].finish, FINISH_LENGTH);
    assert_int_equal(w.requests[1].finish, FINISH_LENGTH);
    world_close(&w);
}

/* ---- what ends under a plan ---- */

static void test_a_row_planned_ahead_of_an_end_is_dropped(void **state) {
    (void)state;
    struct world w = open_world("chunked", 64, 2);
    world_submit(&w, (struct world_submit){.prompt_tokens = 7, .max_tokens = 20, .end_after = 1});
    const struct world_request *r = world_last(&w);
    begin(&w);
    struct plan *next = world_plan_next(&w);
    uint32_t before = available(&w);
    world_finish_oldest(&w, next);
    assert_int_equal(r->finish, FINISH_STOP);
    assert_int_equal(r->last.total, 8);
    assert_int_equal(seq_of(&w, 0)->state, SEQ_LINGERING);
    assert_int_equal(available(&w), before); /* the row ahead has its blocks */
    assert_true(sched_is_idle(w.s));
    assert_null(world_plan_next(&w));
    world_finish_oldest(&w, NULL);
    assert_true(next->rows[0].is_dropped);
    assert_int_equal(sched_stats(w.s).dropped_rows, 1);
    assert_int_equal(seq_of(&w, 0)->state, SEQ_FREE);
    assert_int_equal(available(&w), 64);
    /* The dropped row completed the second block, which no look-up may find: only tokens 0 to 3. */
    int32_t longer[12] = {0};
    memcpy(longer, r->tokens, 8 * sizeof(longer[0]));
    assert_int_equal(kv_cache_match(sched_kv(w.s), (struct kv_salt){r->salt, 0}, longer, 12).tokens,
                     4);
    world_close(&w);
}

static void test_an_index_is_not_used_again_before_its_row_is_over(void **state) {
    (void)state;
    struct world w = open_world("chunked", 64, 2);
    world_submit(&w, (struct world_submit){.prompt_tokens = 7, .max_tokens = 9, .end_after = 1});
    begin(&w);
    world_finish_oldest(&w, world_plan_next(&w));
    seq_idx b = submit(&w, 5, 5);
    assert_int_not_equal(b, 0);
    struct plan *next = world_plan_next(&w);
    assert_non_null(row_of(next, b));
    world_finish_oldest(&w, next);
    assert_int_equal(submit(&w, 5, 5), 0);
    world_drain_by(&w, world_step_ahead, 100);
    assert_int_equal(w.live_count, 0);
    world_close(&w);
}

static void test_a_cancel_with_two_plans_under_way_reports_known_tokens_only(void **state) {
    (void)state;
    struct world w = open_world("chunked", 64, 2);
    seq_idx a = submit(&w, 9, 9);
    begin(&w);
    struct plan *next = world_plan_next(&w);
    sched_cancel(w.s, w.requests[0].request, 0, FINISH_CANCELLED, w.now_us);
    w.requests[0].is_cancelled = true;
    sched_verify(w.s);
    world_events(&w);
    assert_int_equal(w.requests[0].finish, FINISH_CANCELLED);
    assert_int_equal(w.requests[0].last.total, 9);
    world_finish_oldest(&w, next);
    assert_int_equal(seq_of(&w, a)->state, SEQ_LINGERING); /* the second plan has a row too */
    world_finish_oldest(&w, NULL);
    assert_int_equal(sched_stats(w.s).dropped_rows, 2);
    assert_int_equal(available(&w), 64);
    world_close(&w);
}

static void test_a_sequence_that_expires_during_a_plan_keeps_its_blocks(void **state) {
    (void)state;
    struct world w = open_world("chunked", 64, 2);
    world_submit(&w, (struct world_submit){.prompt_tokens = 9,
                                           .max_tokens = 9,
                                           .urgency = {.expires_us = w.now_us + 50}});
    begin(&w);
    uint32_t before = available(&w);
    w.now_us += 60;
    assert_null(world_plan_next(&w));
    assert_int_equal(available(&w), before);
    world_events(&w);
    assert_int_equal(w.requests[0].finish, FINISH_EXPIRED);
    assert_int_equal(w.requests[0].last.total, 9);
    world_finish_oldest(&w, NULL);
    assert_int_equal(available(&w), 64);
    world_close(&w);
}

/* ---- memory ---- */

static void test_an_ahead_plan_preempts_no_sequence(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 6, 4, 2);
    o.knobs.watermark = 0;
    o.knobs.prefix_cache = false;
    world_open(&w, &o);
    submit(&w, 7, 13);
    submit(&w, 7, 13);
    uint32_t drains = 0;
    for (uint32_t n = 0; n < 200 && !sched_is_idle(w.s); n++) {
        world_step_ahead(&w); /* asserts that plans made ahead preempt no sequence */
        drains += w.plan.wants_drain || w.other.wants_drain;
    }
    assert_true(drains > 0);
    assert_true(sched_stats(w.s).preempted > 0);
    assert_int_equal(w.requests[0].finish, FINISH_LENGTH);
    assert_int_equal(w.requests[1].finish, FINISH_LENGTH);
    world_close(&w);
}

/* Two sequences that share six blocks, just after one was swapped out. */
static struct plan *swap_one_out(struct world *w) {
    struct sched_options o = world_options("chunked", 6, 4, 2);
    o.knobs.watermark = 0;
    o.knobs.prefix_cache = false;
    o.knobs.preempt = PREEMPT_SWAP;
    world_open(w, &o);
    submit(w, 7, 13);
    submit(w, 7, 13);
    for (uint32_t n = 0; n < 100; n++) {
        struct plan *next = world_plan_next(w);
        if (next && next->preempted_count > 0) {
            assert_null(w->oldest);
            return next;
        }
        world_finish_oldest(w, next);
    }
    fail_msg("no sequence was swapped out");
    return NULL;
}

static void test_a_sequence_being_swapped_out_is_not_admitted_ahead(void **state) {
    (void)state;
    struct world w;
    world_advance(&w, swap_one_out(&w));
    assert_int_equal(seq_of(&w, 1)->state, SEQ_SWAPPED);
    sched_cancel(w.s, w.requests[0].request, 0, FINISH_CANCELLED, w.now_us); /* blocks for it */
    w.requests[0].is_cancelled = true;
    assert_null(world_plan_next(&w));
    world_finish_oldest(&w, NULL);
    struct plan *next = world_plan_next(&w);
    assert_non_null(row_of(next, 1));
    world_finish_oldest(&w, next);
    world_drain_by(&w, world_step_ahead, 100);
    assert_int_equal(w.requests[1].finish, FINISH_LENGTH);
    world_close(&w);
}

static void test_a_sequence_that_ends_while_swapped_out_keeps_its_slots(void **state) {
    (void)state;
    struct world w;
    world_advance(&w, swap_one_out(&w));
    uint32_t spilled = sched_stats(w.s).kv.spilled_blocks;
    sched_cancel(w.s, w.requests[1].request, 0, FINISH_CANCELLED, w.now_us);
    w.requests[1].is_cancelled = true;
    sched_verify(w.s);
    assert_true(spilled > 0);
    assert_int_equal(sched_stats(w.s).kv.spilled_blocks, spilled);
    world_finish_oldest(&w, NULL);
    assert_int_equal(sched_stats(w.s).kv.spilled_blocks, 0);
    world_drain_by(&w, world_step_ahead, 100);
    world_close(&w);
}

/* ---- what fails ---- */

static void test_a_failed_plan_ends_its_sequences_and_drops_their_rows_ahead(void **state) {
    (void)state;
    struct world w = open_world("chunked", 64, 2);
    seq_idx a = submit(&w, 9, 9);
    begin(&w);
    seq_idx b = submit(&w, 6, 4);
    struct plan *next = world_plan_next(&w);
    assert_non_null(row_of(next, a));
    assert_non_null(row_of(next, b));
    fail_oldest(&w, next);
    assert_int_equal(w.requests[0].finish, FINISH_ERROR);
    assert_int_equal(w.requests[0].last.total, 9);
    assert_int_equal(seq_of(&w, a)->state, SEQ_LINGERING);
    assert_null(world_plan_next(&w)); /* not before the other plan is applied */
    world_finish_oldest(&w, NULL);
    assert_true(row_of(next, a)->is_dropped);
    assert_false(row_of(next, b)->is_dropped);
    world_drain_by(&w, world_step_ahead, 100);
    assert_int_equal(w.requests[1].finish, FINISH_LENGTH);
    assert_int_equal(available(&w), 64);
    world_close(&w);
}

static void test_a_failed_row_ends_only_its_sequence(void **state) {
    (void)state;
    struct world w = open_world("chunked", 64, 2);
    seq_idx a = submit(&w, 9, 9);
    submit(&w, 6, 4);
    begin(&w);
    struct plan *next = world_plan_next(&w), *oldest = w.oldest;
    world_advance(&w, next);
    world_run_plan(&w, oldest);
    for (uint32_t r = 0; r < oldest->row_count; r++)
        if (oldest->rows[r].seq == a) w.results[r].failed = true;
    world_apply_plan(&w, oldest);
    assert_int_equal(w.requests[0].finish, FINISH_ERROR);
    assert_int_equal(w.requests[0].last.total, 9);
    world_drain_by(&w, world_step_ahead, 100);
    assert_true(sched_stats(w.s).dropped_rows == 1);
    assert_int_equal(w.requests[1].finish, FINISH_LENGTH);
    world_close(&w);
}

/* Of two choices that share a block one copies it to write to it. Here the plan that copies has no
 * row of it, because a prompt that is never split takes the whole step. A plan ahead has none
 * either: if the copy fails, its tokens are computed again. */
static void test_a_sequence_whose_moves_failed_is_recomputed_without_a_row_ahead(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("orca", 64, 4, 4);
    o.knobs.max_step_tokens = 16;
    world_open(&w, &o);
    struct world_submit in = {.prompt_tokens = 10, .max_tokens = 6, .request = 77};
    in.parent = world_submit(&w, in);
    in.choice = 1;
    in.is_fork = true;
    world_submit(&w, in);
    begin(&w);
    world_finish_oldest(&w, NULL);
    seq_idx prompt = submit(&w, 16, 4);
    struct plan *first = begin(&w);
    assert_int_equal(first->row_count, 1);
    assert_int_equal(first->moves.count, 1);
    struct plan *next = world_plan_next(&w);
    assert_int_equal(next->row_count, 2);
    fail_oldest(&w, next);
    assert_int_equal(world_find(&w, w.requests[2].request, 0)->finish, FINISH_ERROR);
    uint32_t dropped = 0, waiting = 0;
    for (seq_idx i = 0; i < 2; i++) waiting += seq_of(&w, i)->state == SEQ_WAITING;
    assert_int_equal(waiting, 1);
    world_finish_oldest(&w, NULL);
    for (uint32_t r = 0; r < 2; r++) dropped += next->rows[r].is_dropped;
    assert_true(row_of(next, prompt)->is_dropped);
    assert_int_equal(dropped, 1);
    world_drain_by(&w, world_step_ahead, 100);
    assert_int_equal(w.requests[0].finish, FINISH_LENGTH);
    assert_int_equal(w.requests[1].finish, FINISH_LENGTH);
    world_close(&w);
}

/* ---- what is reported to a policy ---- */

struct reported {
    uint64_t rows, tokens;
};
static struct reported reported;

static int64_t reporting_key(const void *state, const struct sched_seq *seq,
                             const struct sched_view *view) {
    (void)state;
    (void)view;
    return seq->arrived_us;
}

static uint32_t reporting_pick(const void *state, const struct sched_seq *const *running,
                               uint32_t count, const struct sched_view *view) {
    (void)state;
    (void)running;
    (void)view;
    return count - 1;
}

static bool reporting_step(void *state, struct sched_seq *seq, uint32_t tokens,
                           const struct sched_view *view) {
    (void)state;
    (void)seq;
    (void)view;
    reported.rows++;
    reported.tokens += tokens;
    return false;
}

static const struct sched_policy reporting = {.name = "reporting",
                                              .key = reporting_key,
                                              .pick_victim = reporting_pick,
                                              .on_step = reporting_step};

static void test_dropped_rows_are_not_reported_to_the_policy(void **state) {
    (void)state;
    struct world w;
    struct sched_options o = world_options("chunked", 64, 4, 2);
    o.policy = &reporting;
    world_open(&w, &o);
    reported = (struct reported){0};
    world_submit(&w, (struct world_submit){.prompt_tokens = 7, .max_tokens = 9, .end_after = 3});
    world_drain_by(&w, world_step_ahead, 100);
    assert_int_equal(sched_stats(w.s).dropped_rows, 1);
    assert_int_equal(reported.rows, 3);
    assert_int_equal(reported.tokens, 7 + 2);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_decode_is_planned_before_its_token_is_known),
        cmocka_unit_test(test_a_long_prompt_continues_in_ahead_plans),
        cmocka_unit_test(test_an_empty_ahead_plan_changes_nothing),
        cmocka_unit_test(test_one_row_at_a_time_has_one_row_under_way),
        cmocka_unit_test(test_who_waits_for_a_token_has_no_row_before_it_is_known),
        cmocka_unit_test(test_a_parent_has_no_row_until_its_choices_share_its_prompt),
        cmocka_unit_test(test_a_row_planned_ahead_of_an_end_is_dropped),
        cmocka_unit_test(test_an_index_is_not_used_again_before_its_row_is_over),
        cmocka_unit_test(test_a_cancel_with_two_plans_under_way_reports_known_tokens_only),
        cmocka_unit_test(test_a_sequence_that_expires_during_a_plan_keeps_its_blocks),
        cmocka_unit_test(test_an_ahead_plan_preempts_no_sequence),
        cmocka_unit_test(test_a_sequence_being_swapped_out_is_not_admitted_ahead),
        cmocka_unit_test(test_a_sequence_that_ends_while_swapped_out_keeps_its_slots),
        cmocka_unit_test(test_a_failed_plan_ends_its_sequences_and_drops_their_rows_ahead),
        cmocka_unit_test(test_a_failed_row_ends_only_its_sequence),
        cmocka_unit_test(test_a_sequence_whose_moves_failed_is_recomputed_without_a_row_ahead),
        cmocka_unit_test(test_dropped_rows_are_not_reported_to_the_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
