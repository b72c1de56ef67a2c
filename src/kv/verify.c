/* kv/verify.c - CHECKs every invariant of the cache; see kv/cache.h and the folder's README. */
#include <string.h>

#include "kv/kv_int.h"

/* I1, I5: the blocks of the sequence exist and have its salt. */
static void count_blocks(const struct kv_cache *c, kv_seq s, uint32_t group) {
    const struct kv_group *g = &c->groups[group];
    const struct kv_seq_state *seq = &c->seqs[s];
    const uint32_t *table = kv_table(c, s, group);
    uint32_t end = kv_blocks_for(c, seq->room), full = seq->computed / c->options.block_tokens;
    for (uint32_t i = 0; i < seq->first[group]; i++) CHECK(table[i] == KV_RELEASED);
    for (uint32_t i = seq->first[group]; i < end; i++) {
        kv_block block = table[i];
        CHECK(block < g->block_count);
        CHECK(kv_salt_eq(g->info[block].salt, seq->salt));
        if (i < full && kv_pool_is_keyed(g->pool, block))
            CHECK(kv_key_eq(g->info[block].key, kv_keys(c, s)[i]));
        if (i >= kv_blocks_for(c, seq->computed)) { /* without contents, so it is not shared */
            CHECK(kv_pool_refs(g->pool, block) == 1);
            CHECK(!kv_pool_is_keyed(g->pool, block));
        }
        g->seen_blocks[block]++;
    }
}

/* I6: a slot belongs to one sequence. */
static void count_slots(const struct kv_cache *c, kv_seq s, uint32_t group) {
    const struct kv_group *g = &c->groups[group];
    const uint32_t *table = kv_table(c, s, group);
    uint32_t end = kv_blocks_for(c, c->seqs[s].room);
    for (uint32_t i = c->seqs[s].first[group]; i < end; i++) {
        CHECK(table[i] < g->slot_count);
        CHECK(g->seen_slots[table[i]]++ == 0);
    }
}

static void verify_group(const struct kv_cache *c, uint32_t group) {
    const struct kv_group *g = &c->groups[group];
    memset(g->seen_blocks, 0, g->block_count * sizeof(g->seen_blocks[0]));
    if (g->slot_count) memset(g->seen_slots, 0, g->slot_count * sizeof(g->seen_slots[0]));
    for (kv_seq s = 0; s < c->options.seq_max; s++) {
        if (!c->seqs[s].is_open) continue;
        if (c->seqs[s].is_swapped_out)
            count_slots(c, s, group);
        else
            count_blocks(c, s, group);
    }
    kv_pool_verify(g->pool);
    for (kv_block b = 0; b < g->block_count; b++)
        CHECK(kv_pool_refs(g->pool, b) == g->seen_blocks[b]);

    for (uint32_t i = 0; i < g->free_slot_count; i++) {
        CHECK(g->free_slots[i] < g->slot_count);
        CHECK(g->seen_slots[g->free_slots[i]]++ == 0);
    }
    for (uint32_t i = 0; i < g->slot_count; i++) CHECK(g->seen_slots[i] == 1);
    struct kv_pool_stats n = kv_pool_stats(g->pool);
    CHECK(n.free_count + n.held_count + n.cached_count + n.kept_count == g->block_count);
}

/* I2: as many keys as keyed blocks, and each keyed block is found by its key, so each key finds
 * its block. */
static void verify_index(const struct kv_group *g) {
    uint32_t keyed = 0;
    for (kv_block b = 0; b < g->block_count; b++) {
        if (!kv_pool_is_keyed(g->pool, b)) continue;
        CHECK(g->index);
        CHECK(kv_prefix_find(g->index, g->info[b].key) == b);
        keyed++;
    }
    if (!g->index) return;
    kv_prefix_verify(g->index);
    CHECK(kv_prefix_count(g->index) == keyed);
}

/* I4: every promise belongs to an open, resident sequence and to a block that it has not
 * computed. */
static void verify_promises(const struct kv_cache *c) {
    uint32_t made = 0;
    for (kv_seq s = 0; s < c->options.seq_max; s++) {
        const struct kv_seq_state *seq = &c->seqs[s];
        if (!seq->is_open || seq->promised_first == seq->promised_end) continue;
        CHECK(!seq->is_swapped_out);
        CHECK(seq->promised_first >= seq->computed / c->options.block_tokens);
        for (uint32_t i = seq->promised_first; i < seq->promised_end; i++)
            made += kv_prefix_find(c->promises, kv_keys(c, s)[i]) == s;
    }
    kv_prefix_verify(c->promises);
    CHECK(kv_prefix_count(c->promises) == made);
}

static void verify_seqs(const struct kv_cache *c) {
    uint32_t open = 0;
    for (kv_seq s = 0; s < c->options.seq_max; s++) {
        if (!c->seqs[s].is_open) continue;
        CHECK(c->seqs[s].computed <= c->seqs[s].room);
        CHECK(c->seqs[s].room <= c->options.tokens_max);
        open++;
    }
    CHECK(open + c->free_seq_count == c->options.seq_max);
    for (uint32_t i = 0; i < c->free_seq_count; i++) CHECK(!c->seqs[c->free_seqs[i]].is_open);
}

void kv_cache_verify(const struct kv_cache *c) {
    verify_seqs(c);
    for (uint32_t g = 0; g < c->options.group_count; g++) {
        verify_group(c, g);
        verify_index(&c->groups[g]);
    }
    if (c->options.prefix_cache) verify_promises(c);
}
