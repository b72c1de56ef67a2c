/* kernels/cuda/attention_chunk.cu - attention_mma.cuh for prompts over a cache of f16, by wgmma
 * (Hopper's own machine code alone).
 *
 * Mapping: a block goes on from one run and KV head to another, the longest first: 128 queries, two
 * groups of four warps that compute 64 of them each, and a warp that brings tiles by bulk copies;
 * all segments, tile after tile. A KV tile lies in shared memory as in the cache: its keys, then
 * its values. While a group makes weights of a tile's scores, its wgmma still work on the values of
 * the tile before.
 * Scores: of four KV tiles the first 8 tokens each are one operand of wgmma, the last 8 the other,
 * because operands need the same distance from each 8 tokens to the next.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_sums.cuh"
#include "kernels/cuda/device_async.cuh"
#include "kernels/cuda/device_wgmma.cuh"

static constexpr uint32_t GROUP = 128, GROUP_QUERIES = 64; /* threads; queries of a group */
static constexpr uint32_t GROUPS = CUDA_CHUNK_QUERIES / GROUP_QUERIES;
static constexpr uint32_t ALL_THREADS = (GROUPS + 1) * GROUP;
static constexpr uint32_t RING = 4; /* tiles in shared memory */

static constexpr uint32_t ONES_BYTES = 256; /* operand b of a sum: 16 x 8 ones */

/* A block's shared memory: the ring, sums of all segments so far, ones. */
template <int D> static constexpr __host__ __device__ uint32_t shared_bytes(void) {
    return RING * mma_dims<D>::stage + GROUPS * GROUP * D / 8 * (uint32_t)sizeof(float4) +
           ONES_BYTES;
}

/* ---- what a block works on ---- */

/* A run and a KV head, and where their tiles come. */
struct chunk_item {
    const uint32_t *blocks;
    struct cuda_row_run run;
    struct reach all;
    uint32_t kv_head, from, to; /* tiles */
};

/* Barriers of the ring's stages: a tile has come, and has been used. */
struct chunk_ring {
    uint8_t *buffers;
    uint32_t at, full, used;
    uint32_t ones; /* operand b of a sum: 16 x 8 ones */
};

/* Item `i` of all, the longest first if runs are of one sequence. */
template <int D>
static __device__ inline struct chunk_item item_of(const struct cuda_attention &a,
                                                   const struct cuda_row_run *table, uint32_t count,
                                                   uint32_t i) {
    struct chunk_item item;
    item.run = table[count - 1 - i / a.kv_heads];
    item.all = reach_of_run(a, item.run);
    item.blocks = a.blocks + a.seq[item.run.first] * a.blocks_stride;
    item.kv_head = i % a.kv_heads;
    item.from = item.all.first / TILE;
    item.to = (item.all.end + TILE - 1) / TILE; /* nothing is attended: none */
    return item;
}

/* The block's item of round `round`: there and back, so that blocks get the same work. */
template <int D> static __device__ inline uint32_t item_index(uint32_t round) {
    uint32_t b = blockIdx.x, blocks = gridDim.x;
    return round * blocks + (round % 2 ? blocks - 1 - b : b);
}

/* ---- the warp that brings tiles ---- */

/* `done`: tiles that went through the ring; returns it with those of the item. */
template <int D>
static __device__ inline uint32_t bring_item(const struct cuda_attention &a,
                                             const struct chunk_item &item,
                                             const struct chunk_ring &ring, uint32_t done) {
    static constexpr uint32_t bytes = 2 * mma_dims<D>::side;
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t t = item.from; t < item.to; t++, done++) {
        uint32_t stage = done % RING, first = t * TILE + lane * CUDA_TILE_TOKENS;
        bool is_mine =
            lane < KV_TILES && first < item.all.end && first + CUDA_TILE_TOKENS > item.all.first;
        const uint8_t *tile = is_mine ? cuda_kv_tile(&a.kv, item.blocks, first / CUDA_TILE_TOKENS,
                                                     a.layer, item.kv_head)
                                      : NULL;
        uint32_t tiles = __popc(__ballot_sync(0xffffffffu, is_mine));
        if (done >= RING) arrival_wait(ring.used + stage * 8, done / RING - 1);
        if (lane == 0) arrival_expect(ring.full + stage * 8, tiles * bytes);
        __syncwarp();
        uint32_t to = ring.at + stage * mma_dims<D>::stage + lane * bytes;
        if (is_mine) copy_bulk(to, tile, bytes, ring.full + stage * 8);
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
        uint8_t *values = stage + (2 * tile + 1) * mma_dims<D>::side;
        if (token < all.first || token >= all.end)
            *(uint4 *)(values + piece * 16) = uint4{0, 0, 0, 0};
    }
    fence_async();
    warpgroup_barrier(threadIdx.x / GROUP + 1);
}

/* Scores of tile `t`, number `n` of the ring: begun when it has come. */
template <int D>
static __device__ inline void
begin_scores(const struct chunk_item &item, const struct chunk_ring &ring, uint32_t t, uint32_t n,
             const uint32_t q[mma_dims<D>::steps][4], float s[TILE / 8][4]) {
    uint32_t offset = n % RING * mma_dims<D>::stage, keys = ring.at + offset;
    arrival_wait(ring.full + n % RING * 8, n / RING);
    clean_tile<D>(item.all, t, ring.buffers + offset);
    wgmma_begin();
#pragma unroll
    for (uint32_t step = 0; step < mma_dims<D>::steps; step++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
            wgmma_32_apart(s + half, q[step],
                           wgmma_operand(keys + 2 * step * AS_IN_CACHE + half * 128, AS_IN_CACHE,
                                         2 * mma_dims<D>::side),
                           step > 0);
    wgmma_end();
}

/* Sums of a thread's two queries over a segment; `weights` are operands of the last tile's. */
template <int D> struct chunk_sums {
    float max[2], sum[4], out[D / 8][4];
    uint32_t weights[KV_TILES][4];
};

/* out += weights * V and sum += weights * 1, or = in a segment's first tile, begun. */
template <int D>
static __device__ inline void begin_values(struct chunk_sums<D> *p, uint32_t stage, uint32_t ones,
                                           bool adds) {
    wgmma_begin();
#pragma unroll
    for (uint32_t i = 0; i < KV_TILES; i++) {
        uint64_t values = wgmma_operand(stage + (2 * i + 1) * mma_dims<D>::side, 128, AS_IN_CACHE);
        if (D == 64)
            wgmma_64<true>(p->out, p->weights[i], values, i > 0 || adds);
        else
            wgmma_128<true>(p->out, p->weights[i], values, i > 0 || adds);
        wgmma_8(p->sum, p->weights[i], wgmma_operand(ones, 128, 128), i > 0 || adds);
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
#pragma unroll
    for (uint32_t n = 0; n < D / 8; n++) {
        float4 *at = all->numbers + n * GROUPS * GROUP;
        float4 four = is_first ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *at;
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
template <int D>
static __device__ inline void release_tile(const struct chunk_ring &ring, uint32_t n) {
    if (threadIdx.x % 32 == 0) arrival_expect(ring.used + n % RING * 8, 0);
}

/* From scores of tile `t` to weights, still in f32; returns the new maxima in `next`. */
template <int D, bool HAS_CAP>
static __device__ inline void weigh_tile(const struct cuda_attention &a,
                                         const struct chunk_work<D> &w, uint32_t t, bool is_start,
                                         float s[TILE / 8][4], float next[2]) {
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
#pragma unroll
    for (uint32_t n = 0; n < D / 8; n++) {
        float4 four = w.all.numbers[n * GROUPS * GROUP];
        uint32_t d = n * 8 + threadIdx.x % 4 * 2;
        if (w.q[0].reach.end > 0)
            store_two<D>(a, w.q[0], d, four.x / w.all.sum[0], four.y / w.all.sum[0]);
        if (w.q[1].reach.end > 0)
            store_two<D>(a, w.q[1], d, four.z / w.all.sum[1], four.w / w.all.sum[1]);
    }
}

template <int D, bool HAS_CAP>
static __device__ inline void attend_item(const struct cuda_attention &a, struct chunk_work<D> *w) {
    float s[TILE / 8][4], next[2];
    uint32_t from = w->item.from, to = w->item.to, n = w->done;
    bool adds = false;
    load_queries<D, false>(a, w->q, w->frags);
    w->all.max[0] = w->all.max[1] = -DEVICE_INF;
    w->all.sum[0] = w->all.sum[1] = 0.0f;
    begin_scores<D>(w->item, w->ring, from, n, w->frags, s);
    wgmma_wait<0>();
    wgmma_hold<TILE>(s);
    weigh_tile<D, HAS_CAP>(a, *w, from, true, s, next);
    w->part.max[0] = next[0];
    w->part.max[1] = next[1];
    pack_tile<D>(s, w);
    for (uint32_t t = from + 1; t < to; t++, n++) {
        bool is_start = t % PER_SEGMENT == 0;
        begin_scores<D>(w->item, w->ring, t, n + 1, w->frags, s);
        begin_values<D>(&w->part, w->ring.at + n % RING * mma_dims<D>::stage, w->ring.ones, adds);
        wgmma_wait<1>();
        wgmma_hold<TILE>(s);
        weigh_tile<D, HAS_CAP>(a, *w, t, is_start, s, next);
        wgmma_wait<0>();
        wgmma_hold<D>(w->part.out);
        release_tile<D>(w->ring, n);
        if (is_start) join_chunk<D>(w->factor, joins_first(*w, t), w->part, &w->all);
        rescale_chunk<D>(next, w->factor, &w->part);
        pack_tile<D>(s, w);
        adds = !is_start;
    }
    begin_values<D>(&w->part, w->ring.at + n % RING * mma_dims<D>::stage, w->ring.ones, adds);
    wgmma_wait<0>();
    wgmma_hold<D>(w->part.out);
    release_tile<D>(w->ring, n);
    join_chunk<D>(w->factor, joins_first(*w, to), w->part, &w->all);
    store_item<D>(a, *w);
}

/* A group without queries lets the tiles pass. */
template <int D>
static __device__ inline void pass_item(const struct chunk_item &item,
                                        const struct chunk_ring &ring, uint32_t done) {
    for (uint32_t n = done; n < done + item.to - item.from; n++) {
        arrival_wait(ring.full + n % RING * 8, n / RING);
        release_tile<D>(ring, n);
    }
}

/* ---- the kernel ---- */

template <int D, bool HAS_CAP>
static __global__ void __launch_bounds__(ALL_THREADS, 1)
    chunk_kernel(struct cuda_attention a, const struct cuda_row_run *table, uint32_t count) {
#if HAS_WGMMA
    extern __shared__ __align__(128) uint8_t buffers[];
    __shared__ __align__(8) uint64_t barriers[2][RING];
    /* The compiler sees that all lanes of a warp go the same way. */
    uint32_t lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    uint32_t group = warp / WARPS;
    uint32_t *ones = (uint32_t *)(buffers + shared_bytes<D>() - ONES_BYTES);
    const struct chunk_ring ring = {buffers, shared_address(buffers), shared_address(barriers[0]),
                                    shared_address(barriers[1]), shared_address(ones)};
    if (threadIdx.x < 64) ones[threadIdx.x] = 0x3c003c00u;
    fence_async();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < RING; i++) {
            arrival_init(ring.full + i * 8, 1);
            arrival_init(ring.used + i * 8, GROUPS * WARPS);
        }
        arrivals_publish();
    }
    begin_kernel();
    __syncthreads();
    uint32_t items = count * a.kv_heads, done = 0;
    if (group == GROUPS) {
        give_registers<24>();
        if (warp > GROUPS * WARPS) return;
        for (uint32_t r = 0; r * gridDim.x < items; r++) {
            uint32_t i = item_index<D>(r);
            if (i < items) done = bring_item<D>(a, item_of<D>(a, table, count, i), ring, done);
        }
        return;
    }
    take_registers<240>();
    struct chunk_work<D> w;
    w.ring = ring;
    w.factor = exponent_factor(a);
    w.all.numbers = (float4 *)(buffers + RING * mma_dims<D>::stage) + threadIdx.x;
    for (uint32_t r = 0; r * gridDim.x < items; r++) {
        uint32_t i = item_index<D>(r);
        if (i >= items) continue;
        w.item = item_of<D>(a, table, count, i);
        w.q[0] = query_of(a, w.item.run, w.item.kv_head, warp * 16 + lane / 4);
        w.q[1] = query_of(a, w.item.run, w.item.kv_head, warp * 16 + lane / 4 + 8);
        w.done = done;
        uint32_t queries = w.item.run.count * (a.heads / a.kv_heads);
        if (w.item.from < w.item.to && group * GROUP_QUERIES < queries)
            attend_item<D, HAS_CAP>(a, &w);
        else
            pass_item<D>(w.item, ring, done);
        done += w.item.to - w.item.from;
    }
#endif
}

/* ---- launching ---- */

template <int D> static void prepare(void) {
    cudaFuncSetAttribute(chunk_kernel<D, false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)shared_bytes<D>());
    cudaFuncSetAttribute(chunk_kernel<D, true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)shared_bytes<D>());
}

void cuda_attention_chunk_prepare(void) {
    prepare<64>();
    prepare<128>();
}

template <int D>
static void launch_chunk(const struct cuda_attention *a, const struct cuda_row_run *table,
                         uint32_t count, const struct cuda_queue *queue) {
    uint32_t items = count * a->kv_heads;
    uint32_t blocks = items < a->multiprocessors ? items : a->multiprocessors;
    if (a->softcap > 0.0f)
        launch(queue, chunk_kernel<D, true>, blocks, ALL_THREADS, shared_bytes<D>(), *a, table,
               count);
    else
        launch(queue, chunk_kernel<D, false>, blocks, ALL_THREADS, shared_bytes<D>(), *a, table,
               count);
}

void cuda_attention_chunk(const struct cuda_attention *a, const struct cuda_row_run *table,
                          uint32_t count, const struct cuda_queue *queue) {
    if (a->head_dim == 64)
        launch_chunk<64>(a, table, count, queue);
    else
        launch_chunk<128>(a, table, count, queue);
}
