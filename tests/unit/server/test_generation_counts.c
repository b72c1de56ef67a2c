/* Goal:   what a generation counts while its prompt is prepared is exact and given back; ids that
 *         several generations share lead to the newest of those that are left.
 * Method: generations on a loop that does not turn between two looks; every order of removal. */
#include "server/generations.h"
#include "unit/server/generation_rig.h"

#define SMALL "{\"model\":\"t\",\"prompt\":\"a\",\"max_tokens\":4,\"stream\":true}"

/* The pool's results come with a turn of the loop, so nothing changes before. */
static void test_prompts_that_are_prepared_count_their_bytes(void **state) {
    (void)state;
    enum { COUNT = 3 };
    struct rig g;
    struct received h[COUNT];
    uint64_t bytes = 0;
    rig_open(&g, &(struct rig_options){.step_us = 0});
    const struct work_lane *lane = &accounts_find(g.accounts, NULL)->lane;
    for (uint32_t i = 0; i < COUNT; i++) {
        received_init(&h[i]);
        struct generation *r = generation_make(&g, SMALL, 0);
        r->request.prompt_bytes = 1000 + i;
        bytes += r->request.prompt_bytes;
        generation_start(r, sink_make(r, &h[i], 0));
        const struct work_queue_stats stats = work_queue_stats(g.work);
        assert_int_equal(stats.bytes, bytes);
        assert_int_equal(stats.waiting + stats.running, i + 1);
        assert_int_equal(lane->bytes.held, bytes);
        assert_int_equal(lane->items.held, i + 1);
        assert_int_equal(g.model.live_choices, i + 1);
        assert_int_equal(generations_stats(g.generations).live, i + 1);
    }
    assert_true(rig_until(&g, rig_is_prepared));
    assert_int_equal(work_queue_stats(g.work).bytes, 0);
    assert_int_equal(lane->bytes.held + lane->items.held, 0);
    assert_true(rig_until(&g, rig_is_quiet));
    for (uint32_t i = 0; i < COUNT; i++) received_deinit(&h[i]);
    rig_close(&g);
}

/* Of a grammar: it may take long although its text is short. */
static void test_a_prompt_with_a_grammar_is_long_work(void **state) {
    (void)state;
    struct rig g;
    struct received h;
    rig_open(&g, &(struct rig_options){.step_us = 0});
    received_init(&h);
    for (int has_grammar = 0; has_grammar < 2; has_grammar++) {
        struct generation *r = generation_make(&g, SMALL, 0);
        r->request.grammar.is_given = has_grammar;
        generation_start(r, sink_make(r, &h, 0));
        const struct work_item *item = (const struct work_item *)r->work;
        assert_int_equal(item->length, has_grammar ? WORK_LONG : WORK_SHORT);
        assert_true(rig_until(&g, rig_is_quiet));
    }
    received_deinit(&h);
    rig_close(&g);
}

/* ---- deadlines ---- */

/* Its time is over when its prompt has been prepared: by the server's limit, its own, or both. */
static void test_a_deadline_that_has_passed_before_the_engine_ends_a_generation(void **state) {
    (void)state;
    static const int64_t limits[][2] = {
        {1000000, 0}, {0, 1000000}, {1000000, 9000000}, {9000000, 1000000}, {2000000, 2000000}};
    struct rig g;
    rig_open(&g, &(struct rig_options){.step_us = 1000});
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct received h;
        received_init(&h);
        struct generation *r = generation_make(
            &g, "{\"model\":\"t\",\"prompt\":\"a\",\"max_tokens\":100000,\"stream\":true}", 0);
        r->answer.arrived_us -= 2000000;
        r->timeout_us = limits[i][0];
        r->request.urgency.expires_us = limits[i][1];
        generation_start(r, sink_make(r, &h, 0));
        assert_true(rig_until(&g, rig_is_quiet));
        assert_int_equal(h.error.status, 504);
        received_deinit(&h);
    }
    rig_close(&g);
}

/* ---- kept ---- */

/* Where there is one tenant it may fill all memory for kept answers, otherwise half of it. */
static void test_a_single_tenant_may_keep_as_much_as_there_is(void **state) {
    (void)state;
    enum { ANSWERS = 40, HELD_BYTES = 10000, KEEP_BYTES = 200000 };
    for (int has_tenants = 0; has_tenants < 2; has_tenants++) {
        struct rig g;
        rig_open(&g, &(struct rig_options){.keep_bytes = KEEP_BYTES, .has_tenants = has_tenants});
        for (int i = 0; i < ANSWERS; i++) {
            struct received h;
            received_init(&h);
            struct generation *r = generation_make(&g, SMALL, HELD_BYTES);
            r->is_findable = true;
            generation_start(r, sink_make(r, &h, 0));
            assert_true(rig_until(&g, rig_is_quiet));
            received_deinit(&h);
        }
        const uint64_t kept = generations_stats(g.generations).kept_bytes;
        const uint64_t most = has_tenants ? KEEP_BYTES / 2 : KEEP_BYTES;
        assert_true(kept <= most);
        assert_true(kept > most - 2 * HELD_BYTES); /* one more did not fit */
        rig_close(&g);
    }
}

/* ---- ids ---- */

static void test_of_generations_with_one_request_id_the_newest_is_found(void **state) {
    (void)state;
    static const uint32_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct rig g;
    rig_open(&g, &(struct rig_options){.step_us = 0});
    for (uint32_t o = 0; o < 6; o++) {
        struct generation *all[3];
        for (uint32_t i = 0; i < 3; i++)
            all[i] = generation_make_by(&g, "openai.completions", SMALL, 0,
                                        (struct generation_spec){.request_id = STR("same")});
        for (uint32_t n = 0; n < 3; n++) {
            const struct generation *newest = NULL;
            for (uint32_t i = 0; i < 3; i++) newest = all[i] ? all[i] : newest;
            assert_ptr_equal(generation_find(g.generations, NULL, STR("same")), newest);
            generation_forget(all[orders[o][n]]); /* it was not started, so it is freed */
            all[orders[o][n]] = NULL;
        }
        assert_null(generation_find(g.generations, NULL, STR("same")));
    }
    rig_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_that_are_prepared_count_their_bytes),
        cmocka_unit_test(test_a_prompt_with_a_grammar_is_long_work),
        cmocka_unit_test(test_a_deadline_that_has_passed_before_the_engine_ends_a_generation),
        cmocka_unit_test(test_a_single_tenant_may_keep_as_much_as_there_is),
        cmocka_unit_test(test_of_generations_with_one_request_id_the_newest_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
