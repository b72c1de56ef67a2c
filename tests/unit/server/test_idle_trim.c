/* Goal:   free memory goes back to the system once after each time of work, when two seconds have
 *         passed without any; reading /metrics is no work.
 * Method: ticks with given times on a loop of their own, mem_trim counted.
 * wrap: mem_trim */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <uv.h>

#include "server/idle_trim.h"

enum { SECOND = 1000000, TICK = SECOND / 10, REQUEST = 1 << 20, PROBE = 400 };

static uint32_t trims;
void __wrap_mem_trim(void);
void __wrap_mem_trim(void) { trims++; }

struct place {
    uv_loop_t loop;
    struct idle_trim *trim;
    int64_t now_us;
    uint64_t bytes_in;
};

static void begin(struct place *p) {
    *p = (struct place){.now_us = SECOND};
    trims = 0;
    assert_int_equal(uv_loop_init(&p->loop), 0);
    assert_int_equal(idle_trim_create(&p->loop, &p->trim), ST_OK);
}

static void end(struct place *p) {
    idle_trim_destroy(p->trim);
    assert_int_equal(uv_loop_close(&p->loop), 0);
}

static void pass(struct place *p, int64_t us, bool is_idle) {
    for (int64_t t = 0; t < us; t += TICK) {
        p->now_us += TICK;
        idle_trim_tick(p->trim, is_idle, p->bytes_in, p->now_us);
        uv_run(&p->loop, UV_RUN_DEFAULT);
    }
}

static void test_memory_goes_back_once_after_work(void **state) {
    (void)state;
    struct place p;
    begin(&p);
    pass(&p, 10 * SECOND, true);
    assert_int_equal(trims, 0);
    for (uint32_t round = 1; round <= 3; round++) {
        pass(&p, SECOND, false);
        pass(&p, 2 * SECOND - TICK, true);
        assert_int_equal(trims, round - 1);
        pass(&p, TICK, true);
        assert_int_equal(trims, round);
        pass(&p, 60 * SECOND, true);
        assert_int_equal(trims, round);
    }
    end(&p);
}

static void test_work_starts_the_two_seconds_again(void **state) {
    (void)state;
    struct place p;
    begin(&p);
    for (int i = 0; i < 20; i++) {
        pass(&p, TICK, false);
        pass(&p, SECOND, true);
    }
    assert_int_equal(trims, 0);
    pass(&p, SECOND, true);
    assert_int_equal(trims, 1);
    end(&p);
}

/* A request may begin and end between two ticks. */
static void test_bytes_received_are_work(void **state) {
    (void)state;
    struct place p;
    begin(&p);
    p.bytes_in += REQUEST;
    pass(&p, 2 * SECOND, true);
    assert_int_equal(trims, 0);
    pass(&p, TICK, true);
    assert_int_equal(trims, 1);
    end(&p);
}

static void test_probes_are_no_work(void **state) {
    (void)state;
    struct place p;
    begin(&p);
    for (int i = 0; i < 100; i++) {
        p.bytes_in += PROBE;
        pass(&p, SECOND, true);
    }
    assert_int_equal(trims, 0);
    end(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_goes_back_once_after_work),
        cmocka_unit_test(test_work_starts_the_two_seconds_again),
        cmocka_unit_test(test_bytes_received_are_work),
        cmocka_unit_test(test_probes_are_no_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
