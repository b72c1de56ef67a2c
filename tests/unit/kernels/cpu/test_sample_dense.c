/* Goal:   what is said about the whole vocabulary at once holds to the last token and the last
 *         step of a weight.
 * Method: seeded logits in vocabularies around the chunks' ends, against plain walks: a target one
 *         step before and at each running sum, with and without a list of candidates; the first
 *         in rank; floors that enough tokens reach. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "kernels/cpu/sample_candidates.h"
#include "kernels/cpu/sample_dense.h"

enum { VOCAB_MAX = 2 * FVEC_CHUNK + 1 };

static float logits[VOCAB_MAX];
static uint64_t weights[VOCAB_MAX];
static struct dense dense;
static struct candidates candidates;

static void open_random(struct rng *r, uint32_t vocab) {
    for (uint32_t t = 0; t < vocab; t++)
        logits[t] = rng_below(r, 4) ? (float)rng_below(r, 90) / 4.0f : -HUGE_VALF;
    logits[rng_below(r, vocab)] = 3.0f;
    assert_int_equal(dense_init(&dense, vocab), ST_OK);
    assert_int_equal(candidates_init(&candidates, vocab), ST_OK);
    dense_read(&dense, logits);
    dense_survey(&dense);
}

static void close_all(void) {
    dense_deinit(&dense);
    candidates_deinit(&candidates);
}

/* A token without weight is never found; its neighbours are, at the very edge. */
static void test_a_draw_is_exact_at_the_edges_of_every_token(void **state) {
    (void)state;
    static const uint32_t vocabs[] = {1,        2, 63, FVEC_CHUNK - 1, FVEC_CHUNK, FVEC_CHUNK + 1,
                                      VOCAB_MAX};
    struct rng r = {.seed = 71};
    for (int v = 0; v < 7; v++) {
        open_random(&r, vocabs[v]);
        uint64_t sum = dense_sum(&dense, 0.5f), before = 0;
        candidates_fill(&candidates, &dense, -FLT_MAX);
        candidates_weigh(&candidates, &dense, 0.5f);
        assert_int_equal(candidates.sum, sum);
        dense.fvec->weigh(dense.logit, vocabs[v], dense.top, 0.5f, weights);
        for (uint32_t t = 0; t < vocabs[v]; before += weights[t++]) {
            if (weights[t] == 0) continue;
            uint64_t last = before + weights[t] - 1;
            assert_int_equal(dense_find(&dense, 0.5f, before), t);
            assert_int_equal(dense_find(&dense, 0.5f, last), t);
            assert_int_equal(candidates_find(&candidates, before), t);
            assert_int_equal(candidates_find(&candidates, last), t);
        }
        assert_int_equal(before, sum);
        close_all();
    }
}

static void test_the_first_in_rank_is_found_and_enough_reach_a_floor(void **state) {
    (void)state;
    struct rng r = {.seed = 72};
    for (int round = 0; round < 300; round++) {
        uint32_t vocab = 1 + (uint32_t)rng_below(&r, VOCAB_MAX), best = 0, possible = 0;
        open_random(&r, vocab);
        for (uint32_t t = 0; t < vocab; t++) {
            possible += logits[t] > -HUGE_VALF;
            if (logits[t] > logits[best]) best = t;
        }
        assert_int_equal(dense_first(&dense), best);
        int32_t unread = -1;
        if (dense_first_of(&dense, logits, &unread)) assert_int_equal(unread, best);
        assert_int_equal(unread >= 0, logits[best] > 0.0f);
        uint32_t wanted = 1 + (uint32_t)rng_below(&r, 40), reached = 0;
        float floor = dense_floor(&dense, &candidates.select, wanted);
        for (uint32_t t = 0; t < vocab; t++) reached += logits[t] >= floor;
        assert_true(reached >= (wanted < possible ? wanted : possible));
        close_all();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_draw_is_exact_at_the_edges_of_every_token),
        cmocka_unit_test(test_the_first_in_rank_is_found_and_enough_reach_a_floor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
