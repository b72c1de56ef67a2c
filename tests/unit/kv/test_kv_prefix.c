/* Goal:   a key identifies exactly one prefix, and the table finds what was put and nothing else,
 *         however much was removed in between.
 * Method: every part of a key changed on its own; the table against a plain list over seeded
 *         random walks with keys that all want the same few cells, so that runs wrap around the
 *         end and every kind of hole is closed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>

#include "base/rng.h"
#include "kv/prefix.h"

enum { BLOCK = 4, KEYS_MAX = 24 };

static const struct siphash_key SECRET = {3, 4};

static struct kv_key root_key(uint64_t identity, uint64_t low, uint64_t high) {
    return kv_key_root(SECRET, identity, (struct kv_salt){low, high});
}

static struct kv_key next_key(struct kv_key before, const int32_t tokens[BLOCK]) {
    uint8_t scratch[64];
    assert_true(kv_key_scratch_bytes(BLOCK) <= sizeof(scratch));
    return kv_key_next(SECRET, before, tokens, BLOCK, scratch);
}

static void test_a_key_depends_on_each_of_its_parts(void **state) {
    (void)state;
    int32_t tokens[BLOCK] = {1, 2, 3, 4};
    struct kv_key root = root_key(7, 9, 5), key = next_key(root, tokens);
    assert_true(kv_key_eq(root, root_key(7, 9, 5)));
    assert_true(kv_key_eq(key, next_key(root, tokens)));
    assert_false(kv_key_eq(root, root_key(8, 9, 5)));
    assert_false(kv_key_eq(root, root_key(9, 7, 5)));
    assert_false(kv_key_eq(root, root_key(7, 5, 9)));
    for (int bit = 0; bit < 64; bit++) {
        assert_false(kv_key_eq(root, root_key(7, 9 ^ 1ull << bit, 5)));
        assert_false(kv_key_eq(root, root_key(7, 9, 5 ^ 1ull << bit)));
        assert_false(kv_key_eq(key, next_key(root_key(7, 9 ^ 1ull << bit, 5), tokens)));
    }
    for (int i = 0; i < BLOCK; i++) {
        tokens[i] ^= 1 << 20;
        assert_false(kv_key_eq(key, next_key(root, tokens)));
        tokens[i] ^= 1 << 20;
    }
    for (int bit = 0; bit < 64; bit++) {
        struct kv_key low = {root.low ^ 1ull << bit, root.high};
        struct kv_key high = {root.low, root.high ^ 1ull << bit};
        assert_false(kv_key_eq(key, next_key(low, tokens)));
        assert_false(kv_key_eq(key, next_key(high, tokens)));
    }
}

static void test_a_key_depends_on_each_bit_of_the_secret(void **state) {
    (void)state;
    uint8_t scratch[64];
    const int32_t tokens[BLOCK] = {1, 2, 3, 4};
    const struct kv_key before = {5, 6};
    const struct kv_salt salt = {7, 8};
    struct kv_key root = kv_key_root(SECRET, 1, salt);
    struct kv_key key = kv_key_next(SECRET, before, tokens, BLOCK, scratch);
    for (int bit = 0; bit < 128; bit++) {
        struct siphash_key other = SECRET;
        *(bit < 64 ? &other.low : &other.high) ^= 1ull << bit % 64;
        assert_false(kv_key_eq(root, kv_key_root(other, 1, salt)));
        assert_false(kv_key_eq(key, kv_key_next(other, before, tokens, BLOCK, scratch)));
    }
}

/* The root's input is as long as no block's: a block cannot stand for a root. */
static void test_a_block_is_never_a_root(void **state) {
    (void)state;
    uint8_t scratch[64];
    const struct kv_salt salt = {0x100000002, 0};
    struct kv_key root = kv_key_root(SECRET, 9, salt);
    const int32_t tokens[3] = {0, 0, 0};
    for (uint32_t count = 1; count <= 3; count++) {
        struct kv_key before = {9, salt.low}; /* its bytes are those of identity and salt */
        assert_false(kv_key_eq(root, kv_key_next(SECRET, before, tokens, count, scratch)));
    }
}

static void test_put_refuses_a_known_key_and_a_full_table(void **state) {
    (void)state;
    struct kv_prefix *t = NULL;
    assert_int_equal(kv_prefix_create(&t, 2), ST_OK);
    const struct kv_key a = {1, 1}, b = {1, 2}, c = {1, 3};
    assert_int_equal(kv_prefix_find(t, a), KV_PREFIX_NONE);
    assert_true(kv_prefix_put(t, a, 10));
    assert_false(kv_prefix_put(t, a, 11));
    assert_int_equal(kv_prefix_find(t, a), 10);
    assert_true(kv_prefix_put(t, b, 12));
    assert_false(kv_prefix_put(t, c, 13));
    assert_int_equal(kv_prefix_find(t, c), KV_PREFIX_NONE);
    kv_prefix_remove(t, a);
    assert_true(kv_prefix_put(t, c, 13));
    assert_int_equal(kv_prefix_find(t, b), 12);
    assert_int_equal(kv_prefix_count(t), 2);
    kv_prefix_verify(t);
    kv_prefix_destroy(t);
    kv_prefix_destroy(NULL);
}

static void walk(uint64_t seed) {
    struct rng rng = {.seed = seed};
    uint32_t key_max = 1 + (uint32_t)rng_below(&rng, KEYS_MAX);
    uint64_t homes = 1 + rng_below(&rng, 3); /* wanted cells, the last ones of the table */
    bool there[KEYS_MAX] = {false};
    uint32_t count = 0;
    struct kv_prefix *t = NULL;
    assert_int_equal(kv_prefix_create(&t, key_max), ST_OK);
    for (int step = 0; step < 600; step++) {
        uint32_t i = (uint32_t)rng_below(&rng, KEYS_MAX);
        struct kv_key key = {UINT64_MAX - i % homes, i};
        if (there[i] && rng_below(&rng, 2)) {
            kv_prefix_remove(t, key);
            there[i] = false;
            count--;
        } else if (kv_prefix_put(t, key, i)) {
            assert_false(there[i]);
            there[i] = true;
            count++;
        } else {
            assert_true(there[i] || count == key_max);
        }
        assert_int_equal(kv_prefix_count(t), count);
        for (uint32_t k = 0; k < KEYS_MAX; k++)
            assert_int_equal(kv_prefix_find(t, (struct kv_key){UINT64_MAX - k % homes, k}),
                             there[k] ? k : KV_PREFIX_NONE);
        kv_prefix_verify(t);
    }
    kv_prefix_destroy(t);
}

static void test_random_walks_agree_with_a_list(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) walk(seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_depends_on_each_of_its_parts),
        cmocka_unit_test(test_a_key_depends_on_each_bit_of_the_secret),
        cmocka_unit_test(test_a_block_is_never_a_root),
        cmocka_unit_test(test_put_refuses_a_known_key_and_a_full_table),
        cmocka_unit_test(test_random_walks_agree_with_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
