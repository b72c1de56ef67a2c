/* Goal:   records of any length are kept in a ring of bytes: the newest stay, readers get whole
 *         records in order from any number on, and the trace is JSON that a viewer takes.
 * Method: records whose contents follow from their number, so that every byte that is read can be
 *         checked; random lengths, readers that fall behind, a writer on another thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/rng.h"
#include "engine/record.h"

enum { ENTRIES = 40, SEATS = 8, PIECE = 1 << 15 };

static struct record_ring *ring_of(size_t bytes) {
    struct record_ring *ring = NULL;
    assert_int_equal(record_ring_create(&ring, bytes, ENTRIES, SEATS), ST_OK);
    return ring;
}

static void push_lists(struct record_ring *ring, const struct record_head *head,
                       const struct record_lists *l) {
    struct record_head *to = record_begin(ring);
    *to = *head;
    to->row_count = l->row_count;
    if (l->row_count > 0) memcpy(record_rows(to), l->rows, l->row_count * sizeof(l->rows[0]));
    record_end(ring, to, l);
}

/* Record `number` with lists whose lengths follow from `lengths`. */
static void push(struct record_ring *ring, uint64_t number, uint32_t lengths) {
    struct record_row rows[ENTRIES] = {0};
    struct plan_wait waits[4] = {0};
    struct record_arrived arrived[4] = {0};
    struct plan_admitted admitted[4] = {0};
    struct plan_preempted preempted[4] = {0};
    struct record_ended ended[4] = {0};
    struct record_lists l = {rows,
                             waits,
                             arrived,
                             admitted,
                             preempted,
                             ended,
                             .row_count = lengths % 20,
                             .wait_count = lengths / 20 % 4};
    l.arrived_count = lengths / 80 % 4;
    l.admitted_count = lengths / 320 % 4;
    l.preempted_count = lengths / 1280 % 4;
    l.ended_count = lengths / 5120 % 4;
    for (uint32_t i = 0; i < l.row_count; i++)
        rows[i] = (struct record_row){.request = number, .first = lengths, .seat = (uint16_t)i};
    for (uint32_t i = 0; i < 4; i++) {
        waits[i] = (struct plan_wait){.request = number, .choice = i, .why = WAIT_BLOCKS};
        arrived[i] = (struct record_arrived){.request = number, .choice = i};
        admitted[i] = (struct plan_admitted){.request = number, .choice = i, .seat = i};
        preempted[i] = (struct plan_preempted){.request = number, .choice = i, .seat = SEAT_NONE};
        ended[i] = (struct record_ended){.request = number, .choice = i, .seat = SEAT_NONE};
    }
    push_lists(
        ring, &(struct record_head){.has_step = true, .times = {.step = number}, .tokens = lengths},
        &l);
}

static void check(const struct record *r, uint64_t number) {
    uint32_t lengths = r->head->tokens;
    const struct record_lists *l = &r->lists;
    assert_int_equal(r->head->number, number);
    assert_int_equal(r->head->times.step, number);
    assert_int_equal(l->row_count, lengths % 20);
    assert_int_equal(l->wait_count, lengths / 20 % 4);
    assert_int_equal(l->ended_count, lengths / 5120 % 4);
    for (uint32_t i = 0; i < l->row_count; i++) {
        assert_int_equal(l->rows[i].request, number);
        assert_int_equal(l->rows[i].first, lengths);
        assert_int_equal(l->rows[i].seat, i);
    }
    for (uint32_t i = 0; i < l->wait_count; i++) {
        assert_int_equal(l->waits[i].choice, i);
        assert_int_equal(l->waits[i].why, WAIT_BLOCKS);
    }
    for (uint32_t i = 0; i < l->arrived_count; i++) assert_int_equal(l->arrived[i].choice, i);
    for (uint32_t i = 0; i < l->admitted_count; i++) assert_int_equal(l->admitted[i].seat, i);
    for (uint32_t i = 0; i < l->preempted_count; i++)
        assert_int_equal(l->preempted[i].request, number);
    for (uint32_t i = 0; i < l->ended_count; i++) assert_int_equal(l->ended[i].request, number);
}

/* Reads all that the cursor finds with a buffer of `bytes`, and checks it; returns how many. */
static uint32_t read_all(struct record_ring *ring, struct record_cursor *c, size_t bytes) {
    static uint64_t piece[PIECE / 8];
    uint32_t count = 0;
    for (size_t used; (used = record_read(ring, c, piece, bytes)) > 0;) {
        const void *at = piece, *end = (char *)piece + used;
        uint64_t number = 0;
        for (struct record r; record_next(&at, end, &r); count++) {
            if (number == 0) number = r.head->number;
            check(&r, number++);
        }
        assert_int_equal(number, c->next);
    }
    return count;
}

static void test_a_reader_gets_every_record_once_in_order(void **state) {
    (void)state;
    struct record_ring *ring = ring_of(1 << 16);
    struct record_cursor c = {.next = 1};
    for (uint64_t n = 1; n <= 500; n++) {
        push(ring, n, (uint32_t)n * 37);
        assert_int_equal(read_all(ring, &c, PIECE), 1);
    }
    assert_int_equal(c.next, 501);
    record_verify(ring);
    record_ring_destroy(ring);
}

static void test_the_newest_records_stay_and_any_of_them_is_found(void **state) {
    (void)state;
    struct record_ring *ring = ring_of(1 << 16);
    for (uint64_t n = 1; n <= 3000; n++) push(ring, n, (uint32_t)n % 20);
    struct record_span span = record_span(ring);
    assert_int_equal(span.next, 3001);
    assert_true(span.first > 1);
    for (uint64_t n = span.first; n < span.next; n++) {
        struct record_cursor c = {.next = n};
        assert_int_equal(read_all(ring, &c, PIECE), span.next - n);
    }
    struct record_cursor old = {.next = 1};
    assert_int_equal(read_all(ring, &old, PIECE), span.next - span.first);
    record_ring_destroy(ring);
}

static void test_a_buffer_gets_whole_records_only(void **state) {
    (void)state;
    struct record_ring *ring = ring_of(1 << 16);
    uint64_t piece[PIECE / 8];
    push(ring, 1, 0);
    push(ring, 2, 19);
    struct record_cursor c = {0};
    assert_int_equal(record_read(ring, &c, piece, sizeof(struct record_head) - 1), 0);
    assert_int_equal(c.next, 1);
    assert_int_equal(record_read(ring, &c, piece, sizeof(struct record_head) + 8),
                     sizeof(struct record_head));
    assert_int_equal(c.next, 2);
    assert_int_equal(read_all(ring, &c, record_bytes_max(ring)), 1);
    record_ring_destroy(ring);
}

/* A ring that is too small for two of the largest records is made larger. */
static void test_a_small_ring_keeps_the_largest_record(void **state) {
    (void)state;
    struct record_ring *ring = ring_of(1);
    for (uint64_t n = 1; n <= 50; n++) {
        push(ring, n, 20479); /* all lists are full */
        record_verify(ring);
        struct record_span span = record_span(ring);
        assert_true(n == 1 || span.next - span.first >= 2);
    }
    record_ring_destroy(ring);
}

static void test_seats_are_those_after_the_newest_record(void **state) {
    (void)state;
    struct record_ring *ring = ring_of(1 << 16);
    struct record_seat seats[SEATS];
    struct record_head head = {.has_step = true};
    struct plan_admitted in[] = {{.request = 7, .choice = 1, .tenant = 3, .seat = 2},
                                 {.request = 8, .seat = 5}};
    push_lists(ring, &head, &(struct record_lists){.admitted = in, .admitted_count = 2});
    record_seats(ring, seats);
    assert_int_equal(seats[2].request, 7);
    assert_int_equal(seats[2].tenant, 3);
    assert_int_equal(seats[5].request, 8);
    /* 8 is preempted and 9 takes its seat; 7 ends, and its seat is taken in the same record. */
    struct plan_preempted out = {.request = 8, .seat = 5};
    struct plan_admitted next[] = {{.request = 9, .seat = 5}, {.request = 10, .seat = 2}};
    struct record_ended ended = {.request = 7, .choice = 1, .seat = 2};
    push_lists(ring, &head,
               &(struct record_lists){.preempted = &out,
                                      .preempted_count = 1,
                                      .admitted = next,
                                      .admitted_count = 2,
                                      .ended = &ended,
                                      .ended_count = 1});
    record_seats(ring, seats);
    assert_int_equal(seats[5].request, 9);
    /* Of one request: choice 0 ends in a seat that its choice 1 takes in the same record. */
    struct plan_admitted own[] = {{.request = 11, .choice = 0, .seat = 6}};
    push_lists(ring, &(struct record_head){0},
               &(struct record_lists){.admitted = own, .admitted_count = 1});
    own[0].choice = 1;
    struct record_ended first = {.request = 11, .choice = 0, .seat = 6};
    push_lists(ring, &(struct record_head){0},
               &(struct record_lists){
                   .admitted = own, .admitted_count = 1, .ended = &first, .ended_count = 1});
    record_seats(ring, seats);
    assert_int_equal(seats[6].request, 11);
    assert_int_equal(seats[6].choice, 1);
    assert_int_equal(seats[2].request, 10);
    struct record_ended last = {.request = 9, .seat = 5};
    push_lists(ring, &head, &(struct record_lists){.ended = &last, .ended_count = 1});
    record_seats(ring, seats);
    assert_int_equal(seats[5].request, 0);
    record_ring_destroy(ring);
}

/* Random lengths, ring sizes and readers, against what a list would hold. */
static void test_random_records_and_readers(void **state) {
    (void)state;
    const char *text = getenv("JITNEY_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 1;
    print_message("JITNEY_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t round = 0; round < 20; round++) {
        struct rng rng = {.seed = seed * 1000 + round};
        struct record_ring *ring = ring_of(rng_below(&rng, 1 << 17));
        struct record_cursor readers[3] = {{0}};
        for (uint64_t n = 1; n <= 2000; n++) {
            push(ring, n, (uint32_t)rng_below(&rng, 20480));
            struct record_cursor *c = &readers[rng_below(&rng, 3)];
            if (rng_below(&rng, 8) == 0) {
                uint64_t first = record_span(ring).first, from = c->next < first ? first : c->next;
                assert_int_equal(read_all(ring, c, record_bytes_max(ring) + rng_below(&rng, 4096)),
                                 n + 1 - from);
            }
            if (rng_below(&rng, 64) == 0) c->next = 1 + rng_below(&rng, n);
            if (n % 100 == 0) record_verify(ring);
        }
        record_ring_destroy(ring);
    }
}

/* ---- the trace ---- */

static struct json *json_of(struct record_ring *ring, struct buf *text) {
    struct json *doc = NULL;
    struct err err = {0};
    buf_init(text, 1 << 22);
    record_put_json(ring, text);
    assert_int_equal(buf_status(text), ST_OK);
    if (json_parse(buf_str(text), &json_limits_request, &doc, &err) != ST_OK)
        fail_msg("%s: %s", err.text, buf_text(text));
    return doc;
}

static void test_the_trace_is_json_with_what_ran(void **state) {
    (void)state;
    struct buf text;
    struct record_ring *ring = ring_of(1 << 16);
    struct plan_preempted preempted[] = {
        {.request = 9, .why = PREEMPT_POLICY, .seat = SEAT_NONE},
        {.request = 8, .choice = 1, .swapped = true, .seat = SEAT_NONE}};
    struct record_row rows[] = {{.request = 9, .count = 5, .drafts = 4, .accepted = 3},
                                {.request = 8, .count = 3, .drafts = 2, .accepted = 0}};
    struct record_head head = {
        .has_step = true, .times = {.step = 5, .at_us = 1005, .elapsed_us = 50, .submit_us = 4}};
    head.tokens = 15;
    head.moves_in = 2;
    head.moves_copy = 1;
    push_lists(ring, &head,
               &(struct record_lists){
                   .rows = rows, .row_count = 2, .preempted = preempted, .preempted_count = 2});
    push_lists(ring, &(struct record_head){.has_step = false}, &(struct record_lists){0});
    struct json *doc = json_of(ring, &text);
    assert_int_equal(json_count(doc), 1); /* the second has no step */
    const struct json *step = json_at(doc, 0);
    assert_true(str_is(json_str(json_get(step, "ph")), "X"));
    assert_int_equal(json_int(json_get(step, "ts"), 0), 1005);
    assert_int_equal(json_int(json_get(step, "dur"), 0), 50);
    assert_int_equal(json_int(json_path(step, "args.step"), 0), 5);
    assert_int_equal(json_int(json_path(step, "args.tokens"), 0), 15);
    assert_int_equal(json_int(json_path(step, "args.drafts"), 0), 6);
    assert_int_equal(json_int(json_path(step, "args.accepted"), 0), 3);
    assert_int_equal(json_int(json_path(step, "args.moves"), 0), 3);
    assert_int_equal(json_int(json_path(step, "args.submit_us"), 0), 4);
    const struct json *out = json_path(step, "args.preempted");
    assert_int_equal(json_count(out), 2);
    assert_true(str_is(json_str(json_get(json_at(out, 0), "why")), "policy"));
    assert_true(str_is(json_str(json_get(json_at(out, 0), "by")), "recompute"));
    assert_true(str_is(json_str(json_get(json_at(out, 1), "why")), "memory"));
    assert_true(str_is(json_str(json_get(json_at(out, 1), "by")), "swap"));
    json_destroy(doc);
    buf_deinit(&text);
    record_ring_destroy(ring);
}

static void *push_many(void *arg) {
    for (uint64_t n = 101; n <= 20000; n++) push(arg, n, (uint32_t)n % 20);
    return NULL;
}

/* However much is pushed meanwhile, the JSON has an end, its steps are in order, and what a reader
 * gets is whole. */
static void test_records_can_be_read_while_steps_go_on(void **state) {
    (void)state;
    struct record_ring *ring = ring_of(1 << 15);
    pthread_t thread;
    for (uint64_t n = 1; n <= 100; n++) push(ring, n, 0);
    assert_int_equal(pthread_create(&thread, NULL, push_many, ring), 0);
    struct record_cursor c = {0};
    for (int round = 0; round < 20; round++) {
        struct buf text;
        struct json *doc = json_of(ring, &text);
        int64_t before = 0;
        for (uint32_t i = 0; i < json_count(doc); i++) {
            int64_t step = json_int(json_path(json_at(doc, i), "args.step"), -1);
            assert_true(step > before);
            before = step;
        }
        json_destroy(doc);
        buf_deinit(&text);
        read_all(ring, &c, record_bytes_max(ring));
    }
    pthread_join(thread, NULL);
    read_all(ring, &c, record_bytes_max(ring));
    assert_int_equal(c.next, 20001);
    record_ring_destroy(ring);
}

static void test_an_empty_trace_is_json_too(void **state) {
    (void)state;
    struct buf text;
    struct record_ring *ring = ring_of(1 << 16);
    struct json *doc = json_of(ring, &text);
    assert_int_equal(json_kind(doc), JS_LIST);
    assert_int_equal(json_count(doc), 0);
    json_destroy(doc);
    buf_deinit(&text);
    record_ring_destroy(ring);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reader_gets_every_record_once_in_order),
        cmocka_unit_test(test_the_newest_records_stay_and_any_of_them_is_found),
        cmocka_unit_test(test_a_buffer_gets_whole_records_only),
        cmocka_unit_test(test_a_small_ring_keeps_the_largest_record),
        cmocka_unit_test(test_seats_are_those_after_the_newest_record),
        cmocka_unit_test(test_random_records_and_readers),
        cmocka_unit_test(test_the_trace_is_json_with_what_ran),
        cmocka_unit_test(test_records_can_be_read_while_steps_go_on),
        cmocka_unit_test(test_an_empty_trace_is_json_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
