/* Goal:   the plan for a budget is the cheapest one, its sums are those of its choices, and its
 *         least size is the least that is possible.
 * Method: random small cases against all combinations; a case with more sizes than intervals,
 *         against the bound that single choices by slope give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "base/rng.h"
#include "quant/plan.h"

enum { SEED = 11, CASES = 300, ITEMS = 6, CHOICES = 4, MANY = 200 };

struct example {
    struct plan_choice choices[MANY][CHOICES];
    struct plan_item items[MANY];
    size_t count;
};

static uint64_t draw(uint64_t stream, uint64_t i, uint64_t below) {
    return rng_at(SEED, stream, i) % below;
}

static void make_example(struct example *e, uint64_t stream, size_t count, uint64_t bytes_max) {
    e->count = count;
    for (size_t i = 0; i < count; i++) {
        e->items[i] = (struct plan_item){e->choices[i], 1 + (uint32_t)draw(stream, i, CHOICES)};
        for (uint32_t c = 0; c < CHOICES; c++) {
            uint64_t at = 1000 + i * CHOICES + c;
            e->choices[i][c] = (struct plan_choice){draw(stream, 2 * at, bytes_max),
                                                    (double)draw(stream, 2 * at + 1, 50)};
        }
    }
}

static struct plan_point sum_of(const struct example *e, const uint32_t *choices) {
    struct plan_point sum = {0, 0};
    for (size_t i = 0; i < e->count; i++) {
        assert_in_range(choices[i], 0, e->items[i].count - 1);
        sum.bytes += e->choices[i][choices[i]].bytes;
        sum.cost += e->choices[i][choices[i]].cost;
    }
    return sum;
}

static void check_points(const struct example *e, const struct plan *p) {
    uint32_t choices[MANY];
    for (size_t i = 0; i < plan_points(p); i++) {
        struct plan_point point = plan_point_at(p, i);
        plan_choices(p, i, choices);
        struct plan_point sum = sum_of(e, choices);
        assert_int_equal(point.bytes, sum.bytes);
        assert_true(fabs(point.cost - sum.cost) < 1e-9);
        if (i == 0) continue;
        struct plan_point before = plan_point_at(p, i - 1);
        assert_true(before.bytes < point.bytes && before.cost > point.cost);
    }
}

/* The cheapest cost of all combinations of at most `budget` bytes; HUGE_VAL: none. */
static double best_cost(const struct example *e, uint64_t budget) {
    uint32_t choices[ITEMS] = {0};
    double best = HUGE_VAL;
    for (;;) {
        struct plan_point sum = sum_of(e, choices);
        if (sum.bytes <= budget && sum.cost < best) best = sum.cost;
        size_t i = 0;
        while (i < e->count && ++choices[i] == e->items[i].count) choices[i++] = 0;
        if (i == e->count) return best;
    }
}

static void test_small_plans_are_the_best_of_all_combinations(void **state) {
    (void)state;
    static struct example e;
    for (uint64_t stream = 0; stream < CASES; stream++) {
        struct plan *p;
        make_example(&e, stream, draw(stream, 999, ITEMS + 1), 60);
        assert_int_equal(plan_create(e.items, e.count, &p, NULL), ST_OK);
        check_points(&e, p);
        for (uint64_t budget = 0; budget < ITEMS * 60; budget += 7) {
            struct plan_point found = plan_point_at(p, plan_find(p, budget));
            double best = best_cost(&e, budget);
            if (best < HUGE_VAL && (found.bytes > budget || fabs(found.cost - best) > 1e-9))
                fail_msg("case %u, budget %u: cost %g, the best is %g", (unsigned)stream,
                         (unsigned)budget, found.cost, best);
            if (!(best < HUGE_VAL)) assert_true(found.bytes > budget);
        }
        plan_destroy(p);
    }
}

static double least_value(const struct example *e, double price) {
    double sum = 0;
    for (size_t i = 0; i < e->count; i++) {
        double best = HUGE_VAL;
        for (uint32_t c = 0; c < e->items[i].count; c++)
            best = fmin(best, e->choices[i][c].cost + price * (double)e->choices[i][c].bytes);
        sum += best;
    }
    return sum;
}

/* By duality, no choice within the budget costs less than this, whatever the price of a byte. */
static double lower_bound(const struct example *e, uint64_t budget) {
    double best = 0;
    for (double price = 1e-9; price < 1; price *= 1.05)
        best = fmax(best, least_value(e, price) - price * (double)budget);
    return best;
}

static void test_large_plans_are_near_the_bound(void **state) {
    (void)state;
    static struct example e;
    struct plan *p;
    make_example(&e, 7777, MANY, 1 << 20);
    assert_int_equal(plan_create(e.items, e.count, &p, NULL), ST_OK);
    check_points(&e, p);
    uint64_t least = plan_point_at(p, 0).bytes, most = plan_point_at(p, plan_points(p) - 1).bytes;
    uint64_t possible = 0;
    for (size_t i = 0; i < e.count; i++) {
        uint64_t own = UINT64_MAX;
        for (uint32_t c = 0; c < e.items[i].count; c++)
            if (e.choices[i][c].bytes < own) own = e.choices[i][c].bytes;
        possible += own;
    }
    assert_int_equal(least, possible);
    for (int share = 1; share < 10; share++) {
        uint64_t budget = least + (most - least) / 10 * (uint64_t)share;
        struct plan_point found = plan_point_at(p, plan_find(p, budget));
        assert_true(found.bytes <= budget);
        double bound = lower_bound(&e, budget);
        if (found.cost > bound * 1.02 + 2) fail_msg("cost %g, the bound is %g", found.cost, bound);
    }
    plan_destroy(p);
}

static void test_a_plan_for_nothing_is_empty(void **state) {
    (void)state;
    struct plan *p;
    assert_int_equal(plan_create(NULL, 0, &p, NULL), ST_OK);
    assert_int_equal(plan_points(p), 1);
    assert_int_equal(plan_point_at(p, 0).bytes, 0);
    assert_int_equal(plan_find(p, 5), 0);
    plan_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_plans_are_the_best_of_all_combinations),
        cmocka_unit_test(test_large_plans_are_near_the_bound),
        cmocka_unit_test(test_a_plan_for_nothing_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
