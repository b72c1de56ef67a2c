/* Goal:   a pool holds the latest answers of one salt, within its bounds, and no others'.
 * Method: named cases for each bound; then a seeded walk over more salts than there are pools,
 *         against a list of answers that is searched plainly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "spec/suffix_pools.h"

static struct kv_salt salt_of(uint64_t n) { return (struct kv_salt){.low = 5, .high = n}; }

static struct suffix_pools *create(uint32_t salts, uint32_t tokens) {
    struct suffix_pools *p = NULL;
    assert_int_equal(suffix_pools_create(&p, salts, tokens), ST_OK);
    return p;
}

static void add(struct suffix_pools *p, uint64_t salt, const char *text) {
    int32_t tokens[256];
    for (size_t i = 0; text[i]; i++) tokens[i] = text[i];
    suffix_pools_add(p, salt_of(salt), tokens, (uint32_t)strlen(text));
    suffix_pools_index_all(p, salt_of(salt));
    suffix_pools_verify(p);
}

/* How long the match of the text's end is; 0: none. */
static uint32_t match(struct suffix_pools *p, uint64_t salt, const char *text) {
    int32_t tokens[256];
    struct suffix_match m = {0};
    for (size_t i = 0; text[i]; i++) tokens[i] = text[i];
    const struct suffix_automaton *a =
        suffix_pools_find(p, salt_of(salt), tokens, (uint32_t)strlen(text), 0, &m);
    assert_int_equal(a != NULL, m.tokens > 0);
    return m.tokens;
}

static void test_the_older_generation_is_forgotten(void **state) {
    (void)state;
    struct suffix_pools *p = create(1, 16); /* two generations of 8 */
    add(p, 1, "abc");
    add(p, 1, "def");
    assert_int_equal(suffix_pools_tokens(p, salt_of(1)), 8);
    add(p, 1, "ghi"); /* a new generation */
    assert_int_equal(match(p, 1, "ab"), 2);
    add(p, 1, "jkl");
    assert_int_equal(suffix_pools_tokens(p, salt_of(1)), 16);
    add(p, 1, "mno"); /* the first one is forgotten */
    assert_int_equal(suffix_pools_tokens(p, salt_of(1)), 12);
    assert_int_equal(match(p, 1, "ab"), 0);
    assert_int_equal(match(p, 1, "gh"), 2);
    assert_int_equal(match(p, 1, "mn"), 2);
    suffix_pools_destroy(p);
}

static void test_of_a_long_answer_the_end_is_kept(void **state) {
    (void)state;
    struct suffix_pools *p = create(1, 16);
    add(p, 1, "abcdefghijklmnop");
    assert_int_equal(suffix_pools_tokens(p, salt_of(1)), 8);
    assert_int_equal(match(p, 1, "hij"), 1); /* from j on */
    assert_int_equal(match(p, 1, "jk"), 2);
    add(p, 1, "");
    assert_int_equal(suffix_pools_tokens(p, salt_of(1)), 8);
    suffix_pools_destroy(p);
    p = create(1, 2);
    add(p, 1, "abc");
    assert_int_equal(match(p, 1, "ab"), 0);
    suffix_pools_destroy(p);
}

static void test_the_least_recently_used_salt_is_dropped(void **state) {
    (void)state;
    struct suffix_pools *p = create(2, 64);
    add(p, 1, "one text");
    add(p, 2, "two text");
    assert_int_equal(match(p, 1, "one t"), 5); /* now 2 is the least recently used */
    add(p, 3, "three text");
    assert_int_equal(suffix_pools_salts(p), 2);
    assert_int_equal(match(p, 1, "one t"), 5);
    assert_int_equal(match(p, 2, "two t"), 0);
    assert_int_equal(match(p, 3, "two t"), 2); /* " t" of its own; what 2 left is gone */
    assert_int_equal(suffix_pools_tokens(p, salt_of(2)), 0);
    suffix_pools_destroy(p);
}

static void test_a_long_answer_is_indexed_little_by_little(void **state) {
    (void)state;
    enum { TOKENS = 10 * SUFFIX_POOL_BATCH };
    struct suffix_pools *p = create(1, 4 * TOKENS);
    int32_t tokens[TOKENS];
    struct suffix_match m = {0};
    for (int32_t i = 0; i < TOKENS; i++) tokens[i] = i;
    suffix_pools_add(p, salt_of(1), tokens, TOKENS);
    for (uint32_t call = 1; call <= 10; call++) {
        m.tokens = 0;
        /* The last indexed token has no token behind it. */
        suffix_pools_find(p, salt_of(1), tokens, call * SUFFIX_POOL_BATCH - 1, 0, &m);
        assert_true(m.tokens >= SUFFIX_POOL_BATCH - 1);
        suffix_pools_verify(p);
    }
    suffix_pools_destroy(p);
}

static void test_only_a_longer_match_is_returned(void **state) {
    (void)state;
    struct suffix_pools *p = create(1, 64);
    const int32_t text[] = {'b', 'c'};
    struct suffix_match m = {.tokens = 99};
    add(p, 1, "abcd");
    assert_null(suffix_pools_find(p, salt_of(1), text, 2, 2, &m));
    assert_int_equal(m.tokens, 99);
    assert_non_null(suffix_pools_find(p, salt_of(1), text, 2, 1, &m));
    assert_int_equal(m.tokens, 2);
    suffix_pools_destroy(p);
}

/* ---- a walk ---- */

enum { SALTS = 5, POOLS = 3, GENERATION = 60, ANSWER_MAX = 20, HISTORY = 400 };

struct model {
    struct {
        int32_t tokens[ANSWER_MAX];
        uint32_t count, generation;
    } answers[HISTORY];
    uint32_t count, generation, used;
    uint64_t used_at; /* 0: no pool */
};

static void model_add(struct model *m, const int32_t *tokens, uint32_t count) {
    if (m->used + count + 1 > GENERATION) {
        m->generation++;
        m->used = 0;
    }
    m->used += count + 1;
    memcpy(m->answers[m->count].tokens, tokens, count * sizeof(*tokens));
    m->answers[m->count].count = count;
    m->answers[m->count++].generation = m->generation;
}

/* The longest end of the text that an answer of the last two generations has before its end, or
 * at its end. */
static uint32_t model_match(const struct model *m, const int32_t *text, uint32_t count) {
    uint32_t best = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->answers[i].generation + 1 < m->generation) continue;
        for (uint32_t place = 1; place <= m->answers[i].count; place++) {
            uint32_t length = 0;
            while (length < place && length < count &&
                   m->answers[i].tokens[place - 1 - length] == text[count - 1 - length])
                length++;
            if (length > best) best = length;
        }
    }
    return best;
}

static void drop_oldest(struct model *models) {
    struct model *oldest = NULL;
    uint32_t live = 0;
    for (uint32_t i = 0; i < SALTS; i++) {
        if (models[i].used_at == 0) continue;
        live++;
        if (!oldest || models[i].used_at < oldest->used_at) oldest = &models[i];
    }
    if (live == POOLS) memset(oldest, 0, sizeof(*oldest));
}

static void test_a_walk_over_many_salts(void **state) {
    (void)state;
    static struct model models[SALTS];
    struct rng rng = {.seed = 11};
    struct suffix_pools *p = create(POOLS, 2 * GENERATION);
    memset(models, 0, sizeof(models));
    for (uint64_t now = 1; now <= 3000; now++) {
        uint64_t salt = rng_below(&rng, SALTS);
        struct model *m = &models[salt];
        int32_t tokens[ANSWER_MAX];
        uint32_t count = 1 + (uint32_t)rng_below(&rng, ANSWER_MAX);
        for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)rng_below(&rng, 4);
        if (rng_below(&rng, 8) == 0 && m->count < HISTORY) {
            if (m->used_at == 0) drop_oldest(models);
            suffix_pools_add(p, salt_of(salt), tokens, count);
            suffix_pools_index_all(p, salt_of(salt));
            model_add(m, tokens, count);
            m->used_at = now;
        } else {
            struct suffix_match found = {0};
            suffix_pools_find(p, salt_of(salt), tokens, count, 0, &found);
            assert_int_equal(found.tokens, model_match(m, tokens, count));
            if (m->used_at) m->used_at = now;
        }
        suffix_pools_verify(p);
    }
    suffix_pools_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_older_generation_is_forgotten),
        cmocka_unit_test(test_of_a_long_answer_the_end_is_kept),
        cmocka_unit_test(test_the_least_recently_used_salt_is_dropped),
        cmocka_unit_test(test_a_long_answer_is_indexed_little_by_little),
        cmocka_unit_test(test_only_a_longer_match_is_returned),
        cmocka_unit_test(test_a_walk_over_many_salts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
