/* Goal:   the records of an engine add up: every choice arrives, is admitted, is preempted and ends
 *         as often as it did, every sampled token is in a row, and nothing is lost however much
 *         happens in one turn.
 * Method: engines that are stepped by hand, with both depths, under random traffic with choices,
 *         cancels and too few blocks; all records are read and counted by choice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "base/rng.h"
#include "engine/control.h"
#include "unit/engine/rig.h"

enum { REQUESTS_MAX = 1200, CHOICES = 4, SEATS_MAX = 8, PIECE = 1 << 20 };

struct tally {
    struct {
        uint32_t arrived, admitted, preempted, ended, sampled, generated;
        enum finish_reason why;
    } of[REQUESTS_MAX][CHOICES];
    uint64_t seat_request[SEATS_MAX];
    uint64_t records, steps;
    struct record_cursor cursor;
};

static bool has_shared; /* some record has blocks that several sequences share */

static void leave(struct tally *t, uint32_t seat, uint64_t request) {
    if (seat < SEATS_MAX && t->seat_request[seat] == request) t->seat_request[seat] = 0;
}

static void count_lists(struct tally *t, const struct record_lists *l) {
    for (uint32_t i = 0; i < l->arrived_count; i++)
        t->of[l->arrived[i].request][l->arrived[i].choice].arrived++;
    for (uint32_t i = 0; i < l->preempted_count; i++) {
        t->of[l->preempted[i].request][l->preempted[i].choice].preempted++;
        leave(t, l->preempted[i].seat, l->preempted[i].request);
    }
    for (uint32_t i = 0; i < l->admitted_count; i++) {
        t->of[l->admitted[i].request][l->admitted[i].choice].admitted++;
        t->seat_request[l->admitted[i].seat] = l->admitted[i].request;
    }
    for (uint32_t i = 0; i < l->row_count; i++) {
        const struct record_row *row = &l->rows[i];
        t->of[row->request][row->choice].sampled += row->samples;
        assert_int_equal(t->seat_request[row->seat], row->request);
        for (uint32_t k = 0; k < i; k++) assert_int_not_equal(l->rows[k].seat, row->seat);
    }
    for (uint32_t i = 0; i < l->ended_count; i++) {
        const struct record_ended *e = &l->ended[i];
        t->of[e->request][e->choice].ended++;
        t->of[e->request][e->choice].generated = e->generated;
        t->of[e->request][e->choice].why = e->why;
        leave(t, e->seat, e->request);
    }
}

static void read_records(struct tally *t, struct engine *e) {
    uint64_t *piece = malloc(PIECE);
    assert_non_null(piece);
    for (size_t used; (used = record_read(engine_records(e), &t->cursor, piece, PIECE)) > 0;) {
        const void *at = piece, *end = (char *)piece + used;
        for (struct record r; record_next(&at, end, &r);) {
            assert_int_equal(r.head->number, ++t->records); /* none is lost */
            t->steps += r.head->has_step;
            if (!r.head->has_step) assert_int_equal(r.lists.row_count, 0);
            assert_int_equal(r.head->available_blocks, r.head->free_blocks + r.head->cached_blocks);
            if (r.head->has_step)
                assert_int_equal(r.head->used_blocks + r.head->shared_blocks +
                                     r.head->cached_blocks + r.head->free_blocks,
                                 control_rules(engine_control(e)).knobs.kv_blocks);
            has_shared |= r.head->shared_blocks > 0;
            count_lists(t, &r.lists);
        }
    }
    free(piece);
}

static void check_choice(const struct tally *t, const struct request *r, uint32_t i) {
    uint32_t ready;
    enum finish_reason why = choice_poll(&r->choices[i], &ready);
    assert_int_equal(t->of[r->id][i].arrived, 1);
    assert_int_equal(t->of[r->id][i].ended, 1);
    assert_int_equal(t->of[r->id][i].why, why);
    assert_int_equal(t->of[r->id][i].generated, ready - r->choices[i].prompt_tokens);
    assert_int_equal(t->of[r->id][i].sampled, t->of[r->id][i].generated);
    assert_int_equal(t->of[r->id][i].preempted, r->choices[i].preempt_count);
    bool was_admitted = r->choices[i].admitted_us > 0;
    if (!was_admitted) assert_int_equal(t->of[r->id][i].admitted, 0);
    uint32_t admitted = t->of[r->id][i].admitted, preempted = t->of[r->id][i].preempted;
    assert_in_range(admitted, preempted, preempted + 1);
}

static void take_all(struct rig *rig) {
    for (struct choice *c; (c = engine_next(rig->engine, 0));) request_unref(c->request);
}

static void run_random(uint64_t seed, uint32_t depth) {
    static struct tally t;
    struct request *requests[60];
    struct rig rig;
    struct knobs k = rig_knobs();
    struct rng rng = {.seed = seed};
    uint32_t count = 0;
    bool did_work;
    t = (struct tally){.cursor = {.next = 1}};
    k.kv_blocks = 14;
    k.queue_max = 512;
    k.max_seqs = 2 + (uint32_t)rng_below(&rng, 6);
    k.preempt = (enum preempt_mode)rng_below(&rng, 3);
    rig_open_depth(&rig, &k, NULL, false, 0, depth, seed);
    for (int n = 0; n < 2000 && (count < 60 || n < 400); n++) {
        if (count < 60 && rng_below(&rng, 3) == 0) {
            uint32_t prompt = 1 + (uint32_t)rng_below(&rng, 60);
            requests[count] = rig_submit(&rig, count, prompt, 1 + (uint32_t)rng_below(&rng, 60),
                                         1 + (uint32_t)rng_below(&rng, CHOICES));
            count++;
        }
        if (count > 0 && rng_below(&rng, 20) == 0)
            engine_cancel(rig.engine, requests[rng_below(&rng, count)]);
        engine_step(rig.engine, &did_work);
        engine_verify(rig.engine);
        read_records(&t, rig.engine);
        take_all(&rig);
        if (!did_work) sim_clock_advance(&rig.clock, 1000);
    }
    for (int idle = 0; idle < 3; idle = did_work ? 0 : idle + 1) { /* until all have ended */
        engine_step(rig.engine, &did_work);
        read_records(&t, rig.engine);
    }
    record_verify(engine_records(rig.engine));
    assert_int_equal(t.steps, engine_liveness(rig.engine).steps);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t c = 0; c < requests[i]->n; c++) check_choice(&t, requests[i], c);
    for (uint32_t s = 0; s < SEATS_MAX; s++) assert_int_equal(t.seat_request[s], 0);
    take_all(&rig);
    for (uint32_t i = 0; i < count; i++) request_unref(requests[i]);
    engine_destroy(rig.engine);
}

static void test_records_add_up_under_random_traffic(void **state) {
    (void)state;
    const char *text = getenv("JITNEY_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 1;
    print_message("JITNEY_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t round = 0; round < 10; round++) run_random(seed * 100 + round, round % 2);
    assert_true(has_shared);
}

/* A thousand arrive in one turn, and a thousand end in another: more than one record holds. */
static void test_a_burst_takes_several_records(void **state) {
    (void)state;
    enum { BURST = 1000 };
    static struct tally t;
    struct request *requests[BURST];
    struct rig rig;
    struct knobs k = rig_knobs();
    bool did_work;
    k.queue_max = 1024;
    t = (struct tally){.cursor = {.next = 1}};
    rig_open(&rig, &k, NULL, false, 0);
    for (uint32_t i = 0; i < BURST; i++) requests[i] = rig_submit(&rig, i, 8, 40, 1);
    for (int n = 0; n < 4; n++) engine_step(rig.engine, &did_work);
    read_records(&t, rig.engine);
    for (uint32_t i = 0; i < BURST; i++) assert_int_equal(t.of[requests[i]->id][0].arrived, 1);
    assert_true(t.records > t.steps + 2);
    for (uint32_t i = 0; i < BURST; i++) engine_cancel(rig.engine, requests[i]);
    engine_step(rig.engine, &did_work);
    read_records(&t, rig.engine);
    for (uint32_t i = 0; i < BURST; i++) check_choice(&t, requests[i], 0);
    take_all(&rig);
    for (uint32_t i = 0; i < BURST; i++) request_unref(requests[i]);
    engine_destroy(rig.engine);
}

/* A change of the policy waits for the plans under way and loses nothing. */
static void test_a_change_of_policy_is_recorded_from_its_first_step_on(void **state) {
    (void)state;
    for (uint32_t depth = 0; depth < 2; depth++) {
        struct rig rig;
        struct knobs k = rig_knobs();
        bool did_work;
        uint64_t ticket = 0, other = 0;
        rig_open_depth(&rig, &k, NULL, false, 0, depth, 0);
        struct request *r = rig_submit(&rig, 1, 20, 30, 3);
        for (int n = 0; n < 5; n++) engine_step(rig.engine, &did_work);
        struct control_rules rules = control_rules(engine_control(rig.engine));
        rules.policy = sched_policy_find("fair");
        rules.knobs.step_target_ms = 5;
        assert_int_equal(engine_ask_change(rig.engine, &rules, &ticket), ST_OK);
        assert_int_equal(engine_ask_change(rig.engine, &rules, &other), ST_FULL);
        for (uint32_t n = 0; n <= depth; n++) engine_step(rig.engine, &did_work);
        assert_true(control_is_done(engine_control(rig.engine), ticket));
        assert_string_equal(control_rules(engine_control(rig.engine)).policy->name, "fair");
        uint64_t number = record_span(engine_records(rig.engine)).next;
        rig_run(&rig, r);
        static uint64_t piece[PIECE / 8];
        struct record_cursor c = {.next = number};
        const void *at = piece;
        const void *end = (char *)piece + record_read(engine_records(rig.engine), &c, piece, PIECE);
        for (struct record step; record_next(&at, end, &step);) {
            assert_string_equal(sched_policies[step.head->policy]->name, "fair");
            if (step.head->has_step) assert_int_equal(step.head->times.target_us, 5000);
        }
        for (uint32_t i = 0; i < 3; i++) rig_check_answer(&rig, &r->choices[i]);
        take_all(&rig);
        request_unref(r);
        engine_destroy(rig.engine);
    }
}

/* An engine that thinks a move takes a second and a step hardly anything. */
static void open_with_slow_moves(struct rig *rig, const struct knobs *k) {
    static const struct cost_profile slow = {.name = "slow moves",
                                             .fixed_us = 100,
                                             .per_token_us = 10,
                                             .per_attended_us = 1e-3,
                                             .per_move_us = 1e6};
    struct engine_options o = rig_options(k);
    struct runner runner;
    *rig = (struct rig){.engine = NULL};
    sim_clock_init(&rig->clock);
    o.clock = &rig->clock.clock;
    cost_init(&o.sched.cost, &slow);
    assert_int_equal(engine_create(&rig->engine, &o, NULL), ST_OK);
    rig->sim = (struct runner_sim_options){.seq_max = sched_seq_max(k),
                                           .row_max = k->max_seqs,
                                           .vocab = RIG_VOCAB,
                                           .clock = &rig->clock,
                                           .profile = slow};
    assert_int_equal(runner_sim_open(&rig->sim, &runner, NULL), ST_OK);
    rig->runner = runner;
    engine_plug(rig->engine, &runner);
}

/* What a step is predicted to take includes the blocks that it moves. */
static void test_the_prediction_of_a_step_includes_its_moves(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    struct request *r[4];
    uint64_t *piece = malloc(PIECE);
    uint32_t steps_with_moves = 0;
    k.kv_blocks = 14;
    k.preempt = PREEMPT_SWAP;
    open_with_slow_moves(&rig, &k);
    for (uint32_t i = 0; i < 4; i++) r[i] = rig_submit(&rig, i, 40, 60, 1);
    for (uint32_t i = 0; i < 4; i++) rig_run(&rig, r[i]);
    struct record_cursor cursor = {.next = 0};
    size_t used = record_read(engine_records(rig.engine), &cursor, piece, PIECE);
    const void *at = piece, *end = (char *)piece + used;
    for (struct record x; record_next(&at, end, &x);) {
        const struct record_head *h = x.head;
        const int64_t moves = (int64_t)h->moves_in + h->moves_out + h->moves_copy;
        if (!h->has_step) continue;
        steps_with_moves += moves > 0;
        assert_in_range(h->times.predicted_us, moves * 900000, moves * 1100000 + 50000);
    }
    assert_true(steps_with_moves > 1);
    free(piece);
    for (uint32_t i = 0; i < 4; i++) request_unref(r[i]);
    engine_destroy(rig.engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_add_up_under_random_traffic),
        cmocka_unit_test(test_a_burst_takes_several_records),
        cmocka_unit_test(test_a_change_of_policy_is_recorded_from_its_first_step_on),
        cmocka_unit_test(test_the_prediction_of_a_step_includes_its_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
