/* Goal:   the drafter copies from the latest place of the longest n-gram, and from no other.
 * Method: named cases for the edges, then seeded walks with changing guesses, in which every answer
 *         is compared with that of a plain search of the whole text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "spec/drafter.h"
#include "spec/speculate_option.h"
#include "unit/spec/walk.h"

extern const struct drafter drafter_ngram;
static const struct drafter *const d = &drafter_ngram;

static void *create(uint32_t tokens_max, uint32_t min, uint32_t max) {
    struct drafter_setup setup = {.tokens_max = tokens_max, .ngram_min = min, .ngram_max = max};
    struct err err = {0};
    void *self = NULL;
    assert_int_equal(d->create(&setup, &self, &err), ST_OK);
    return self;
}

/* Text as letters. Returns the draft as letters. */
static const char *draft(void *self, const char *text, uint32_t max) {
    static char letters[64];
    int32_t tokens[256], out[64];
    uint32_t count = (uint32_t)strlen(text);
    for (uint32_t i = 0; i < count; i++) tokens[i] = text[i];
    uint32_t given = d->propose(self, tokens, count, count, max, out);
    for (uint32_t i = 0; i < given; i++) letters[i] = (char)out[i];
    letters[given] = 0;
    return letters;
}

static void test_the_latest_place_is_copied(void **state) {
    (void)state;
    void *self = create(256, 2, 4);
    assert_string_equal(draft(self, "ab1..ab2..ab", 1), "2");
    d->destroy(self);
}

static void test_a_longer_match_is_preferred_to_a_later_one(void **state) {
    (void)state;
    void *self = create(256, 2, 4);
    assert_string_equal(draft(self, "xyab1..zab2..xyab", 3), "1..");
    d->destroy(self);
}

static void test_a_loop_is_continued_without_end(void **state) {
    (void)state;
    void *self = create(256, 2, 4);
    assert_string_equal(draft(self, "abcabc", 20), "abcabcabcabcabcabcab");
    assert_string_equal(draft(self, "abcabcaaaa", 5), "aaaaa");
    d->destroy(self);
}

static void test_text_without_repeats_gives_nothing(void **state) {
    (void)state;
    void *self = create(256, 2, 4);
    assert_string_equal(draft(self, "", 5), "");
    assert_string_equal(draft(self, "a", 5), "");
    assert_string_equal(draft(self, "ab", 5), "");
    assert_string_equal(draft(self, "abcdb", 5), "");
    d->destroy(self);
}

static void test_places_beyond_the_longest_text_are_not_indexed(void **state) {
    (void)state;
    void *self = create(4, 2, 2);
    assert_string_equal(draft(self, "abc.def.ab", 2), "c.");
    assert_string_equal(draft(self, "abc.def.abdef.de", 2), "");
    d->verify(self);
    d->destroy(self);
    self = create(0, 1, 1);
    assert_string_equal(draft(self, "", 2), "");
    d->destroy(self);
}

static void test_a_prompt_that_create_indexed_gives_the_same(void **state) {
    (void)state;
    const int32_t tokens[] = {1, 2, 3, 4, 5, 1, 2};
    struct drafter_setup setup = {
        .tokens_max = 9, .ngram_min = 2, .ngram_max = 4, .prompt = tokens, .prompt_tokens = 5};
    struct err err = {0};
    int32_t out[2];
    void *self = NULL;
    assert_int_equal(d->create(&setup, &self, &err), ST_OK);
    d->verify(self);
    assert_int_equal(d->propose(self, tokens, 7, 7, 2, out), 2);
    assert_int_equal(out[0], 3);
    assert_int_equal(out[1], 4);
    d->destroy(self);
}

static void test_bad_lengths_are_refused(void **state) {
    (void)state;
    static const uint32_t bad[][2] = {{0, 2}, {3, 2}, {1, SPECULATE_NGRAM_LIMIT + 1}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct drafter_setup setup = {
            .tokens_max = 8, .ngram_min = bad[i][0], .ngram_max = bad[i][1]};
        struct err err = {0};
        void *self = NULL;
        assert_int_equal(d->create(&setup, &self, &err), ST_BAD);
        assert_non_null(strstr(err.text, "expected 1 <= MIN <= MAX"));
    }
}

static void test_memory_is_within_16_bytes_a_token(void **state) {
    (void)state;
    void *self = create(32768, 2, 4);
    assert_true(d->bytes(self) <= (size_t)16 * 32768);
    d->destroy(self);
}

/* ---- against a plain search ---- */

/* The latest place of the longest n-gram, by trying all. 0: none. */
static uint32_t search(const struct walk *w, uint32_t min, uint32_t max) {
    for (uint32_t n = max; n >= min; n--)
        for (uint32_t place = w->known ? w->known - 1 : 0; place >= n && n <= w->count; place--)
            if (memcmp(w->tokens + place - n, w->tokens + w->count - n, n * sizeof(int32_t)) == 0)
                return place;
    return 0;
}

static void compare(void *self, struct walk *w, uint32_t min, uint32_t max) {
    int32_t out[32], all[WALK_TOKENS_MAX + WALK_GUESSES_MAX + 32];
    uint32_t wanted = 1 + (uint32_t)rng_below(&w->rng, 25);
    uint32_t given = d->propose(self, w->tokens, w->known, w->count, wanted, out);
    uint32_t place = search(w, min, max);
    assert_int_equal(given, place ? wanted : 0);
    memcpy(all, w->tokens, w->count * sizeof(int32_t));
    for (uint32_t i = 0; i < given; i++) {
        all[w->count + i] = all[place + i];
        assert_int_equal(out[i], all[w->count + i]);
    }
}

static void walk(uint64_t seed) {
    static const uint32_t alphabets[] = {1, 2, 3, 6, 40, 50000};
    static const uint32_t lengths[][2] = {{1, 1}, {2, 4}, {1, SPECULATE_NGRAM_LIMIT}, {3, 5}};
    static struct walk w;
    memset(&w, 0, sizeof(w));
    w.rng.seed = seed;
    w.alphabet = alphabets[seed % 6];
    const uint32_t *n = lengths[seed / 6 % 4];
    uint32_t tokens_max = seed % 5 == 0 ? WALK_TOKENS_MAX : 100 + (uint32_t)(seed * 37 % 1000);
    void *self = create(tokens_max, n[0], n[1]);
    for (uint32_t step = 0, more = 1; more; step++) {
        more = (uint32_t)walk_step(&w, tokens_max);
        compare(self, &w, n[0], n[1]);
        if (step % 16 == 0 || !more) d->verify(self);
    }
    d->destroy(self);
}

static void test_walks_agree_with_a_plain_search(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        walk(seed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_latest_place_is_copied),
        cmocka_unit_test(test_a_longer_match_is_preferred_to_a_later_one),
        cmocka_unit_test(test_a_loop_is_continued_without_end),
        cmocka_unit_test(test_text_without_repeats_gives_nothing),
        cmocka_unit_test(test_places_beyond_the_longest_text_are_not_indexed),
        cmocka_unit_test(test_a_prompt_that_create_indexed_gives_the_same),
        cmocka_unit_test(test_bad_lengths_are_refused),
        cmocka_unit_test(test_memory_is_within_16_bytes_a_token),
        cmocka_unit_test(test_walks_agree_with_a_plain_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
