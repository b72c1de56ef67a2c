/* Goal:   a lane's keys and values belong to what its sequence's text begins with, whatever was
 *         refused; lanes are given to those who ask, kept from those who do not, and none is lost.
 * Method: a walk of begins, asks, refusals and ends against a model that keeps whole texts; and the
 *         edges one by one. The seed is printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "engine/draft_lanes.h"

enum { LANES = 3, SEQS = 8, TOKENS = 64, VOCAB = 50, STEPS = 20000 };

static const struct sampling greedy = {.kind = SAMPLING_DRAW, .top_p = 1, .typical_p = 1};

static void open_lanes(struct draft_lanes *l) {
    struct err err = {0};
    const struct draft_lanes_options o = {LANES, SEQS, TOKENS, VOCAB};
    if (draft_lanes_init(l, &o, &err) != ST_OK) fail_msg("%s", err.text);
}

/* What the walk knows of a sequence. */
struct walker {
    bool is_begun;
    int32_t text[TOKENS + 8]; /* behind `known`: drafts */
    uint32_t known, count;
};

/* Some drafts are accepted, then other tokens follow. */
static void go_on(struct walker *w, struct rng *rng) {
    w->known += (uint32_t)rng_below(rng, w->count - w->known + 1);
    w->count = w->known;
    uint32_t more = 1 + (uint32_t)rng_below(rng, 3);
    for (; more > 0 && w->count < TOKENS; more--)
        w->text[w->count++] = (int32_t)rng_below(rng, VOCAB);
    w->known = w->count;
    for (more = (uint32_t)rng_below(rng, 4); more > 0 && w->count < TOKENS; more--)
        w->text[w->count++] = (int32_t)rng_below(rng, 3);
}

static bool ask(struct draft_lanes *l, struct walker *w, seq_idx seq, struct rng *rng) {
    const struct draft_ask a = {
        .seq = seq, .tokens = w->text, .known = w->known, .count = w->count, .max = 4};
    struct draft_lane *lane = draft_lanes_find(l, &a);
    if (!lane) return false;
    assert_int_equal(lane->seq, seq);
    assert_true(lane->computed < w->count);
    assert_memory_equal(lane->tokens, w->text, lane->computed * sizeof(int32_t));
    uint32_t missing = w->count - lane->computed;
    uint32_t some = (uint32_t)rng_below(rng, missing + 1);
    draft_lane_extend(l, lane, w->text + lane->computed, some);
    for (uint32_t i = 0; some == missing && i < 3 && lane->computed < TOKENS; i++) {
        const int32_t guess = (int32_t)rng_below(rng, 3);
        draft_lane_extend(l, lane, &guess, 1);
    }
    return true;
}

static void test_walk(void **state) {
    (void)state;
    struct draft_lanes l;
    struct walker walkers[SEQS] = {{.count = 0}};
    struct rng rng = {.seed = 20};
    uint32_t served = 0, refused = 0;
    open_lanes(&l);
    for (uint32_t step = 0; step < STEPS; step++) {
        seq_idx seq = (seq_idx)rng_below(&rng, SEQS);
        struct walker *w = &walkers[seq];
        if (rng_below(&rng, 3) == 0) draft_lanes_next_call(&l);
        if (!w->is_begun) {
            draft_lanes_begin(&l, seq, &greedy);
            *w = (struct walker){.is_begun = true};
            go_on(w, &rng);
        } else if (w->known + 4 >= TOKENS || rng_below(&rng, 40) == 0) {
            draft_lanes_end(&l, seq);
            w->is_begun = false;
        } else {
            bool is_served = ask(&l, w, seq, &rng);
            served += is_served;
            refused += !is_served;
            go_on(w, &rng);
        }
        draft_lanes_verify(&l);
    }
    assert_true(served > STEPS / 10 && refused > STEPS / 10);
    draft_lanes_deinit(&l);
}

static struct draft_lane *ask_for(struct draft_lanes *l, seq_idx seq, const int32_t *text,
                                  uint32_t known, uint32_t count) {
    const struct draft_ask a = {
        .seq = seq, .tokens = text, .known = known, .count = count, .max = 4};
    return draft_lanes_find(l, &a);
}

static void test_a_lane_is_taken_from_who_does_not_ask(void **state) {
    (void)state;
    struct draft_lanes l;
    const int32_t text[] = {1, 2, 3};
    open_lanes(&l);
    for (seq_idx s = 0; s <= LANES; s++) draft_lanes_begin(&l, s, &greedy);
    draft_lanes_next_call(&l);
    for (seq_idx s = 0; s < LANES; s++) assert_non_null(ask_for(&l, s, text, 3, 3));
    assert_null(ask_for(&l, LANES, text, 3, 3));
    for (uint32_t i = 0; i + 1 < DRAFT_LANE_IDLE_CALLS; i++) {
        draft_lanes_next_call(&l);
        assert_non_null(ask_for(&l, 0, text, 3, 3));
        assert_null(ask_for(&l, LANES, text, 3, 3));
    }
    draft_lanes_next_call(&l);
    struct draft_lane *taken = ask_for(&l, LANES, text, 3, 3);
    assert_non_null(taken);
    assert_int_equal(taken->computed, 0);
    assert_int_not_equal(taken, ask_for(&l, 0, text, 3, 3));
    draft_lanes_verify(&l);
    draft_lanes_end(&l, LANES);
    assert_ptr_equal(ask_for(&l, 1, text, 3, 3), taken); /* whose lane it was */
    draft_lanes_deinit(&l);
}

static void test_what_was_refused_is_forgotten(void **state) {
    (void)state;
    struct draft_lanes l;
    const int32_t guessed[] = {1, 2, 3, 4, 5}, sampled[] = {1, 2, 3, 9};
    open_lanes(&l);
    draft_lanes_begin(&l, 0, &greedy);
    struct draft_lane *lane = ask_for(&l, 0, guessed, 3, 3);
    draft_lane_extend(&l, lane, guessed, 5);
    assert_int_equal(ask_for(&l, 0, sampled, 4, 4)->computed, 3);
    draft_lane_extend(&l, lane, sampled + 3, 1);
    assert_int_equal(ask_for(&l, 0, sampled, 4, 4)->computed, 3); /* one is computed again */
    draft_lanes_deinit(&l);
}

static void test_limits(void **state) {
    (void)state;
    struct draft_lanes l;
    int32_t text[TOKENS] = {0};
    open_lanes(&l);
    draft_lanes_begin(&l, 0, &greedy);
    assert_null(ask_for(&l, 0, text, TOKENS, TOKENS)); /* no room for a draft */
    assert_non_null(ask_for(&l, 0, text, TOKENS - 1, TOKENS - 1));
    assert_null(ask_for(&l, 0, text, 0, 0));
    text[5] = VOCAB; /* a draft of the plan under way may be refused */
    assert_null(ask_for(&l, 0, text, 5, 6));
    assert_non_null(ask_for(&l, 0, text, 5, 5));
    assert_null(ask_for(&l, 0, text, 6, 6));
    assert_null(ask_for(&l, 0, text, 5, 5)); /* never again */
    draft_lanes_verify(&l);
    draft_lanes_deinit(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_a_lane_is_taken_from_who_does_not_ask),
        cmocka_unit_test(test_what_was_refused_is_forgotten),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
