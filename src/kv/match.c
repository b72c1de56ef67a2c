/* kv/match.c - finding, taking and promising prefixes; see kv/cache.h.
 *
 * Entry points: kv_cache_match, kv_seq_attach.
 *
 * The chain of keys is followed from the first block on. A full group ends the search at its first
 * miss. A windowed group may have gaps: it can serve a hit of n blocks if it has all blocks that
 * the next token reads, up to block n - 1.
 */
#include "kv/kv_int.h"

/* ---- promises ---- */

/* A key that only batch work has promised. */
static bool is_batch_promise(const struct kv_cache *c, struct kv_key key) {
    uint32_t by = kv_prefix_find(c->promises, key);
    return by != KV_PREFIX_NONE && c->seqs[by].is_batch;
}

void kv_promise(struct kv_cache *c, kv_seq s, uint32_t first, uint32_t end) {
    const struct kv_key *keys = kv_keys(c, s);
    for (uint32_t i = first; i < end; i++) {
        if (kv_prefix_put(c->promises, keys[i], s)) continue;
        if (c->seqs[s].is_batch || !is_batch_promise(c, keys[i])) continue;
        kv_prefix_remove(c->promises, keys[i]);
        kv_prefix_put(c->promises, keys[i], s);
    }
    c->seqs[s].promised_first = first;
    c->seqs[s].promised_end = end;
}

/* Another sequence may have promised the key first; its promise stays. */
static void drop_promise(struct kv_cache *c, kv_seq s, struct kv_key key) {
    if (kv_prefix_find(c->promises, key) == s) kv_prefix_remove(c->promises, key);
}

void kv_promise_withdraw(struct kv_cache *c, kv_seq s) {
    struct kv_seq_state *seq = &c->seqs[s];
    for (uint32_t i = seq->promised_first; i < seq->promised_end; i++)
        drop_promise(c, s, kv_keys(c, s)[i]);
    seq->promised_first = seq->promised_end = 0;
}

void kv_promise_fulfil(struct kv_cache *c, kv_seq s, uint32_t block_idx, struct kv_key key) {
    struct kv_seq_state *seq = &c->seqs[s];
    if (block_idx < seq->promised_first || block_idx >= seq->promised_end) return;
    if (!kv_key_eq(kv_keys(c, s)[block_idx], key)) { /* the text differs from the promised one */
        kv_promise_withdraw(c, s);
        return;
    }
    drop_promise(c, s, key);
    seq->promised_first = block_idx + 1;
}

/* ---- looking up ---- */

/* The block of `key`, if it has this salt. */
static uint32_t find_block(const struct kv_group *g, struct kv_salt salt, struct kv_key key) {
    uint32_t block = kv_prefix_find(g->index, key);
    bool is_own = block != KV_PREFIX_NONE && kv_salt_eq(g->info[block].salt, salt);
    return is_own ? block : KV_PREFIX_NONE;
}

/* Update since[g], the first block from which on group g has all blocks up to `i` (i + 1: it has no
 * block i). False: no longer prefix can be served. */
static bool look_up_block(const struct kv_cache *c, struct kv_salt salt, struct kv_key key,
                          uint32_t i, uint32_t *since) {
    for (uint32_t g = 0; g < c->options.group_count; g++) {
        if (find_block(&c->groups[g], salt, key) != KV_PREFIX_NONE) continue;
        if (c->groups[g].window == 0) return false;
        since[g] = i + 1;
    }
    return true;
}

/* Can every group serve the token that follows `blocks` blocks? */
static bool all_groups_reach(const struct kv_cache *c, uint32_t blocks, const uint32_t *since) {
    uint32_t next = blocks * c->options.block_tokens;
    for (uint32_t g = 0; g < c->options.group_count; g++)
        if (since[g] > kv_window_first(c, g, next)) return false;
    return true;
}

/* How many of the first `limit` blocks of `tokens` can be served. Writes the keys it has computed:
 * at least as many as it returns, and one more if that is below `limit`. */
static uint32_t find_hit(const struct kv_cache *c, struct kv_salt salt, const int32_t *tokens,
                         uint32_t limit, struct kv_key *keys) {
    uint32_t since[KV_CACHE_GROUPS_MAX] = {0};
    uint32_t hit = 0;
    for (uint32_t i = 0; i < limit; i++) {
        keys[i] = kv_key_at(c, salt, keys, tokens, i);
        if (!look_up_block(c, salt, keys[i], i, since)) break;
        if (all_groups_reach(c, i + 1, since)) hit = i + 1;
    }
    return hit;
}

/* The longest possible hit, in blocks: full blocks without the last token. */
static uint32_t hit_limit(const struct kv_cache *c, uint32_t count) {
    uint32_t limit = count == 0 ? 0 : (count - 1) / c->options.block_tokens;
    return limit < c->blocks_max ? limit : c->blocks_max;
}

struct kv_match kv_cache_match(const struct kv_cache *c, struct kv_salt salt, const int32_t *tokens,
                               uint32_t count) {
    struct kv_match match = {0};
    if (!c->options.prefix_cache) return match;
    uint32_t limit = hit_limit(c, count);
    uint32_t hit = find_hit(c, salt, tokens, limit, c->match_keys);
    match.tokens = hit * c->options.block_tokens;
    if (hit < limit) {
        kv_seq by = kv_prefix_find(c->promises, c->match_keys[hit]);
        match.is_promised = by != KV_PREFIX_NONE && kv_salt_eq(c->seqs[by].salt, salt);
        match.is_batch_promise = match.is_promised && c->seqs[by].is_batch;
    }
    return match;
}

/* ---- taking ---- */

static void pin_hit(struct kv_cache *c, kv_seq s, uint32_t group, uint32_t hit) {
    struct kv_group *g = &c->groups[group];
    struct kv_seq_state *seq = &c->seqs[s];
    uint32_t *table = kv_table(c, s, group);
    uint32_t first = kv_window_first(c, group, hit * c->options.block_tokens);
    for (uint32_t i = 0; i < first; i++) table[i] = KV_RELEASED;
    for (uint32_t i = first; i < hit; i++) {
        table[i] = find_block(g, seq->salt, kv_keys(c, s)[i]);
        CHECK(table[i] != KV_PREFIX_NONE);
        kv_pool_pin(g->pool, table[i]);
    }
    seq->first[group] = first;
}

uint32_t kv_seq_attach(struct kv_cache *c, kv_seq s, const int32_t *tokens, uint32_t count) {
    struct kv_seq_state *seq = kv_resident_state(c, s);
    CHECK(seq->room == 0);
    CHECK(count <= c->options.tokens_max);
    if (!c->options.prefix_cache) return 0;

    kv_promise_withdraw(c, s); /* of an earlier attach that found nothing */
    struct kv_key *keys = kv_keys(c, s);
    uint32_t block_tokens = c->options.block_tokens, full = count / block_tokens;
    uint32_t hit = find_hit(c, seq->salt, tokens, hit_limit(c, count), keys);
    for (uint32_t g = 0; g < c->options.group_count; g++) pin_hit(c, s, g, hit);
    seq->computed = seq->room = hit * block_tokens;
    seq->looked_up = count;

    for (uint32_t i = hit; i < full; i++) keys[i] = kv_key_at(c, seq->salt, keys, tokens, i);
    kv_promise(c, s, hit, full);
    return seq->computed;
}
