/* kv/grow.c - growing, committing, forking and trimming the tables of a sequence; see kv/cache.h.
 *
 * Entry points: kv_seq_need, kv_cache_available, kv_seq_grow, kv_seq_commit, kv_seq_fork,
 * kv_seq_trim.
 */
#include <string.h>

#include "kv/kv_int.h"

/* ---- growing ---- */

/* Is position `computed` in a block that already has contents? */
static bool continues_block(const struct kv_cache *c, const struct kv_seq_state *seq) {
    return seq->computed % c->options.block_tokens != 0;
}

/* Must the block that is written next be copied because other sequences hold it too? */
static bool must_copy(const struct kv_cache *c, kv_seq s, uint32_t group) {
    const struct kv_seq_state *seq = &c->seqs[s];
    if (!continues_block(c, seq)) return false;
    kv_block block = kv_table(c, s, group)[seq->computed / c->options.block_tokens];
    return kv_pool_refs(c->groups[group].pool, block) > 1;
}

static uint32_t group_need(const struct kv_cache *c, kv_seq s, uint32_t group, uint32_t tokens) {
    const struct kv_seq_state *seq = &c->seqs[s];
    if (seq->is_swapped_out) {
        uint32_t most = tokens > seq->room ? tokens : seq->room;
        return kv_blocks_for(c, most) - seq->first[group];
    }
    if (tokens <= seq->computed) return 0;
    uint32_t have = kv_blocks_for(c, seq->room), want = kv_blocks_for(c, tokens);
    return (want > have ? want - have : 0) + must_copy(c, s, group);
}

uint32_t kv_seq_need(const struct kv_cache *c, kv_seq s, uint32_t tokens) {
    kv_open_state(c, s);
    uint32_t most = 0;
    for (uint32_t g = 0; g < c->options.group_count; g++) {
        uint32_t need = group_need(c, s, g, tokens);
        if (need > most) most = need;
    }
    return most;
}

uint32_t kv_cache_available(const struct kv_cache *c) {
    uint32_t least = UINT32_MAX;
    for (uint32_t g = 0; g < c->options.group_count; g++) {
        uint32_t available = kv_pool_available(c->groups[g].pool);
        if (available < least) least = available;
    }
    return least;
}

static void take_blocks(struct kv_cache *c, kv_seq s, uint32_t group, uint32_t count,
                        uint32_t *out) {
    struct kv_group *g = &c->groups[group];
    enum status st = kv_pool_take(g->pool, count, out);
    CHECK(st == ST_OK); /* the caller has checked that there are enough */
    for (uint32_t i = 0; i < count; i++) g->info[out[i]].salt = c->seqs[s].salt;
}

/* Prepare the block that is written next: copy it if it is shared, remove it from the index. */
static void make_writable(struct kv_cache *c, kv_seq s, uint32_t group, struct kv_moves *moves) {
    struct kv_group *g = &c->groups[group];
    uint32_t *entry = &kv_table(c, s, group)[c->seqs[s].computed / c->options.block_tokens];
    if (must_copy(c, s, group)) {
        kv_block old = *entry;
        take_blocks(c, s, group, 1, entry);
        kv_moves_add(moves, (struct kv_move){KV_MOVE_COPY, group, old, *entry});
        kv_pool_unpin(g->pool, old);
    } else if (kv_pool_is_keyed(g->pool, *entry)) {
        kv_unpublish(g, *entry);
    }
}

enum status kv_seq_grow(struct kv_cache *c, kv_seq s, uint32_t tokens, struct kv_moves *moves) {
    struct kv_seq_state *seq = kv_resident_state(c, s);
    CHECK(tokens <= c->options.tokens_max);
    if (tokens <= seq->computed) return ST_OK;

    uint32_t copies = 0;
    for (uint32_t g = 0; g < c->options.group_count; g++) {
        if (group_need(c, s, g, tokens) > kv_pool_available(c->groups[g].pool)) return ST_FULL;
        copies += must_copy(c, s, g);
    }
    if (!kv_moves_fit(moves, copies)) return ST_FULL;

    uint32_t have = kv_blocks_for(c, seq->room), want = kv_blocks_for(c, tokens);
    for (uint32_t g = 0; g < c->options.group_count; g++) {
        if (continues_block(c, seq)) make_writable(c, s, g, moves);
        if (want > have) take_blocks(c, s, g, want - have, kv_table(c, s, g) + have);
    }
    if (tokens > seq->room) seq->room = tokens;
    return ST_OK;
}

/* ---- contents ---- */

static void key_block(struct kv_cache *c, kv_seq s, uint32_t i, const int32_t *tokens) {
    struct kv_key *keys = kv_keys(c, s);
    struct kv_key key = kv_key_at(c, c->seqs[s].salt, keys, tokens, i);
    kv_promise_fulfil(c, s, i, key);
    keys[i] = key;
    for (uint32_t g = 0; g < c->options.group_count; g++)
        kv_publish(&c->groups[g], kv_table(c, s, g)[i], key);
}

/* Release blocks that no later token reads. The last computed token may be computed again, after a
 * fork or a trim, so its blocks stay. */
static void release_unread(struct kv_cache *c, kv_seq s, uint32_t group) {
    struct kv_seq_state *seq = &c->seqs[s];
    if (c->groups[group].window == 0 || seq->computed == 0) return;
    uint32_t first = kv_window_first(c, group, seq->computed - 1);
    if (first <= seq->first[group]) return;
    kv_release(c, s, group, seq->first[group], first);
    seq->first[group] = first;
}

/* Blocks that were swapped in get their keys only at the next commit: it shows that the device has
 * done the moves, which a failed step would not have done. */
static void publish_returned(struct kv_cache *c, kv_seq s, uint32_t group) {
    struct kv_group *g = &c->groups[group];
    const uint32_t *table = kv_table(c, s, group);
    uint32_t full = c->seqs[s].computed / c->options.block_tokens;
    for (uint32_t i = c->seqs[s].first[group]; i < full; i++)
        if (!kv_pool_is_keyed(g->pool, table[i])) kv_publish(g, table[i], kv_keys(c, s)[i]);
}

static void publish_full(struct kv_cache *c, kv_seq s, const int32_t *tokens, uint32_t computed) {
    struct kv_seq_state *seq = &c->seqs[s];
    if (seq->is_unpublished)
        for (uint32_t g = 0; g < c->options.group_count; g++) publish_returned(c, s, g);
    seq->is_unpublished = false;
    uint32_t full = computed / c->options.block_tokens;
    for (uint32_t i = seq->computed / c->options.block_tokens; i < full; i++)
        key_block(c, s, i, tokens);
}

/* Look-ups are counted at the first commit: a sequence that was attached and closed again because
 * memory was short has used nothing. */
static void count_lookup(struct kv_cache *c, struct kv_seq_state *seq) {
    if (seq->looked_up == 0) return;
    c->lookup_tokens += seq->looked_up;
    c->hit_tokens += seq->computed;
    seq->looked_up = 0;
}

void kv_seq_commit(struct kv_cache *c, kv_seq s, const int32_t *tokens, uint32_t computed) {
    struct kv_seq_state *seq = kv_resident_state(c, s);
    CHECK(computed >= seq->computed);
    CHECK(computed <= seq->room);
    count_lookup(c, seq);
    if (c->options.prefix_cache) publish_full(c, s, tokens, computed);
    seq->computed = computed;
    for (uint32_t g = 0; g < c->options.group_count; g++) release_unread(c, s, g);
}

/* ---- forking and trimming ---- */

/* Does a windowed group still have what the token at position `next` reads? */
static bool reaches_back(const struct kv_cache *c, const struct kv_seq_state *seq, uint32_t next) {
    for (uint32_t g = 0; g < c->options.group_count; g++)
        if (seq->first[g] > kv_window_first(c, g, next)) return false;
    return true;
}

static void share_table(struct kv_cache *c, kv_seq from, kv_seq to, uint32_t group,
                        uint32_t blocks) {
    const uint32_t *source = kv_table(c, from, group);
    uint32_t first = c->seqs[from].first[group];
    memcpy(kv_table(c, to, group), source, (size_t)blocks * sizeof(source[0]));
    for (uint32_t i = first; i < blocks; i++) kv_pool_pin(c->groups[group].pool, source[i]);
    c->seqs[to].first[group] = first;
}

enum status kv_seq_fork(struct kv_cache *c, kv_seq parent, uint32_t tokens, kv_seq *out) {
    const struct kv_seq_state *from = kv_resident_state(c, parent);
    CHECK(tokens <= from->computed);
    CHECK(tokens == 0 || reaches_back(c, from, tokens));
    TRY(kv_seq_open(c, from->salt, out));
    if (tokens == 0) return ST_OK;

    for (uint32_t g = 0; g < c->options.group_count; g++)
        share_table(c, parent, *out, g, kv_blocks_for(c, tokens));
    if (c->options.prefix_cache)
        memcpy(kv_keys(c, *out), kv_keys(c, parent),
               tokens / c->options.block_tokens * sizeof(struct kv_key));
    c->seqs[*out].computed = c->seqs[*out].room = tokens;
    return ST_OK;
}

void kv_seq_trim(struct kv_cache *c, kv_seq s, uint32_t tokens) {
    struct kv_seq_state *seq = kv_resident_state(c, s);
    CHECK(tokens <= seq->room);
    CHECK(tokens == 0 || tokens >= seq->computed || reaches_back(c, seq, tokens));
    uint32_t blocks = kv_blocks_for(c, tokens);
    for (uint32_t g = 0; g < c->options.group_count; g++) {
        uint32_t from = blocks > seq->first[g] ? blocks : seq->first[g];
        kv_release(c, s, g, from, kv_blocks_for(c, seq->room));
        if (tokens == 0) seq->first[g] = 0;
    }
    seq->room = tokens;
    if (tokens >= seq->computed) return;
    seq->computed = tokens;
    kv_promise_withdraw(c, s); /* the text that follows may be another */
}
