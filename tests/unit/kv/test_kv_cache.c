/* Goal:   each promise of kv/cache.h at its edges: what a hit reaches, what is shared, copied,
 *         given back, kept, swapped, promised, and that a refusal changes nothing.
 * Method: one named case per fact on caches of a few blocks, invariants verified at the end of
 *         each; the random walks over all of it together are in test_kv_walk.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <string.h>

#include "kv/cache.h"

enum { BT = 4, MOVES = 32, TEXT = 64 };

/* A cache, its moves, and a text of distinct tokens. */
struct fixture {
    struct kv_cache *c;
    struct kv_move list[MOVES];
    struct kv_moves moves;
    int32_t text[TEXT];
};

static const struct kv_cache_options PLAIN = {
    .block_tokens = BT,
    .group_count = 1,
    .groups = {{.block_count = 8}},
    .seq_max = 4,
    .tokens_max = 32,
    .spill_slots = 8,
    .prefix_cache = true,
    .identity = 1,
};

static void set_up(struct fixture *f, const struct kv_cache_options *options) {
    struct err err = {0};
    *f = (struct fixture){.moves = {.cap = MOVES}};
    f->moves.list = f->list;
    for (int i = 0; i < TEXT; i++) f->text[i] = 100 + i;
    assert_int_equal(kv_cache_create(&f->c, options, &err), ST_OK);
}

static void tear_down(struct fixture *f) {
    kv_cache_verify(f->c);
    kv_cache_destroy(f->c);
}

/* A sequence that attached to the text's first `count` tokens and computed them all. */
static kv_seq computed_seq(struct fixture *f, uint64_t salt, uint32_t count, uint32_t *hit) {
    kv_seq s = 0;
    assert_int_equal(kv_seq_open(f->c, (struct kv_salt){salt, 0}, &s), ST_OK);
    uint32_t found = kv_seq_attach(f->c, s, f->text, count);
    if (hit) *hit = found;
    assert_int_equal(kv_seq_grow(f->c, s, count, &f->moves), ST_OK);
    kv_seq_commit(f->c, s, f->text, count);
    return s;
}

static struct kv_match match(const struct fixture *f, uint64_t salt, uint32_t count) {
    return kv_cache_match(f->c, (struct kv_salt){salt, 0}, f->text, count);
}

/* ---- creation ---- */

static void expect_refused(struct kv_cache_options options, const char *word) {
    struct kv_cache *c = NULL;
    struct err err = {0};
    assert_int_equal(kv_cache_create(&c, &options, &err), ST_BAD);
    assert_null(c);
    assert_non_null(strstr(err.text, word));
}

static void test_options_out_of_range_are_refused_with_the_range(void **state) {
    (void)state;
    struct kv_cache_options o = PLAIN;
    o.block_tokens = 0;
    expect_refused(o, "at least 1 token");
    o = PLAIN;
    o.group_count = 0;
    expect_refused(o, "expected 1 to 8");
    o.group_count = KV_CACHE_GROUPS_MAX + 1;
    expect_refused(o, "9 groups");
    o = PLAIN;
    o.seq_max = 0;
    expect_refused(o, "0 sequences");
    o = PLAIN;
    o.tokens_max = 0;
    expect_refused(o, "0 tokens");
    o.tokens_max = UINT32_MAX;
    expect_refused(o, "4294967295 tokens");
    o = PLAIN;
    o.groups[0].block_count = 0;
    expect_refused(o, "group 0 has 0 blocks");
    kv_cache_destroy(NULL);
}

static void test_open_is_full_when_all_tables_are_taken(void **state) {
    (void)state;
    struct fixture f;
    kv_seq s[4], more = 77;
    set_up(&f, &PLAIN);
    for (int i = 0; i < 4; i++)
        assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &s[i]), ST_OK);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &more), ST_FULL);
    assert_int_equal(more, 77);
    assert_int_equal(kv_seq_fork(f.c, s[0], 0, &more), ST_FULL);
    kv_seq_close(f.c, s[2]);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &more), ST_OK);
    tear_down(&f);
}

/* ---- growing ---- */

static void test_growth_takes_a_block_only_when_one_is_full(void **state) {
    (void)state;
    struct fixture f;
    kv_seq s;
    set_up(&f, &PLAIN);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &s), ST_OK);
    for (uint32_t tokens = 1; tokens <= 13; tokens++) {
        assert_int_equal(kv_seq_need(f.c, s, tokens), tokens % BT == 1);
        assert_int_equal(kv_seq_grow(f.c, s, tokens, NULL), ST_OK);
        kv_seq_commit(f.c, s, f.text, tokens);
        assert_int_equal(kv_seq_tokens(f.c, s), tokens);
        assert_int_equal(kv_cache_stats(f.c).groups[0].held_count, (tokens + BT - 1) / BT);
    }
    tear_down(&f);
}

static void test_growth_that_does_not_fit_changes_nothing_in_any_group(void **state) {
    (void)state;
    struct kv_cache_options o = PLAIN;
    struct fixture f;
    o.group_count = 2;
    o.groups[1].block_count = 3;
    set_up(&f, &o);
    kv_seq s = computed_seq(&f, 0, 8, NULL);
    struct kv_cache_stats before = kv_cache_stats(f.c), after;
    assert_int_equal(kv_seq_need(f.c, s, 16), 2);
    assert_int_equal(kv_cache_available(f.c), 1);
    assert_int_equal(kv_seq_grow(f.c, s, 16, &f.moves), ST_FULL);
    after = kv_cache_stats(f.c);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_int_equal(kv_seq_tokens(f.c, s), 8);
    assert_int_equal(kv_seq_grow(f.c, s, 12, &f.moves), ST_OK);
    tear_down(&f);
}

/* ---- prefixes ---- */

static void test_a_hit_is_whole_blocks_and_never_the_last_token(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, &PLAIN);
    kv_seq_close(f.c, computed_seq(&f, 0, 14, NULL));
    const uint32_t expected[] = {0, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 12};
    for (uint32_t count = 0; count < 18; count++)
        assert_int_equal(match(&f, 0, count).tokens, expected[count]);
    uint32_t hit;
    computed_seq(&f, 0, 12, &hit);
    assert_int_equal(hit, 8);
    struct kv_cache_stats n = kv_cache_stats(f.c);
    assert_int_equal(n.lookup_tokens, 14 + 12);
    assert_int_equal(n.hit_tokens, 8);
    tear_down(&f);
}

static void test_a_lookup_without_a_commit_is_not_counted(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, &PLAIN);
    kv_seq_close(f.c, computed_seq(&f, 0, 14, NULL));
    kv_seq s;
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &s), ST_OK);
    assert_int_equal(kv_seq_attach(f.c, s, f.text, 12), 8);
    kv_seq_close(f.c, s);
    struct kv_cache_stats n = kv_cache_stats(f.c);
    assert_int_equal(n.lookup_tokens, 14);
    assert_int_equal(n.hit_tokens, 0);
    tear_down(&f);
}

static void test_a_hit_shares_the_same_blocks(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, &PLAIN);
    kv_seq a = computed_seq(&f, 0, 9, NULL), b = computed_seq(&f, 0, 10, NULL);
    const uint32_t *x = kv_seq_table(f.c, a, 0), *y = kv_seq_table(f.c, b, 0);
    assert_int_equal(x[0], y[0]);
    assert_int_equal(x[1], y[1]);
    assert_int_not_equal(x[2], y[2]);
    assert_int_equal(kv_cache_stats(f.c).groups[0].held_count, 4);
    tear_down(&f);
}

static void test_generated_tokens_are_found_by_the_next_turn(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 6, NULL);
    for (uint32_t tokens = 7; tokens <= 17; tokens++) {
        assert_int_equal(kv_seq_grow(f.c, s, tokens, &f.moves), ST_OK);
        kv_seq_commit(f.c, s, f.text, tokens);
    }
    kv_seq_close(f.c, s);
    assert_int_equal(match(&f, 0, 20).tokens, 16);
    tear_down(&f);
}

static void test_other_text_before_a_block_is_a_miss(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, &PLAIN);
    kv_seq_close(f.c, computed_seq(&f, 0, 13, NULL));
    f.text[1]++;
    assert_int_equal(match(&f, 0, 13).tokens, 0);
    f.text[1]--;
    f.text[5]++;
    assert_int_equal(match(&f, 0, 13).tokens, 4);
    tear_down(&f);
}

static void test_another_salt_finds_nothing(void **state) {
    (void)state;
    struct fixture f;
    uint32_t hit;
    set_up(&f, &PLAIN);
    kv_seq_close(f.c, computed_seq(&f, 5, 13, NULL));
    assert_int_equal(match(&f, 6, 13).tokens, 0);
    kv_seq_close(f.c, computed_seq(&f, 6, 13, &hit));
    assert_int_equal(hit, 0);
    assert_int_equal(match(&f, 5, 13).tokens, 12);
    assert_int_equal(match(&f, 6, 13).tokens, 12);
    /* Equal in one half. */
    assert_int_equal(kv_cache_match(f.c, (struct kv_salt){5, 1}, f.text, 13).tokens, 0);
    assert_int_equal(kv_cache_match(f.c, (struct kv_salt){0, 0}, f.text, 13).tokens, 0);
    tear_down(&f);
}

static void test_without_a_prefix_cache_nothing_is_found_or_kept(void **state) {
    (void)state;
    struct kv_cache_options o = PLAIN;
    struct fixture f;
    uint32_t hit;
    o.prefix_cache = false;
    set_up(&f, &o);
    kv_seq s = computed_seq(&f, 0, 13, NULL);
    assert_int_equal(kv_seq_swap_out(f.c, s, &f.moves), ST_OK);
    assert_int_equal(kv_seq_swap_in(f.c, s, &f.moves), ST_OK);
    kv_seq_commit(f.c, s, f.text, 13);
    kv_seq_close(f.c, s);
    assert_int_equal(match(&f, 0, 13).tokens, 0);
    assert_int_equal(kv_cache_stats(f.c).groups[0].free_count, 8);
    kv_seq_close(f.c, computed_seq(&f, 0, 13, &hit));
    assert_int_equal(hit, 0);
    tear_down(&f);
}

static void test_a_duplicate_block_has_no_key(void **state) {
    (void)state;
    struct fixture f;
    kv_seq a, b;
    set_up(&f, &PLAIN);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &a), ST_OK);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &b), ST_OK);
    assert_int_equal(kv_seq_grow(f.c, a, 4, NULL), ST_OK);
    assert_int_equal(kv_seq_grow(f.c, b, 4, NULL), ST_OK);
    kv_seq_commit(f.c, a, f.text, 4);
    kv_seq_commit(f.c, b, f.text, 4);
    kv_seq_close(f.c, b);
    assert_int_equal(kv_cache_stats(f.c).groups[0].free_count, 7);
    kv_seq_close(f.c, a);
    assert_int_equal(kv_cache_stats(f.c).groups[0].cached_count, 1);
    tear_down(&f);
}

static void test_a_block_computed_again_counts_as_just_used(void **state) {
    (void)state;
    struct fixture f;
    kv_seq s;
    set_up(&f, &PLAIN);
    kv_seq_close(f.c, computed_seq(&f, 0, 4, NULL)); /* the oldest */
    kv_seq_close(f.c, computed_seq(&f, 1, 16, NULL));
    kv_seq_close(f.c, computed_seq(&f, 0, 4, NULL)); /* its only block holds the last token */
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){2, 0}, &s), ST_OK);
    assert_int_equal(kv_seq_grow(f.c, s, 16, NULL), ST_OK); /* 3 free ones and an eviction */
    assert_int_equal(match(&f, 0, 5).tokens, 4);
    assert_int_equal(match(&f, 1, 17).tokens, 12);
    tear_down(&f);
}

static void test_the_end_of_a_prefix_is_evicted_before_its_start(void **state) {
    (void)state;
    struct fixture f;
    kv_seq s;
    set_up(&f, &PLAIN);
    kv_seq_close(f.c, computed_seq(&f, 0, 32, NULL)); /* all 8 blocks */
    assert_int_equal(match(&f, 0, 33).tokens, 32);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){1, 0}, &s), ST_OK);
    for (uint32_t taken = 1; taken <= 8; taken++) {
        assert_int_equal(kv_seq_grow(f.c, s, taken * BT, NULL), ST_OK);
        assert_int_equal(match(&f, 0, 33).tokens, 32 - taken * BT);
    }
    assert_int_equal(kv_cache_stats(f.c).evicted_blocks, 8);
    tear_down(&f);
}

/* ---- promises ---- */

static void test_a_prompt_is_promised_until_it_is_computed(void **state) {
    (void)state;
    struct fixture f;
    kv_seq s;
    set_up(&f, &PLAIN);
    assert_false(match(&f, 0, 13).is_promised);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &s), ST_OK);
    assert_int_equal(kv_seq_attach(f.c, s, f.text, 10), 0);
    assert_true(match(&f, 0, 13).is_promised);
    assert_false(match(&f, 1, 13).is_promised); /* another tenant */
    assert_false(match(&f, 0, 4).is_promised);  /* the block ends with its last token */
    assert_int_equal(kv_seq_grow(f.c, s, 10, NULL), ST_OK);
    assert_true(match(&f, 0, 13).is_promised);
    kv_seq_commit(f.c, s, f.text, 5);
    assert_true(match(&f, 0, 13).is_promised);
    assert_int_equal(match(&f, 0, 13).tokens, 4);
    kv_seq_commit(f.c, s, f.text, 10);
    assert_false(match(&f, 0, 13).is_promised); /* block 2 is not full in its prompt */
    assert_int_equal(match(&f, 0, 13).tokens, 8);
    tear_down(&f);
}

static void test_promises_end_with_their_sequence(void **state) {
    (void)state;
    struct fixture f;
    kv_seq a, b;
    set_up(&f, &PLAIN);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &a), ST_OK);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &b), ST_OK);
    kv_seq_attach(f.c, a, f.text, 12);
    kv_seq_attach(f.c, b, f.text, 12); /* the same text: the first promise stands */
    kv_seq_close(f.c, b);
    assert_true(match(&f, 0, 13).is_promised);
    kv_seq_close(f.c, a);
    assert_false(match(&f, 0, 13).is_promised);
    tear_down(&f);
}

static void test_a_promise_of_batch_work_is_taken_over(void **state) {
    (void)state;
    struct fixture f;
    kv_seq line, other;
    set_up(&f, &PLAIN);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &line), ST_OK);
    kv_seq_mark_batch(f.c, line);
    kv_seq_attach(f.c, line, f.text, 12);
    assert_true(match(&f, 0, 13).is_promised);
    assert_true(match(&f, 0, 13).is_batch_promise);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &other), ST_OK);
    kv_seq_attach(f.c, other, f.text, 12);
    assert_true(match(&f, 0, 13).is_promised);
    assert_false(match(&f, 0, 13).is_batch_promise);
    kv_cache_verify(f.c);
    kv_seq_close(f.c, line);
    assert_true(match(&f, 0, 13).is_promised);
    kv_seq_close(f.c, other);
    assert_false(match(&f, 0, 13).is_promised);
    tear_down(&f);
}

static void test_a_swapped_out_sequence_promises_nothing(void **state) {
    (void)state;
    struct fixture f;
    kv_seq s;
    set_up(&f, &PLAIN);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &s), ST_OK);
    kv_seq_attach(f.c, s, f.text, 12);
    assert_int_equal(kv_seq_grow(f.c, s, 4, NULL), ST_OK);
    kv_seq_commit(f.c, s, f.text, 4);
    assert_true(match(&f, 0, 13).is_promised);
    assert_int_equal(kv_seq_swap_out(f.c, s, &f.moves), ST_OK);
    assert_false(match(&f, 0, 13).is_promised);
    tear_down(&f);
}

static void test_other_text_than_promised_withdraws_the_promises(void **state) {
    (void)state;
    struct fixture f;
    kv_seq s;
    set_up(&f, &PLAIN);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &s), ST_OK);
    kv_seq_attach(f.c, s, f.text, 12);
    assert_int_equal(kv_seq_grow(f.c, s, 12, NULL), ST_OK);
    f.text[2]++;
    kv_seq_commit(f.c, s, f.text, 8);
    assert_int_equal(match(&f, 0, 13).tokens, 8);
    f.text[2]--;
    assert_false(match(&f, 0, 13).is_promised);
    assert_int_equal(match(&f, 0, 13).tokens, 0);
    tear_down(&f);
}

static void test_attaching_twice_while_empty_is_fine(void **state) {
    (void)state;
    struct fixture f;
    kv_seq s;
    set_up(&f, &PLAIN);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &s), ST_OK);
    kv_seq_attach(f.c, s, f.text, 12);
    kv_seq_attach(f.c, s, f.text + 1, 12);
    assert_false(match(&f, 0, 13).is_promised);
    kv_cache_verify(f.c);
    kv_seq_close(f.c, s);
    tear_down(&f);
}

/* ---- forks ---- */

static void test_a_shared_block_is_copied_by_the_first_writer(void **state) {
    (void)state;
    struct fixture f;
    kv_seq child;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 6, NULL);
    assert_int_equal(kv_seq_fork(f.c, s, 6, &child), ST_OK);
    uint32_t old = kv_seq_table(f.c, s, 0)[1];
    assert_int_equal(kv_seq_table(f.c, child, 0)[1], old);
    assert_int_equal(kv_seq_need(f.c, s, 7), 1);
    assert_int_equal(kv_seq_grow(f.c, s, 7, &f.moves), ST_OK);
    assert_int_equal(f.moves.count, 1);
    assert_int_equal(f.list[0].kind, KV_MOVE_COPY);
    assert_int_equal(f.list[0].from, old);
    assert_int_equal(f.list[0].to, kv_seq_table(f.c, s, 0)[1]);
    assert_int_equal(kv_seq_need(f.c, child, 7), 0); /* alone with it now */
    assert_int_equal(kv_seq_grow(f.c, child, 7, &f.moves), ST_OK);
    assert_int_equal(f.moves.count, 1);
    assert_int_equal(kv_seq_table(f.c, child, 0)[1], old);
    tear_down(&f);
}

static void test_a_fork_at_a_block_boundary_copies_nothing(void **state) {
    (void)state;
    struct fixture f;
    kv_seq child;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 8, NULL);
    assert_int_equal(kv_seq_fork(f.c, s, 8, &child), ST_OK);
    assert_int_equal(kv_seq_grow(f.c, child, 9, NULL), ST_OK);
    assert_int_equal(kv_seq_grow(f.c, s, 9, NULL), ST_OK);
    assert_int_equal(kv_cache_stats(f.c).groups[0].held_count, 4);
    tear_down(&f);
}

static void test_a_parent_with_room_ahead_copies_too(void **state) {
    (void)state;
    struct fixture f;
    kv_seq child;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 6, NULL);
    assert_int_equal(kv_seq_grow(f.c, s, 12, NULL), ST_OK);
    assert_int_equal(kv_seq_fork(f.c, s, 6, &child), ST_OK);
    assert_int_equal(kv_seq_tokens(f.c, child), 6);
    assert_int_equal(kv_seq_grow(f.c, s, 7, &f.moves), ST_OK);
    assert_int_equal(f.moves.count, 1);
    assert_int_equal(kv_seq_tokens(f.c, s), 12);
    tear_down(&f);
}

static void test_a_copy_that_does_not_fit_the_moves_changes_nothing(void **state) {
    (void)state;
    struct fixture f;
    kv_seq child;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 6, NULL);
    assert_int_equal(kv_seq_fork(f.c, s, 6, &child), ST_OK);
    f.moves.cap = 0;
    assert_int_equal(kv_seq_grow(f.c, child, 12, &f.moves), ST_FULL);
    assert_int_equal(kv_seq_grow(f.c, child, 12, NULL), ST_FULL);
    assert_int_equal(kv_cache_stats(f.c).groups[0].held_count, 2);
    tear_down(&f);
}

/* A fork one token short of a full block has to compute into a block that the index knows. */
static void test_a_keyed_block_is_never_written(void **state) {
    (void)state;
    struct fixture f;
    kv_seq child;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 8, NULL);
    assert_int_equal(kv_seq_fork(f.c, s, 7, &child), ST_OK);
    assert_int_equal(kv_seq_need(f.c, child, 8), 1);
    kv_seq_close(f.c, s);
    assert_int_equal(match(&f, 0, 9).tokens, 8);
    assert_int_equal(kv_seq_need(f.c, child, 8), 0); /* its only owner: the index forgets it */
    assert_int_equal(kv_seq_grow(f.c, child, 8, NULL), ST_OK);
    assert_int_equal(match(&f, 0, 9).tokens, 4);
    kv_cache_verify(f.c);
    kv_seq_commit(f.c, child, f.text, 8);
    assert_int_equal(match(&f, 0, 9).tokens, 8);
    tear_down(&f);
}

static void test_forks_in_a_full_pool_wait_and_the_last_one_needs_no_copy(void **state) {
    (void)state;
    struct kv_cache_options o = PLAIN;
    struct fixture f;
    kv_seq child;
    o.groups[0].block_count = 2;
    set_up(&f, &o);
    kv_seq s = computed_seq(&f, 0, 6, NULL);
    assert_int_equal(kv_seq_fork(f.c, s, 6, &child), ST_OK);
    assert_int_equal(kv_seq_grow(f.c, child, 7, &f.moves), ST_FULL);
    kv_seq_close(f.c, s);
    assert_int_equal(kv_seq_grow(f.c, child, 7, &f.moves), ST_OK);
    assert_int_equal(f.moves.count, 0);
    tear_down(&f);
}

static void test_a_child_continues_with_the_parents_keys(void **state) {
    (void)state;
    struct fixture f;
    kv_seq child;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 6, NULL);
    assert_int_equal(kv_seq_fork(f.c, s, 6, &child), ST_OK);
    kv_seq_close(f.c, s);
    assert_int_equal(kv_seq_grow(f.c, child, 12, &f.moves), ST_OK);
    kv_seq_commit(f.c, child, f.text, 12);
    kv_seq_close(f.c, child);
    assert_int_equal(match(&f, 0, 13).tokens, 12);
    tear_down(&f);
}

/* ---- trim ---- */

static void test_trim_releases_room_and_contents(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 9, NULL);
    assert_int_equal(kv_seq_grow(f.c, s, 20, NULL), ST_OK);
    kv_seq_trim(f.c, s, 9);
    assert_int_equal(kv_seq_tokens(f.c, s), 9);
    assert_int_equal(kv_cache_stats(f.c).groups[0].held_count, 3);
    kv_seq_trim(f.c, s, 6);
    assert_int_equal(kv_cache_stats(f.c).groups[0].held_count, 2);
    f.text[6]++;
    assert_int_equal(kv_seq_grow(f.c, s, 8, NULL), ST_OK);
    kv_seq_commit(f.c, s, f.text, 8);
    assert_int_equal(match(&f, 0, 9).tokens, 8);
    f.text[6]--;
    assert_int_equal(match(&f, 0, 9).tokens, 4); /* the first text was overwritten */
    kv_seq_trim(f.c, s, 0);
    assert_int_equal(kv_cache_stats(f.c).groups[0].held_count, 0);
    assert_int_equal(kv_seq_attach(f.c, s, f.text, 9), 4);
    tear_down(&f);
}

/* ---- windows ---- */

static const struct kv_cache_options WINDOWED = {
    .block_tokens = BT,
    .group_count = 2,
    .groups = {{.block_count = 16}, {.block_count = 16, .window = 6}},
    .seq_max = 4,
    .tokens_max = 64,
    .spill_slots = 16,
    .prefix_cache = true,
};

static void test_a_windowed_group_releases_what_no_token_reads(void **state) {
    (void)state;
    struct fixture f;
    kv_seq s;
    set_up(&f, &WINDOWED);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &s), ST_OK);
    for (uint32_t tokens = 1; tokens <= 40; tokens++) {
        assert_int_equal(kv_seq_grow(f.c, s, tokens, NULL), ST_OK);
        kv_seq_commit(f.c, s, f.text, tokens);
        const uint32_t *table = kv_seq_table(f.c, s, 1);
        /* The last token, should it be computed once more, reads itself and 5 before it. */
        uint32_t first = tokens > 6 ? (tokens - 6) / BT : 0;
        for (uint32_t i = 0; i < (tokens + BT - 1) / BT; i++)
            assert_int_equal(table[i] == UINT32_MAX, i < first);
    }
    assert_int_equal(kv_cache_stats(f.c).groups[0].held_count, 10);
    assert_int_equal(kv_cache_stats(f.c).groups[1].held_count, 2);
    tear_down(&f);
}

static void test_a_hit_needs_only_the_window_of_a_windowed_group(void **state) {
    (void)state;
    struct fixture f;
    uint32_t hit;
    set_up(&f, &WINDOWED);
    kv_seq_close(f.c, computed_seq(&f, 0, 33, NULL));
    /* Another tenant pushes the oldest blocks out of the windowed group only: it holds few at
     * once there but passes through many. */
    kv_seq s;
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){1, 0}, &s), ST_OK);
    for (uint32_t tokens = 1; tokens <= 32; tokens++) {
        assert_int_equal(kv_seq_grow(f.c, s, tokens, NULL), ST_OK);
        kv_seq_commit(f.c, s, f.text, tokens);
    }
    kv_seq_close(f.c, s);
    kv_seq a = computed_seq(&f, 0, 34, &hit);
    assert_int_equal(hit, 32);
    const uint32_t *table = kv_seq_table(f.c, a, 1);
    assert_int_equal(table[5], UINT32_MAX);
    assert_int_not_equal(table[7], UINT32_MAX);
    tear_down(&f);
}

static void test_a_hit_reaches_only_as_far_as_every_group(void **state) {
    (void)state;
    struct kv_cache_options o = WINDOWED;
    struct fixture f;
    o.groups[1].block_count = 3;
    set_up(&f, &o);
    kv_seq s;
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &s), ST_OK);
    for (uint32_t tokens = 1; tokens <= 21; tokens++) {
        assert_int_equal(kv_seq_grow(f.c, s, tokens, NULL), ST_OK);
        kv_seq_commit(f.c, s, f.text, tokens);
    }
    kv_seq_close(f.c, s);
    assert_int_equal(match(&f, 0, 22).tokens, 20);
    /* One of the three windowed blocks goes; the full group still has all five. */
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){1, 0}, &s), ST_OK);
    assert_int_equal(kv_seq_grow(f.c, s, 8, NULL), ST_OK);
    assert_int_equal(match(&f, 0, 22).tokens, 0);
    tear_down(&f);
}

static void test_a_fork_one_token_back_works_at_every_length(void **state) {
    (void)state;
    struct fixture f;
    kv_seq child;
    set_up(&f, &WINDOWED);
    for (uint32_t tokens = 2; tokens <= 30; tokens++) {
        kv_seq s = computed_seq(&f, tokens, tokens, NULL);
        assert_int_equal(kv_seq_fork(f.c, s, tokens - 1, &child), ST_OK);
        assert_int_equal(kv_seq_grow(f.c, child, tokens, &f.moves), ST_OK);
        kv_seq_commit(f.c, child, f.text, tokens);
        kv_seq_trim(f.c, child, tokens - 1);
        kv_cache_verify(f.c);
        kv_seq_close(f.c, s);
        kv_seq_close(f.c, child);
        f.moves.count = 0;
    }
    tear_down(&f);
}

static void test_a_window_of_one_token_holds_one_block(void **state) {
    (void)state;
    struct kv_cache_options o = WINDOWED;
    struct fixture f;
    uint32_t hit;
    o.groups[1].window = 1;
    set_up(&f, &o);
    kv_seq s = computed_seq(&f, 0, 17, NULL);
    assert_int_equal(kv_cache_stats(f.c).groups[1].held_count, 1);
    kv_seq_close(f.c, s);
    computed_seq(&f, 0, 17, &hit);
    assert_int_equal(hit, 16);
    tear_down(&f);
}

/* ---- swapping ---- */

static void test_swapping_returns_every_move_and_frees_the_blocks(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 10, NULL);
    assert_int_equal(kv_seq_grow(f.c, s, 20, NULL), ST_OK);
    assert_int_equal(kv_seq_swap_out(f.c, s, &f.moves), ST_OK);
    assert_true(kv_seq_is_swapped_out(f.c, s));
    assert_int_equal(f.moves.count, 3); /* room past the contents is not worth a move */
    for (int i = 0; i < 3; i++) assert_int_equal(f.list[i].kind, KV_MOVE_OUT);
    assert_int_equal(kv_cache_stats(f.c).spilled_blocks, 3);
    assert_int_equal(kv_cache_stats(f.c).groups[0].held_count, 0);
    assert_int_equal(kv_seq_tokens(f.c, s), 10);
    assert_int_equal(kv_seq_need(f.c, s, 13), 4);
    kv_cache_verify(f.c);
    assert_int_equal(kv_seq_swap_in(f.c, s, &f.moves), ST_OK);
    assert_false(kv_seq_is_swapped_out(f.c, s));
    assert_int_equal(f.moves.count, 6);
    assert_int_equal(kv_cache_stats(f.c).spilled_blocks, 0);
    assert_int_equal(kv_seq_need(f.c, s, 13), 1);
    tear_down(&f);
}

static void test_swaps_that_do_not_fit_change_nothing(void **state) {
    (void)state;
    struct kv_cache_options o = PLAIN;
    struct fixture f;
    o.spill_slots = 3;
    set_up(&f, &o);
    kv_seq a = computed_seq(&f, 0, 10, NULL), b = computed_seq(&f, 1, 5, NULL);
    f.moves.cap = 2;
    assert_int_equal(kv_seq_swap_out(f.c, a, &f.moves), ST_FULL); /* moves */
    f.moves.cap = MOVES;
    assert_int_equal(kv_seq_swap_out(f.c, a, &f.moves), ST_OK);
    assert_int_equal(kv_seq_swap_out(f.c, b, &f.moves), ST_FULL); /* slots */
    assert_false(kv_seq_is_swapped_out(f.c, b));
    assert_int_equal(kv_seq_grow(f.c, b, 28, NULL), ST_OK);
    assert_int_equal(kv_seq_swap_in(f.c, a, &f.moves), ST_FULL); /* blocks */
    assert_true(kv_seq_is_swapped_out(f.c, a));
    kv_cache_verify(f.c);
    kv_seq_close(f.c, b);
    f.moves.cap = f.moves.count + 2;
    assert_int_equal(kv_seq_swap_in(f.c, a, &f.moves), ST_FULL); /* moves */
    f.moves.cap = MOVES;
    assert_int_equal(kv_seq_swap_in(f.c, a, &f.moves), ST_OK);
    tear_down(&f);
}

static void test_without_slots_only_an_empty_sequence_is_swapped_out(void **state) {
    (void)state;
    struct kv_cache_options o = PLAIN;
    struct fixture f;
    kv_seq empty;
    o.spill_slots = 0;
    set_up(&f, &o);
    kv_seq s = computed_seq(&f, 0, 4, NULL);
    assert_int_equal(kv_seq_swap_out(f.c, s, &f.moves), ST_FULL);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){0, 0}, &empty), ST_OK);
    assert_int_equal(kv_seq_swap_out(f.c, empty, &f.moves), ST_OK);
    assert_int_equal(kv_seq_swap_in(f.c, empty, &f.moves), ST_OK);
    tear_down(&f);
}

static void test_closing_a_swapped_out_sequence_frees_its_slots(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, &WINDOWED);
    kv_seq s = computed_seq(&f, 0, 30, NULL);
    assert_int_equal(kv_seq_swap_out(f.c, s, &f.moves), ST_OK);
    assert_int_equal(f.moves.count, 8 + 2);
    kv_seq_close(f.c, s);
    assert_int_equal(kv_cache_stats(f.c).spilled_blocks, 0);
    tear_down(&f);
}

static void test_blocks_from_the_spill_store_get_keys_only_after_a_commit(void **state) {
    (void)state;
    struct kv_cache_options o = PLAIN;
    struct fixture f;
    kv_seq other;
    o.groups[0].block_count = 3;
    set_up(&f, &o);
    kv_seq s = computed_seq(&f, 0, 10, NULL);
    assert_int_equal(kv_seq_swap_out(f.c, s, &f.moves), ST_OK);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){1, 0}, &other), ST_OK);
    assert_int_equal(kv_seq_grow(f.c, other, 12, NULL), ST_OK); /* evicts all */
    kv_seq_close(f.c, other);
    assert_int_equal(kv_seq_swap_in(f.c, s, &f.moves), ST_OK);
    assert_int_equal(match(&f, 0, 10).tokens, 0); /* the move may not have been done */
    assert_int_equal(kv_seq_grow(f.c, s, 11, NULL), ST_OK);
    kv_seq_commit(f.c, s, f.text, 11);
    assert_int_equal(match(&f, 0, 10).tokens, 8);
    tear_down(&f);
}

/* ---- retention ---- */

static void test_kept_prefixes_outlive_their_sequence_until_their_time(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 13, NULL), other;
    kv_seq_keep(f.c, s, 1000);
    kv_seq_close(f.c, s);
    assert_int_equal(kv_cache_stats(f.c).groups[0].kept_count, 3);
    assert_int_equal(kv_cache_available(f.c), 5);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){1, 0}, &other), ST_OK);
    assert_int_equal(kv_seq_grow(f.c, other, 20, NULL), ST_OK);
    assert_int_equal(match(&f, 0, 13).tokens, 12);
    assert_int_equal(kv_seq_grow(f.c, other, 24, NULL), ST_FULL);
    kv_cache_expire(f.c, 1000);
    assert_int_equal(kv_seq_grow(f.c, other, 24, NULL), ST_OK);
    assert_int_equal(match(&f, 0, 13).tokens, 8); /* the tail went first here too */
    tear_down(&f);
}

static void test_if_not_all_blocks_can_be_kept_the_first_are(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 32, NULL), other;
    kv_seq_keep(f.c, s, INT64_MAX);
    kv_seq_close(f.c, s);
    assert_int_equal(kv_cache_stats(f.c).groups[0].kept_count, 4);
    assert_int_equal(kv_seq_open(f.c, (struct kv_salt){1, 0}, &other), ST_OK);
    assert_int_equal(kv_seq_grow(f.c, other, 16, NULL), ST_OK);
    assert_int_equal(match(&f, 0, 33).tokens, 16);
    kv_cache_expire(f.c, INT64_MAX); /* the way out for who needs the blocks more */
    assert_int_equal(kv_cache_available(f.c), 4);
    tear_down(&f);
}

static void test_a_retention_hint_can_be_cancelled_before_the_end(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, &PLAIN);
    kv_seq s = computed_seq(&f, 0, 13, NULL);
    kv_seq_keep(f.c, s, 1000);
    kv_seq_keep(f.c, s, 0);
    kv_seq_close(f.c, s);
    assert_int_equal(kv_cache_stats(f.c).groups[0].kept_count, 0);
    assert_int_equal(kv_cache_stats(f.c).groups[0].cached_count, 3);
    tear_down(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_out_of_range_are_refused_with_the_range),
        cmocka_unit_test(test_open_is_full_when_all_tables_are_taken),
        cmocka_unit_test(test_growth_takes_a_block_only_when_one_is_full),
        cmocka_unit_test(test_growth_that_does_not_fit_changes_nothing_in_any_group),
        cmocka_unit_test(test_a_hit_is_whole_blocks_and_never_the_last_token),
        cmocka_unit_test(test_a_lookup_without_a_commit_is_not_counted),
        cmocka_unit_test(test_a_hit_shares_the_same_blocks),
        cmocka_unit_test(test_generated_tokens_are_found_by_the_next_turn),
        cmocka_unit_test(test_other_text_before_a_block_is_a_miss),
        cmocka_unit_test(test_another_salt_finds_nothing),
        cmocka_unit_test(test_without_a_prefix_cache_nothing_is_found_or_kept),
        cmocka_unit_test(test_a_duplicate_block_has_no_key),
        cmocka_unit_test(test_a_block_computed_again_counts_as_just_used),
        cmocka_unit_test(test_the_end_of_a_prefix_is_evicted_before_its_start),
        cmocka_unit_test(test_a_prompt_is_promised_until_it_is_computed),
        cmocka_unit_test(test_promises_end_with_their_sequence),
        cmocka_unit_test(test_a_promise_of_batch_work_is_taken_over),
        cmocka_unit_test(test_a_swapped_out_sequence_promises_nothing),
        cmocka_unit_test(test_other_text_than_promised_withdraws_the_promises),
        cmocka_unit_test(test_attaching_twice_while_empty_is_fine),
        cmocka_unit_test(test_a_shared_block_is_copied_by_the_first_writer),
        cmocka_unit_test(test_a_fork_at_a_block_boundary_copies_nothing),
        cmocka_unit_test(test_a_parent_with_room_ahead_copies_too),
        cmocka_unit_test(test_a_copy_that_does_not_fit_the_moves_changes_nothing),
        cmocka_unit_test(test_a_keyed_block_is_never_written),
        cmocka_unit_test(test_forks_in_a_full_pool_wait_and_the_last_one_needs_no_copy),
        cmocka_unit_test(test_a_child_continues_with_the_parents_keys),
        cmocka_unit_test(test_trim_releases_room_and_contents),
        cmocka_unit_test(test_a_windowed_group_releases_what_no_token_reads),
        cmocka_unit_test(test_a_hit_needs_only_the_window_of_a_windowed_group),
        cmocka_unit_test(test_a_hit_reaches_only_as_far_as_every_group),
        cmocka_unit_test(test_a_fork_one_token_back_works_at_every_length),
        cmocka_unit_test(test_a_window_of_one_token_holds_one_block),
        cmocka_unit_test(test_swapping_returns_every_move_and_frees_the_blocks),
        cmocka_unit_test(test_swaps_that_do_not_fit_change_nothing),
        cmocka_unit_test(test_without_slots_only_an_empty_sequence_is_swapped_out),
        cmocka_unit_test(test_closing_a_swapped_out_sequence_frees_its_slots),
        cmocka_unit_test(test_blocks_from_the_spill_store_get_keys_only_after_a_commit),
        cmocka_unit_test(test_kept_prefixes_outlive_their_sequence_until_their_time),
        cmocka_unit_test(test_if_not_all_blocks_can_be_kept_the_first_are),
        cmocka_unit_test(test_a_retention_hint_can_be_cancelled_before_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
