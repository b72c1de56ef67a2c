/* kv/kv_int.h - what the files of the cache share.
 *
 *     cache.c   create and destroy the cache, open and close sequences, retention, statistics
 *     grow.c    need, grow, commit, fork, trim: how tables change
 *     match.c   match, attach, promises: how prefixes are found
 *     swap.c    to the spill store and back
 *     verify.c  every invariant
 *
 * A sequence's tables cover its `room`; of that, positions below `computed` have contents.
 * Shared or keyed blocks therefore lie below `computed`, and the only one of them that can be
 * written next is the one that position `computed` falls into.
 */
#ifndef KV_KV_INT_H
#define KV_KV_INT_H

#include "base/check.h"
#include "kv/cache.h"
#include "kv/prefix.h"

#define KV_RELEASED UINT32_MAX /* a table entry that no later token can read */

/* What the cache stores for a block besides its state in the pool. */
struct kv_block_info {
    struct kv_key key;   /* if it is keyed */
    struct kv_salt salt; /* of the sequence that took it; only those with the same salt share it */
};

struct kv_group {
    uint32_t block_count, window;
    uint32_t slot_count; /* spill slots; in src/kv every slot is one */
    struct kv_pool *pool;
    struct kv_prefix *index;    /* key -> block; NULL without a prefix cache */
    struct kv_block_info *info; /* one per block */
    uint32_t *free_slots;       /* a stack */
    uint32_t free_slot_count;
    uint64_t evicted;
    uint32_t *seen_blocks, *seen_slots; /* for verify, which may not allocate */
};

struct kv_seq_state {
    bool is_open, is_swapped_out; /* out: the tables hold spill slots */
    bool is_unpublished;          /* swapped in, and nothing committed since */
    bool is_batch;                /* its promises are weaker than those of others */
    struct kv_salt salt;
    uint32_t computed, room; /* positions; computed <= room */
    uint32_t looked_up;      /* tokens that attach looked up; the first commit counts them */
    uint32_t promised_first, promised_end; /* blocks whose keys it may have promised */
    int64_t keep_until_us;                 /* retention hint; 0: none */
    uint32_t first[KV_CACHE_GROUPS_MAX];   /* table entries below it are KV_RELEASED */
};

struct kv_cache {
    struct kv_cache_options options;
    uint32_t blocks_max; /* of one sequence and group */
    struct kv_group groups[KV_CACHE_GROUPS_MAX];
    struct kv_seq_state *seqs;
    kv_seq *free_seqs; /* a stack */
    uint32_t free_seq_count;
    uint32_t *tables; /* [seq_max][group_count][blocks_max] */

    /* With a prefix cache only: */
    struct kv_prefix *promises; /* key -> sequence */
    struct kv_key *keys;        /* [seq_max][blocks_max], of full blocks and of promised ones */
    struct kv_key *match_keys;  /* [blocks_max], of the text that is being looked up */
    uint8_t *key_scratch;
    uint64_t lookup_tokens, hit_tokens;
};

/* Blocks that hold `tokens` positions. */
static inline uint32_t kv_blocks_for(const struct kv_cache *c, uint32_t tokens) {
    return tokens / c->options.block_tokens + (tokens % c->options.block_tokens != 0);
}

/* The first block that the token at position `next` reads; it reads itself and window - 1 back. */
static inline uint32_t kv_window_first(const struct kv_cache *c, uint32_t group, uint32_t next) {
    uint32_t window = c->groups[group].window;
    return window > 0 && next >= window ? (next + 1 - window) / c->options.block_tokens : 0;
}

static inline uint32_t *kv_table(const struct kv_cache *c, kv_seq s, uint32_t group) {
    return &c->tables[((size_t)s * c->options.group_count + group) * c->blocks_max];
}

static inline struct kv_key *kv_keys(const struct kv_cache *c, kv_seq s) {
    return &c->keys[(size_t)s * c->blocks_max];
}

/* The state of an open sequence; of one that is open and not swapped out. CHECKs that it is. */
struct kv_seq_state *kv_open_state(const struct kv_cache *c, kv_seq s);
struct kv_seq_state *kv_resident_state(const struct kv_cache *c, kv_seq s);

/* The key of block `i` of `tokens`, given the keys of blocks 0 .. i-1. */
struct kv_key kv_key_at(const struct kv_cache *c, struct kv_salt salt, const struct kv_key *keys,
                        const int32_t *tokens, uint32_t i);

/* Add this full, held block to the index, unless the index has another block with that key. */
void kv_publish(struct kv_group *g, kv_block block, struct kv_key key);
void kv_unpublish(struct kv_group *g, kv_block block); /* a held, keyed block */

/* Unpin table entries [from, end), the last first, so that the end of a prefix is evicted before
 * its start: without its start a prefix cannot be used. */
void kv_release(struct kv_cache *c, kv_seq s, uint32_t group, uint32_t from, uint32_t end);

/* Promises of one sequence: make those of keys [first, end); one block is computed, with this key;
 * withdraw the rest. */
void kv_promise(struct kv_cache *c, kv_seq s, uint32_t first, uint32_t end);
void kv_promise_fulfil(struct kv_cache *c, kv_seq s, uint32_t block_idx, struct kv_key key);
void kv_promise_withdraw(struct kv_cache *c, kv_seq s);

/* Is there room for so many more moves? Add one. */
bool kv_moves_fit(const struct kv_moves *moves, uint32_t count);
void kv_moves_add(struct kv_moves *moves, struct kv_move move);

#endif
