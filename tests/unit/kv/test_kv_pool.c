/* Goal:   a block is never lost, never handed out twice, evicted oldest first, and kept as long
 *         as was asked.
 * Method: named cases for each edge of the state diagram in kv/pool.h, then seeded random walks
 *         against the simplest possible model (a state per block and an ordered list of cached
 *         ones), with every invariant verified after every step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "kv/pool.h"

enum { EVICTED_MAX = 64 };

struct evictions {
    kv_block list[EVICTED_MAX];
    uint32_t count;
};

static void remember(void *ctx, kv_block block) {
    struct evictions *e = ctx;
    e->list[e->count++ % EVICTED_MAX] = block;
}

static struct kv_pool *pool_that_spreads(uint32_t blocks, uint32_t spread, struct evictions *e) {
    struct kv_pool *p = NULL;
    assert_int_equal(kv_pool_create(&p, blocks, spread, e ? remember : NULL, e), ST_OK);
    return p;
}

static struct kv_pool *pool_of(uint32_t blocks, struct evictions *e) {
    return pool_that_spreads(blocks, blocks, e);
}

static void test_take_is_all_or_nothing(void **state) {
    (void)state;
    struct kv_pool *p = pool_of(3, NULL);
    kv_block b[4] = {7, 7, 7, 7};
    assert_int_equal(kv_pool_take(p, 4, b), ST_FULL);
    assert_int_equal(b[0], 7);
    assert_int_equal(kv_pool_take(p, 2, b), ST_OK);
    assert_int_equal(kv_pool_take(p, 2, b + 2), ST_FULL);
    assert_int_equal(kv_pool_available(p), 1);
    assert_int_equal(kv_pool_take(p, 0, b), ST_OK);
    assert_int_equal(kv_pool_take(p, 1, b + 2), ST_OK);
    assert_int_not_equal(b[0], b[1]);
    assert_int_not_equal(b[1], b[2]);
    kv_pool_verify(p);
    kv_pool_destroy(p);
    kv_pool_destroy(NULL);
}

static void test_a_take_that_fails_evicts_no_block(void **state) {
    (void)state;
    struct evictions e = {.count = 0};
    struct kv_pool *p = pool_of(2, &e);
    kv_block b[3];
    assert_int_equal(kv_pool_take(p, 2, b), ST_OK);
    kv_pool_mark_keyed(p, b[0]);
    kv_pool_unpin(p, b[0]);
    assert_int_equal(kv_pool_take(p, 2, b + 1), ST_FULL);
    assert_int_equal(e.count, 0);
    assert_true(kv_pool_is_keyed(p, b[0]));
    kv_pool_destroy(p);
}

static void test_cached_blocks_are_evicted_oldest_first(void **state) {
    (void)state;
    struct evictions e = {.count = 0};
    struct kv_pool *p = pool_of(3, &e);
    kv_block b[3], c[2];
    assert_int_equal(kv_pool_take(p, 3, b), ST_OK);
    for (int i = 0; i < 3; i++) kv_pool_mark_keyed(p, b[i]);
    kv_pool_unpin(p, b[1]);
    kv_pool_unpin(p, b[0]);
    kv_pool_unpin(p, b[2]);
    kv_pool_pin(p, b[1]);
    kv_pool_unpin(p, b[1]); /* the youngest again */
    assert_int_equal(kv_pool_take(p, 2, c), ST_OK);
    assert_int_equal(e.count, 2);
    assert_int_equal(e.list[0], b[0]);
    assert_int_equal(e.list[1], b[2]);
    assert_false(kv_pool_is_keyed(p, c[0]));
    kv_pool_verify(p);
    kv_pool_destroy(p);
}

static void test_free_blocks_go_before_cached_ones(void **state) {
    (void)state;
    struct evictions e = {.count = 0};
    struct kv_pool *p = pool_of(2, &e);
    kv_block b[2], c;
    assert_int_equal(kv_pool_take(p, 2, b), ST_OK);
    kv_pool_mark_keyed(p, b[0]);
    kv_pool_unpin(p, b[0]);
    kv_pool_unpin(p, b[1]);
    assert_int_equal(kv_pool_take(p, 1, &c), ST_OK);
    assert_int_equal(c, b[1]);
    assert_int_equal(e.count, 0);
    kv_pool_destroy(p);
}

static void test_a_block_is_free_only_after_its_last_reference(void **state) {
    (void)state;
    struct kv_pool *p = pool_of(1, NULL);
    kv_block b;
    assert_int_equal(kv_pool_take(p, 1, &b), ST_OK);
    kv_pool_pin(p, b);
    assert_int_equal(kv_pool_refs(p, b), 2);
    kv_pool_unpin(p, b);
    assert_int_equal(kv_pool_available(p), 0);
    kv_pool_unpin(p, b);
    assert_int_equal(kv_pool_refs(p, b), 0);
    assert_int_equal(kv_pool_stats(p).free_count, 1);
    kv_pool_destroy(p);
}

static void test_an_unmarked_block_is_not_cached(void **state) {
    (void)state;
    struct kv_pool *p = pool_of(2, NULL);
    kv_block b;
    assert_int_equal(kv_pool_take(p, 1, &b), ST_OK);
    kv_pool_mark_keyed(p, b);
    kv_pool_keep(p, b, 100);
    kv_pool_unmark_keyed(p, b);
    kv_pool_unpin(p, b);
    assert_int_equal(kv_pool_stats(p).free_count, 2);
    kv_pool_verify(p);
    kv_pool_destroy(p);
}

/* `count` blocks, keyed and kept until the times given, then unpinned in that order. */
static void keep_all(struct kv_pool *p, uint32_t count, const int64_t *until_us, kv_block *out) {
    assert_int_equal(kv_pool_take(p, count, out), ST_OK);
    for (uint32_t i = 0; i < count; i++) {
        kv_pool_mark_keyed(p, out[i]);
        kv_pool_keep(p, out[i], until_us[i]);
    }
    for (uint32_t i = 0; i < count; i++) kv_pool_unpin(p, out[i]);
}

static void test_kept_blocks_are_not_taken_before_their_time(void **state) {
    (void)state;
    struct evictions e = {.count = 0};
    struct kv_pool *p = pool_of(4, &e);
    kv_block b[2], c[4];
    keep_all(p, 2, (int64_t[]){200, 100}, b);
    assert_int_equal(kv_pool_stats(p).kept_count, 2);
    assert_int_equal(kv_pool_available(p), 2);
    assert_int_equal(kv_pool_take(p, 3, c), ST_FULL);
    kv_pool_expire(p, 99);
    assert_int_equal(kv_pool_available(p), 2);
    kv_pool_expire(p, 100);
    assert_int_equal(kv_pool_take(p, 3, c), ST_OK);
    assert_int_equal(e.list[0], b[1]);
    kv_pool_expire(p, INT64_MAX);
    assert_int_equal(kv_pool_take(p, 1, c), ST_OK);
    assert_int_equal(e.list[1], b[0]);
    kv_pool_verify(p);
    kv_pool_destroy(p);
}

static void test_at_most_half_of_the_pool_is_kept(void **state) {
    (void)state;
    for (uint32_t blocks = 1; blocks <= 5; blocks++) {
        struct kv_pool *p = pool_of(blocks, NULL);
        kv_block b[5];
        const int64_t forever[5] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
        assert_int_equal(kv_pool_keep_room(p), blocks / 2);
        keep_all(p, blocks, forever, b);
        assert_int_equal(kv_pool_stats(p).kept_count, blocks / 2);
        assert_int_equal(kv_pool_stats(p).cached_count, blocks - blocks / 2);
        assert_int_equal(kv_pool_keep_room(p), 0);
        kv_pool_verify(p);
        kv_pool_destroy(p);
    }
}

static void test_a_kept_block_can_be_shared_and_goes_back(void **state) {
    (void)state;
    struct kv_pool *p = pool_of(4, NULL);
    kv_block b[2];
    keep_all(p, 2, (int64_t[]){100, 50}, b);
    kv_pool_pin(p, b[0]);
    assert_int_equal(kv_pool_stats(p).kept_count, 1);
    assert_int_equal(kv_pool_stats(p).held_count, 1);
    kv_pool_unpin(p, b[0]);
    assert_int_equal(kv_pool_stats(p).kept_count, 2);
    kv_pool_verify(p);
    kv_pool_destroy(p);
}

static void test_the_latest_keep_counts_and_zero_cancels_it(void **state) {
    (void)state;
    struct kv_pool *p = pool_of(2, NULL);
    kv_block b;
    assert_int_equal(kv_pool_take(p, 1, &b), ST_OK);
    kv_pool_mark_keyed(p, b);
    kv_pool_keep(p, b, 100);
    kv_pool_keep(p, b, 50);
    kv_pool_unpin(p, b);
    kv_pool_expire(p, 99);
    assert_int_equal(kv_pool_stats(p).kept_count, 1);
    kv_pool_pin(p, b);
    kv_pool_keep(p, b, 0);
    kv_pool_unpin(p, b);
    assert_int_equal(kv_pool_stats(p).cached_count, 1);
    kv_pool_destroy(p);
}

static void test_blocks_that_end_together_are_evicted_as_they_were_unpinned(void **state) {
    (void)state;
    struct evictions e = {.count = 0};
    struct kv_pool *p = pool_of(12, &e);
    kv_block b[6], c[12];
    keep_all(p, 6, (int64_t[]){9, 9, 9, 9, 9, 9}, b);
    kv_pool_expire(p, 9);
    assert_int_equal(kv_pool_take(p, 12, c), ST_OK);
    assert_memory_equal(e.list, b, sizeof(b));
    kv_pool_destroy(p);
}

/* Take `count` blocks, make them worth keeping, and give them back. */
static void use_once(struct kv_pool *p, uint32_t count) {
    kv_block b[EVICTED_MAX];
    assert_int_equal(kv_pool_take(p, count, b), ST_OK);
    for (uint32_t i = 0; i < count; i++) {
        kv_pool_mark_keyed(p, b[i]);
        kv_pool_unpin(p, b[i]);
    }
    kv_pool_verify(p);
}

static void test_the_block_released_last_is_taken_first(void **state) {
    (void)state;
    struct kv_pool *p = pool_of(8, NULL);
    kv_block b[3], again[3];
    assert_int_equal(kv_pool_take(p, 3, b), ST_OK);
    for (uint32_t i = 0; i < 3; i++) kv_pool_unpin(p, b[i]);
    assert_int_equal(kv_pool_take(p, 3, again), ST_OK);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(again[i], b[2 - i]);
    assert_int_equal(kv_pool_stats(p).touched_count, 3);
    kv_pool_destroy(p);
}

static void test_cached_contents_alone_touch_no_more_than_they_may(void **state) {
    (void)state;
    struct evictions e = {.count = 0};
    struct kv_pool *p = pool_that_spreads(32, 10, &e);
    for (uint32_t i = 0; i < 3; i++) use_once(p, 3);
    assert_int_equal(kv_pool_stats(p).touched_count, 9);
    assert_int_equal(e.count, 0);
    use_once(p, 3); /* one more may be touched, then the oldest go */
    assert_int_equal(kv_pool_stats(p).touched_count, 10);
    assert_int_equal(e.count, 2);
    for (uint32_t i = 0; i < 20; i++) use_once(p, 3);
    assert_int_equal(kv_pool_stats(p).touched_count, 10);
    assert_int_equal(kv_pool_stats(p).cached_count, 10);
    kv_pool_destroy(p);
}

static void test_what_is_held_at_one_time_may_touch_the_whole_pool(void **state) {
    (void)state;
    struct evictions e = {.count = 0};
    struct kv_pool *p = pool_that_spreads(32, 4, &e);
    use_once(p, 4);
    use_once(p, 20);
    assert_int_equal(e.count, 4); /* all that was cached, before memory that is new */
    assert_int_equal(kv_pool_stats(p).touched_count, 20);
    assert_int_equal(kv_pool_stats(p).cached_count, 20);
    use_once(p, 32);
    assert_int_equal(kv_pool_stats(p).touched_count, 32);
    kv_pool_destroy(p);
}

/* ---- the walk ---- */

enum { BLOCKS_MAX = 24 };

struct model {
    uint32_t refs[BLOCKS_MAX], count;
    bool keyed[BLOCKS_MAX], kept[BLOCKS_MAX], touched[BLOCKS_MAX];
    int64_t until_us[BLOCKS_MAX], now_us;
    kv_block cached[BLOCKS_MAX]; /* oldest first */
    uint32_t cached_count, kept_count, touched_count, spread_max;
};

static void model_uncache(struct model *m, kv_block b) {
    uint32_t i = 0;
    while (i < m->cached_count && m->cached[i] != b) i++;
    assert_true(i < m->cached_count);
    memmove(&m->cached[i], &m->cached[i + 1], (m->cached_count - i - 1) * sizeof(m->cached[0]));
    m->cached_count--;
}

static void model_pin(struct model *m, kv_block b) {
    if (m->refs[b]++ > 0) return;
    if (m->kept[b])
        m->kept_count--;
    else
        model_uncache(m, b);
    m->kept[b] = false;
}

static void model_unpin(struct model *m, kv_block b) {
    if (--m->refs[b] > 0 || !m->keyed[b]) return;
    m->kept[b] = m->until_us[b] > 0 && m->kept_count < m->count / 2;
    if (m->kept[b]) {
        m->kept_count++;
        return;
    }
    m->until_us[b] = 0;
    m->cached[m->cached_count++] = b;
}

/* Times differ in the walk, so that the order of expiry is theirs alone. */
static void model_expire(struct model *m, int64_t now_us) {
    for (;;) {
        kv_block first = UINT32_MAX;
        for (kv_block b = 0; b < m->count; b++)
            if (m->kept[b] && m->until_us[b] <= now_us &&
                (first == UINT32_MAX || m->until_us[b] < m->until_us[first]))
                first = b;
        if (first == UINT32_MAX) return;
        m->kept[first] = false;
        m->kept_count--;
        m->until_us[first] = 0;
        m->cached[m->cached_count++] = first;
    }
}

static void walk_take(struct model *m, struct kv_pool *p, struct evictions *e) {
    kv_block b;
    uint32_t available = kv_pool_available(p), evicted = e->count;
    enum status st = kv_pool_take(p, 1, &b);
    assert_int_equal(st, available > 0 ? ST_OK : ST_FULL);
    if (st != ST_OK) return;
    assert_int_equal(m->refs[b], 0);
    assert_false(m->kept[b]);
    bool is_new = !m->touched[b], had_cached = m->cached_count > 0;
    if (is_new && had_cached) assert_true(m->touched_count < m->spread_max);
    m->touched[b] = true;
    m->touched_count += is_new;
    if (e->count > evicted) {
        assert_int_equal(b, m->cached[0]);
        for (kv_block f = 0; f < m->count; f++) /* nothing cheaper was there */
            assert_false(m->touched[f] && m->refs[f] == 0 && !m->keyed[f]);
        model_uncache(m, b);
    } else {
        assert_false(m->keyed[b]);
    }
    m->refs[b] = 1;
    m->keyed[b] = false;
    m->until_us[b] = 0;
}

static void walk_step(struct model *m, struct kv_pool *p, struct evictions *e, struct rng *rng) {
    kv_block b = (kv_block)rng_below(rng, m->count);
    bool findable = m->refs[b] > 0 || m->keyed[b];
    uint64_t op = rng_below(rng, 8);
    m->now_us++;
    if (op <= 1) walk_take(m, p, e);
    if (op == 2 && findable) kv_pool_pin(p, b), model_pin(m, b);
    if (op >= 3 && op <= 4 && m->refs[b] > 0) kv_pool_unpin(p, b), model_unpin(m, b);
    if (op == 5 && m->refs[b] > 0) kv_pool_mark_keyed(p, b), m->keyed[b] = true;
    if (op == 6 && m->refs[b] > 0 && m->keyed[b]) {
        /* A multiple of the pool plus the block: no two alike. */
        int64_t until = (m->now_us + (int64_t)rng_below(rng, 40)) * BLOCKS_MAX + b;
        kv_pool_keep(p, b, until);
        if (until > m->until_us[b]) m->until_us[b] = until;
    }
    if (op == 7) {
        kv_pool_expire(p, m->now_us * BLOCKS_MAX);
        model_expire(m, m->now_us * BLOCKS_MAX);
    }
}

static void compare(const struct model *m, const struct kv_pool *p) {
    struct kv_pool_stats n = kv_pool_stats(p);
    uint32_t held = 0;
    for (kv_block b = 0; b < m->count; b++) {
        assert_int_equal(kv_pool_refs(p, b), m->refs[b]);
        held += m->refs[b] > 0;
    }
    assert_int_equal(n.held_count, held);
    assert_int_equal(n.cached_count, m->cached_count);
    assert_int_equal(n.kept_count, m->kept_count);
    assert_int_equal(n.touched_count, m->touched_count);
    kv_pool_verify(p);
}

static void test_random_walks_agree_with_the_model(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rng rng = {.seed = seed};
        struct model m = {.count = 1 + (uint32_t)rng_below(&rng, BLOCKS_MAX)};
        struct evictions e = {.count = 0};
        m.spread_max = (uint32_t)rng_below(&rng, m.count + 1);
        struct kv_pool *p = pool_that_spreads(m.count, m.spread_max, &e);
        for (int step = 0; step < 1500; step++) {
            walk_step(&m, p, &e, &rng);
            compare(&m, p);
        }
        kv_pool_destroy(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_is_all_or_nothing),
        cmocka_unit_test(test_a_take_that_fails_evicts_no_block),
        cmocka_unit_test(test_cached_blocks_are_evicted_oldest_first),
        cmocka_unit_test(test_free_blocks_go_before_cached_ones),
        cmocka_unit_test(test_a_block_is_free_only_after_its_last_reference),
        cmocka_unit_test(test_an_unmarked_block_is_not_cached),
        cmocka_unit_test(test_kept_blocks_are_not_taken_before_their_time),
        cmocka_unit_test(test_at_most_half_of_the_pool_is_kept),
        cmocka_unit_test(test_a_kept_block_can_be_shared_and_goes_back),
        cmocka_unit_test(test_the_latest_keep_counts_and_zero_cancels_it),
        cmocka_unit_test(test_blocks_that_end_together_are_evicted_as_they_were_unpinned),
        cmocka_unit_test(test_the_block_released_last_is_taken_first),
        cmocka_unit_test(test_cached_contents_alone_touch_no_more_than_they_may),
        cmocka_unit_test(test_what_is_held_at_one_time_may_touch_the_whole_pool),
        cmocka_unit_test(test_random_walks_agree_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
