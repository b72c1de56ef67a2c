/* kv/pool.h - a fixed pool of KV-cache blocks, shared by counting references.
 *
 * A block is a run of token slots in device memory. This module deals only in block numbers and
 * never touches device memory, so it runs as it is in the simulator. A block is in exactly one
 * of four states:
 *
 *     FREE --take--> HELD --unpin, last reference--> KEPT   if keyed and kept until later
 *                                                    CACHED if keyed
 *                                                    FREE   otherwise
 *     HELD <--pin-- CACHED or KEPT          CACHED --take, where no FREE one is--> HELD
 *     KEPT --expire, its time is over--> CACHED
 *
 * CACHED blocks keep their contents until take() needs them, least recently held first (time
 * spent KEPT counts as held). KEPT ones are not taken before their time; at most half of the
 * pool is KEPT (the rest is CACHED).
 *
 * A block costs memory from the first time it is written. FREE blocks that were in use before are
 * taken first, the last given back foremost; one that never was is taken while fewer than
 * `spread_max` blocks have been, or when nothing is CACHED. So old contents alone spread over
 * `spread_max` blocks at most, and what is held at one time decides how much more there is.
 *
 * Lifetime: one per KV group, from boot to exit. Thread: the engine thread only.
 * Memory:   all of it is allocated by create(); no later call allocates. Every call but verify
 *           is O(1) per block, and O(log n) where a block becomes KEPT or ceases to be.
 */
#ifndef KV_POOL_H
#define KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef uint32_t kv_block; /* 0 .. block_count-1 */

struct kv_pool; /* opaque */

/* Called by take() just before a keyed block loses its contents, so that the prefix index can
 * forget it. Must not call back into the pool. */
typedef void kv_evict_fn(void *ctx, kv_block block);

struct kv_pool_stats {
    uint32_t free_count, held_count, cached_count, kept_count;
    uint32_t touched_count; /* of all, those that were ever taken */
};

/* On ST_OK the caller owns *out and hands it to destroy(). `on_evict` may be NULL. */
enum status kv_pool_create(struct kv_pool **out, uint32_t block_count, uint32_t spread_max,
                           kv_evict_fn *on_evict, void *evict_ctx);
void kv_pool_destroy(struct kv_pool *pool); /* NULL is fine */

/* Give the caller `count` blocks, each holding one reference. All or nothing: on ST_FULL neither
 * the pool nor `out` has changed. */
enum status kv_pool_take(struct kv_pool *pool, uint32_t count, kv_block *out);
uint32_t kv_pool_available(const struct kv_pool *pool); /* what take() could give: free + cached */

/* Add a reference to a HELD, CACHED or KEPT block. One unpin() for each take() and each pin(). */
void kv_pool_pin(struct kv_pool *pool, kv_block block);
void kv_pool_unpin(struct kv_pool *pool, kv_block block);
uint32_t kv_pool_refs(const struct kv_pool *pool, kv_block block); /* 0 unless HELD */

/* Say that the prefix index can find this HELD block, so it is worth keeping. */
void kv_pool_mark_keyed(struct kv_pool *pool, kv_block block);
bool kv_pool_is_keyed(const struct kv_pool *pool, kv_block block);
/* Say that the index finds this HELD block no longer: its owner is about to write to it. */
void kv_pool_unmark_keyed(struct kv_pool *pool, kv_block block);

/* Once unpinned, keep this HELD, keyed block until `until_us` (INT64_MAX: until told otherwise).
 * The latest of several wishes counts; zero takes them all back. */
void kv_pool_keep(struct kv_pool *pool, kv_block block, int64_t until_us);
uint32_t kv_pool_keep_room(const struct kv_pool *pool); /* how many more may become KEPT */

/* KEPT blocks whose time is over become CACHED; INT64_MAX ends the time of all. */
void kv_pool_expire(struct kv_pool *pool, int64_t now_us);

struct kv_pool_stats kv_pool_stats(const struct kv_pool *pool);

/* CHECK every invariant above. Costs a walk of the whole pool: tests and idle time only. */
void kv_pool_verify(const struct kv_pool *pool);

#endif
