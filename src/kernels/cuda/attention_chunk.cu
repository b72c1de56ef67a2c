/* kernels/cuda/attention_chunk.cu - attention_mma.cuh for prompts, by wgmma (Hopper's own machine
 * code alone).
 *
 * Mapping: a block goes on from one run and KV head to another, the longest first: 128 queries, two
 * groups of four warps that compute 64 of them each, and four warps that bring tiles; all segments,
 * tile after tile. A KV tile of f16 comes by a bulk copy and lies in shared memory as in the cache:
 * its keys, then its values. Bytes of fp8 come the same way, and the warps that brought them make
 * f16 of them. While a group makes weights of a tile's scores, its wgmma still work on the values
 * of the tile before.
 * Scores: of four KV tiles the first 8 tokens each are one operand of wgmma, the last 8 the other,
 * because operands need the same distance from each 8 tokens to the next.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_sums.cuh"
#include "kernels/cuda/device_async.cuh"
#include "kernels/cuda/device_fp8.cuh"
#include "kernels/cuda/device_wgmma.cuh"

static constexpr uint32_t GROUP = 128, GROUP_QUERIES = 64; /* threads; queries of a group */
static constexpr uint32_t GROUPS = CUDA_CHUNK_QUERIES / GROUP_QUERIES;
static constexpr uint32_t ALL_THREADS = (GROUPS + 1) * GROUP;
static constexpr uint32_t RING_MAX = 4, RAW = 3;

/* A KV tile in shared memory: keys and values, which have eight more columns of ones, so that the
 * product of weights and values has the weights' sum, too. Of f16 it lies as in the cache, the ones
 * behind it. Of fp8 values are [2][D + 8][8 tokens]. `raw` are bytes of fp8 on their way. */
template <int D, bool IS_F8> struct chunk_dims {
    static constexpr uint32_t bytes = 2 * mma_dims<D>::side, ones = CUDA_TILE_TOKENS * 16;
    static constexpr uint32_t tile = bytes + ones, stage = KV_TILES * tile;
    static constexpr uint32_t half = (D + 8) * 16;                    /* of fp8: 8 tokens' values */
    static constexpr uint32_t ring = IS_F8 ? RING_MAX - 1 : RING_MAX; /* tiles */
    static constexpr uint32_t raw_tile = bytes / 2, raw = IS_F8 ? RAW * KV_TILES * raw_tile : 0;
    static constexpr uint32_t kept = GROUPS * GROUP * D / 8 * (uint32_t)sizeof(float4);
    static constexpr uint32_t shared = ring * stage + kept + raw;
};

/* ---- what a block works on ---- */

/* A run and a KV head, and where their tiles come. */
struct chunk_item {
    const uint32_t *blocks;
    struct cuda_row_run run;
    struct reach all, common;   /* what its rows attend to: some of them, all of them */
    uint32_t kv_head, from, to; /* tiles */
};

/* Barriers of the ring's stages: a tile has come, and has been used. */
struct chunk_ring {
    uint8_t *buffers;
    uint32_t at, full, used;
    uint8_t *raw;
    uint32_t raw_full; /* barriers of RAW places for each warp */
};

/* Item `i` of all, the longest first if runs are of one sequence. */
template <int D>
static __device__ inline struct chunk_item item_of(const struct cuda_attention &a,
                                                   const struct cuda_row_run *table, uint32_t count,
                                                   uint32_t i) {
    struct chunk_item item;
    item.run = table[count - 1 - i / a.kv_heads];
    item.all = reach_of_run(a, item.run, &item.common);
    item.blocks = a.blocks + a.seq[item.run.first] * a.blocks_stride;
    item.kv_head = i % a.kv_heads;
    item.from = item.all.first / TILE;
    item.to = (item.all.end + TILE - 1) / TILE; /* nothing is attended: none */
    return item;
}

/* The ones of all KV tiles of the ring. */
template <int D, bool IS_F8> static __device__ inline void fill_ones(uint8_t *buffers) {
    using dims = chunk_dims<D, IS_F8>;
    for (uint32_t i = threadIdx.x; i < dims::ring * KV_TILES * 16; i += ALL_THREADS) {
        uint32_t behind = IS_F8 ? mma_dims<D>::side + i % 16 / 8 * dims::half + D * 16 + i % 8 * 16
                                : dims::bytes + i % 16 * 16;
        *(uint4 *)(buffers + i / 16 * dims::tile + behind) =
            uint4{0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
    }
}

/* The block's item of round `round`: there and back, so that blocks get the same work. */
template <int D> static __device__ inline uint32_t item_index(uint32_t round) {
    uint32_t b = blockIdx.x, blocks = gridDim.x;
    return round * blocks + (round % 2 ? blocks - 1 - b : b);
}

/* ---- the warps that bring tiles ---- */

/* Functions without template parameters are [[maybe_unused]]: code for GPUs without wgmma has none
 * of their callers. */

/* The items of a block, one after the other. The next one is looked up while tiles of this one are
 * on their way. */
struct chunk_items {
    const struct cuda_row_run *table;
    uint32_t count, all, round;
    struct chunk_item now, next;
};

template <int D>
static __device__ inline void look_ahead(const struct cuda_attention &a, struct chunk_items *s) {
    uint32_t i = item_index<D>(s->round + 1);
    if (i < s->all) s->next = item_of<D>(a, s->table, s->count, i);
}

[[maybe_unused]] static __device__ inline bool is_time_to_look(const struct chunk_item &item,
                                                               uint32_t t) {
    return t == min(item.from + 1, item.to - 1);
}

/* KV tile `i` of the cache, if something of it is attended to. */
[[maybe_unused]] static __device__ inline const uint8_t *
tile_of(const struct cuda_attention &a, const struct chunk_item &item, uint32_t i) {
    uint32_t first = i * CUDA_TILE_TOKENS;
    if (first >= item.all.end || first + CUDA_TILE_TOKENS <= item.all.first) return NULL;
    return cuda_kv_tile(&a.kv, item.blocks, i, a.layer, item.kv_head);
}

/* A warp brings all of an f16 tile as it lies. `done`: tiles that went through the ring; returns it
 * with those of the item. */
template <int D>
static __device__ inline uint32_t bring_item(const struct cuda_attention &a,
                                             struct chunk_items *items,
                                             const struct chunk_ring &ring, uint32_t done) {
    using dims = chunk_dims<D, false>;
    const struct chunk_item item = items->now;
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t t = item.from; t < item.to; t++, done++) {
        uint32_t stage = done % dims::ring;
        const uint8_t *tile = lane < KV_TILES ? tile_of(a, item, t * KV_TILES + lane) : NULL;
        uint32_t tiles = __popc(__ballot_sync(0xffffffffu, tile != NULL));
        if (done >= dims::ring) arrival_wait(ring.used + stage * 8, done / dims::ring - 1);
        if (lane == 0) arrival_expect(ring.full + stage * 8, tiles * dims::bytes);
        __syncwarp();
        uint32_t to = ring.at + stage * dims::stage + lane * dims::tile;
        if (tile) copy_bulk(to, tile, dims::bytes, ring.full + stage * 8);
        if (is_time_to_look(item, t)) look_ahead<D>(a, items);
    }
    return done;
}

/* Values of tokens that are not attended become zeros: `first` is the first of eight. */
[[maybe_unused]] static __device__ inline void clean_eight(const struct reach &all, uint32_t first,
                                                           uint4 *eight) {
    if (first >= all.first && first + 8 <= all.end) return;
    uint16_t *halves = (uint16_t *)eight;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        if (first + i < all.first || first + i >= all.end) halves[i] = 0;
}

/* A KV tile of fp8, whose first token is `first`, to f16: 16 bytes are 8 dimensions of two keys, or
 * one dimension of 16 values. Neighbours write the two halves in different orders: to other banks.
 */
template <int D>
static __device__ inline void spread_tile(const struct reach &all, uint32_t first,
                                          const uint8_t *from, uint8_t *to) {
    using dims = chunk_dims<D, true>;
    uint32_t lane = threadIdx.x % 32, turn = lane / 4 % 2;
    for (uint32_t i = lane; i < 2 * D; i += 32) {
        uint4 raw = *(const uint4 *)(from + i * 16), out[2];
        fp8_halves(raw.x, (__half2 *)&out[0].x);
        fp8_halves(raw.y, (__half2 *)&out[0].z);
        fp8_halves(raw.z, (__half2 *)&out[1].x);
        fp8_halves(raw.w, (__half2 *)&out[1].z);
        if (i < D) {
            *(uint4 *)(to + i * 32 + turn * 16) = turn ? out[1] : out[0];
            *(uint4 *)(to + i * 32 + 16 - turn * 16) = turn ? out[0] : out[1];
            continue;
        }
        uint8_t *values = to + mma_dims<D>::side + (i - D) * 16;
        clean_eight(all, first, &out[0]);
        clean_eight(all, first + 8, &out[1]);
        *(uint4 *)values = out[0];
        *(uint4 *)(values + dims::half) = out[1];
    }
}

/* The warp's KV tile of tile `t` to a place of its own. `n`: tiles that came there. */
template <int D>
static __device__ inline void bring_raw(const struct cuda_attention &a,
                                        const struct chunk_item &item,
                                        const struct chunk_ring &ring, uint32_t t, uint32_t n) {
    using dims = chunk_dims<D, true>;
    uint32_t warp = threadIdx.x / 32 % WARPS, place = n % RAW * WARPS + warp;
    const uint8_t *tile = t < item.to ? tile_of(a, item, t * KV_TILES + warp) : NULL;
    if (threadIdx.x % 32 != 0 || t >= item.to) return;
    arrival_expect(ring.raw_full + place * 8, tile ? dims::raw_tile : 0);
    if (tile)
        copy_bulk(shared_address(ring.raw + place * dims::raw_tile), tile, dims::raw_tile,
                  ring.raw_full + place * 8);
}

/* Each of four warps brings a KV tile of fp8 and makes f16 of it. As bring_item. */
template <int D>
static __device__ inline uint32_t spread_item(const struct cuda_attention &a,
                                              struct chunk_items *items,
                                              const struct chunk_ring &ring, uint32_t done) {
    using dims = chunk_dims<D, true>;
    const struct chunk_item item = items->now;
    uint32_t warp = threadIdx.x / 32 % WARPS;
    for (uint32_t i = 0; i < RAW; i++) bring_raw<D>(a, item, ring, item.from + i, done + i);
    for (uint32_t t = item.from; t < item.to; t++, done++) {
        uint32_t stage = done % dims::ring, place = done % RAW * WARPS + warp;
        uint32_t first = (t * KV_TILES + warp) * CUDA_TILE_TOKENS;
        if (done >= dims::ring) arrival_wait(ring.used + stage * 8, done / dims::ring - 1);
        arrival_wait(ring.raw_full + place * 8, done / RAW);
        spread_tile<D>(item.all, first, ring.raw + place * dims::raw_tile,
                       ring.buffers + stage * dims::stage + warp * dims::tile);
        fence_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrival_expect(ring.full + stage * 8, 0);
        bring_raw<D>(a, item, ring, t + RAW, done + RAW);
        if (is_time_to_look(item, t)) look_ahead<D>(a, items);
    }
    return done;
}

/* ---- the groups that compute ---- */

/* Values of tokens that are not attended become zeros: they may be anything, and 0 times that must
 * be 0. Each group does it for itself. */
template <int D>
static __device__ inline void clean_tile(const struct reach &all, uint32_t t, uint8_t *stage) {
    static constexpr uint32_t pieces = mma_dims<D>::side / 16;
    uint32_t first = t * TILE;
    if (first >= all.first && first + TILE <= all.end) return;
    for (uint32_t i = threadIdx.x % GROUP; i < KV_TILES * pieces; i += GROUP) {
        uint32_t tile = i / pieces, piece = i % pieces;
        uint32_t token = first + tile * CUDA_TILE_TOKENS + piece % CUDA_TILE_TOKENS;
        uint8_t *values = stage + tile * chunk_dims<D, false>::tile + mma_dims<D>::side;
        if (token < all.first || token >= all.end)
            *(uint4 *)(values + piece * 16) = uint4{0, 0, 0, 0};
    }
    fence_async();
    warpgroup_barrier(threadIdx.x / GROUP + 1);
}

/* Scores of tile `t`, number `n` of the ring: begun when it has come. */
template <int D, bool IS_F8>
static __device__ inline void
begin_scores(const struct chunk_item &item, const struct chunk_ring &ring, uint32_t t, uint32_t n,
             const uint32_t q[mma_dims<D>::steps][4], float s[TILE / 8][4]) {
    using dims = chunk_dims<D, IS_F8>;
    uint32_t offset = n % dims::ring * dims::stage;
    arrival_wait(ring.full + n % dims::ring * 8, n / dims::ring);
    if (!IS_F8) clean_tile<D>(item.all, t, ring.buffers + offset);
    uint64_t keys = wgmma_operand(ring.at + offset, AS_IN_CACHE, dims::tile);
    wgmma_begin();
#pragma unroll
    for (uint32_t step = 0; step < mma_dims<D>::steps; step++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
            wgmma_32_apart(s + half, q[step],
                           wgmma_operand_at(keys, 2 * step * AS_IN_CACHE + half * 128), step > 0);
    wgmma_end();
}

/* Sums of a thread's two queries over a segment; `weights` are operands of the last tile's. */
template <int D> struct chunk_sums {
    float max[2], sum[4], out[D / 8][4];
    uint32_t weights[KV_TILES][4];
};

/* out += weights * V and sum += weights * 1, or = in a segment's first tile, begun. */
template <int D, bool IS_F8>
static __device__ inline void begin_values(struct chunk_sums<D> *p, uint32_t stage, bool adds) {
    using dims = chunk_dims<D, IS_F8>;
    uint64_t values = wgmma_operand(stage + mma_dims<D>::side, IS_F8 ? dims::half : 128,
                                    IS_F8 ? 128 : AS_IN_CACHE);
    wgmma_begin();
#pragma unroll
    for (uint32_t i = 0; i < KV_TILES; i++) {
        uint64_t tile = wgmma_operand_at(values, i * dims::tile);
        if (D == 64)
            wgmma_72<!IS_F8>(p->out, p->sum, p->weights[i], tile, i > 0 || adds);
        else
            wgmma_136<!IS_F8>(p->out, p->sum, p->weights[i], tile, i > 0 || adds);
    }
    wgmma_end();
}

/* Sums of all segments so far: four of a thread's numbers at numbers[k * GROUPS * GROUP]. */
struct chunk_total {
    float max[2], sum[2];
    float4 *numbers;
};

template <int D>
static __device__ inline void join_chunk(float factor, bool is_first, const struct chunk_sums<D> &p,
                                         struct chunk_total *all) {
    struct join_factors f[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        f[i] = join_of(&all->max[i], &all->sum[i], p.max[i], p.sum[2 * i], factor);
    if (is_first) {
#pragma unroll
        for (uint32_t n = 0; n < D / 8; n++)
            all->numbers[n * GROUPS * GROUP] =
                make_float4(fmaf(p.out[n][0], f[0].b, 0.0f), fmaf(p.out[n][1], f[0].b, 0.0f),
                            fmaf(p.out[n][2], f[1].b, 0.0f), fmaf(p.out[n][3], f[1].b, 0.0f));
        return;
    }
#pragma unroll
    for (uint32_t n = 0; n < D / 8; n++) {
        float4 *at = all->numbers + n * GROUPS * GROUP, four = *at;
        four.x = join_one(f[0], four.x, p.out[n][0]);
        four.y = join_one(f[0], four.y, p.out[n][1]);
        four.z = join_one(f[1], four.z, p.out[n][2]);
        four.w = join_one(f[1], four.w, p.out[n][3]);
        *at = four;
    }
}

/* Sums so far in terms of the new maximum; a segment's first tile begins anew, whatever they are.
 * There is no branch for a maximum that stays: the compiler would make each wgmma wait. */
template <int D>
static __device__ inline void rescale_chunk(const float next[2], float factor,
                                            struct chunk_sums<D> *p) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float by = exp2_fast((p->max[i] - base_of(next[i])) * factor);
        p->max[i] = next[i];
        p->sum[2 * i] *= by;
        p->sum[2 * i + 1] *= by;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            p->out[n][2 * i] *= by;
            p->out[n][2 * i + 1] *= by;
        }
    }
}

/* A group at one item. */
template <int D> struct chunk_work {
    struct chunk_item item;
    struct chunk_ring ring;
    struct query q[2];
    float factor;
    uint32_t done; /* tiles that went through the ring before the item */
    uint32_t frags[mma_dims<D>::steps][4];
    struct chunk_sums<D> part;
    struct chunk_total all;
};

/* The values of tile `n` of the ring are no longer needed. */
template <int D, bool IS_F8>
static __device__ inline void release_tile(const struct chunk_ring &ring, uint32_t n) {
    if (threadIdx.x % 32 == 0) arrival_expect(ring.used + n % chunk_dims<D, IS_F8>::ring * 8, 0);
}

/* From scores of tile `t` to weights, still in f32; returns the new maxima in `next`. */
template <int D, bool HAS_CAP>
static __device__ inline void weigh_tile(const struct cuda_attention &a,
                                         const struct chunk_work<D> &w, uint32_t t, bool is_start,
                                         float s[TILE / 8][4], float next[2]) {
    if (HAS_CAP || !is_covered(w.item.common, t * TILE, TILE))
        mask_scores<TILE / 8, HAS_CAP>(a, w.q, t * TILE, s);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = max_of<TILE / 8>(s, i);
        next[i] = is_start ? top : fmaxf(w.part.max[i], top);
    }
    weights_of<TILE / 8>(next, w.factor, s);
}

template <int D>
static __device__ inline void pack_tile(const float s[TILE / 8][4], struct chunk_work<D> *w) {
#pragma unroll
    for (uint32_t i = 0; i < KV_TILES; i++) pack_weights(s + 2 * i, w->part.weights[i]);
}

/* Is `t` the first tile of a segment; is the segment before it the first of the item? */
template <int D>
static __device__ inline bool joins_first(const struct chunk_work<D> &w, uint32_t t) {
    return (t - 1) / PER_SEGMENT == w.item.from / PER_SEGMENT;
}

template <int D>
static __device__ inline void store_item(const struct cuda_attention &a,
                                         const struct chunk_work<D> &w) {
    float inverse[2] = {1.0f / w.all.sum[0], 1.0f / w.all.sum[1]};
#pragma unroll
    for (uint32_t n = 0; n < D / 8; n++) {
        float4 four = w.all.numbers[n * GROUPS * GROUP];
        uint32_t d = n * 8 + threadIdx.x % 4 * 2;
        store_two<D>(a, w.q[0], d, four.x * inverse[0], four.y * inverse[0]);
        store_two<D>(a, w.q[1], d, four.z * inverse[1], four.w * inverse[1]);
    }
}

template <int D, bool IS_F8, bool HAS_CAP>
static __device__ inline void attend_item(const struct cuda_attention &a, struct chunk_work<D> *w) {
    using dims = chunk_dims<D, IS_F8>;
    float s[TILE / 8][4], next[2];
    uint32_t from = w->item.from, to = w->item.to, n = w->done;
    bool adds = false;
    load_queries<D, false>(a, w->q, w->frags);
    w->all.max[0] = w->all.max[1] = -DEVICE_INF;
    w->all.sum[0] = w->all.sum[1] = 0.0f;
    begin_scores<D, IS_F8>(w->item, w->ring, from, n, w->frags, s);
    wgmma_wait<0>();
    wgmma_hold<TILE>(s);
    weigh_tile<D, HAS_CAP>(a, *w, from, true, s, next);
    w->part.max[0] = next[0];
    w->part.max[1] = next[1];
    pack_tile<D>(s, w);
    for (uint32_t t = from + 1; t < to; t++, n++) {
        bool is_start = t % PER_SEGMENT == 0;
        begin_scores<D, IS_F8>(w->item, w->ring, t, n + 1, w->frags, s);
        begin_values<D, IS_F8>(&w->part, w->ring.at + n % dims::ring * dims::stage, adds);
        wgmma_wait<1>();
        wgmma_hold<TILE>(s);
        weigh_tile<D, HAS_CAP>(a, *w, t, is_start, s, next);
        wgmma_hold<TILE>(s);
        if (is_start) {
            wgmma_wait_behind_branch<1>();
            wgmma_hold<D>(w->part.out);
            join_chunk<D>(w->factor, joins_first(*w, t), w->part, &w->all);
        } else {
            wgmma_wait_behind_branch<2>();
            wgmma_hold<D>(w->part.out);
        }
        release_tile<D, IS_F8>(w->ring, n);
        rescale_chunk<D>(next, w->factor, &w->part);
        pack_tile<D>(s, w);
        adds = !is_start;
    }
    begin_values<D, IS_F8>(&w->part, w->ring.at + n % dims::ring * dims::stage, adds);
    wgmma_wait<0>();
    wgmma_hold<D>(w->part.out);
    release_tile<D, IS_F8>(w->ring, n);
    join_chunk<D>(w->factor, joins_first(*w, to), w->part, &w->all);
    store_item<D>(a, *w);
}

/* A group without queries lets the tiles pass. */
template <int D, bool IS_F8>
static __device__ inline void pass_item(const struct chunk_item &item,
                                        const struct chunk_ring &ring, uint32_t done) {
    for (uint32_t n = done; n < done + item.to - item.from; n++) {
        arrival_wait(ring.full + n % chunk_dims<D, IS_F8>::ring * 8,
                     n / chunk_dims<D, IS_F8>::ring);
        release_tile<D, IS_F8>(ring, n);
    }
}

/* ---- the kernel ---- */

template <int D, bool IS_F8>
static __device__ inline void bring_items(const struct cuda_attention &a,
                                          const struct cuda_row_run *table, uint32_t count,
                                          const struct chunk_ring &ring) {
    struct chunk_items items = {table, count, count * a.kv_heads, 0};
    uint32_t done = 0;
    items.now = item_of<D>(a, table, count, item_index<D>(0));
    for (; items.round * gridDim.x < items.all; items.round++) {
        if (item_index<D>(items.round) >= items.all) continue;
        if (items.now.from >= items.now.to) look_ahead<D>(a, &items);
        done = IS_F8 ? spread_item<D>(a, &items, ring, done) : bring_item<D>(a, &items, ring, done);
        items.now = items.next;
    }
}

template <int D, bool IS_F8, bool HAS_CAP>
static __device__ inline void attend_items(const struct cuda_attention &a,
                                           const struct cuda_row_run *table, uint32_t count,
                                           const struct chunk_ring &ring, float4 *kept) {
    uint32_t items = count * a.kv_heads, done = 0, lane = threadIdx.x % 32;
    uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), group = warp / WARPS;
    struct chunk_work<D> w;
    w.ring = ring;
    w.factor = exponent_factor(a);
    w.all.numbers = kept + threadIdx.x;
    for (uint32_t r = 0; r * gridDim.x < items; r++) {
        uint32_t i = item_index<D>(r);
        if (i >= items) continue;
        w.item = item_of<D>(a, table, count, i);
        w.q[0] = query_of(a, w.item.run, w.item.kv_head, warp * 16 + lane / 4);
        w.q[1] = query_of(a, w.item.run, w.item.kv_head, warp * 16 + lane / 4 + 8);
        w.done = done;
        uint32_t queries = w.item.run.count * (a.heads / a.kv_heads);
        if (w.item.from < w.item.to && group * GROUP_QUERIES < queries)
            attend_item<D, IS_F8, HAS_CAP>(a, &w);
        else
            pass_item<D, IS_F8>(w.item, ring, done);
        done += w.item.to - w.item.from;
    }
}

template <int D, bool IS_F8, bool HAS_CAP>
static __global__ void __launch_bounds__(ALL_THREADS, 1)
    chunk_kernel(struct cuda_attention a, const struct cuda_row_run *table, uint32_t count) {
#if HAS_WGMMA
    using dims = chunk_dims<D, IS_F8>;
    /* A block starts with 65,536 registers, divided by its threads, rounded down to eights. The
     * groups would wait for ever for more than the warps that bring tiles have given. */
    static constexpr uint32_t STARTS = 65536 / ALL_THREADS / 8 * 8;
    static constexpr uint32_t GIVEN = IS_F8 ? 40 : 24, TAKEN = IS_F8 ? 232 : 240;
    static_assert(GROUPS * (TAKEN - STARTS) <= STARTS - GIVEN, "registers to take");
    extern __shared__ __align__(128) uint8_t buffers[];
    __shared__ __align__(8) uint64_t barriers[2][RING_MAX], raw_full[RAW * WARPS];
    /* The compiler sees that all lanes of a warp go the same way. */
    uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const struct chunk_ring ring = {buffers,
                                    shared_address(buffers),
                                    shared_address(barriers[0]),
                                    shared_address(barriers[1]),
                                    buffers + dims::ring * dims::stage + dims::kept,
                                    shared_address(raw_full)};
    fill_ones<D, IS_F8>(buffers);
    fence_async();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < dims::ring; i++) {
            arrival_init(ring.full + i * 8, IS_F8 ? WARPS : 1);
            arrival_init(ring.used + i * 8, GROUPS * WARPS);
        }
        for (uint32_t i = 0; i < RAW * WARPS; i++) arrival_init(ring.raw_full + i * 8, 1);
        arrivals_publish();
    }
    begin_kernel();
    __syncthreads();
    if (warp / WARPS == GROUPS) {
        give_registers<GIVEN>();
        if (IS_F8 || warp == GROUPS * WARPS) bring_items<D, IS_F8>(a, table, count, ring);
    } else {
        take_registers<TAKEN>();
        attend_items<D, IS_F8, HAS_CAP>(a, table, count, ring,
                                        (float4 *)(buffers + dims::ring * dims::stage));
    }
#endif
}

/* ---- launching ---- */

template <int D, bool IS_F8> static void prepare(void) {
    cudaFuncSetAttribute(chunk_kernel<D, IS_F8, false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)chunk_dims<D, IS_F8>::shared);
    cudaFuncSetAttribute(chunk_kernel<D, IS_F8, true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)chunk_dims<D, IS_F8>::shared);
}

void cuda_attention_chunk_prepare(void) {
    prepare<64, false>();
    prepare<64, true>();
    prepare<128, false>();
    prepare<128, true>();
}

template <int D, bool IS_F8>
static void launch_chunk(const struct cuda_attention *a, const struct cuda_row_run *table,
                         uint32_t count, const struct cuda_queue *queue) {
    uint32_t items = count * a->kv_heads, bytes = chunk_dims<D, IS_F8>::shared;
    uint32_t blocks = items < a->multiprocessors ? items : a->multiprocessors;
    if (a->softcap > 0.0f)
        launch(queue, chunk_kernel<D, IS_F8, true>, blocks, ALL_THREADS, bytes, *a, table, count);
    else
        launch(queue, chunk_kernel<D, IS_F8, false>, blocks, ALL_THREADS, bytes, *a, table, count);
}

void cuda_attention_chunk(const struct cuda_attention *a, const struct cuda_row_run *table,
                          uint32_t count, const struct cuda_queue *queue) {
    bool is_f8 = a->kv.type == KV_F8;
    if (a->head_dim == 64 && is_f8)
        launch_chunk<64, true>(a, table, count, queue);
    else if (a->head_dim == 64)
        launch_chunk<64, false>(a, table, count, queue);
    else if (is_f8)
        launch_chunk<128, true>(a, table, count, queue);
    else
        launch_chunk<128, false>(a, table, count, queue);
}
