/* Goal:   requests in a batch get the answers that each gets alone, also on a device whose results
 *         are late: at depth 0, and at depth 1, where the next step is planned before the tokens of
 *         this one are known.
 * Method: runs under every policy on the device `delayed`, whose memory the host cannot touch and
 *         whose old results are spoilt. The references come from the CPU device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "identity/models.h"
#include "identity/batch_run.h"

enum { RUNS = 20, RUNS_FEW = 2 };

static void check_runs(const char *name, const char *device, uint32_t first) {
    static struct test_model model;
    struct err err = {0};
    struct coverage seen = {0};
    char path[4096];
    if (!models_path(name, path, sizeof(path))) skip();
    if (test_model_open(&model, name, path, false, &err) != ST_OK) fail_msg("%s", err.text);
    uint32_t count = models_are_few() ? RUNS_FEW : RUNS;
    for (uint32_t i = 0; i < count; i++) {
        struct batch_run r = batch_run_draw(&model, first + i);
        r.device = device;
        if (batch_run_check(&model, &r, &seen, &err) != ST_OK) fail_msg("%s: %s", device, err.text);
    }
    printf("%s on %s: %u pairs, %u cancelled, %u forked, %u preempted, %u cached, %u with a "
           "grammar\n",
           name, device, seen.pairs, seen.cancelled, seen.forked, seen.preempted, seen.cached,
           seen.guided);
    if (!models_are_few()) {
        for (uint32_t i = 0; sched_policies[i]; i++) assert_true(seen.pairs_by_policy[i] >= 10);
        assert_true(seen.preempted >= 10 && seen.cached >= 10 && seen.cancelled >= 1);
        assert_true(seen.guided >= 20);
    }
    test_model_close(&model);
}

static void test_depth_0(void **state) {
    (void)state;
    check_runs("llama", "delayed:depth=0,jitter=0", 0);
}

static void test_depth_1(void **state) {
    (void)state;
    check_runs("llama", "delayed:depth=1,jitter=100,seed=1", 0);
}

static void test_depth_1_with_windows(void **state) {
    (void)state;
    check_runs("gemma3", "delayed:depth=1,jitter=100,seed=2", 100);
}

static void test_depth_1_with_experts(void **state) {
    (void)state;
    check_runs("qwen3moe", "delayed:depth=1,jitter=0", 400);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_depth_0),
        cmocka_unit_test(test_depth_1),
        cmocka_unit_test(test_depth_1_with_windows),
        cmocka_unit_test(test_depth_1_with_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
