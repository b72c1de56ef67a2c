/* Goal:   opening an engine on simulated time, a world, and the simulation of a recording survive
 *         the failure of any one allocation, with a sentence and nothing lost.
 * Method: the N-th allocation fails, for every N. Leaks show in the sanitizer build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "fault/fail_alloc.h"
#include "sim/recorded.h"
#include "sim/replay.h"
#include "sim/replay_list.h"
#include "sim/whatif.h"
#include "sim/world.h"

enum { ALLOCATIONS_MAX = 300 };

static void test_opening_an_engine_survives_any_failed_allocation(void **state) {
    (void)state;
    struct sim_engine_options o = {.profile = {"test", 1000, 100, 0, 10}};
    o.engine.vocab = 50;
    o.engine.sched.policy = sched_policies[0];
    o.engine.sched.knobs = knobs_default();
    o.engine.sched.knobs.kv_blocks = 64;
    o.engine.sched.ctx_tokens = 128;
    o.engine.sched.group_count = 1;
    for (long n = 0;; n++) {
        struct sim_clock clock;
        struct engine *e = NULL;
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = sim_engine_open(&e, &clock, &o, &err);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            engine_destroy(e);
            assert_in_range(n, 10, ALLOCATIONS_MAX);
            return;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_true(err.text[0] != 0);
        assert_null(e);
    }
}

/* Past its own allocations come those of its requests: a world that ran at all is far enough. */
static void test_opening_a_world_survives_any_failed_allocation(void **state) {
    (void)state;
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct world_options o = {.seed = 5, .load_steps = 1};
        struct world_outcome out;
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = world_run(&o, &out, &err);
        fail_alloc_stop();
        if (st == ST_OK) {
            assert_in_range(n, 10, ALLOCATIONS_MAX);
            return;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_true(err.text[0] != 0);
    }
    fail();
}

/* ---- what if ---- */

static const char RECORDING[] =
    "{\"hello\":{\"arrived\":[\"request\",\"choice\",\"tenant\",\"at_us\",\"prompt\",\"max\"],"
    "\"ended\":[\"request\",\"choice\",\"generated\"]},\"steps\":[{\"arrived\":[[1,0,0,0,30,9],"
    "[1,1,0,0,30,9],[2,0,0,5,8,9]],\"ended\":[[1,0,4],[1,1,5],[2,0,6]]}]}";

static enum status simulate(const struct json *recording, struct buf *out) {
    const struct recorded_limits limits = {.sequences = 10, .tokens = 1000};
    const struct prompt_source source = {.vocab = SIM_VOCAB};
    struct whatif_options o = {.policy = sched_policies[0],
                               .knobs = knobs_default(),
                               .ctx_tokens = 128,
                               .profile = {"test", 1000, 100, 0, 10},
                               .record_bytes = 1 << 16};
    struct recorded_fault fault;
    struct request_list list;
    struct err err = {0};
    o.knobs.kv_blocks = 64;
    TRY(recorded_read(recording, &limits, &list, &fault));
    enum status st = recorded_draw_prompts(&list, &source);
    if (st == ST_OK) st = whatif_run(&list, &o, out, &err);
    request_list_deinit(&list);
    return st;
}

/* An allocation that fails in the engine under way ends a sequence, not the simulation. */
static void test_simulating_a_recording_survives_any_failed_allocation(void **state) {
    (void)state;
    struct json *recording = NULL;
    assert_int_equal(json_parse(str_of(RECORDING), &json_limits_request, &recording, NULL), ST_OK);
    for (long n = 0;; n++) {
        struct buf out;
        buf_init(&out, 1 << 20);
        fail_alloc_at(n);
        enum status st = simulate(recording, &out);
        bool has_failed = fail_alloc_stop();
        buf_deinit(&out);
        assert_true(st == ST_OK || st == ST_NOMEM);
        if (has_failed) continue;
        assert_int_equal(st, ST_OK);
        assert_in_range(n, 20, ALLOCATIONS_MAX);
        break;
    }
    json_destroy(recording);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening_an_engine_survives_any_failed_allocation),
        cmocka_unit_test(test_opening_a_world_survives_any_failed_allocation),
        cmocka_unit_test(test_simulating_a_recording_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
