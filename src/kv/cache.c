/* kv/cache.c - creating the cache, opening and closing sequences; see kv/cache.h.
 *
 * Entry points: kv_cache_create, kv_cache_destroy, kv_seq_open, kv_seq_close, kv_seq_keep,
 * kv_cache_expire, kv_seq_table, kv_seq_tokens, kv_cache_stats.
 */
#include "base/mem.h"
#include "kv/kv_int.h"

/* ---- the cache ---- */

static void forget_evicted(void *ctx, kv_block block) {
    struct kv_group *g = ctx;
    if (g->index) kv_prefix_remove(g->index, g->info[block].key);
    g->evicted++;
}

static enum status check_options(const struct kv_cache_options *o, struct err *err) {
    if (o->block_tokens == 0) return err_set(err, ST_BAD, "kv: a block needs at least 1 token");
    if (o->group_count == 0 || o->group_count > KV_CACHE_GROUPS_MAX)
        return err_set(err, ST_BAD, "kv: %u groups, expected 1 to %d", o->group_count,
                       KV_CACHE_GROUPS_MAX);
    if (o->seq_max == 0 || o->seq_max > INT32_MAX)
        return err_set(err, ST_BAD, "kv: %u sequences, expected 1 to %d", o->seq_max, INT32_MAX);
    if (o->tokens_max == 0 || o->tokens_max > INT32_MAX)
        return err_set(err, ST_BAD, "kv: sequences of %u tokens, expected 1 to %d", o->tokens_max,
                       INT32_MAX);
    for (uint32_t g = 0; g < o->group_count; g++)
        if (o->groups[g].block_count == 0 || o->groups[g].block_count > INT32_MAX)
            return err_set(err, ST_BAD, "kv: group %u has %u blocks, expected 1 to %d", g,
                           o->groups[g].block_count, INT32_MAX);
    return ST_OK;
}

static enum status create_group(struct kv_cache *c, uint32_t group) {
    struct kv_group *g = &c->groups[group];
    g->block_count = c->options.groups[group].block_count;
    g->window = c->options.groups[group].window;
    g->slot_count = c->options.spill_slots;
    uint32_t asked = c->options.prefix_blocks;
    uint32_t spread_max = asked > 0 && asked < g->block_count ? asked : g->block_count;
    TRY(kv_pool_create(&g->pool, g->block_count, spread_max, forget_evicted, g));
    if (c->options.prefix_cache) TRY(kv_prefix_create(&g->index, g->block_count));
    g->info = mem_zalloc_array(g->block_count, sizeof(g->info[0]));
    g->seen_blocks = mem_alloc_array(g->block_count, sizeof(g->seen_blocks[0]));
    if (!g->info || !g->seen_blocks) return ST_NOMEM;
    if (g->slot_count == 0) return ST_OK;

    g->free_slots = mem_alloc_array(g->slot_count, sizeof(g->free_slots[0]));
    g->seen_slots = mem_alloc_array(g->slot_count, sizeof(g->seen_slots[0]));
    if (!g->free_slots || !g->seen_slots) return ST_NOMEM;
    for (uint32_t i = 0; i < g->slot_count; i++) g->free_slots[i] = g->slot_count - 1 - i;
    g->free_slot_count = g->slot_count;
    return ST_OK;
}

static enum status create_seqs(struct kv_cache *c) {
    size_t seq_max = c->options.seq_max;
    c->seqs = mem_zalloc_array(seq_max, sizeof(c->seqs[0]));
    c->free_seqs = mem_alloc_array(seq_max, sizeof(c->free_seqs[0]));
    c->tables = mem_alloc_array(seq_max * c->options.group_count,
                                (size_t)c->blocks_max * sizeof(c->tables[0]));
    if (!c->seqs || !c->free_seqs || !c->tables) return ST_NOMEM;
    for (uint32_t i = 0; i < seq_max; i++) c->free_seqs[i] = (kv_seq)seq_max - 1 - i;
    c->free_seq_count = c->options.seq_max;
    return ST_OK;
}

/* A running sequence has blocks for what it promises, so there are at most as many useful promises
 * as blocks in the largest pool; further promises are not made. */
static enum status create_keys(struct kv_cache *c) {
    uint32_t promise_max = 0;
    for (uint32_t g = 0; g < c->options.group_count; g++)
        if (c->groups[g].block_count > promise_max) promise_max = c->groups[g].block_count;
    TRY(kv_prefix_create(&c->promises, promise_max));
    size_t seq_bytes = (size_t)c->blocks_max * sizeof(c->keys[0]);
    c->keys = mem_alloc_array(c->options.seq_max, seq_bytes);
    c->match_keys = mem_alloc(seq_bytes);
    c->key_scratch = mem_alloc(kv_key_scratch_bytes(c->options.block_tokens));
    return c->keys && c->match_keys && c->key_scratch ? ST_OK : ST_NOMEM;
}

static enum status create_parts(struct kv_cache *c) {
    for (uint32_t g = 0; g < c->options.group_count; g++) TRY(create_group(c, g));
    TRY(create_seqs(c));
    return c->options.prefix_cache ? create_keys(c) : ST_OK;
}

enum status kv_cache_create(struct kv_cache **out, const struct kv_cache_options *options,
                            struct err *err) {
    TRY(check_options(options, err));
    struct kv_cache *c = mem_zalloc(sizeof(*c));
    if (!c) return err_set(err, ST_NOMEM, "kv: out of memory for the cache");
    c->options = *options;
    c->blocks_max = kv_blocks_for(c, options->tokens_max);
    if (create_parts(c) != ST_OK) {
        kv_cache_destroy(c);
        return err_set(err, ST_NOMEM, "kv: out of memory for tables of %u sequences of %u tokens",
                       options->seq_max, options->tokens_max);
    }
    *out = c;
    return ST_OK;
}

void kv_cache_destroy(struct kv_cache *c) {
    if (!c) return;
    mem_free(c->key_scratch);
    mem_free(c->match_keys);
    mem_free(c->keys);
    kv_prefix_destroy(c->promises);
    mem_free(c->tables);
    mem_free(c->free_seqs);
    mem_free(c->seqs);
    for (uint32_t i = 0; i < c->options.group_count; i++) {
        struct kv_group *g = &c->groups[i];
        mem_free(g->seen_slots);
        mem_free(g->free_slots);
        mem_free(g->seen_blocks);
        mem_free(g->info);
        kv_prefix_destroy(g->index);
        kv_pool_destroy(g->pool);
    }
    mem_free(c);
}

/* ---- what the other files share ---- */

struct kv_seq_state *kv_open_state(const struct kv_cache *c, kv_seq s) {
    CHECK(s < c->options.seq_max);
    CHECK(c->seqs[s].is_open);
    return &c->seqs[s];
}

struct kv_seq_state *kv_resident_state(const struct kv_cache *c, kv_seq s) {
    struct kv_seq_state *seq = kv_open_state(c, s);
    CHECK(!seq->is_swapped_out);
    return seq;
}

struct kv_key kv_key_at(const struct kv_cache *c, struct kv_salt salt, const struct kv_key *keys,
                        const int32_t *tokens, uint32_t i) {
    const struct kv_cache_options *o = &c->options;
    struct kv_key before = i == 0 ? kv_key_root(o->secret, o->identity, salt) : keys[i - 1];
    return kv_key_next(o->secret, before, tokens + (size_t)i * o->block_tokens, o->block_tokens,
                       c->key_scratch);
}

void kv_publish(struct kv_group *g, kv_block block, struct kv_key key) {
    CHECK(!kv_pool_is_keyed(g->pool, block));
    if (kv_prefix_put(g->index, key, block)) {
        g->info[block].key = key;
        kv_pool_mark_keyed(g->pool, block);
    } else {
        kv_block duplicate = kv_prefix_find(g->index, key);
        kv_pool_pin(g->pool, duplicate); /* it counts as just used */
        kv_pool_unpin(g->pool, duplicate);
    }
}

void kv_unpublish(struct kv_group *g, kv_block block) {
    kv_prefix_remove(g->index, g->info[block].key);
    kv_pool_unmark_keyed(g->pool, block);
}

void kv_release(struct kv_cache *c, kv_seq s, uint32_t group, uint32_t from, uint32_t end) {
    uint32_t *table = kv_table(c, s, group);
    for (uint32_t i = end; i > from; i--) {
        kv_pool_unpin(c->groups[group].pool, table[i - 1]);
        table[i - 1] = KV_RELEASED;
    }
}

bool kv_moves_fit(const struct kv_moves *moves, uint32_t count) {
    return count == 0 || (moves && count <= moves->cap - moves->count);
}

void kv_moves_add(struct kv_moves *moves, struct kv_move move) {
    CHECK(moves->count < moves->cap);
    moves->list[moves->count++] = move;
}

/* ---- sequences ---- */

enum status kv_seq_open(struct kv_cache *c, struct kv_salt salt, kv_seq *out) {
    if (c->free_seq_count == 0) return ST_FULL;
    kv_seq s = c->free_seqs[--c->free_seq_count];
    CHECK(!c->seqs[s].is_open);
    c->seqs[s] = (struct kv_seq_state){.is_open = true, .salt = salt};
    *out = s;
    return ST_OK;
}

void kv_seq_mark_batch(struct kv_cache *c, kv_seq s) { kv_open_state(c, s)->is_batch = true; }

/* Keep the keyed blocks when they are unpinned, as many as allowed, from the first on: the start of
 * a prefix can be used without its end. */
static void keep_blocks(struct kv_cache *c, kv_seq s, uint32_t group) {
    const struct kv_seq_state *seq = &c->seqs[s];
    struct kv_pool *pool = c->groups[group].pool;
    const uint32_t *table = kv_table(c, s, group);
    uint32_t room = kv_pool_keep_room(pool), full = seq->computed / c->options.block_tokens;
    for (uint32_t i = seq->first[group]; i < full && room > 0; i++) {
        if (!kv_pool_is_keyed(pool, table[i])) continue;
        kv_pool_keep(pool, table[i], seq->keep_until_us);
        room--;
    }
}

static void free_spill_slots(struct kv_cache *c, kv_seq s, uint32_t group) {
    struct kv_group *g = &c->groups[group];
    const uint32_t *table = kv_table(c, s, group);
    uint32_t end = kv_blocks_for(c, c->seqs[s].room);
    for (uint32_t i = c->seqs[s].first[group]; i < end; i++)
        g->free_slots[g->free_slot_count++] = table[i];
}

void kv_seq_close(struct kv_cache *c, kv_seq s) {
    struct kv_seq_state *seq = kv_open_state(c, s);
    kv_promise_withdraw(c, s);
    for (uint32_t g = 0; g < c->options.group_count; g++) {
        if (seq->is_swapped_out) {
            free_spill_slots(c, s, g);
            continue;
        }
        if (seq->keep_until_us != 0) keep_blocks(c, s, g);
        kv_release(c, s, g, seq->first[g], kv_blocks_for(c, seq->room));
    }
    seq->is_open = false;
    c->free_seqs[c->free_seq_count++] = s;
}

void kv_seq_keep(struct kv_cache *c, kv_seq s, int64_t until_us) {
    CHECK(until_us >= 0);
    kv_open_state(c, s)->keep_until_us = until_us;
}

void kv_cache_expire(struct kv_cache *c, int64_t now_us) {
    for (uint32_t g = 0; g < c->options.group_count; g++) kv_pool_expire(c->groups[g].pool, now_us);
}

/* ---- statistics ---- */

const uint32_t *kv_seq_table(const struct kv_cache *c, kv_seq s, uint32_t group) {
    CHECK(group < c->options.group_count);
    kv_resident_state(c, s);
    return kv_table(c, s, group);
}

uint32_t kv_seq_tokens(const struct kv_cache *c, kv_seq s) { return kv_open_state(c, s)->room; }

bool kv_seq_is_swapped_out(const struct kv_cache *c, kv_seq s) {
    return kv_open_state(c, s)->is_swapped_out;
}

uint32_t kv_cache_held(const struct kv_cache *c) {
    return kv_pool_stats(c->groups[0].pool).held_count;
}

uint32_t kv_cache_shared(const struct kv_cache *c) { return kv_pool_shared(c->groups[0].pool); }

void kv_cache_states(const struct kv_cache *c, uint8_t *out) {
    const struct kv_pool *pool = c->groups[0].pool;
    struct kv_pool_stats n = kv_pool_stats(pool);
    uint32_t count = n.free_count + n.held_count + n.cached_count + n.kept_count;
    for (kv_block b = 0; b < count; b++) out[b] = (uint8_t)kv_pool_state(pool, b);
}

struct kv_cache_stats kv_cache_stats(const struct kv_cache *c) {
    struct kv_cache_stats stats = {.lookup_tokens = c->lookup_tokens, .hit_tokens = c->hit_tokens};
    for (uint32_t i = 0; i < c->options.group_count; i++) {
        const struct kv_group *g = &c->groups[i];
        stats.groups[i] = kv_pool_stats(g->pool);
        stats.spilled_blocks += g->slot_count - g->free_slot_count;
        stats.evicted_blocks += g->evicted;
    }
    return stats;
}
