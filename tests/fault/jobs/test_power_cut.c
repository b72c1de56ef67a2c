/* Goal:   whenever the power goes, everything that the store gave back as done is there afterwards,
 *         and everything else is there as a whole or not at all.
 * Method: a life of a store (scenario.h) on a disk that keeps what was synced and any part of the
 *         rest (fault_vfs.h). The power goes at a write, truncation or sync that the seed chooses;
 *         then what is left is opened, judged, and the life goes on to its end, often with further
 *         power cuts. JITNEY_SEED repeats a run, JITNEY_CUTS is the number of lives. */
#define _DEFAULT_SOURCE
#include "unit/jobs/store_lib.h"

#include "base/clock.h"
#include "base/rng.h"
#include "fault/jobs/fault_vfs.h"
#include "fault/jobs/scenario.h"

enum { LIVES = 150, EVENTS = 700, CUTS_MAX = 4 };

static struct { uint64_t seed, lives, cuts, opening; } run;

static int learn(void **state) {
    (void)state;
    const char *seed = getenv("JITNEY_SEED"), *cuts = getenv("JITNEY_CUTS");
    run.seed = seed ? strtoull(seed, NULL, 10) : (uint64_t)clock_wall_us();
    run.lives = cuts ? strtoull(cuts, NULL, 10) : LIVES / FEWER;
    printf("JITNEY_SEED=%llu JITNEY_CUTS=%llu\n", (unsigned long long)run.seed,
           (unsigned long long)run.lives);
    fault_vfs_register();
    scenario_learn();
    return 0;
}
static int forget(void **state) {
    (void)state;
    scenario_forget();
    printf("the power was cut %llu times, %llu of them while the store was opened\n",
           (unsigned long long)run.cuts, (unsigned long long)run.opening);
    return 0;
}

/* Open and go on from `step` until the power goes or the end; returns the step that failed. */
static size_t live(struct test_store *t, size_t step) {
    enum status st = test_reopen(t);
    if (st != ST_OK) {
        if (!fault_power_is_cut()) fail_msg("cannot open: %s", t->err.text);
        run.opening++;
        return step;
    }
    for (; step < scenario_count; step++) {
        st = scenario_steps[step].run(t);
        if (st == ST_OK) continue;
        if (!fault_power_is_cut())
            fail_msg("%s: %s: %s", scenario_steps[step].name, status_name(st), t->err.text);
        break;
    }
    test_shut(t);
    return step;
}

/* Events to come until the cut: often few, so that opening and recovery are hit as well. */
static uint64_t draw_event(struct rng *rng) {
    return rng_below(rng, rng_below(rng, 3) ? EVENTS : 40);
}

static void live_with_cuts(uint64_t number) {
    struct rng rng = {.seed = run.seed + number};
    struct test_store t;
    char what[64];
    snprintf(what, sizeof(what), "seed %llu", (unsigned long long)rng.seed);
    test_make_dir_in(&t, test_quick_parent());
    t.options.vfs = FAULT_VFS_NAME;
    t.options.log_pages = LOG_PAGES;
    size_t step = 0;
    for (int cut = 0; cut < CUTS_MAX; cut++) {
        fault_power_begin();
        fault_power_plan(draw_event(&rng));
        step = live(&t, step);
        run.cuts += fault_power_is_cut();
        fault_power_restore(&rng);
        if (test_reopen(&t) != ST_OK) fail_msg("%s: cannot open: %s", what, t.err.text);
        step = scenario_judge(&t, step, what);
        test_check(&t);
        test_shut(&t);
    }
    if (test_reopen(&t) != ST_OK) fail_msg("%s: cannot open: %s", what, t.err.text);
    scenario_complete(&t, step);
    test_close(&t);
}

static void test_what_was_given_back_survives_power_cuts(void **state) {
    (void)state;
    for (uint64_t i = 0; i < run.lives; i++) live_with_cuts(i);
}

int main(void) {
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(test_what_was_given_back_survives_power_cuts),
    };
    return cmocka_run_group_tests(cases, learn, forget);
}
