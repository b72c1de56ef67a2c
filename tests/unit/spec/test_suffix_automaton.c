/* Goal:   the automaton finds the longest repeat and its most frequent continuation.
 * Method: named cases for the edges, then seeded walks, in which every answer is compared with that
 *         of a plain search. The plain search counts what the header promises: a token counts for
 *         the SUFFIX_COUNT_DEPTH longest pieces before it that differ in where they occur. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "spec/suffix_automaton.h"
#include "unit/spec/walk.h"

enum { TEXT_MAX = 320, LETTERS = 64 };

static struct suffix_automaton *create(uint32_t tokens_max) {
    struct suffix_automaton *a = NULL;
    assert_int_equal(suffix_automaton_create(&a, tokens_max), ST_OK);
    return a;
}

/* '|' is SUFFIX_END. */
static struct suffix_automaton *automaton_of(const char *text) {
    struct suffix_automaton *a = create((uint32_t)strlen(text));
    for (const char *c = text; *c; c++)
        assert_true(suffix_automaton_add(a, *c == '|' ? SUFFIX_END : *c));
    suffix_automaton_verify(a);
    return a;
}

static struct suffix_match match(const struct suffix_automaton *a, const char *text) {
    struct suffix_match m = {0};
    for (const char *c = text; *c; c++) m = suffix_automaton_step(a, m, *c);
    return m;
}

static const char *guess(const struct suffix_automaton *a, struct suffix_match m, uint32_t max) {
    static char letters[LETTERS + 1];
    int32_t out[LETTERS];
    uint32_t given = suffix_automaton_guess(a, m, 0.0, max, out);
    for (uint32_t i = 0; i < given; i++) letters[i] = (char)out[i];
    letters[given] = 0;
    return letters;
}

static void test_the_most_frequent_continuation_is_guessed(void **state) {
    (void)state;
    struct suffix_automaton *a = automaton_of("xa1.xa1.xa2.");
    assert_string_equal(guess(a, match(a, "xa"), 1), "1");
    int32_t out[4];
    /* 2 of 3 times, with a doubt of 2 / 2: a chance of 2 / 4 */
    assert_int_equal(suffix_automaton_guess(a, match(a, "xa"), 0.51, 4, out), 0);
    assert_int_equal(suffix_automaton_guess(a, match(a, "xa"), 0.5, 1, out), 1);
    suffix_automaton_destroy(a);
    a = automaton_of("xa1.xa2."); /* equally often: the latest */
    assert_string_equal(guess(a, match(a, "xa"), 1), "2");
    suffix_automaton_destroy(a);
}

static void test_a_loop_is_continued_without_end(void **state) {
    (void)state;
    struct suffix_automaton *a = automaton_of("abcabcabc");
    struct suffix_match m = suffix_automaton_repeat(a);
    assert_int_equal(m.tokens, 6);
    assert_string_equal(guess(a, m, 12), "abcabcabcabc");
    suffix_automaton_destroy(a);
}

static void test_texts_end_where_they_end(void **state) {
    (void)state;
    struct suffix_automaton *a = automaton_of("one two|two three|");
    assert_string_equal(guess(a, match(a, "one "), 20), "two");
    assert_string_equal(guess(a, match(a, "thr"), 20), "ee");
    assert_string_equal(guess(a, match(a, "three"), 20), "");
    suffix_automaton_destroy(a);
}

static void test_empty_and_full(void **state) {
    (void)state;
    struct suffix_automaton *a = create(0);
    assert_false(suffix_automaton_add(a, 1));
    assert_int_equal(suffix_automaton_repeat(a).tokens, 0);
    assert_string_equal(guess(a, match(a, "a"), 5), "");
    suffix_automaton_destroy(a);
    a = automaton_of("a");
    assert_false(suffix_automaton_add(a, 'b'));
    assert_int_equal(suffix_automaton_repeat(a).tokens, 0);
    assert_int_equal(match(a, "a").tokens, 1);
    assert_string_equal(guess(a, match(a, "a"), 5), "");
    suffix_automaton_clear(a);
    assert_true(suffix_automaton_add(a, 'b'));
    assert_int_equal(match(a, "a").tokens, 0);
    suffix_automaton_verify(a);
    suffix_automaton_destroy(a);
}

/* The texts with the most states and the most edges. */
static void test_the_largest_automata_fit(void **state) {
    (void)state;
    enum { TOKENS = 1000 };
    for (int last = 1; last <= 2; last++) {
        struct suffix_automaton *a = create(TOKENS);
        for (uint32_t i = 0; i < TOKENS; i++)
            assert_true(suffix_automaton_add(a, i == 0 ? 0 : i + 1 < TOKENS ? 1 : last));
        suffix_automaton_verify(a);
        assert_true(suffix_automaton_bytes_used(a) <= suffix_automaton_bytes(a));
        assert_true(suffix_automaton_bytes(a) <= (size_t)(82 * TOKENS));
        suffix_automaton_destroy(a);
    }
}

/* The hash of suffix_automaton.c, of an edge that leaves the empty piece. */
static uint32_t hash_of(int32_t token) {
    uint64_t h = ((uint64_t)1 << 32 | (uint32_t)token) * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ h >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return (uint32_t)(h >> 32);
}

/* A client that knows the hash could make every search as long as the text. */
static void test_tokens_with_equal_hashes_are_refused(void **state) {
    (void)state;
    struct suffix_automaton *a = create(1000);
    int32_t token = 0;
    uint32_t added = 0;
    for (bool has_room = true; has_room; token++) {
        if (hash_of(token) % 4096 != 0) continue;
        has_room = suffix_automaton_add(a, token);
        added += has_room;
    }
    assert_in_range(added, 33, 40);
    assert_int_equal(suffix_automaton_tokens(a), added);
    assert_false(suffix_automaton_add(a, 1));
    suffix_automaton_verify(a);
    suffix_automaton_destroy(a);
}

/* ---- against a plain search ---- */

/* shared[i][j]: how many tokens before i equal those before j. */
static uint16_t shared[TEXT_MAX + 1][TEXT_MAX + 1];

static void fill_shared(const int32_t *text, uint32_t count) {
    for (uint32_t i = 1; i <= count; i++)
        for (uint32_t j = 1; j < i; j++)
            shared[i][j] =
                text[i - 1] == text[j - 1] ? (uint16_t)(shared[i - 1][j - 1] + 1) : (uint16_t)0;
}

/* Among the ends of text[0 .. i) that differ in where they occur in text[0 .. i], longest first,
 * which one has this length? */
static uint32_t rank(uint32_t i, uint32_t length) {
    bool seen[TEXT_MAX + 1] = {false};
    uint32_t result = 0;
    for (uint32_t j = 1; j < i; j++) {
        uint32_t common = shared[i][j];
        if (common >= length && !seen[common]) result++;
        seen[common] = true;
    }
    uint32_t next = shared[i + 1][i]; /* i: all ends occur there, which divides none of them */
    return result + (next < i && next >= length && !seen[next]);
}

struct tally {
    uint32_t counts[WALK_TOKENS_MAX];
    uint32_t total;
    int32_t best;
};

/* What followed the last `length` tokens of `end` in text[0 .. count). */
static void tally_of(const int32_t *text, uint32_t count, const int32_t *end, uint32_t length,
                     struct tally *t) {
    memset(t, 0, sizeof(*t));
    t->best = -1;
    for (uint32_t i = length; i < count; i++) {
        if (memcmp(text + i - length, end - length, length * sizeof(*text)) != 0) continue;
        if (rank(i, length) >= SUFFIX_COUNT_DEPTH) continue;
        t->total++;
        t->counts[text[i]]++;
        if (t->best < 0 || t->counts[text[i]] >= t->counts[t->best]) t->best = text[i];
    }
}

/* The length of the longest end of all[0 .. total) that occurs in the first `count` with a token
 * behind it. */
static uint32_t longest(const int32_t *all, uint32_t count, uint32_t total) {
    uint32_t best = 0;
    for (uint32_t place = 1; place < count; place++) {
        uint32_t length = 0;
        while (length < place && all[place - 1 - length] == all[total - 1 - length]) length++;
        if (length > best) best = length;
    }
    return best;
}

static bool occurs(const int32_t *text, uint32_t count, const int32_t *piece, uint32_t length) {
    for (uint32_t i = 0; i + length < count; i++)
        if (memcmp(text + i, piece, length * sizeof(*text)) == 0) return true;
    return false;
}

static void compare_guess(const struct suffix_automaton *a, const struct walk *w,
                          struct suffix_match m, double chance_min) {
    static struct tally t;
    int32_t out[16], all[WALK_TOKENS_MAX + WALK_GUESSES_MAX + 16];
    uint32_t length = m.tokens, given = suffix_automaton_guess(a, m, chance_min, 16, out);
    double chance = 1.0;
    memcpy(all, w->tokens, w->count * sizeof(*all));
    for (uint32_t i = 0; i <= given && i < 16; i++) {
        const int32_t *end = all + w->count + i;
        /* At the end of the text, a shorter piece. */
        if (!occurs(w->tokens, w->known, end - length, length))
            length = longest(w->tokens, w->known, w->known);
        tally_of(w->tokens, w->known, end, length, &t);
        if (t.total) chance *= t.counts[t.best] / (t.total + 2.0 / (m.tokens + i));
        if (i == given) {
            assert_true(length == 0 || t.total == 0 || chance < chance_min);
            return;
        }
        assert_true(length > 0);
        assert_int_equal(out[i], t.best);
        assert_true(chance >= chance_min);
        all[w->count + i] = out[i];
        length++;
    }
}

static void walk(uint64_t seed) {
    static const uint32_t alphabets[] = {1, 2, 3, 6, 40, 4000};
    static struct walk w;
    memset(&w, 0, sizeof(w));
    w.rng.seed = seed;
    w.alphabet = alphabets[seed % 6];
    uint32_t tokens_max = 20 + (uint32_t)(seed * 37 % (TEXT_MAX - 20)), added = 0;
    struct suffix_automaton *a = create(tokens_max);
    for (int more = 1; more;) {
        more = walk_step(&w, tokens_max);
        for (; added < w.known; added++) assert_true(suffix_automaton_add(a, w.tokens[added]));
        fill_shared(w.tokens, w.known);
        struct suffix_match m = suffix_automaton_repeat(a);
        assert_int_equal(m.tokens, longest(w.tokens, w.known, w.known));
        for (uint32_t i = w.known; i < w.count; i++) m = suffix_automaton_step(a, m, w.tokens[i]);
        m = suffix_automaton_followed(a, m);
        assert_int_equal(m.tokens, longest(w.tokens, w.known, w.count));
        compare_guess(a, &w, m, 0.1 * (double)rng_below(&w.rng, 4));
        suffix_automaton_verify(a);
    }
    assert_true(suffix_automaton_bytes_used(a) <= suffix_automaton_bytes(a));
    suffix_automaton_destroy(a);
}

static void test_walks_agree_with_a_plain_search(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        walk(seed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_most_frequent_continuation_is_guessed),
        cmocka_unit_test(test_a_loop_is_continued_without_end),
        cmocka_unit_test(test_texts_end_where_they_end),
        cmocka_unit_test(test_empty_and_full),
        cmocka_unit_test(test_the_largest_automata_fit),
        cmocka_unit_test(test_tokens_with_equal_hashes_are_refused),
        cmocka_unit_test(test_walks_agree_with_a_plain_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
