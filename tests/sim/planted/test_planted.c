/* Goal: the simulator finds bugs. A simulator that finds none may be blind.
 * Method: copies of the product's sources with the bugs of plants.cmake in them, each behind its
 * number. Without any of them a few worlds are fine; with each of them, by itself, a bounded
 * number of worlds must find something wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "plant_names.h"
#include "sim/planted/planted.h"
#include "sim/pool.h"

enum { PLANTS = sizeof(plant_names) / sizeof(plant_names[0]), WORLDS_MAX = 1500, SECONDS_MAX = 20 };
#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 4 }; /* every fourth bug: the sanitizer is not what is tested here */
#else
enum { EVERY = 1 };
#endif

int planted_bug;

static bool is_found(int bug, uint64_t worlds, struct err *what) {
    struct pool_task task = {.first_seed = 1,
                             .worlds_min = worlds,
                             .worlds_max = worlds,
                             .options = {.load_steps = 300, .verify_every = 1},
                             .both_depths = true,
                             .processes = 2,
                             .seconds_max = SECONDS_MAX};
    struct pool_report sum;
    planted_bug = bug;
    return !pool_run(&task, &sum, what);
}

static void test_no_bug_is_found_without_planted_bugs(void **state) {
    (void)state;
    struct err what = {0};
    if (is_found(0, 100, &what)) fail_msg("%s", what.text);
}

static void test_planted_bugs_are_found(void **state) {
    (void)state;
    int missed = 0, tried = 0;
    for (int bug = 1; bug <= PLANTS; bug += EVERY) {
        struct err what = {0};
        bool found = is_found(bug, WORLDS_MAX, &what);
        printf("%2d %-6s %s\n          %.140s\n", bug, found ? "found" : "MISSED",
               plant_names[bug - 1], what.text);
        missed += !found;
        tried++;
    }
    printf("%d of %d found\n", tried - missed, tried);
    assert_true(PLANTS >= 20);
    assert_true(missed * 20 <= tried); /* at least 19 of 20 */
}

int main(int argc, char **argv) {
    if (argc >= 2) { /* one bug, by its number; in so many worlds */
        struct err what = {0};
        uint64_t worlds = argc > 2 ? strtoull(argv[2], NULL, 10) : WORLDS_MAX;
        bool found = is_found((int)strtol(argv[1], NULL, 10), worlds, &what);
        puts(found ? what.text : "nothing was found");
        return !found;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_bug_is_found_without_planted_bugs),
        cmocka_unit_test(test_planted_bugs_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
