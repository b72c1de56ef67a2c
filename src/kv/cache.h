/* kv/cache.h - which block holds which tokens of which sequence.
 *
 * Layers that keep the same tokens form a group: the full layers, and the layers of each window
 * width. Each group has its own pool of blocks, and a sequence has one block table per group.
 * A position is in block position / block_tokens of the table; a windowed group releases blocks
 * that no later token can read.
 *
 * Prefix sharing: a full block has a key, a keyed 128-bit hash of its tokens and of the key of the
 * block before it; the chain starts from the request's salt. The index finds a block by its key
 * until the block is evicted; blocks of generated tokens have keys too. The keys of a prompt are
 * *promised* while its sequence computes them, so that another request for the same text can wait
 * for them instead of computing them again. A hit reaches only as far as every group can serve it,
 * and never to the last token of a sequence: that one is always computed.
 *
 * Forks share all blocks. A shared block is copied before it is written; the copy is returned in
 * `moves`, and the caller does it in device memory.
 *
 * Swapping: the blocks of a sequence are moved to spill slots and later back into other blocks;
 * these moves are returned in `moves` too.
 *
 * Numbers only: no device memory, no clock. Lifetime: one per engine. Thread: the engine thread.
 * Memory: all allocated by create. A call that returns ST_FULL has changed nothing.
 */
#ifndef KV_CACHE_H
#define KV_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/kv_space.h"
#include "kv/pool.h"
#include "kv/prefix.h"

struct kv_cache; /* opaque */

enum { KV_CACHE_GROUPS_MAX = 8 };

typedef uint32_t kv_seq; /* a table of block tables; 0 .. seq_max-1 */

struct kv_cache_options {
    uint32_t block_tokens; /* at least 1; a device may need a multiple of its tile */
    uint32_t group_count;
    struct {
        uint32_t block_count;
        uint32_t window; /* 0: everything is kept */
    } groups[KV_CACHE_GROUPS_MAX];
    uint32_t seq_max;     /* sequences with tables at one time, including swapped ones */
    uint32_t tokens_max;  /* the longest sequence */
    uint32_t spill_slots; /* blocks that fit the spill store, per group; 0: no swapping */
    bool prefix_cache;
    uint32_t prefix_blocks;    /* spread_max of every pool; 0: all of it */
    uint64_t identity;         /* of model, adapter and KV format: starts every key chain */
    struct siphash_key secret; /* of the block keys: without it no client can aim at a key */
};

/* Copies in device memory that the caller must do, in the order of the list, before the writes of
 * the step. */
struct kv_moves {
    struct kv_move *list; /* the caller's, of `cap` elements: a call that needs more is ST_FULL */
    uint32_t count, cap;
};

enum status kv_cache_create(struct kv_cache **out, const struct kv_cache_options *options,
                            struct err *err);
void kv_cache_destroy(struct kv_cache *c); /* NULL is fine */

/* How many of `tokens` the index can serve. Changes nothing. */
struct kv_match {
    uint32_t tokens;       /* a multiple of block_tokens, below `count` */
    bool is_promised;      /* a running sequence is computing the next block */
    bool is_batch_promise; /* and it is marked as batch work */
};
struct kv_match kv_cache_match(const struct kv_cache *c, struct kv_salt salt, const int32_t *tokens,
                               uint32_t count);

/* Open empty tables for a sequence. ST_FULL: seq_max are open. */
enum status kv_seq_open(struct kv_cache *c, struct kv_salt salt, kv_seq *out);
void kv_seq_close(struct kv_cache *c, kv_seq s); /* releases its blocks, slots and promises */
/* It is batch work, which may be preempted at any time: others need not rely on its promises, and
 * take them over if they promise the same keys. To be called before attach. */
void kv_seq_mark_batch(struct kv_cache *c, kv_seq s);

/* Take the blocks that kv_cache_match finds for `tokens`; returns how many tokens the tables now
 * hold. The sequence must be empty. Also promises the keys of the other full blocks of the
 * prompt. */
uint32_t kv_seq_attach(struct kv_cache *c, kv_seq s, const int32_t *tokens, uint32_t count);

/* How many more blocks the sequence needs for the positions below `tokens` (the largest number of
 * any group), including copies of shared blocks that would be written. */
uint32_t kv_seq_need(const struct kv_cache *c, kv_seq s, uint32_t tokens);
uint32_t kv_cache_available(const struct kv_cache *c); /* the smallest over groups */

/* Make positions [computed, tokens) writable; to be called before every step that writes. `moves`
 * may be NULL for a sequence that was never forked. */
enum status kv_seq_grow(struct kv_cache *c, kv_seq s, uint32_t tokens, struct kv_moves *moves);

/* Positions below `computed` now hold keys and values of `tokens`: full blocks get their keys,
 * windowed groups release blocks that can no longer be read. */
void kv_seq_commit(struct kv_cache *c, kv_seq s, const int32_t *tokens, uint32_t computed);

/* A new sequence that shares the first `tokens` positions of `parent`, which must be computed.
 * With windowed groups at most one token before what `parent` last committed, as for trim. */
enum status kv_seq_fork(struct kv_cache *c, kv_seq parent, uint32_t tokens, kv_seq *out);

/* Remove positions from `tokens` on (speculation that failed, a row past the end). Computed ones
 * may be removed too, but with windowed groups only the last one, or all. */
void kv_seq_trim(struct kv_cache *c, kv_seq s, uint32_t tokens);

/* Swap. ST_FULL: there are not enough spill slots (out), blocks (in) or moves. Shared blocks are
 * copied out like others and are the sequence's own when they come back. swap_out releases blocks
 * past `computed`, and the promises. kv_seq_need of a swapped-out sequence counts all its
 * blocks. */
enum status kv_seq_swap_out(struct kv_cache *c, kv_seq s, struct kv_moves *moves);
enum status kv_seq_swap_in(struct kv_cache *c, kv_seq s, struct kv_moves *moves);
bool kv_seq_is_swapped_out(const struct kv_cache *c, kv_seq s);

/* Retention hint: keep the sequence's keyed blocks until then, also after it has ended (zero
 * cancels the hint). At most half of a pool is kept, the first blocks of a sequence first. Kept
 * blocks are not available; kv_cache_expire(c, INT64_MAX) releases all of them. */
void kv_seq_keep(struct kv_cache *c, kv_seq s, int64_t until_us);
void kv_cache_expire(struct kv_cache *c, int64_t now_us);

/* For the step tables: the block of position p is table[p / block_tokens]; entries that a windowed
 * group has released are UINT32_MAX. Valid until the next change of s. */
const uint32_t *kv_seq_table(const struct kv_cache *c, kv_seq s, uint32_t group);
uint32_t kv_seq_tokens(const struct kv_cache *c, kv_seq s); /* positions it has room for */

struct kv_cache_stats {
    struct kv_pool_stats groups[KV_CACHE_GROUPS_MAX];
    uint32_t spilled_blocks;
    uint64_t lookup_tokens, hit_tokens; /* since create, of sequences that have committed */
    uint64_t evicted_blocks;
};
struct kv_cache_stats kv_cache_stats(const struct kv_cache *c);
/* Blocks of the first group that are held; that several sequences hold. */
uint32_t kv_cache_held(const struct kv_cache *c);
uint32_t kv_cache_shared(const struct kv_cache *c);
/* The state of every block of the first group (enum kv_block_state). */
void kv_cache_states(const struct kv_cache *c, uint8_t *out);

/* CHECK all: every block's references equal its appearances in tables; the index points only at
 * keyed blocks with that key; promises belong to open sequences; no block of one salt in a
 * table of another. */
void kv_cache_verify(const struct kv_cache *c);

#endif
