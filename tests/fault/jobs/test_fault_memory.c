/* Goal:   whatever allocation fails, ours or SQLite's, the store neither crashes nor leaks, an
 *         operation that failed has left nothing, and the next one works.
 * Method: a life of a store that uses every verb (scenario.h), with the k-th allocation failing:
 *         of our own code for every k, of SQLite for every k with JITNEY_FAULTS=full and else for
 *         some, beginning at a random one (JITNEY_SEED). */
#include "unit/jobs/store_lib.h"

#include "base/clock.h"
#include "base/rng.h"
#include "fault/fail_alloc.h"
#include "fault/jobs/fault_vfs.h"
#include "fault/jobs/scenario.h"

enum { ALLOCATIONS_MAX = 100000, STRIDE = 101 };

enum source { OURS, JSON, SQLITE }; /* JSON: ours, with the values of JSON trees */

static struct {
    uint64_t seed, points;
    bool is_full;
} run;

static int learn(void **state) {
    (void)state;
    const char *seed = getenv("JITNEY_SEED"), *full = getenv("JITNEY_FAULTS");
    run.seed = seed ? strtoull(seed, NULL, 10) : (uint64_t)clock_wall_us();
    run.is_full = full && strcmp(full, "full") == 0;
    printf("JITNEY_SEED=%llu\n", (unsigned long long)run.seed);
    fault_memory_register();
    fault_vfs_register();
    scenario_learn();
    return 0;
}
static int forget(void **state) {
    (void)state;
    scenario_forget();
    printf("%llu allocations failed\n", (unsigned long long)run.points);
    return 0;
}

static void arm(enum source source, uint64_t at, bool stays) {
    if (source == SQLITE)
        fault_memory_plan(at, stays);
    else
        fail_alloc_at((long)at);
}
static bool disarm(enum source source) {
    return source == SQLITE ? fault_memory_heal() : fail_alloc_stop();
}

/* Jansson takes some failed allocations for bad text, and SQLite some for files that it cannot
 * open. */
static bool is_expected(enum source source, enum status st) {
    return st == ST_NOMEM || (source == JSON && st == ST_BAD) || (source == SQLITE && st == ST_IO);
}

/* From opening on, until the allocation failed or the end. */
static bool try_allocation(enum source source, uint64_t at, bool stays) {
    struct test_store t;
    char what[64];
    snprintf(what, sizeof(what), "allocation %llu%s%s", (unsigned long long)at,
             source == SQLITE ? " of SQLite" : "", stays ? " and later ones" : "");
    test_make_dir_in(&t, test_quick_parent());
    t.options.vfs = FAULT_VFS_NAME; /* without real syncs */
    t.options.log_pages = LOG_PAGES;
    size_t step = 0;
    arm(source, at, stays);
    enum status st = test_reopen(&t);
    for (; st == ST_OK && step < scenario_count; step++) {
        st = scenario_steps[step].run(&t);
        if (st != ST_OK) break;
    }
    bool failed = disarm(source);
    if (st != ST_OK && (!is_expected(source, st) || !t.err.text[0]))
        fail_msg("%s: %s: \"%s\"", what, status_name(st), t.err.text);
    if (st != ST_OK && !failed) fail_msg("%s: %s", what, t.err.text);
    if (!t.store && test_reopen(&t) != ST_OK) fail_msg("%s: %s", what, t.err.text);
    step = scenario_judge(&t, step, what);
    scenario_complete(&t, step);
    test_close(&t);
    run.points += failed;
    return failed;
}

static void test_any_allocation_of_ours_may_fail(void **state) {
    (void)state;
    uint64_t at = 0;
    while (at < ALLOCATIONS_MAX && try_allocation(OURS, at, false)) at++;
    assert_in_range(at, 20, ALLOCATIONS_MAX - 1);
}

static void test_values_of_json_may_fail(void **state) {
    (void)state;
    fail_alloc_in_jansson(true);
    uint64_t at = 0;
    while (at < ALLOCATIONS_MAX && try_allocation(JSON, at, false)) at++;
    fail_alloc_in_jansson(false);
    assert_in_range(at, 40, ALLOCATIONS_MAX - 1);
}

static void test_any_allocation_of_sqlite_may_fail(void **state) {
    (void)state;
    struct rng rng = {.seed = run.seed};
    const uint64_t stride = run.is_full ? 1 : STRIDE * FEWER;
    for (int stays = 0; stays < 2; stays++) {
        uint64_t at = rng_below(&rng, stride);
        while (at < ALLOCATIONS_MAX && try_allocation(SQLITE, at, stays)) at += stride;
        assert_in_range(at, 1000, ALLOCATIONS_MAX - 1);
    }
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_any_allocation_of_ours_may_fail),
        cmocka_unit_test(test_values_of_json_may_fail),
        cmocka_unit_test(test_any_allocation_of_sqlite_may_fail),
    };
    return cmocka_run_group_tests(cases, learn, forget);
}
