/* kernels/cuda/resident_attention.cuh - attention in resident.cu: the definition of
 * attention_mma.cuh, by the functions of attention_few.cuh.
 *
 * An item is a row, a KV head and a segment of 256 positions; a block takes every so many. Tiles of
 * the cache come through the ring, also that of the newest token, before its key and value are
 * known: the block that attends to it puts them into the cache and into its copy of the tile.
 */
#ifndef KERNELS_CUDA_RESIDENT_ATTENTION_CUH
#define KERNELS_CUDA_RESIDENT_ATTENTION_CUH

#include "kernels/cuda/attention_few.cuh"
#include "kernels/cuda/device_qkv.cuh"
#include "kernels/cuda/resident_product.cuh"

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

/* Past the slots of an item's tiles, by a warp that does not attend. */
template <int D, bool IS_F8>
static __device__ inline void pass_item(const struct resident_block &b, const struct kv_item &item,
                                        struct cuda_place *place) {
    static constexpr uint32_t slots = kv_dims<D, IS_F8>::slots;
    for (uint32_t t = item.from; t < item.to; t++) {
        uint32_t skipped = cuda_slots_skipped(*place, slots, b.slots);
        *place = cuda_place_soon(*place, skipped + slots, b.slots);
    }
}

/* ---- the four warps that attend ---- */

/* The item's queries, and the newest key and value if it has them, normed and rotated. */
template <int D>
static __device__ inline void
turn_heads(const struct cuda_resident &r, const struct cuda_resident_layer &l,
           const struct kv_item &item, const struct turns &t, struct kept_heads<D> *heads) {
    const struct cuda_qkv &n = r.turn;
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t group = r.attention.heads / r.attention.kv_heads;
    uint32_t count = group + (item.newest ? 2 : 0);
    const float *row = (const float *)(l.qkv + item.row * r.qkv.row_bytes);
    for (uint32_t h = warp; h < count; h += WARPS) {
        uint32_t head = h < group ? item.kv_head * group + h : item.kv_head;
        const float *x = row + head * D + (h < group ? n.q.col : h == group ? n.k.col : n.v.col);
        for (uint32_t i = lane; i < D; i += 32) heads->at[h][i] = x[i];
    }
    __syncwarp();
    for (uint32_t h = warp; h < count; h += WARPS) {
        bool is_value = h > group;
        if (!is_value) turn_head(n, h < group ? l.q_norm : l.k_norm, t, heads->at[h]);
        if (h < group) continue;
        uint8_t *tile = item.newest + (is_value ? cuda_kv_side_bytes(n.kv.type, D) : 0);
        write_side(n.kv, heads->at[h], is_value, (item.all.end - 1) % CUDA_TILE_TOKENS, tile);
    }
    warpgroup_barrier(1);
}

/* The newest key and value into the copy of their tile, which lies at `stage`. */
template <int D, bool IS_F8>
static __device__ inline void patch_tile(const struct cuda_resident &r, const struct kv_item &item,
                                         uint8_t *stage, const struct kept_heads<D> &heads) {
    uint32_t group = r.attention.heads / r.attention.kv_heads, warp = threadIdx.x / 32;
    uint32_t pos = item.all.end - 1;
    uint8_t *tile = stage + pos % TILE / CUDA_TILE_TOKENS * kv_dims<D, IS_F8>::tile;
    if (warp > 1) return;
    if (warp == 1) tile += cuda_kv_side_bytes(r.turn.kv.type, D);
    write_side(r.turn.kv, heads.at[group + warp], warp == 1, pos % CUDA_TILE_TOKENS, tile);
    fence_async(); /* the next copy into the slot comes after it */
}

/* The item's tiles, all of them in one segment. */
template <int D, bool IS_F8>
static __device__ inline void
attend_tiles(const struct cuda_resident &r, const struct resident_block &b,
             const struct short_work<D> &w, const struct kv_item &item, struct cuda_place *place,
             struct short_sums<D> *sums) {
    static constexpr uint32_t slots = kv_dims<D, IS_F8>::slots;
    const struct kept_heads<D> &heads = *(const struct kept_heads<D> *)b.rows;
    for (uint32_t t = item.from; t < item.to; t++) {
        for (uint32_t i = cuda_slots_skipped(*place, slots, b.slots); i > 0; i--) {
            if (threadIdx.x < 32) wait_full(b, *place);
            if (threadIdx.x == 0) give_back(b, *place);
            *place = cuda_place_soon(*place, 1, b.slots);
        }
        const struct cuda_place first = *place;
        uint32_t stage = first.slot * CUDA_SLOT_BYTES;
        for (uint32_t s = 0; s < slots; s++) {
            wait_full(b, *place);
            *place = cuda_place_soon(*place, 1, b.slots);
        }
        if (!IS_F8) clean_values<D>(item.all, t, b.ring + stage);
        if (item.newest && t + 1 == item.to) patch_tile<D, IS_F8>(r, item, b.ring + stage, heads);
        warpgroup_barrier(1);
        attend_tile<D, IS_F8>(r.attention, w, t, stage, sums);
        warpgroup_barrier(1);
        for (uint32_t s = 0; s < slots && threadIdx.x == 0; s++)
            give_back(b, cuda_place_soon(first, s, b.slots));
    }
}

/* An item that has tiles. */
template <int D, bool IS_F8>
static __device__ inline void
attend_item(const struct cuda_resident &r, const struct resident_block &b,
            const struct cuda_resident_layer &l, const struct kv_item &item, const struct turns &t,
            struct cuda_place *place) {
    const struct cuda_attention &a = r.attention;
    struct kept_heads<D> *heads = (struct kept_heads<D> *)b.rows;
    uint32_t lane = threadIdx.x % 32, group = a.heads / a.kv_heads;
    struct short_work<D> w;
    struct short_sums<D> sums;
    const float *from[2];
    turn_heads<D>(r, l, item, t, heads);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t query = lane / 4 + 8 * i;
        w.q[i] = {item.row, item.kv_head * group + query, {0, 0}};
        if (query < group) w.q[i].reach = item.all;
        from[i] = query < group ? heads->at[query] : NULL;
    }
    w.all = item.all;
    w.ring = b.ring_at;
    w.buffers = b.ring;
    w.shared = &heads->shared;
    take_queries<D, IS_F8>(from, w.frags);
    clear_sums<D>(&sums);
    attend_tiles<D, IS_F8>(r, b, w, item, place, &sums);
    store_part<D>(a, w.q[0], item.segment, 0, sums);
    store_part<D>(a, w.q[1], item.segment, 1, sums);
    warpgroup_barrier(1); /* the next item takes the place of the heads */
}

/* ---- joining ---- */

static __device__ inline struct query query_at(const struct cuda_resident &r,
                                               const struct resident_block &b, uint32_t i) {
    uint32_t row = i / r.attention.heads;
    return {row, i % r.attention.heads, reach_of(r.attention, b.kept->pos[row])};
}

/* Results of queries to global memory, a warp of the grid each. */
template <int D>
static __device__ inline void join_queries(const struct cuda_resident &r,
                                           const struct resident_block &b) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint32_t i = warp * r.blocks + blockIdx.x; i < r.rows * r.attention.heads;
         i += CUDA_RESIDENT_WARPS * r.blocks) {
        const struct query q = query_at(r, b, i);
        float2 out[D / 64];
        if (q.reach.end == 0) continue;
        join_parts<D>(r.attention, q, out);
#pragma unroll
        for (uint32_t n = 0; n < D / 64; n++)
            store_two<D>(r.attention, q, n * 64 + lane * 2, out[n].x, out[n].y);
    }
}

/* join_parts of a few parts, all of which are read at once. */
template <int D>
static __device__ inline void join_few(const struct cuda_attention &a, const struct query &q,
                                       float2 out[D / 64]) {
    uint32_t count = (q.reach.end - 1) / SEGMENT - q.reach.first / SEGMENT + 1;
    float factor = exponent_factor(a), max = -DEVICE_INF, sum = 0.0f;
    float maxima[CUDA_RESIDENT_JOIN], sums[CUDA_RESIDENT_JOIN];
    float2 parts[CUDA_RESIDENT_JOIN][D / 64];
#pragma unroll
    for (uint32_t i = 0; i < CUDA_RESIDENT_JOIN; i++) {
        const float *part = part_of<D>(a, q, i < count ? i : 0);
        maxima[i] = part[D];
        sums[i] = part[D + 1];
#pragma unroll
        for (uint32_t n = 0; n < D / 64; n++)
            parts[i][n] = *(const float2 *)(part + n * 64 + threadIdx.x % 32 * 2);
    }
#pragma unroll
    for (uint32_t n = 0; n < D / 64; n++) out[n] = make_float2(0.0f, 0.0f);
#pragma unroll
    for (uint32_t i = 0; i < CUDA_RESIDENT_JOIN; i++) {
        if (i >= count) continue;
        struct join_factors f = join_of(&max, &sum, maxima[i], sums[i], factor);
#pragma unroll
        for (uint32_t n = 0; n < D / 64; n++) {
            out[n].x = join_one(f, out[n].x, parts[i][n].x);
            out[n].y = join_one(f, out[n].y, parts[i][n].y);
        }
    }
    float by = 1.0f / sum;
#pragma unroll
    for (uint32_t n = 0; n < D / 64; n++) out[n] = make_float2(out[n].x * by, out[n].y * by);
}

/* Results of all queries into the rows of the product behind attention, by each block for itself:
 * that takes less time than a further barrier of the grid where there are few parts. */
template <int D, bool IS_BF16>
static __device__ inline void make_joined(const struct cuda_resident &r,
                                          const struct resident_block &b, uint32_t groups) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, heads = r.attention.heads;
    for (uint32_t i = threadIdx.x; i < r.rows * groups * PIECES; i += COMPUTING)
        *(uint4 *)(b.rows + i * 16) = uint4{0, 0, 0, 0};
    computing_barrier();
#pragma unroll 2
    for (uint32_t i = warp; i < r.rows * heads; i += CUDA_RESIDENT_WARPS) {
        const struct query q = query_at(r, b, i);
        float2 out[D / 64];
        if (q.reach.end == 0) continue;
        join_few<D>(r.attention, q, out);
#pragma unroll
        for (uint32_t n = 0; n < D / 64; n++) {
            uint32_t col = q.head * D + n * 64 + lane * 2;
            *(uint32_t *)(b.rows + piece_at(r.rows, q.row, col / 8) + col % 8 * 2) =
                pack_two<IS_BF16>(out[n].x, out[n].y);
        }
    }
}

#endif
