/* Goal:   one tenant cannot take a whole budget, a newcomer finds room, and sums stay right.
 * Method: the rule in small numbers; then seeded random takes and gives of several tenants, with
 *         the rule written a second time, from the list of what each holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "base/share.h"

static void test_a_budget_is_divided_among_holders_and_one_more(void **state) {
    (void)state;
    struct budget b = {.max = 120};
    struct share one = {0}, two = {0}, three = {0};
    assert_int_equal(share_room(&b, &one), 60);
    assert_false(share_take(&b, &one, 61));
    assert_int_equal(b.used, 0);
    assert_true(share_take(&b, &one, 60));
    assert_false(share_take(&b, &one, 1));
    assert_int_equal(share_room(&b, &two), 40);
    assert_true(share_take(&b, &two, 40));
    assert_int_equal(share_limit(&b, &three), 30);
    assert_int_equal(share_room(&b, &three), 20); /* `one` holds what it took when it was alone */
    share_give(&b, &one, 30);
    assert_false(share_take(&b, &one, 11)); /* with `two`, its share is 40 */
    assert_true(share_take(&b, &one, 10));
    share_give(&b, &two, 40);
    assert_int_equal(share_room(&b, &one), 20);
    assert_int_equal(b.holders, 1);
}

static void test_a_tenant_may_always_hold_the_least_but_never_above_the_total(void **state) {
    (void)state;
    struct budget b = {.max = 100, .least = 30};
    struct share s[4] = {{0}};
    for (int i = 0; i < 3; i++) assert_true(share_take(&b, &s[i], 30));
    assert_int_equal(share_limit(&b, &s[3]), 30); /* and not 100 / 5 */
    assert_int_equal(share_room(&b, &s[3]), 10);
    assert_false(share_take(&b, &s[3], 11));
    b.max = 20; /* a lower limit, as after a reload */
    assert_int_equal(share_limit(&b, &s[3]), 20);
    assert_int_equal(share_room(&b, &s[3]), 0);
    assert_true(share_take(&b, &s[3], 0));
}

static void test_the_most_that_fits_does_not_depend_on_what_is_held(void **state) {
    (void)state;
    struct budget b = {.max = 100, .least = 20};
    struct share s[3] = {{0}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(share_most(&b), 50);
        assert_true(share_take(&b, &s[i], 20));
    }
    b.least = 70;
    assert_int_equal(share_most(&b), 70);
    b.least = 200;
    assert_int_equal(share_most(&b), 100);
    b.is_single = true;
    b.least = 0;
    assert_int_equal(share_most(&b), 100);
}

static void test_a_single_tenant_may_hold_everything(void **state) {
    (void)state;
    struct budget b = {.max = 100, .is_single = true};
    struct share s = {0};
    assert_true(share_take(&b, &s, 100));
    assert_false(share_take(&b, &s, 1));
}

/* The rule, from a list. */
static bool may_take(const struct budget *b, const struct share *all, uint32_t count, uint32_t who,
                     uint64_t amount) {
    uint64_t used = 0, others = 0;
    for (uint32_t i = 0; i < count; i++) {
        used += all[i].held;
        others += i != who && all[i].held > 0;
    }
    uint64_t limit = b->max / (others + 2);
    if (limit < b->least) limit = b->least;
    return amount == 0 || (all[who].held + amount <= limit && used + amount <= b->max);
}

static void test_random_takes_and_gives_follow_the_rule(void **state) {
    (void)state;
    enum { TENANTS = 9, STEPS = 20000 };
    struct rng rng = {.seed = 15};
    struct budget b = {.max = 1000, .least = 70};
    struct share all[TENANTS] = {{0}};
    const struct share *list[TENANTS];
    uint32_t refused = 0;
    for (uint32_t i = 0; i < TENANTS; i++) list[i] = &all[i];
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t who = (uint32_t)rng_below(&rng, TENANTS);
        uint64_t amount = rng_below(&rng, 120);
        if (rng_below(&rng, 2)) {
            share_give(&b, &all[who], amount < all[who].held ? amount : all[who].held);
        } else {
            bool expected = may_take(&b, all, TENANTS, who, amount);
            if (share_take(&b, &all[who], amount) != expected) fail_msg("step %u", step);
            refused += !expected;
        }
        share_verify(&b, list, TENANTS);
        assert_true(b.used <= b.max);
    }
    assert_in_range(refused, STEPS / 20, STEPS / 2);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_a_budget_is_divided_among_holders_and_one_more),
        cmocka_unit_test(test_a_tenant_may_always_hold_the_least_but_never_above_the_total),
        cmocka_unit_test(test_the_most_that_fits_does_not_depend_on_what_is_held),
        cmocka_unit_test(test_a_single_tenant_may_hold_everything),
        cmocka_unit_test(test_random_takes_and_gives_follow_the_rule),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
