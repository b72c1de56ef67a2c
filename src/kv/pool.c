/* kv/pool.c - see kv/pool.h for the contract.
 *
 * The FREE and CACHED lists are circular, doubly linked through blocks[], and headed by one extra
 * entry each, so that linking and unlinking need no special case for an empty list. KEPT blocks
 * are in a binary heap by the end of their time, then by the order in which they were unpinned, so
 * that they enter the CACHED list in that order.
 *
 * Blocks that were never taken are at the end of the FREE list in rising order, so the blocks that
 * were taken are always those below `touched_count`.
 */
#include "kv/pool.h"

#include "base/check.h"
#include "base/mem.h"

struct block_state {
    uint32_t next, prev;   /* list links; a HELD or KEPT block links to itself */
    uint32_t refs;         /* 0 = on one of the lists, or in the heap */
    uint32_t heap_pos;     /* NOT_KEPT unless KEPT */
    int64_t keep_until_us; /* 0: not kept */
    uint64_t unpinned;     /* the pool's count of last unpins when it became KEPT */
    bool keyed;            /* the prefix index points at this block */
};

struct kv_pool {
    uint32_t block_count;
    uint32_t free_count, cached_count, kept_count, shared_count;
    uint32_t touched_count, spread_max;
    uint64_t unpin_count;
    kv_evict_fn *on_evict;
    void *evict_ctx;
    kv_block *heap;              /* of KEPT blocks; room for half of the pool */
    struct block_state blocks[]; /* the blocks, then the FREE head, then the CACHED head */
};

enum { HEAD_COUNT = 2 };
static const uint32_t NOT_KEPT = UINT32_MAX; /* of heap_pos */

static uint32_t free_head(const struct kv_pool *p) { return p->block_count; }
static uint32_t cached_head(const struct kv_pool *p) { return p->block_count + 1; }
static uint32_t kept_max(const struct kv_pool *p) { return p->block_count / 2; }

static void link_last(struct kv_pool *p, uint32_t head, uint32_t i) {
    uint32_t last = p->blocks[head].prev;
    p->blocks[i].prev = last;
    p->blocks[i].next = head;
    p->blocks[last].next = p->blocks[head].prev = i;
}

static void link_first(struct kv_pool *p, uint32_t head, uint32_t i) {
    link_last(p, p->blocks[head].next, i); /* before the first one */
}

static void unlink_block(struct kv_pool *p, uint32_t i) {
    struct block_state *s = &p->blocks[i];
    p->blocks[s->prev].next = s->next;
    p->blocks[s->next].prev = s->prev;
    s->next = s->prev = i;
}

/* ---- the heap of KEPT blocks ---- */

static bool ends_before(const struct kv_pool *p, kv_block a, kv_block b) {
    const struct block_state *x = &p->blocks[a], *y = &p->blocks[b];
    if (x->keep_until_us != y->keep_until_us) return x->keep_until_us < y->keep_until_us;
    return x->unpinned < y->unpinned;
}

static void heap_set(struct kv_pool *p, uint32_t pos, kv_block block) {
    p->heap[pos] = block;
    p->blocks[block].heap_pos = pos;
}

static void sift_up(struct kv_pool *p, uint32_t pos, kv_block block) {
    while (pos > 0) {
        uint32_t parent = (pos - 1) / 2;
        if (!ends_before(p, block, p->heap[parent])) break;
        heap_set(p, pos, p->heap[parent]);
        pos = parent;
    }
    heap_set(p, pos, block);
}

static void sift_down(struct kv_pool *p, uint32_t pos, kv_block block) {
    for (;;) {
        uint32_t child = 2 * pos + 1;
        if (child >= p->kept_count) break;
        if (child + 1 < p->kept_count && ends_before(p, p->heap[child + 1], p->heap[child]))
            child++;
        if (!ends_before(p, p->heap[child], block)) break;
        heap_set(p, pos, p->heap[child]);
        pos = child;
    }
    heap_set(p, pos, block);
}

static void heap_remove(struct kv_pool *p, kv_block block) {
    uint32_t pos = p->blocks[block].heap_pos;
    DCHECK(p->heap[pos] == block);
    p->blocks[block].heap_pos = NOT_KEPT;
    kv_block last = p->heap[--p->kept_count];
    if (last == block) return;
    if (pos > 0 && ends_before(p, last, p->heap[(pos - 1) / 2]))
        sift_up(p, pos, last);
    else
        sift_down(p, pos, last);
}

/* ---- create and destroy ---- */

enum status kv_pool_create(struct kv_pool **out, uint32_t block_count, uint32_t spread_max,
                           kv_evict_fn *on_evict, void *evict_ctx) {
    CHECK(block_count > 0);
    CHECK(block_count < UINT32_MAX - HEAD_COUNT);

    size_t state_count = (size_t)block_count + HEAD_COUNT;
    struct kv_pool *p = mem_zalloc(sizeof(*p) + state_count * sizeof(p->blocks[0]));
    if (!p) return ST_NOMEM;
    p->heap = mem_alloc_array((size_t)block_count / 2 + 1, sizeof(p->heap[0]));
    if (!p->heap) {
        mem_free(p);
        return ST_NOMEM;
    }
    p->block_count = block_count;
    p->spread_max = spread_max;
    p->on_evict = on_evict;
    p->evict_ctx = evict_ctx;
    for (uint32_t i = 0; i < state_count; i++) {
        p->blocks[i].next = p->blocks[i].prev = i;
        p->blocks[i].heap_pos = NOT_KEPT;
    }
    for (uint32_t i = 0; i < block_count; i++) link_last(p, free_head(p), i);
    p->free_count = block_count;
    *out = p;
    return ST_OK;
}

void kv_pool_destroy(struct kv_pool *pool) {
    if (!pool) return;
    mem_free(pool->heap);
    mem_free(pool);
}

/* None is FREE, or only blocks that were never used, and `spread_max` blocks are in use already. */
static bool must_evict(const struct kv_pool *p) {
    if (p->cached_count == 0) return false;
    bool is_untouched = p->blocks[free_head(p)].next >= p->touched_count;
    return p->free_count == 0 || (is_untouched && p->touched_count >= p->spread_max);
}

/* Take the block that is cheapest to lose: a FREE one, else the CACHED one held longest ago. */
static kv_block take_one(struct kv_pool *p) {
    bool evict = must_evict(p);
    kv_block b = p->blocks[evict ? cached_head(p) : free_head(p)].next;
    DCHECK(b < p->block_count);
    DCHECK(b <= p->touched_count);
    if (b == p->touched_count) p->touched_count++;

    if (evict && p->on_evict) p->on_evict(p->evict_ctx, b);
    if (evict)
        p->cached_count--;
    else
        p->free_count--;
    unlink_block(p, b);
    p->blocks[b].keyed = false;
    p->blocks[b].refs = 1;
    return b;
}

enum status kv_pool_take(struct kv_pool *pool, uint32_t count, kv_block *out) {
    /* Checked first, so that a call that fails evicts no block. */
    if (count > kv_pool_available(pool)) return ST_FULL;
    for (uint32_t i = 0; i < count; i++) out[i] = take_one(pool);
    return ST_OK;
}

uint32_t kv_pool_available(const struct kv_pool *pool) {
    return pool->free_count + pool->cached_count;
}

void kv_pool_pin(struct kv_pool *pool, kv_block block) {
    CHECK(block < pool->block_count);
    struct block_state *s = &pool->blocks[block];
    if (s->refs == 0) {
        CHECK(s->keyed); /* a FREE block has no contents to share */
        if (s->heap_pos != NOT_KEPT) {
            heap_remove(pool, block);
        } else {
            unlink_block(pool, block);
            pool->cached_count--;
        }
    }
    CHECK(s->refs < UINT32_MAX);
    pool->shared_count += s->refs == 1;
    s->refs++;
}

static void become_free(struct kv_pool *p, kv_block block) {
    link_first(p, free_head(p), block);
    p->free_count++;
}

static void become_cached(struct kv_pool *p, kv_block block) {
    p->blocks[block].keep_until_us = 0;
    link_last(p, cached_head(p), block);
    p->cached_count++;
}

static void become_kept(struct kv_pool *p, kv_block block) {
    p->blocks[block].unpinned = p->unpin_count++;
    sift_up(p, p->kept_count++, block);
}

void kv_pool_unpin(struct kv_pool *pool, kv_block block) {
    CHECK(block < pool->block_count);
    struct block_state *s = &pool->blocks[block];
    CHECK(s->refs > 0);
    pool->shared_count -= s->refs == 2;
    if (--s->refs > 0) return;

    if (!s->keyed)
        become_free(pool, block);
    else if (s->keep_until_us != 0 && kv_pool_keep_room(pool) > 0)
        become_kept(pool, block);
    else
        become_cached(pool, block);
}

uint32_t kv_pool_refs(const struct kv_pool *pool, kv_block block) {
    CHECK(block < pool->block_count);
    return pool->blocks[block].refs;
}

void kv_pool_mark_keyed(struct kv_pool *pool, kv_block block) {
    CHECK(block < pool->block_count);
    CHECK(pool->blocks[block].refs > 0);
    pool->blocks[block].keyed = true;
}

bool kv_pool_is_keyed(const struct kv_pool *pool, kv_block block) {
    CHECK(block < pool->block_count);
    return pool->blocks[block].keyed;
}

void kv_pool_unmark_keyed(struct kv_pool *pool, kv_block block) {
    CHECK(block < pool->block_count);
    CHECK(pool->blocks[block].refs > 0);
    pool->blocks[block].keyed = false;
    pool->blocks[block].keep_until_us = 0;
}

void kv_pool_keep(struct kv_pool *pool, kv_block block, int64_t until_us) {
    CHECK(block < pool->block_count);
    struct block_state *s = &pool->blocks[block];
    CHECK(s->refs > 0);
    CHECK(s->keyed);
    CHECK(until_us >= 0);
    if (until_us == 0 || until_us > s->keep_until_us) s->keep_until_us = until_us;
}

uint32_t kv_pool_keep_room(const struct kv_pool *pool) { return kept_max(pool) - pool->kept_count; }

void kv_pool_expire(struct kv_pool *pool, int64_t now_us) {
    while (pool->kept_count > 0) {
        kv_block first = pool->heap[0];
        if (pool->blocks[first].keep_until_us > now_us) break;
        heap_remove(pool, first);
        become_cached(pool, first);
    }
}

struct kv_pool_stats kv_pool_stats(const struct kv_pool *pool) {
    uint32_t idle_count = pool->free_count + pool->cached_count + pool->kept_count;
    return (struct kv_pool_stats){
        .free_count = pool->free_count,
        .held_count = pool->block_count - idle_count,
        .cached_count = pool->cached_count,
        .kept_count = pool->kept_count,
        .touched_count = pool->touched_count,
    };
}

uint32_t kv_pool_shared(const struct kv_pool *pool) { return pool->shared_count; }

enum kv_block_state kv_pool_state(const struct kv_pool *pool, kv_block block) {
    const struct block_state *s = &pool->blocks[block];
    CHECK(block < pool->block_count);
    if (s->refs > 0) return s->refs > 1 ? KV_BLOCK_SHARED : KV_BLOCK_USED;
    return s->keyed ? KV_BLOCK_CACHED : KV_BLOCK_FREE;
}

/* ---- invariants ---- */

static void verify_list(const struct kv_pool *p, uint32_t head, uint32_t count, bool keyed) {
    uint32_t seen = 0;
    for (uint32_t i = p->blocks[head].next; i != head; i = p->blocks[i].next) {
        CHECK(i < p->block_count);
        CHECK(p->blocks[i].refs == 0);
        CHECK(p->blocks[i].keyed == keyed);
        CHECK(p->blocks[i].keep_until_us == 0);
        CHECK(p->blocks[i].heap_pos == NOT_KEPT);
        CHECK(p->blocks[p->blocks[i].next].prev == i);
        CHECK(++seen <= count);
    }
    CHECK(seen == count);
}

static void verify_heap(const struct kv_pool *p) {
    CHECK(p->kept_count <= kept_max(p));
    for (uint32_t pos = 0; pos < p->kept_count; pos++) {
        kv_block b = p->heap[pos];
        CHECK(b < p->block_count);
        CHECK(p->blocks[b].refs == 0);
        CHECK(p->blocks[b].keyed);
        CHECK(p->blocks[b].keep_until_us > 0);
        CHECK(p->blocks[b].heap_pos == pos);
        CHECK(pos == 0 || !ends_before(p, b, p->heap[(pos - 1) / 2]));
    }
}

void kv_pool_verify(const struct kv_pool *pool) {
    verify_list(pool, free_head(pool), pool->free_count, false);
    verify_list(pool, cached_head(pool), pool->cached_count, true);
    verify_heap(pool);

    uint32_t held = 0, shared = 0;
    for (uint32_t i = 0; i < pool->block_count; i++) {
        const struct block_state *s = &pool->blocks[i];
        held += s->refs > 0;
        shared += s->refs > 1;
        CHECK(s->refs == 0 || s->heap_pos == NOT_KEPT);
        CHECK(s->keyed || s->keep_until_us == 0);
        CHECK(i < pool->touched_count || (s->refs == 0 && !s->keyed));
    }
    CHECK(held == kv_pool_stats(pool).held_count);
    CHECK(shared == pool->shared_count);
}
