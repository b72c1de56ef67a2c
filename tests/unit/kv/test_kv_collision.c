/* Goal:   tenants share nothing even if the keys of their blocks are equal: a hash may collide, and
 *         the salt that is stored with a block decides.
 * Method: the first key of every chain leaves the salt out, so that equal texts have equal keys.
 * wrap: kv_key_root */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kv/cache.h"
#include "kv/prefix.h"

enum { BT = 4, MOVES = 32, PROMPT = 13 };

struct kv_key __real_kv_key_root(struct siphash_key secret, uint64_t identity, struct kv_salt salt);
struct kv_key __wrap_kv_key_root(struct siphash_key secret, uint64_t identity, struct kv_salt salt);

struct kv_key __wrap_kv_key_root(struct siphash_key secret, uint64_t identity,
                                 struct kv_salt salt) {
    (void)salt;
    return __real_kv_key_root(secret, identity, (struct kv_salt){0, 0});
}

struct fixture {
    struct kv_cache *c;
    struct kv_move list[MOVES];
    struct kv_moves moves;
    int32_t text[PROMPT];
};

static void set_up(struct fixture *f) {
    static const struct kv_cache_options options = {.block_tokens = BT,
                                                    .group_count = 1,
                                                    .groups = {{.block_count = 16}},
                                                    .seq_max = 4,
                                                    .tokens_max = 32,
                                                    .prefix_cache = true,
                                                    .identity = 1};
    struct err err = {0};
    *f = (struct fixture){.moves = {.cap = MOVES}};
    f->moves.list = f->list;
    for (int i = 0; i < PROMPT; i++) f->text[i] = 100 + i;
    assert_int_equal(kv_cache_create(&f->c, &options, &err), ST_OK);
}

static kv_seq open_seq(struct fixture *f, uint64_t salt, uint32_t *hit) {
    kv_seq s = 0;
    assert_int_equal(kv_seq_open(f->c, (struct kv_salt){salt, 0}, &s), ST_OK);
    *hit = kv_seq_attach(f->c, s, f->text, PROMPT);
    return s;
}

static void compute(struct fixture *f, kv_seq s) {
    assert_int_equal(kv_seq_grow(f->c, s, PROMPT, &f->moves), ST_OK);
    kv_seq_commit(f->c, s, f->text, PROMPT);
}

static struct kv_match match(const struct fixture *f, uint64_t salt) {
    return kv_cache_match(f->c, (struct kv_salt){salt, 0}, f->text, PROMPT);
}

static void test_blocks_of_equal_keys_are_found_by_their_own_salt_only(void **state) {
    (void)state;
    struct fixture f;
    uint32_t hit;
    set_up(&f);
    kv_seq one = open_seq(&f, 1, &hit);
    compute(&f, one);
    assert_int_equal(match(&f, 1).tokens, 12); /* the test's own keys do work */
    assert_int_equal(match(&f, 2).tokens, 0);
    kv_seq two = open_seq(&f, 2, &hit);
    assert_int_equal(hit, 0);
    compute(&f, two);
    kv_cache_verify(f.c); /* no block of one salt is in a table of another */
    kv_seq_close(f.c, one);
    kv_seq_close(f.c, two);
    kv_cache_destroy(f.c);
}

static void test_promises_of_equal_keys_are_for_their_own_salt_only(void **state) {
    (void)state;
    struct fixture f;
    uint32_t hit;
    set_up(&f);
    kv_seq one = open_seq(&f, 1, &hit); /* it will compute the prompt */
    assert_true(match(&f, 1).is_promised);
    assert_false(match(&f, 2).is_promised);
    kv_seq_close(f.c, one);
    kv_cache_destroy(f.c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_of_equal_keys_are_found_by_their_own_salt_only),
        cmocka_unit_test(test_promises_of_equal_keys_are_for_their_own_salt_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
