/* Goal:   step records are kept in a ring, the last ones stay, and they can be written as JSON
 *         that a trace viewer takes.
 * Method: more records than fit; the exported text is parsed again and its fields compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>

#include "base/buf.h"
#include "base/json.h"
#include "engine/record.h"

enum { CAPACITY = 4, PUSHED = 7 };

static struct record_ring *ring_with(uint32_t count) {
    struct record_ring *ring = NULL;
    assert_int_equal(record_ring_create(&ring, CAPACITY), ST_OK);
    for (uint32_t i = 0; i < count; i++) {
        struct step_record r = {.step = i,
                                .at_us = 1000 + i,
                                .elapsed_us = 50,
                                .sched_us = 3,
                                .submit_us = 4,
                                .rows = 2,
                                .tokens = 10 + i,
                                .preempted_count = i % 3,
                                .preempted = {{.request = 9, .why = PREEMPT_POLICY},
                                              {.request = 8, .choice = 1, .swapped = true}}};
        record_push(ring, &r);
    }
    return ring;
}

static struct json *json_of(struct record_ring *ring, struct buf *text) {
    struct json *doc = NULL;
    struct err err = {0};
    buf_init(text, 1 << 20);
    record_put_json(ring, text);
    assert_int_equal(buf_status(text), ST_OK);
    if (json_parse(buf_str(text), &json_limits_request, &doc, &err) != ST_OK)
        fail_msg("%s: %s", err.text, buf_text(text));
    return doc;
}

static void test_the_last_records_stay_in_order(void **state) {
    (void)state;
    struct record_ring *ring = ring_with(PUSHED);
    struct step_record out[CAPACITY];
    assert_int_equal(record_copy(ring, out, CAPACITY), CAPACITY);
    for (uint32_t i = 0; i < CAPACITY; i++) assert_int_equal(out[i].step, PUSHED - CAPACITY + i);
    assert_int_equal(record_copy(ring, out, 2), 2);
    assert_int_equal(out[1].step, PUSHED - 1);
    record_ring_destroy(ring);
}

static void test_the_trace_is_json_with_what_ran(void **state) {
    (void)state;
    struct buf text;
    struct record_ring *ring = ring_with(PUSHED);
    struct json *doc = json_of(ring, &text);
    assert_int_equal(json_count(doc), CAPACITY);
    const struct json *last = json_at(doc, CAPACITY - 2); /* step 5: two preempted */
    assert_true(str_is(json_str(json_get(last, "ph")), "X"));
    assert_int_equal(json_int(json_get(last, "ts"), 0), 1005);
    assert_int_equal(json_int(json_get(last, "dur"), 0), 50);
    assert_int_equal(json_int(json_path(last, "args.tokens"), 0), 15);
    assert_int_equal(json_int(json_path(last, "args.submit_us"), 0), 4);
    const struct json *preempted = json_path(last, "args.preempted");
    assert_int_equal(json_count(preempted), 2);
    assert_true(str_is(json_str(json_get(json_at(preempted, 0), "why")), "policy"));
    assert_true(str_is(json_str(json_get(json_at(preempted, 0), "by")), "recompute"));
    assert_true(str_is(json_str(json_get(json_at(preempted, 1), "why")), "memory"));
    assert_true(str_is(json_str(json_get(json_at(preempted, 1), "by")), "swap"));
    json_destroy(doc);
    buf_deinit(&text);
    record_ring_destroy(ring);
}

static void *push_many(void *arg) {
    for (uint32_t i = 0; i < 20000; i++) record_push(arg, &(struct step_record){.step = i});
    return NULL;
}

/* However much is pushed meanwhile, the JSON has an end and its steps are in order. */
static void test_a_trace_can_be_written_while_steps_go_on(void **state) {
    (void)state;
    enum { RING = 100 };
    struct record_ring *ring = NULL;
    pthread_t thread;
    assert_int_equal(record_ring_create(&ring, RING), ST_OK);
    for (uint32_t i = 0; i < RING; i++) record_push(ring, &(struct step_record){.step = 0});
    assert_int_equal(pthread_create(&thread, NULL, push_many, ring), 0);
    for (int round = 0; round < 20; round++) {
        struct buf text;
        struct json *doc = json_of(ring, &text);
        int64_t before = 0;
        assert_int_equal(json_count(doc), RING);
        for (uint32_t i = 0; i < RING; i++) {
            int64_t step = json_int(json_path(json_at(doc, i), "args.step"), -1);
            assert_true(step > before || (step == 0 && before == 0));
            before = step;
        }
        json_destroy(doc);
        buf_deinit(&text);
    }
    pthread_join(thread, NULL);
    record_ring_destroy(ring);
}

static void test_an_empty_trace_is_json_too(void **state) {
    (void)state;
    struct buf text;
    struct record_ring *ring = ring_with(0);
    struct json *doc = json_of(ring, &text);
    assert_int_equal(json_kind(doc), JS_LIST);
    assert_int_equal(json_count(doc), 0);
    json_destroy(doc);
    buf_deinit(&text);
    record_ring_destroy(ring);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_records_stay_in_order),
        cmocka_unit_test(test_the_trace_is_json_with_what_ran),
        cmocka_unit_test(test_a_trace_can_be_written_while_steps_go_on),
        cmocka_unit_test(test_an_empty_trace_is_json_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
