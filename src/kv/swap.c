/* kv/swap.c - moving the blocks of a sequence to the spill store and back; see kv/cache.h.
 *
 * Entry points: kv_seq_swap_out, kv_seq_swap_in.
 */
#include "kv/kv_int.h"

/* Table entries that have contents, of one group. */
static uint32_t contents_count(const struct kv_cache *c, const struct kv_seq_state *seq,
                               uint32_t group) {
    return kv_blocks_for(c, seq->computed) - seq->first[group];
}

static void move_out(struct kv_cache *c, kv_seq s, uint32_t group, struct kv_moves *moves) {
    struct kv_group *g = &c->groups[group];
    const struct kv_seq_state *seq = &c->seqs[s];
    uint32_t *table = kv_table(c, s, group);
    for (uint32_t i = kv_blocks_for(c, seq->computed); i > seq->first[group]; i--) {
        kv_block block = table[i - 1];
        uint32_t slot = g->free_slots[--g->free_slot_count];
        kv_moves_add(moves, (struct kv_move){KV_MOVE_OUT, group, block, slot});
        kv_pool_unpin(g->pool, block);
        table[i - 1] = slot;
    }
}

enum status kv_seq_swap_out(struct kv_cache *c, kv_seq s, struct kv_moves *moves) {
    struct kv_seq_state *seq = kv_resident_state(c, s);
    uint32_t total = 0;
    for (uint32_t g = 0; g < c->options.group_count; g++) {
        uint32_t count = contents_count(c, seq, g);
        if (count > c->groups[g].free_slot_count) return ST_FULL;
        total += count;
    }
    if (!kv_moves_fit(moves, total)) return ST_FULL;

    kv_promise_withdraw(c, s); /* no sequence should wait for one that does not run */
    kv_seq_trim(c, s, seq->computed);
    for (uint32_t g = 0; g < c->options.group_count; g++) move_out(c, s, g, moves);
    seq->is_swapped_out = true;
    return ST_OK;
}

static void move_in(struct kv_cache *c, kv_seq s, uint32_t group, struct kv_moves *moves) {
    struct kv_group *g = &c->groups[group];
    const struct kv_seq_state *seq = &c->seqs[s];
    uint32_t *table = kv_table(c, s, group);
    uint32_t end = kv_blocks_for(c, seq->computed);
    for (uint32_t i = seq->first[group]; i < end; i++) {
        kv_block block;
        enum status st = kv_pool_take(g->pool, 1, &block);
        CHECK(st == ST_OK); /* the caller has checked that there are enough */
        g->info[block].salt = seq->salt;
        kv_moves_add(moves, (struct kv_move){KV_MOVE_IN, group, table[i], block});
        g->free_slots[g->free_slot_count++] = table[i];
        table[i] = block;
    }
}

enum status kv_seq_swap_in(struct kv_cache *c, kv_seq s, struct kv_moves *moves) {
    struct kv_seq_state *seq = kv_open_state(c, s);
    CHECK(seq->is_swapped_out);
    uint32_t total = 0;
    for (uint32_t g = 0; g < c->options.group_count; g++) {
        uint32_t count = contents_count(c, seq, g);
        if (count > kv_pool_available(c->groups[g].pool)) return ST_FULL;
        total += count;
    }
    if (!kv_moves_fit(moves, total)) return ST_FULL;

    for (uint32_t g = 0; g < c->options.group_count; g++) move_in(c, s, g, moves);
    seq->is_swapped_out = false;
    seq->is_unpublished = true;
    return ST_OK;
}
