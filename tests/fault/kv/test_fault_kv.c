/* Goal:   a cache that cannot have all its memory is refused with a sentence and leaks nothing.
 * Method: create one with every part (two groups, prefix cache, spill store) again and again, each
 *         time with a later allocation failing, until none does; then use what was made. The
 *         address sanitizer sees leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "fault/fail_alloc.h"
#include "kv/cache.h"

enum { ALLOCATIONS_MAX = 200, PARTS_MIN = 15 };

static const struct kv_cache_options OPTIONS = {
    .block_tokens = 4,
    .group_count = 2,
    .groups = {{.block_count = 8}, {.block_count = 8, .window = 4}},
    .seq_max = 3,
    .tokens_max = 64,
    .spill_slots = 4,
    .prefix_cache = true,
};

/* After create nothing is allocated any more: not one allocation may be counted. */
static void use_without_memory(struct kv_cache *c) {
    const int32_t tokens[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    struct kv_move list[16];
    struct kv_moves moves = {.list = list, .cap = 16};
    kv_seq s, child;
    fail_alloc_at(0);
    assert_int_equal(kv_seq_open(c, (struct kv_salt){0, 0}, &s), ST_OK);
    assert_int_equal(kv_seq_attach(c, s, tokens, 12), 0);
    assert_int_equal(kv_seq_grow(c, s, 12, &moves), ST_OK);
    kv_seq_commit(c, s, tokens, 10);
    assert_int_equal(kv_seq_fork(c, s, 10, &child), ST_OK);
    assert_int_equal(kv_seq_grow(c, child, 12, &moves), ST_OK);
    assert_int_equal(kv_seq_swap_out(c, s, &moves), ST_OK);
    assert_int_equal(kv_seq_swap_in(c, s, &moves), ST_OK);
    kv_seq_keep(c, s, 100);
    kv_seq_close(c, s);
    kv_seq_close(c, child);
    kv_cache_expire(c, 200);
    kv_cache_verify(c);
    assert_false(fail_alloc_stop());
}

static void test_create_survives_any_failed_allocation(void **state) {
    (void)state;
    for (long n = 0; n < ALLOCATIONS_MAX; n++) {
        struct kv_cache *c = NULL;
        struct err err = {0};
        fail_alloc_at(n);
        enum status st = kv_cache_create(&c, &OPTIONS, &err);
        if (!fail_alloc_stop()) {
            assert_int_equal(st, ST_OK);
            assert_true(n >= PARTS_MIN);
            use_without_memory(c);
            kv_cache_destroy(c);
            return;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_null(c);
        assert_non_null(strstr(err.text, "out of memory"));
    }
    fail_msg("create does not come to an end");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
