/* kv/pool.h - a fixed pool of KV blocks with reference counts.
 *
 * A block is a range of token positions in device memory. This module uses only block numbers and
 * never accesses device memory, so the simulator runs the same code. A block is in exactly one of
 * four states:
 *
 *     FREE --take--> HELD --unpin, last reference--> KEPT   if keyed and kept until later
 *                                                    CACHED if keyed
 *                                                    FREE   otherwise
 *     HELD <--pin-- CACHED or KEPT          CACHED --take, if none is FREE--> HELD
 *     KEPT --expire, its time is over--> CACHED
 *
 * CACHED blocks keep their contents until take() needs them, the least recently held first (time in
 * KEPT counts as held). KEPT blocks are not taken before their time; at most half of the pool is
 * KEPT, further ones are CACHED.
 *
 * A block uses physical memory from the first time it is written. take() prefers FREE blocks that
 * were used before, the last released first. A block that was never used is taken only while fewer
 * than `spread_max` blocks have been used, or if none is CACHED. So cached contents alone use at
 * most `spread_max` blocks; more are used only if more are held at one time.
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

/* take() calls it before a keyed block loses its contents, so that the prefix index can remove it.
 * Must not call the pool. */
typedef void kv_evict_fn(void *ctx, kv_block block);

struct kv_pool_stats {
    uint32_t free_count, held_count, cached_count, kept_count;
    uint32_t touched_count; /* blocks that were ever taken */
};

/* On ST_OK the caller owns *out and hands it to destroy(). `on_evict` may be NULL. */
enum status kv_pool_create(struct kv_pool **out, uint32_t block_count, uint32_t spread_max,
                           kv_evict_fn *on_evict, void *evict_ctx);
void kv_pool_destroy(struct kv_pool *pool); /* NULL is fine */

/* Give the caller `count` blocks with one reference each. On ST_FULL neither the pool nor `out` has
 * changed. */
enum status kv_pool_take(struct kv_pool *pool, uint32_t count, kv_block *out);
uint32_t kv_pool_available(const struct kv_pool *pool); /* blocks that take() can give */

/* Add a reference to a HELD, CACHED or KEPT block. One unpin() for each take() and each pin(). */
void kv_pool_pin(struct kv_pool *pool, kv_block block);
void kv_pool_unpin(struct kv_pool *pool, kv_block block);
uint32_t kv_pool_refs(const struct kv_pool *pool, kv_block block); /* 0 unless HELD */

/* The prefix index can find this HELD block: cache it when it is unpinned. */
void kv_pool_mark_keyed(struct kv_pool *pool, kv_block block);
bool kv_pool_is_keyed(const struct kv_pool *pool, kv_block block);
/* The index no longer finds this HELD block, because its owner is about to write to it. */
void kv_pool_unmark_keyed(struct kv_pool *pool, kv_block block);

/* After the last unpin, keep this HELD, keyed block until `until_us`. Of several calls the latest
 * time counts; zero cancels them all. */
void kv_pool_keep(struct kv_pool *pool, kv_block block, int64_t until_us);
uint32_t kv_pool_keep_room(const struct kv_pool *pool); /* how many more may become KEPT */

/* KEPT blocks whose time is over become CACHED; with INT64_MAX all of them. */
void kv_pool_expire(struct kv_pool *pool, int64_t now_us);

struct kv_pool_stats kv_pool_stats(const struct kv_pool *pool);
uint32_t kv_pool_shared(const struct kv_pool *pool); /* HELD blocks with two references or more */

/* For people: HELD is used or shared, KEPT is cached. */
enum kv_block_state { KV_BLOCK_FREE, KV_BLOCK_CACHED, KV_BLOCK_USED, KV_BLOCK_SHARED };
enum kv_block_state kv_pool_state(const struct kv_pool *pool, kv_block block);

/* CHECK every invariant above. Visits every block: for tests only. */
void kv_pool_verify(const struct kv_pool *pool);

#endif
