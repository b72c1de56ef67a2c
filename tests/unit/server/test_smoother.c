/* Goal:   smoothed text is the same text, whole characters, in order, out within its window.
 * Method: bursts on a clock that the test moves; the pieces that come out are joined and compared,
 *         with a seeded random run over sizes, times and several choices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/event.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "server/smoother.h"

struct bench {
    struct smoother *s;
    struct event_log *log;
    uint32_t finished;
};

static void on_finish(void *ctx, uint32_t choice, enum finish_reason finish) {
    struct bench *b = ctx;
    (void)choice;
    assert_int_equal(finish, FINISH_LENGTH);
    b->finished++;
}

static void bench_open(struct bench *b, int64_t window_us) {
    *b = (struct bench){.finished = 0};
    assert_int_equal(smoother_create(window_us, 1 << 20, &b->s), ST_OK);
    assert_int_equal(event_log_create(&b->log, 1 << 20), ST_OK);
}

static void bench_close(struct bench *b) {
    smoother_destroy(b->s);
    event_log_destroy(b->log);
}

static void add(struct bench *b, enum api_event_kind kind, const char *text, uint32_t first) {
    struct api_event ev = {.kind = kind,
                           .first_token = first,
                           .token_count = kind == EVENT_TEXT,
                           .finish = kind == EVENT_FINISH ? FINISH_LENGTH : FINISH_NONE,
                           .text = str_of(text)};
    assert_int_equal(event_log_add(smoother_stage(b->s), &ev), ST_OK);
}

static void release(struct bench *b, int64_t now_us) {
    assert_int_equal(smoother_release(b->s, now_us, b->log, on_finish, b), ST_OK);
}

static void join(const struct event_log *log, struct buf *out) {
    for (uint32_t i = 0; i < event_log_count(log); i++) {
        struct str text = event_log_at(log, i).text;
        assert_true(utf8_is_valid(text));
        buf_put_str(out, text);
    }
}

static void test_a_burst_is_spread_over_the_window(void **state) {
    (void)state;
    struct bench b;
    struct buf text;
    bench_open(&b, 100000);
    buf_init(&text, 1 << 16);
    add(&b, EVENT_TEXT, "0123456789", 0);
    add(&b, EVENT_TEXT, "abcdefghij", 1);
    smoother_note(b.s, 1000);
    release(&b, 1000);
    assert_int_equal(event_log_count(b.log), 0);
    release(&b, 51000);
    join(b.log, &text);
    assert_string_equal(buf_text(&text), "0123456789");
    release(&b, 101000);
    buf_clear(&text);
    join(b.log, &text);
    assert_string_equal(buf_text(&text), "0123456789abcdefghij");
    assert_true(smoother_is_empty(b.s));
    buf_deinit(&text);
    bench_close(&b);
}

static void test_no_character_is_split_and_tokens_are_counted_once(void **state) {
    (void)state;
    struct bench b;
    struct buf text;
    uint32_t tokens = 0;
    bench_open(&b, 100000);
    buf_init(&text, 1 << 16);
    add(&b, EVENT_TEXT, "h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z", 4);
    smoother_note(b.s, 0);
    for (int64_t t = 10000; t <= 100000; t += 10000) release(&b, t);
    join(b.log, &text);
    assert_string_equal(buf_text(&text), "h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z");
    assert_true(event_log_count(b.log) >= 4);
    for (uint32_t i = 0; i < event_log_count(b.log); i++) {
        struct api_event ev = event_log_at(b.log, i);
        tokens += ev.token_count;
        assert_int_equal(ev.first_token, i == 0 ? 4 : 5);
    }
    assert_int_equal(tokens, 1);
    buf_deinit(&text);
    bench_close(&b);
}

static void test_the_end_comes_after_all_text(void **state) {
    (void)state;
    struct bench b;
    bench_open(&b, 100000);
    add(&b, EVENT_TEXT, "abcd", 0);
    add(&b, EVENT_FINISH, "STOP", 1);
    smoother_note(b.s, 0);
    release(&b, 50000);
    assert_int_equal(b.finished, 0);
    release(&b, 100000);
    assert_int_equal(b.finished, 1);
    struct api_event last = event_log_at(b.log, event_log_count(b.log) - 1);
    assert_int_equal(last.kind, EVENT_FINISH);
    assert_true(str_is(last.text, "STOP"));
    bench_close(&b);
}

static void test_an_empty_event_waits_for_nothing(void **state) {
    (void)state;
    struct bench b;
    bench_open(&b, 100000);
    add(&b, EVENT_TEXT, "", 0);
    smoother_note(b.s, 0);
    release(&b, 0);
    assert_int_equal(event_log_count(b.log), 1);
    assert_true(smoother_is_empty(b.s));
    bench_close(&b);
}

/* The time of a new burst begins with it, however long nothing came before. */
static void test_a_burst_after_a_pause_is_spread_over_its_own_window(void **state) {
    (void)state;
    struct bench b;
    struct buf text;
    bench_open(&b, 100000);
    buf_init(&text, 1 << 16);
    add(&b, EVENT_TEXT, "one", 0);
    smoother_note(b.s, 0);
    release(&b, 100000);
    assert_true(smoother_is_empty(b.s));
    add(&b, EVENT_TEXT, "0123456789", 1);
    smoother_note(b.s, 900000);
    release(&b, 900000);
    assert_int_equal(event_log_count(b.log), 1);
    release(&b, 950000);
    join(b.log, &text);
    assert_string_equal(buf_text(&text), "one01234");
    release(&b, 999999);
    assert_false(smoother_is_empty(b.s));
    release(&b, 1000000);
    assert_true(smoother_is_empty(b.s));
    buf_deinit(&text);
    bench_close(&b);
}

/* More text while some waits: what is left shares the newer window. */
static void test_text_that_comes_meanwhile_extends_the_window(void **state) {
    (void)state;
    struct bench b;
    bench_open(&b, 100000);
    add(&b, EVENT_TEXT, "0123456789", 0);
    smoother_note(b.s, 0);
    release(&b, 50000);
    add(&b, EVENT_TEXT, "abcde", 1);
    smoother_note(b.s, 50000);
    release(&b, 100000); /* half of the ten that wait */
    struct buf text;
    buf_init(&text, 1 << 16);
    join(b.log, &text);
    assert_string_equal(buf_text(&text), "0123456789");
    release(&b, 149999);
    assert_false(smoother_is_empty(b.s));
    release(&b, 150000);
    assert_true(smoother_is_empty(b.s));
    buf_deinit(&text);
    bench_close(&b);
}

static void walk(uint64_t seed) {
    static const char *const texts[] = {"", "a", "\xc3\xa9", "word ", "\xf0\x9f\x98\x80!", "\n"};
    struct rng rng = {.seed = seed};
    struct bench b;
    struct buf want, have;
    int64_t now_us = 0, last_us = 0;
    bench_open(&b, 50000);
    buf_init(&want, 1 << 20);
    buf_init(&have, 1 << 20);
    for (uint32_t i = 0; i < 500; i++) {
        if (rng_below(&rng, 3) == 0) {
            const char *text = texts[rng_below(&rng, 6)];
            add(&b, EVENT_TEXT, text, i);
            buf_put_text(&want, text);
            smoother_note(b.s, now_us);
            last_us = now_us;
        }
        now_us += (int64_t)rng_below(&rng, 20000);
        release(&b, now_us);
        if (now_us >= last_us + 50000) assert_true(smoother_is_empty(b.s));
    }
    release(&b, now_us + 50000);
    join(b.log, &have);
    assert_true(str_eq(buf_str(&want), buf_str(&have)));
    buf_deinit(&want);
    buf_deinit(&have);
    bench_close(&b);
}

static void test_any_burst_at_any_time_joins_to_the_same_text(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) walk(seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_burst_is_spread_over_the_window),
        cmocka_unit_test(test_no_character_is_split_and_tokens_are_counted_once),
        cmocka_unit_test(test_the_end_comes_after_all_text),
        cmocka_unit_test(test_an_empty_event_waits_for_nothing),
        cmocka_unit_test(test_a_burst_after_a_pause_is_spread_over_its_own_window),
        cmocka_unit_test(test_text_that_comes_meanwhile_extends_the_window),
        cmocka_unit_test(test_any_burst_at_any_time_joins_to_the_same_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
