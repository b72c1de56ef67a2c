/* kernels/cuda/resident_attention.cuh - attention in resident.cu, with the functions of
 * attention_few.cuh; the definition is in attention_mma.cuh. The block that attends to the newest
 * token writes this token's key and value to the cache, and to its own copy of their tile.
 */
#ifndef KERNELS_CUDA_RESIDENT_ATTENTION_CUH
#define KERNELS_CUDA_RESIDENT_ATTENTION_CUH

#include "kernels/cuda/resident_items.cuh"

/* The item's queries, and the newest key and value if it has them, normed and rotated. */
template <int D>
static __device__ inline void
turn_heads(const struct cuda_resident &r, const struct cuda_resident_layer &l,
           const struct kv_item &item, const float4 turned[32], struct kept_heads<D> *heads) {
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
    const float4 mine = turned[lane];
    const struct turns t = {{mine.x, mine.y}, {mine.z, mine.w}};
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
static __device__ inline void attend_item(const struct cuda_resident &r,
                                          const struct resident_block &b,
                                          const struct cuda_resident_layer &l,
                                          const struct kv_item &item, struct cuda_place *place) {
    const struct cuda_attention &a = r.attention;
    struct kept_heads<D> *heads = (struct kept_heads<D> *)b.rows;
    uint32_t lane = threadIdx.x % 32, group = a.heads / a.kv_heads;
    struct short_work<D> w;
    struct short_sums<D> sums;
    const float *from[2];
    turn_heads<D>(r, l, item, b.kept->turns[item.row], heads);
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

#endif
