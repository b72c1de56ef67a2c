/* kernels/cuda/resident_items.cuh - how attention is divided among the blocks of resident.cu, and
 * how tiles of the KV cache come into the ring.
 *
 * An item is a row, a KV head and a segment of 256 positions. With n blocks, a block takes every
 * n-th item. All tiles come through the ring, also that of the newest token, before its key and
 * value are known.
 */
#ifndef KERNELS_CUDA_RESIDENT_ITEMS_CUH
#define KERNELS_CUDA_RESIDENT_ITEMS_CUH

#include "kernels/cuda/attention_few.cuh"
#include "kernels/cuda/device_qkv.cuh"
#include "kernels/cuda/resident_ring.cuh"

template <int D, bool IS_F8> struct kv_dims {
    static constexpr uint32_t tile = 2 * (IS_F8 ? mma_dims<D>::f8_side : mma_dims<D>::side);
    static constexpr uint32_t tiles_of_slot = CUDA_SLOT_BYTES / tile; /* KV tiles */
    static constexpr uint32_t slots = KV_TILES / tiles_of_slot;       /* of a tile of 64 tokens */
    static_assert(tile * tiles_of_slot == CUDA_SLOT_BYTES, "slots are full");
};

/* What attention keeps where products have their rows. */
template <int D> struct kept_heads {
    __align__(16) float at[CUDA_SHORT_QUERIES + 2][D]; /* queries, the newest key and value */
    struct short_shared shared;
};
static_assert(sizeof(struct kept_heads<128>) <= CUDA_RESIDENT_ATTENTION, "room for heads");

/* ---- items ---- */

struct kv_item {
    struct reach all;
    uint32_t row, kv_head, segment, from, to; /* tiles; none: the row is not that long */
    uint8_t *newest; /* the KV tile of the newest token, if the item has it; else NULL */
};

/* `pos`: the rows' positions. */
static __device__ inline struct kv_item
kv_item_of(const struct cuda_attention &a, const int32_t *pos, uint32_t kv_layer, uint32_t i) {
    struct kv_item item;
    item.kv_head = i % a.kv_heads;
    item.row = i / a.kv_heads / a.segments;
    item.all = reach_of(a, pos[item.row]);
    item.segment = item.all.first / SEGMENT + i / a.kv_heads % a.segments;
    item.from = max(item.segment * PER_SEGMENT, item.all.first / TILE);
    item.to = min((item.segment + 1) * PER_SEGMENT, (item.all.end + TILE - 1) / TILE);
    item.newest = NULL;
    if (item.to < item.from) item.to = item.from;
    if (item.from < item.to && (item.segment + 1) * SEGMENT >= item.all.end) {
        const uint32_t *blocks = a.blocks + a.seq[item.row] * a.blocks_stride;
        uint32_t tile = (item.all.end - 1) / CUDA_TILE_TOKENS;
        item.newest = cuda_kv_tile(&a.kv, blocks, tile, kv_layer, item.kv_head);
    }
    return item;
}

/* The block's first item in a layer. */
static __device__ inline uint32_t first_item(const struct cuda_resident &r, uint32_t layer) {
    return (blockIdx.x + layer * CUDA_TURN) % r.blocks;
}

static __device__ inline uint32_t items_of(const struct cuda_resident &r) {
    return r.rows * r.attention.kv_heads * r.attention.segments;
}

/* ---- the warp that fills the ring ---- */

template <int D, bool IS_F8>
static __device__ inline void
bring_kv_tile(const struct cuda_resident &r, const struct resident_block &b,
              const struct kv_item &item, uint32_t t, uint32_t kv_layer, struct cuda_place *place) {
    using dims = kv_dims<D, IS_F8>;
    const struct cuda_attention &a = r.attention;
    const uint32_t *blocks = a.blocks + a.seq[item.row] * a.blocks_stride;
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = cuda_slots_skipped(*place, dims::slots, b.slots); i > 0; i--) {
        wait_empty(b, *place);
        if (lane == 0) arrive(b.full + place->slot * 8);
        *place = cuda_place_soon(*place, 1, b.slots);
    }
    for (uint32_t s = 0; s < dims::slots; s++) {
        uint32_t kv_tile = t * KV_TILES + s * dims::tiles_of_slot + lane;
        uint32_t first = kv_tile * CUDA_TILE_TOKENS, full = b.full + place->slot * 8;
        bool is_mine = lane < dims::tiles_of_slot && first < item.all.end &&
                       first + CUDA_TILE_TOKENS > item.all.first;
        const uint8_t *tile =
            is_mine ? cuda_kv_tile(&a.kv, blocks, kv_tile, kv_layer, item.kv_head) : NULL;
        uint32_t tiles = __popc(__ballot_sync(0xffffffffu, is_mine));
        wait_empty(b, *place);
        if (lane == 0) arrival_expect(full, tiles * dims::tile);
        __syncwarp();
        if (is_mine)
            copy_bulk(b.ring_at + place->slot * CUDA_SLOT_BYTES + lane * dims::tile, tile,
                      dims::tile, full);
        *place = cuda_place_soon(*place, 1, b.slots);
    }
}

template <int D, bool IS_F8>
static __device__ inline void bring_kv(const struct cuda_resident &r,
                                       const struct resident_block &b, uint32_t layer,
                                       uint32_t kv_layer, struct cuda_place *place) {
    uint32_t items = items_of(r);
    for (uint32_t i = first_item(r, layer); i < items; i += r.blocks) {
        const struct kv_item item = kv_item_of(r.attention, r.attention.pos, kv_layer, i);
        for (uint32_t t = item.from; t < item.to; t++)
            bring_kv_tile<D, IS_F8>(r, b, item, t, kv_layer, place);
    }
}

/* Skips the slots of an item's tiles: for warps that do not compute attention. */
template <int D, bool IS_F8>
static __device__ inline void pass_item(const struct resident_block &b, const struct kv_item &item,
                                        struct cuda_place *place) {
    static constexpr uint32_t slots = kv_dims<D, IS_F8>::slots;
    for (uint32_t t = item.from; t < item.to; t++) {
        uint32_t skipped = cuda_slots_skipped(*place, slots, b.slots);
        *place = cuda_place_soon(*place, skipped + slots, b.slots);
    }
}

#endif
