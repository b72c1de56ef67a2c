/* Goal:   what other threads ask of an engine is done between two steps, once, and the answer is of
 *         the time after it was asked.
 * Method: an engine that is stepped by hand, with both depths; then one on its own thread, which is
 *         idle when it is asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <time.h>

#include "engine/control.h"
#include "unit/engine/rig.h"

static uint32_t count_state(const uint8_t *map, uint32_t blocks, uint8_t state) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < blocks; i++) count += map[i] == state;
    return count;
}

static void test_a_map_shows_the_state_of_every_block(void **state) {
    (void)state;
    for (uint32_t depth = 0; depth < 2; depth++) {
        struct rig rig;
        struct knobs k = rig_knobs();
        uint8_t map[64];
        bool did_work;
        rig_open_depth(&rig, &k, NULL, false, 0, depth, 0);
        struct control *c = engine_control(rig.engine);
        struct request *r = rig_submit(&rig, 1, 40, 20, 3);
        for (int i = 0; i < 6; i++) engine_step(rig.engine, &did_work);
        uint64_t ticket = engine_ask_map(rig.engine);
        assert_false(control_is_done(c, ticket));
        engine_step(rig.engine, &did_work);
        assert_true(control_is_done(c, ticket));
        control_map(c, map);
        assert_int_equal(count_state(map, 64, KV_BLOCK_SHARED), 2); /* of the prompt: 40 / 16 */
        assert_int_equal(count_state(map, 64, KV_BLOCK_USED), 3);   /* one of each choice */
        rig_run(&rig, r);
        ticket = engine_ask_map(rig.engine);
        for (int i = 0; i < 3; i++) engine_step(rig.engine, &did_work);
        assert_true(control_is_done(c, ticket));
        control_map(c, map);
        assert_int_equal(
            count_state(map, 64, KV_BLOCK_SHARED) + count_state(map, 64, KV_BLOCK_USED), 0);
        assert_true(count_state(map, 64, KV_BLOCK_CACHED) > 0);
        request_unref(r);
        engine_destroy(rig.engine);
    }
}

/* Within ten seconds, however slow the machine is. */
static void wait_done(struct control *c, uint64_t ticket) {
    for (int n = 0; n < 10000 && !control_is_done(c, ticket); n++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(control_is_done(c, ticket));
}

static void test_an_idle_engine_is_woken(void **state) {
    (void)state;
    struct rig rig;
    struct err err = {0};
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, NULL, true, 0);
    assert_int_equal(engine_start(rig.engine, &err), ST_OK);
    for (int n = 0; n < 20; n++) wait_done(engine_control(rig.engine), engine_ask_map(rig.engine));
    engine_destroy(rig.engine);
}

/* A lower queue_max refuses new requests; those that were accepted before run to their end. */
static void test_a_lower_queue_max_refuses_newcomers_only(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    struct request *accepted[4], *more = NULL;
    struct err err = {0};
    uint64_t ticket;
    bool did_work;
    k.max_seqs = 1;
    k.queue_max = 3;
    rig_open(&rig, &k, NULL, false, 0);
    for (uint32_t i = 0; i < 4; i++) accepted[i] = rig_submit(&rig, 1 + i, 5, 6, 1);
    struct control_rules rules = control_rules(engine_control(rig.engine));
    rules.knobs.queue_max = 1;
    assert_int_equal(engine_ask_change(rig.engine, &rules, &ticket), ST_OK);
    engine_step(rig.engine, &did_work);
    assert_true(control_is_done(engine_control(rig.engine), ticket));
    assert_int_equal(engine_places(rig.engine), 2);
    const int32_t prompt[] = {1, 2};
    struct request_spec spec = {.prompt = prompt,
                                .prompt_tokens = 2,
                                .max_tokens = 2,
                                .n = 1,
                                .sample = sample_params_default()};
    assert_int_equal(engine_submit(rig.engine, &spec, &more, &err), ST_FULL);
    assert_non_null(strstr(err.text, "at most 2 sequences"));
    for (int i = 0; i < 4; i++) {
        rig_run(&rig, accepted[i]);
        uint32_t ready;
        assert_int_equal(choice_poll(&accepted[i]->choices[0], &ready), FINISH_LENGTH);
        request_unref(accepted[i]);
    }
    assert_int_equal(engine_submit(rig.engine, &spec, &more, &err), ST_OK);
    rig_run(&rig, more);
    request_unref(more);
    engine_destroy(rig.engine);
}

/* A question that comes between `take` and `finish` is not answered by them. */
static void test_a_question_that_comes_meanwhile_waits_for_the_next_turn(void **state) {
    (void)state;
    struct rig rig;
    struct knobs k = rig_knobs();
    rig_open(&rig, &k, NULL, false, 0);
    struct control *c = engine_control(rig.engine);
    struct control_rules rules = control_rules(c), taken;
    uint64_t change = 0, other = 0;
    const uint64_t first = control_ask_map(c);
    assert_false(control_take(c, &taken));
    const uint64_t second = control_ask_map(c);
    rules.knobs.queue_max = 7;
    assert_int_equal(control_ask_change(c, &rules, &change), ST_OK);
    assert_int_equal(control_ask_change(c, &rules, &other), ST_FULL);
    control_finish(c, engine_kv(rig.engine));
    assert_true(control_is_done(c, first));
    assert_false(control_is_done(c, second));
    assert_false(control_is_done(c, change));
    assert_int_equal(control_rules(c).knobs.queue_max, k.queue_max);
    assert_true(control_is_asked(c));
    assert_true(control_take(c, &taken));
    assert_int_equal(taken.knobs.queue_max, 7);
    assert_int_equal(control_ask_change(c, &rules, &other), ST_FULL); /* until it is in force */
    control_finish(c, engine_kv(rig.engine));
    assert_true(control_is_done(c, second));
    assert_true(control_is_done(c, change));
    assert_int_equal(control_rules(c).knobs.queue_max, 7);
    assert_false(control_is_asked(c));
    assert_int_equal(control_ask_change(c, &rules, &other), ST_OK);
    engine_destroy(rig.engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_map_shows_the_state_of_every_block),
        cmocka_unit_test(test_an_idle_engine_is_woken),
        cmocka_unit_test(test_a_lower_queue_max_refuses_newcomers_only),
        cmocka_unit_test(test_a_question_that_comes_meanwhile_waits_for_the_next_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
