/* Goal:   a crowd gets the answers that each gets alone, also on a device that is late: at depth 0,
 *         and at depth 1, where the next step is planned before the tokens of this one are known.
 * Method: crowds of every policy on the device `delayed`, whose memory the host cannot touch and
 *         whose old results are spoilt. The references come from the CPU device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "identity/lines.h"
#include "identity/crowd.h"

enum { RIDES = 20, RIDES_FEW = 2 };

static void check_crowds(const char *name, const char *device, uint32_t first) {
    static struct line line;
    struct err err = {0};
    struct coverage seen = {0};
    char path[4096];
    if (!lines_path(name, path, sizeof(path))) skip();
    if (line_open(&line, name, path, false, &err) != ST_OK) fail_msg("%s", err.text);
    uint32_t count = lines_are_few() ? RIDES_FEW : RIDES;
    for (uint32_t i = 0; i < count; i++) {
        struct crowd r = crowd_draw(&line, first + i);
        r.device = device;
        if (crowd_check(&line, &r, &seen, &err) != ST_OK) fail_msg("%s: %s", device, err.text);
    }
    printf("%s on %s: %u pairs, %u cancelled, %u forked, %u preempted, %u cached\n", name, device,
           seen.pairs, seen.cancelled, seen.forked, seen.preempted, seen.cached);
    if (!lines_are_few()) {
        for (uint32_t i = 0; sched_policies[i]; i++) assert_true(seen.pairs_by_policy[i] >= 10);
        assert_true(seen.preempted >= 10 && seen.cached >= 10 && seen.cancelled >= 1);
    }
    line_close(&line);
}

static void test_depth_0(void **state) {
    (void)state;
    check_crowds("llama", "delayed:depth=0,jitter=0", 0);
}

static void test_depth_1(void **state) {
    (void)state;
    check_crowds("llama", "delayed:depth=1,jitter=100,seed=1", 0);
}

static void test_depth_1_with_windows(void **state) {
    (void)state;
    check_crowds("gemma3", "delayed:depth=1,jitter=100,seed=2", 100);
}

static void test_depth_1_with_experts(void **state) {
    (void)state;
    check_crowds("qwen3moe", "delayed:depth=1,jitter=0", 400);
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
