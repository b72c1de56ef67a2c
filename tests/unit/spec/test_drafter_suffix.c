/* Goal:   the drafter trusts the longest match, of its own text or of its tenant's answers, and no
 *         tenant sees another's answers.
 * Method: named cases; then seeded walks without pools, in which the length of the match is that of
 *         a plain search, and every token of a draft followed the match somewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "spec/drafter.h"
#include "spec/suffix_pools.h"
#include "unit/spec/walk.h"

extern const struct drafter drafter_suffix;
static const struct drafter *const d = &drafter_suffix;

static void *create(uint32_t tokens_max, struct suffix_pools *pools, uint64_t salt) {
    struct drafter_setup setup = {
        .tokens_max = tokens_max, .pools = pools, .salt = {.low = salt, .high = salt}};
    struct err err = {0};
    void *self = NULL;
    assert_int_equal(d->create(&setup, &self, &err), ST_OK);
    return self;
}

static uint32_t tokens_of(const char *text, int32_t *tokens) {
    uint32_t count = (uint32_t)strlen(text);
    for (uint32_t i = 0; i < count; i++) tokens[i] = text[i];
    return count;
}

static const char *draft(void *self, const char *text, uint32_t max) {
    static char letters[64];
    int32_t tokens[256], out[64];
    uint32_t count = tokens_of(text, tokens);
    uint32_t given = d->propose(self, tokens, count, count, max, out);
    for (uint32_t i = 0; i < given; i++) letters[i] = (char)out[i];
    letters[given] = 0;
    d->verify(self);
    return letters;
}

/* A sequence of this tenant that ends with prompt and answer. */
static void answer(struct suffix_pools *pools, uint64_t salt, const char *prompt,
                   const char *text) {
    int32_t tokens[512];
    uint32_t prompt_tokens = tokens_of(prompt, tokens);
    uint32_t count = prompt_tokens + tokens_of(text, tokens + prompt_tokens);
    void *self = create(512, pools, salt);
    d->end(self, tokens, count, prompt_tokens);
    d->destroy(self);
    suffix_pools_index_all(pools, (struct kv_salt){salt, salt});
    suffix_pools_verify(pools);
}

static struct suffix_pools *pools_of(uint32_t salts, uint32_t tokens) {
    struct suffix_pools *pools = NULL;
    assert_int_equal(suffix_pools_create(&pools, salts, tokens), ST_OK);
    return pools;
}

static void test_drafts_grow_with_the_match(void **state) {
    (void)state;
    void *self = create(256, NULL, 0);
    assert_string_equal(draft(self, "abcdefghijklmnop.a", 16), "b");
    assert_string_equal(draft(self, "abcdefghijklmnop.abc", 16), "defg");
    assert_string_equal(draft(self, "abcdefghijklmnop.abcde", 16), "fghijk");
    assert_string_equal(draft(self, "abcdefghijklmnop.abcde", 1), "f");
    d->destroy(self);
}

static void test_text_without_repeats_gives_nothing(void **state) {
    (void)state;
    void *self = create(256, NULL, 0);
    assert_string_equal(draft(self, "", 5), "");
    assert_string_equal(draft(self, "a", 5), "");
    assert_string_equal(draft(self, "abcdefghijkl", 5), "");
    d->destroy(self);
}

static void test_a_loop_is_drafted_far_ahead(void **state) {
    (void)state;
    void *self = create(256, NULL, 0);
    assert_string_equal(draft(self, "xyzabcabcabcabcabcabcabc", 21), "abcabcabcabcabcabcabc");
    d->destroy(self);
}

static void test_answers_of_the_same_tenant_are_used(void **state) {
    (void)state;
    struct suffix_pools *pools = pools_of(2, 1000);
    void *self = create(256, pools, 7);
    assert_string_equal(draft(self, "the qu", 8), "");
    answer(pools, 7, "prompt: lazy", "the quick fox");
    assert_string_equal(draft(self, "the qu", 8), "ick fox");
    assert_string_equal(draft(self, "the qu.laz", 8), ""); /* prompts are not added */
    d->destroy(self);
    self = create(256, pools, 8);
    assert_string_equal(draft(self, "the qu", 8), ""); /* another tenant */
    d->destroy(self);
    suffix_pools_destroy(pools);
}

static void test_the_longer_match_wins_and_a_tie_is_for_the_own_text(void **state) {
    (void)state;
    struct suffix_pools *pools = pools_of(2, 1000);
    answer(pools, 1, "", "-abX-bcdY");
    void *self = create(256, pools, 1);
    assert_string_equal(draft(self, ".ab1.ab", 1), "1");
    assert_string_equal(draft(self, ".ab1.ab.cd2.bcd", 1), "Y");
    d->destroy(self);
    suffix_pools_destroy(pools);
}

static void test_guesses_from_known_on_are_matched_but_not_remembered(void **state) {
    (void)state;
    const int32_t first[] = {1, 2, 3, 4, 9, 1, 2}, second[] = {1, 2, 3, 4, 9, 8, 8, 1, 2};
    int32_t out[4];
    void *self = create(64, NULL, 0);
    assert_int_equal(d->propose(self, first, 5, 7, 2, out), 2);
    assert_int_equal(out[0], 3);
    assert_int_equal(d->propose(self, second, 9, 9, 1, out), 1);
    assert_int_equal(out[0], 3);
    d->verify(self);
    d->destroy(self);
}

/* More tokens than the automaton was made for: they are matched, and what it knows is used. */
static void test_a_text_beyond_tokens_max(void **state) {
    (void)state;
    void *self = create(8, NULL, 0);
    char text[128] = "abcdefgh";
    memset(text + 8, '.', 100);
    assert_string_equal(draft(self, text, 4), "");
    memcpy(text + 106, "cde", 4);
    assert_string_equal(draft(self, text, 3), "fgh");
    d->destroy(self);
}

static void test_memory_is_within_100_bytes_a_token(void **state) {
    (void)state;
    void *self = create(32768, NULL, 0);
    assert_true(d->bytes(self) <= (size_t)100 * 32768);
    d->destroy(self);
}

/* ---- walks ---- */

static uint32_t longest(const struct walk *w) {
    uint32_t best = 0;
    for (uint32_t place = 1; place < w->known; place++) {
        uint32_t length = 0;
        while (length < place && w->tokens[place - 1 - length] == w->tokens[w->count - 1 - length])
            length++;
        if (length > best) best = length;
    }
    return best;
}

static bool occurs(const struct walk *w, const int32_t *piece, uint32_t length) {
    for (uint32_t i = 0; i + length <= w->known; i++)
        if (memcmp(w->tokens + i, piece, length * sizeof(*piece)) == 0) return true;
    return false;
}

static void walk(uint64_t seed) {
    static const uint32_t alphabets[] = {1, 2, 4, 30, 5000};
    static struct walk w;
    memset(&w, 0, sizeof(w));
    w.rng.seed = seed;
    w.alphabet = alphabets[seed % 5];
    void *self = create(600, NULL, 0);
    for (int more = 1; more;) {
        int32_t out[8], piece[WALK_TOKENS_MAX];
        more = walk_step(&w, 600);
        uint32_t given = d->propose(self, w.tokens, w.known, w.count, 8, out);
        uint32_t length = longest(&w);
        assert_true(given == 0 || length > 0);
        if (given > 0) {
            memcpy(piece, w.tokens + w.count - length, length * sizeof(*piece));
            piece[length] = out[0];
            assert_true(occurs(&w, piece, length + 1));
        }
        for (uint32_t i = 0; i < given; i++) assert_true(occurs(&w, &out[i], 1));
        d->verify(self);
    }
    d->destroy(self);
}

static void test_walks_draft_what_followed_the_longest_match(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        walk(seed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drafts_grow_with_the_match),
        cmocka_unit_test(test_text_without_repeats_gives_nothing),
        cmocka_unit_test(test_a_loop_is_drafted_far_ahead),
        cmocka_unit_test(test_answers_of_the_same_tenant_are_used),
        cmocka_unit_test(test_the_longer_match_wins_and_a_tie_is_for_the_own_text),
        cmocka_unit_test(test_guesses_from_known_on_are_matched_but_not_remembered),
        cmocka_unit_test(test_a_text_beyond_tokens_max),
        cmocka_unit_test(test_memory_is_within_100_bytes_a_token),
        cmocka_unit_test(test_walks_draft_what_followed_the_longest_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
