/* Goal:   select_prefix ends the shortest prefix exactly where a sort finds it.
 * Method: seeded numbers in several shapes (spread, tied, clumps, any bits), masses and guesses of
 *         their range, good and absurd; the same by sorting and adding up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/cpu/sample_select.h"

enum { COUNT_MAX = 700, ROUNDS = 8000 };

static float number[COUNT_MAX];
static uint64_t mass[COUNT_MAX];

static int by_number(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (number[i] != number[j]) return number[i] > number[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

/* The last place inside. */
static uint32_t ref_last(uint32_t count, bool has_mass, uint64_t wanted) {
    uint32_t order[COUNT_MAX], n = 0;
    uint64_t held = 0;
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    qsort(order, count, sizeof(order[0]), by_number);
    do {
        held += has_mass ? mass[order[n]] : 1;
        n++;
    } while (held < wanted && n < count);
    return order[n - 1];
}

static float draw_number(struct rng *r, uint32_t shape) {
    uint32_t bits = (uint32_t)rng_next(r);
    float any;
    memcpy(&any, &bits, sizeof(any));
    if (shape == 0) return (float)(rng_unit(r) * 30.0 - 20.0);
    if (shape == 1) return (float)rng_below(r, 5) - 2.0f;
    if (shape == 2) return (float)pow(1e-3, (double)rng_below(r, 12)) + (float)rng_below(r, 2);
    if (shape == 3) return rng_below(r, 50) ? 1.0f + (float)rng_below(r, 9) * FLT_EPSILON : -1e30f;
    return isnan(any) || fabsf(any) < FLT_MIN ? -HUGE_VALF : any;
}

static void test_prefixes_end_where_sorting_says(void **state) {
    (void)state;
    static const float ends[] = {30.0f, 0.0f, -30.0f, HUGE_VALF, -HUGE_VALF, FLT_MAX, 1e-45f};
    struct select s;
    struct rng r = {.seed = 6};
    assert_int_equal(select_init(&s, COUNT_MAX), ST_OK);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t count = 1 + (uint32_t)rng_below(&r, COUNT_MAX), shape = (uint32_t)rng_below(&r, 5);
        bool has_mass = rng_below(&r, 2);
        uint64_t sum = 0;
        for (uint32_t i = 0; i < count; i++) {
            number[i] = draw_number(&r, shape);
            mass[i] = i == 0 || rng_below(&r, 3) ? 1 + rng_below(&r, 1000) : 0;
            sum += has_mass ? mass[i] : 1;
        }
        struct select_things things = {.number = number,
                                       .mass = has_mass ? mass : NULL,
                                       .count = count,
                                       .first = ends[rng_below(&r, 7)],
                                       .last = ends[rng_below(&r, 7)]};
        uint64_t wanted = 1 + rng_below(&r, sum);
        struct select_end end = select_prefix(&s, &things, wanted);
        uint32_t last = ref_last(count, has_mass, wanted);
        assert_true(end.number == number[last]);
        assert_int_equal(end.place, last);
    }
    select_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prefixes_end_where_sorting_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
