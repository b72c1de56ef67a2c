/* Goal:   text ends just before the first stop string, and nothing of one is ever shown.
 * Method: named cases, then seeded texts cut into random pieces against a search of the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "engine/stops.h"

static void test_a_beginning_is_held_back_until_it_is_decided(void **state) {
    (void)state;
    struct str strings[] = {STR("</s>"), STR("User:")};
    struct stops s;
    struct buf out;
    stops_init(&s, strings, 2);
    buf_init(&out, 1000);
    assert_false(stops_push(&s, STR("Hi <"), &out));
    assert_string_equal(buf_text(&out), "Hi ");
    assert_false(stops_push(&s, STR("/b> Us"), &out));
    assert_string_equal(buf_text(&out), "Hi </b> ");
    assert_true(stops_push(&s, STR("er: x"), &out));
    assert_string_equal(buf_text(&out), "Hi </b> ");
    buf_deinit(&out);
    stops_deinit(&s);
}

static void test_what_is_held_is_shown_at_the_end(void **state) {
    (void)state;
    struct str strings[] = {STR("abc")};
    struct stops s;
    struct buf out;
    stops_init(&s, strings, 1);
    buf_init(&out, 1000);
    assert_false(stops_push(&s, STR("xab"), &out));
    stops_finish(&s, &out);
    assert_string_equal(buf_text(&out), "xab");
    buf_deinit(&out);
    stops_deinit(&s);
}

/* The whole text up to the earliest stop string. */
static size_t cut_at(struct str text, const struct str *strings, uint32_t count) {
    for (size_t at = 0; at < text.len; at++)
        for (uint32_t i = 0; i < count; i++)
            if (str_starts(str_skip(text, at), strings[i])) return at;
    return text.len;
}

static void run_random(struct rng *rng) {
    static const struct str strings[] = {{"aab", 3}, {"ba", 2}, {"abba", 4}};
    uint32_t count = (uint32_t)rng_below(rng, 4);
    char text[40];
    size_t len = rng_below(rng, sizeof(text)) + 1, at = 0;
    for (size_t i = 0; i < len; i++) text[i] = (char)('a' + rng_below(rng, 3));
    struct stops s;
    struct buf out;
    stops_init(&s, strings, count);
    buf_init(&out, 1000);
    bool met = false;
    while (at < len && !met) {
        size_t piece = rng_below(rng, len - at) + 1;
        met = stops_push(&s, (struct str){text + at, piece}, &out);
        at += piece;
    }
    if (!met) stops_finish(&s, &out);
    size_t expected = cut_at((struct str){text, len}, strings, count);
    assert_int_equal(met, expected < len);
    assert_true(str_eq(buf_str(&out), (struct str){text, expected}));
    buf_deinit(&out);
    stops_deinit(&s);
}

static void test_pieces_change_nothing(void **state) {
    (void)state;
    struct rng rng = {.seed = 5};
    for (int i = 0; i < 20000; i++) run_random(&rng);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_beginning_is_held_back_until_it_is_decided),
        cmocka_unit_test(test_what_is_held_is_shown_at_the_end),
        cmocka_unit_test(test_pieces_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
