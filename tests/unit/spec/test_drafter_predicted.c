/* Goal:   the drafter follows a prediction through edits, and finds the place by the stated rules.
 * Method: named edits, with the tokens that must be right after each; then seeded answers with
 *         random edits, in which every answer is compared with that of a plain search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "spec/drafter.h"

extern const struct drafter drafter_predicted;
static const struct drafter *const d = &drafter_predicted;

enum { PROMPT = 3, TEXT_MAX = 2000 };

static void *create(const int32_t *prediction, uint32_t count, uint32_t prompt_tokens) {
    struct drafter_setup setup = {.tokens_max = TEXT_MAX,
                                  .prediction = prediction,
                                  .prediction_tokens = count,
                                  .prompt_tokens = prompt_tokens};
    struct err err = {0};
    void *self = NULL;
    assert_int_equal(d->create(&setup, &self, &err), ST_OK);
    d->verify(self);
    return self;
}

static uint32_t tokens_of(const char *text, int32_t *tokens) {
    uint32_t count = (uint32_t)strlen(text);
    for (uint32_t i = 0; i < count; i++) tokens[i] = text[i];
    return count;
}

/* What is drafted behind `answer`, in letters, when all before it was final in earlier calls. */
static const char *draft(const char *prediction, const char *answer, uint32_t max) {
    static char letters[64];
    int32_t predicted[256] = {0}, tokens[256] = {'?', '?', '?'}, out[64];
    uint32_t count = PROMPT + tokens_of(answer, tokens + PROMPT), given = 0;
    void *self = create(predicted, tokens_of(prediction, predicted), PROMPT);
    for (uint32_t i = PROMPT; i <= count; i++)
        given = d->propose(self, tokens, i, i, i < count ? 1 : max, out);
    d->verify(self);
    d->destroy(self);
    for (uint32_t i = 0; i < given; i++) letters[i] = (char)out[i];
    letters[given] = 0;
    return letters;
}

static void test_an_answer_as_predicted(void **state) {
    (void)state;
    assert_string_equal(draft("abcdef", "", 4), "abcd");
    assert_string_equal(draft("abcdef", "abc", 1), "d");
    assert_string_equal(draft("abcdef", "abcd", 9), "ef");
    assert_string_equal(draft("abcdef", "abcdef", 9), "");
    assert_string_equal(draft("", "abc", 9), "");
    assert_string_equal(draft("a", "", 9), "a");
}

static void test_a_token_that_is_replaced_costs_one_guess(void **state) {
    (void)state;
    assert_string_equal(draft("abcdef", "abX", 3), "def");
    assert_string_equal(draft("abcdef", "abXd", 3), "ef");
}

static void test_a_token_that_is_left_out_costs_one_guess(void **state) {
    (void)state;
    assert_string_equal(draft("abcdef", "abd", 3), "ef");
}

static void test_a_token_that_is_inserted_costs_two_guesses(void **state) {
    (void)state;
    assert_string_equal(draft("abcdef", "abXc", 3), "def");
}

static void test_a_long_insertion_is_over_after_two_tokens(void **state) {
    (void)state;
    assert_string_equal(draft("abcdef", "abVWXYZ", 3), "");
    assert_string_equal(draft("abcdef", "abVWXYZc", 3), "");
    assert_string_equal(draft("abcdef", "abVWXYZcd", 3), "ef");
}

static void test_a_long_piece_that_is_left_out(void **state) {
    (void)state;
    assert_string_equal(draft("abcdefghijkl", "abij", 3), "kl");
}

static void test_the_nearest_place_behind_is_preferred(void **state) {
    (void)state;
    /* "xy" is at 1, 4 and 9; the answer left at 5. */
    assert_string_equal(draft("xy1.xy2..xy3", "xy1.xVWxy", 1), "2");
    assert_string_equal(draft("xy1.mn2..xy3", "xy1.mVWxy", 1), "3");
    assert_string_equal(draft("xy1.mn2.", "xy1.mVWxy", 1), "1"); /* none behind */
    /* A longer match is preferred to a nearer one. */
    assert_string_equal(draft("abcd.xy1.Wxy2", "abVWxy", 1), "2");
}

static void test_guesses_from_known_on_are_followed_but_not_remembered(void **state) {
    (void)state;
    const int32_t prediction[] = {1, 2, 3, 4, 5, 6}, guesses[] = {9, 1, 2, 8, 8, 8};
    const int32_t real[] = {9, 1, 2, 3, 4};
    int32_t out[4];
    void *self = create(prediction, 6, 1);
    assert_int_equal(d->propose(self, guesses, 2, 6, 4, out), 0);
    assert_int_equal(d->propose(self, real, 3, 5, 4, out), 2);
    assert_int_equal(out[0], 5);
    d->destroy(self);
}

static void test_an_unknown_prompt_is_passed_over(void **state) {
    (void)state;
    const int32_t prediction[] = {1, 2, 3, 4, 5, 6}, text[] = {9, 9, 9, 1, 2, 3};
    int32_t out[4];
    void *self = create(prediction, 6, 0);
    assert_int_equal(d->propose(self, text, 4, 4, 4, out), 4); /* it cannot know of the 1 */
    assert_int_equal(d->propose(self, text, 5, 5, 4, out), 4);
    assert_int_equal(out[0], 3);
    d->destroy(self);
}

static void test_a_prediction_is_cut_at_the_longest_text(void **state) {
    (void)state;
    static int32_t prediction[TEXT_MAX + 10];
    void *self = create(prediction, TEXT_MAX + 10, 1);
    assert_true(d->bytes(self) <= (size_t)17 * TEXT_MAX);
    d->destroy(self);
}

/* ---- against a plain search ---- */

struct reference {
    const int32_t *prediction;
    uint32_t count, expected, differed;
};

/* The longest match of 4 to length_min tokens; the nearest at or behind `expected`, else the
 * nearest before. */
static uint32_t search(const struct reference *r, const int32_t *end, uint32_t count,
                       uint32_t length_min) {
    for (uint32_t length = count < 4 ? count : 4; length >= length_min; length--) {
        uint32_t before = 0;
        for (uint32_t place = length; place <= r->count; place++) {
            if (memcmp(r->prediction + place - length, end - length, length * sizeof(*end)) != 0)
                continue;
            if (place >= r->expected) return place;
            before = place;
        }
        if (before) return before;
    }
    return 0;
}

static void follow(struct reference *r, const int32_t *end, uint32_t count) {
    int32_t token = end[-1];
    uint32_t e = r->expected, differed = r->differed;
    bool is_first = e < r->count && r->prediction[e] == token;
    bool is_second = e + 1 < r->count && r->prediction[e + 1] == token;
    uint32_t found = 0;
    if (differed == 0 && is_first)
        found = e + 1;
    else if (differed < 2 && is_second)
        found = e + 2;
    else if (differed == 1 && is_first)
        found = e + 1;
    else
        found = search(r, end, count, differed == 0 ? 3 : 2);
    r->expected = found ? found : e;
    r->differed = found ? 0 : differed == 0 ? 1 : 2;
}

static void compare(void *self, const struct reference *final, const int32_t *text, uint32_t known,
                    uint32_t count) {
    struct reference r = *final;
    int32_t out[8];
    for (uint32_t i = known; i < count; i++) follow(&r, text + i + 1, i + 1 - PROMPT);
    uint32_t given = d->propose(self, text, known, count, 8, out);
    uint32_t next = r.expected + r.differed, left = next < r.count ? r.count - next : 0;
    if (r.differed == 2) left = 0;
    assert_int_equal(given, left < 8 ? left : 8);
    if (given) assert_memory_equal(out, r.prediction + next, given * sizeof(*out));
    d->verify(self);
}

/* The prediction with random edits: the answer. */
static uint32_t edit(struct rng *rng, const int32_t *prediction, uint32_t count, uint32_t alphabet,
                     int32_t *out) {
    uint32_t used = 0, from = 0;
    while (from < count && used < TEXT_MAX / 2) {
        uint32_t length = (uint32_t)rng_below(rng, 6);
        uint64_t kind = rng_below(rng, 12);
        if (kind < 9) {
            out[used++] = prediction[from++];
        } else if (kind == 9) {
            from += length;
        } else {
            for (uint32_t i = 0; i < length; i++) out[used++] = (int32_t)rng_below(rng, alphabet);
            if (kind == 11) from += length;
        }
    }
    return used;
}

static void walk(uint64_t seed) {
    enum { PREDICTION = 300 };
    static const uint32_t alphabets[] = {4, 30, 5000};
    struct rng rng = {.seed = seed};
    uint32_t alphabet = alphabets[seed % 3];
    int32_t prediction[PREDICTION] = {0}, text[TEXT_MAX + 16];
    uint32_t count = (uint32_t)rng_below(&rng, PREDICTION), known = PROMPT;
    for (uint32_t i = 0; i < count; i++) prediction[i] = (int32_t)rng_below(&rng, alphabet);
    for (uint32_t i = 0; i < PROMPT; i++) text[i] = 1;
    uint32_t total = PROMPT + edit(&rng, prediction, count, alphabet, text + PROMPT);
    struct reference r = {.prediction = prediction, .count = count};
    void *self = create(prediction, count, PROMPT);
    while (known < total) {
        int32_t seen[TEXT_MAX + 16];
        uint32_t guesses = (uint32_t)rng_below(&rng, 5);
        memcpy(seen, text, known * sizeof(*seen));
        for (uint32_t i = 0; i < guesses; i++) /* half of them are right */
            seen[known + i] = known + i < total && rng_below(&rng, 2)
                                  ? text[known + i]
                                  : (int32_t)rng_below(&rng, alphabet);
        compare(self, &r, seen, known, known + guesses);
        for (uint64_t more = rng_below(&rng, 4); more > 0 && known < total; more--, known++)
            follow(&r, text + known + 1, known + 1 - PROMPT);
    }
    d->destroy(self);
}

static void test_edited_answers_agree_with_a_plain_search(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        walk(seed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_as_predicted),
        cmocka_unit_test(test_a_token_that_is_replaced_costs_one_guess),
        cmocka_unit_test(test_a_token_that_is_left_out_costs_one_guess),
        cmocka_unit_test(test_a_token_that_is_inserted_costs_two_guesses),
        cmocka_unit_test(test_a_long_insertion_is_over_after_two_tokens),
        cmocka_unit_test(test_a_long_piece_that_is_left_out),
        cmocka_unit_test(test_the_nearest_place_behind_is_preferred),
        cmocka_unit_test(test_guesses_from_known_on_are_followed_but_not_remembered),
        cmocka_unit_test(test_an_unknown_prompt_is_passed_over),
        cmocka_unit_test(test_a_prediction_is_cut_at_the_longest_text),
        cmocka_unit_test(test_edited_answers_agree_with_a_plain_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
