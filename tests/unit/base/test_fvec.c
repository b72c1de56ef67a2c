/* Goal:   every table of base/fvec.h that this processor runs gives the bits of its contract.
 * Method: the contract once more, number by number with fm_exp and branches, against each table:
 *         over seeded arrays with ties, infinities, NaN and denormals, of all sorts of lengths,
 *         and for the weights over every 997th float from 0 to minus infinity. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "base/fvec.h"
#include "base/rng.h"

enum { COUNT_MAX = 4 * FVEC_CHUNK, ROUNDS = 60 };

static float x[COUNT_MAX], tamed[COUNT_MAX];

static uint32_t bits_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return bits;
}

static float ref_tame(float number) {
    if (isnan(number)) return -HUGE_VALF;
    if (fabsf(number) < FLT_MIN) return 0.0f;
    return number > FLT_MAX ? FLT_MAX : number;
}

static uint64_t ref_weight(float number, float top, float scale) {
    return (uint64_t)llrint((double)fm_exp((number - top) * scale) * 0x1p39);
}

/* Fills x and tamed; returns how many there are. */
static size_t draw_numbers(struct rng *r) {
    static const float odd[] = {NAN,     HUGE_VALF, -HUGE_VALF, 1e-40f,  -1e-40f,
                                FLT_MAX, -FLT_MAX,  -0.0f,      FLT_MIN, -FLT_MIN};
    bool has_odd = rng_below(r, 2), coarse = rng_below(r, 2);
    size_t count = 1 + rng_below(r, COUNT_MAX);
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)(rng_unit(r) * 40.0 - 25.0);
        if (coarse) x[i] = floorf(x[i]);
        if (has_odd && rng_below(r, 9) == 0) x[i] = odd[rng_below(r, 10)];
    }
    for (size_t i = 0; i < COUNT_MAX; i++) tamed[i] = i < count ? ref_tame(x[i]) : -HUGE_VALF;
    return count;
}

/* The largest; 0 if there is none, so that it can be subtracted. */
static float top_of(size_t count) {
    float top = -HUGE_VALF;
    for (size_t i = 0; i < count; i++) top = tamed[i] > top ? tamed[i] : top;
    return top > -HUGE_VALF ? top : 0.0f;
}

static void check_reading(const struct fvec *f, size_t count) {
    static float got[COUNT_MAX], peaks[COUNT_MAX / FVEC_CHUNK * FVEC_PEAKS];
    size_t chunks = fvec_chunks(count), nans = 0;
    float top = -HUGE_VALF;
    f->tame(x, count, got);
    assert_memory_equal(got, tamed, chunks * FVEC_CHUNK * sizeof(got[0]));
    for (size_t i = 0; i < count; i++) nans += isnan(x[i]);
    assert_int_equal(f->has_nan(x, count), nans > 0);
    for (size_t i = 0; i < count; i++) top = x[i] > top ? x[i] : top;
    assert_true(f->top(x, count) == top);
    f->peaks(tamed, chunks, peaks);
    for (size_t p = 0; p < chunks * FVEC_PEAKS; p++) {
        size_t first = p / FVEC_PEAKS * FVEC_CHUNK;
        float most = -HUGE_VALF;
        for (size_t i = first + p % FVEC_PEAKS; i < first + FVEC_CHUNK; i += FVEC_PEAKS)
            most = tamed[i] > most ? tamed[i] : most;
        assert_int_equal(bits_of(peaks[p]), bits_of(most));
    }
}

static void check_weights(const struct fvec *f, size_t count, float scale) {
    static uint64_t weights[COUNT_MAX], sums[COUNT_MAX / FVEC_CHUNK];
    uint64_t all = 0, expected[COUNT_MAX / FVEC_CHUNK] = {0};
    float top = top_of(count);
    uint64_t sum = f->weigh(tamed, count, top, scale, weights);
    for (size_t i = 0; i < count; i++) {
        uint64_t one = ref_weight(tamed[i], top, scale);
        assert_int_equal(weights[i], one);
        expected[i / FVEC_CHUNK] += one;
        all += one;
    }
    assert_int_equal(sum, all);
    assert_int_equal(f->sum(tamed, fvec_chunks(count), top, scale, sums), all);
    assert_memory_equal(sums, expected, fvec_chunks(count) * sizeof(sums[0]));
}

static void check_choice(const struct fvec *f, size_t count, float floor, struct rng *r) {
    static uint32_t places[COUNT_MAX];
    static float kept[COUNT_MAX];
    static uint64_t weights[COUNT_MAX], before[COUNT_MAX];
    size_t taken = f->take(tamed, fvec_chunks(count), floor, places, kept), at = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(tamed[i] >= floor)) continue;
        assert_true(at < taken);
        assert_int_equal(places[at], i);
        assert_int_equal(bits_of(kept[at++]), bits_of(tamed[i]));
    }
    assert_int_equal(at, taken);
    size_t ties_end = rng_below(r, count + 1);
    uint64_t all = 0;
    for (size_t i = 0; i < count; i++) before[i] = weights[i] = rng_next(r) >> 24;
    uint64_t sum = f->keep(tamed, count, floor, ties_end, weights);
    for (size_t i = 0; i < count; i++) {
        bool inside = tamed[i] > floor || (tamed[i] == floor && i < ties_end);
        assert_int_equal(weights[i], inside ? before[i] : 0);
        all += weights[i];
    }
    assert_int_equal(sum, all);
}

static void check_prune(const struct fvec *f, size_t count, struct rng *r) {
    static uint64_t weights[COUNT_MAX], before[COUNT_MAX];
    double ratio = rng_below(r, 4) == 0 ? 1.0 : rng_unit(r);
    uint64_t top = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        before[i] = weights[i] = rng_below(r, 9) ? rng_next(r) >> 24 : 0;
        top = weights[i] > top ? weights[i] : top;
    }
    uint64_t sum = f->prune(weights, count, ratio);
    for (size_t i = 0; i < count; i++) {
        bool inside = (double)before[i] >= ratio * (double)top;
        assert_int_equal(weights[i], inside ? before[i] : 0);
        all += weights[i];
    }
    assert_int_equal(sum, all);
}

static void check_buckets(const struct fvec *f, size_t count, float factor) {
    static uint32_t buckets[COUNT_MAX];
    enum { LAST = 99 };
    float top = top_of(count);
    f->bucket(tamed, count, top, factor, LAST, buckets);
    for (size_t i = 0; i < count; i++) {
        float at = (tamed[i] - top) * factor;
        assert_int_equal(buckets[i], !(at < LAST) ? LAST : at > 0.0f ? (uint32_t)at : 0);
    }
}

static void test_all_tables_do_what_the_contract_says(void **state) {
    (void)state;
    static const float scales[] = {1.0f, 0.1f, 1.25f, 1e6f, 1.0f / FLT_MIN};
    for (uint32_t t = 0; fvec_at(t); t++) {
        const struct fvec *f = fvec_at(t);
        struct rng r = {.seed = 41};
        print_message("%s\n", f->name);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            size_t count = draw_numbers(&r);
            check_reading(f, count);
            check_weights(f, count, scales[round % 5]);
            check_choice(f, count, round % 7 ? tamed[rng_below(&r, count)] : -FLT_MAX, &r);
            check_prune(f, count, &r);
            check_buckets(f, count, round % 2 ? -2.5f : 0.0f);
        }
    }
}

static void test_weights_are_those_of_fm_exp_from_0_to_minus_infinity(void **state) {
    (void)state;
    static uint64_t weights[FVEC_CHUNK];
    static float some[FVEC_CHUNK];
    for (uint32_t t = 0; fvec_at(t); t++) {
        uint32_t bits = 0x80000000u;
        while (bits < 0xff800000u) {
            for (int i = 0; i < FVEC_CHUNK; i++, bits += 997) {
                uint32_t one = bits < 0xff800000u ? bits : 0xff800000u;
                memcpy(&some[i], &one, sizeof(one));
            }
            fvec_at(t)->weigh(some, FVEC_CHUNK, 0.0f, 1.0f, weights);
            for (int i = 0; i < FVEC_CHUNK; i++)
                if (weights[i] != ref_weight(some[i], 0.0f, 1.0f))
                    fail_msg("%s at %.9g", fvec_at(t)->name, (double)some[i]);
        }
    }
}

static void test_a_weight_is_nothing_below_the_smallest_exponent(void **state) {
    (void)state;
    uint64_t weight;
    float below = nextafterf(FVEC_EXPONENT_MIN, -HUGE_VALF), top = 0.0f;
    assert_int_equal(fvec_at(0)->weigh(&below, 1, 0.0f, 1.0f, &weight), 0);
    assert_int_equal(fvec_at(0)->weigh(&top, 1, 0.0f, 1.0f, &weight), FVEC_ONE);
}

static void test_one_nan_is_found_wherever_it_is(void **state) {
    (void)state;
    for (uint32_t t = 0; fvec_at(t); t++) {
        for (size_t i = 0; i < 100; i++) {
            float some[100] = {0.0f};
            some[i] = -HUGE_VALF;
            assert_false(fvec_at(t)->has_nan(some, 100));
            some[i] = -NAN;
            assert_true(fvec_at(t)->has_nan(some, 100));
            assert_false(fvec_at(t)->has_nan(some, i));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_tables_do_what_the_contract_says),
        cmocka_unit_test(test_weights_are_those_of_fm_exp_from_0_to_minus_infinity),
        cmocka_unit_test(test_a_weight_is_nothing_below_the_smallest_exponent),
        cmocka_unit_test(test_one_nan_is_found_wherever_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
