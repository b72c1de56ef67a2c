/* kernels/cuda/attention_mma.cu - attention_mma.cuh for rows that are few or in short runs, and the
 * entry points for all.
 *
 * Mapping: 4 warps, 16 queries and one segment, or all where there are many rows; each warp takes
 * 16 tokens of a tile, then a quarter of the dimensions. Tiles lie in shared memory as in the
 * cache: they come by cp.async into two buffers, or in decoding by bulk copies of a fifth warp.
 * Cost: decoding reads K and V once for all queries of a KV head; 32 KB and more in flight for each
 * block, of which a multiprocessor has three.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/attention_few.cuh"
#include "kernels/cuda/device_async.cuh"
#include "kernels/cuda/device_qkv.cuh"

/* ---- what a block works on ---- */

static __device__ struct cuda_row_run run_of(const struct cuda_row_run *table, uint32_t i) {
    if (!table) return {i, 1};
    return table[i];
}

/* ---- bringing tiles ---- */

/* The warp's KV tile; values of tokens that are not attended become zeros. */
template <int D>
static __device__ void bring(const uint8_t *tile, const uint8_t *any, uint32_t t, struct reach all,
                             uint32_t stage) {
    using dims = mma_dims<D>;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t first = t * TILE + warp * CUDA_TILE_TOKENS, to = stage + warp * 2 * dims::side;
    const uint8_t *from = tile ? tile : any;
#pragma unroll
    for (uint32_t i = lane; i < dims::side / 16; i += 32) {
        uint32_t token = first + i % CUDA_TILE_TOKENS;
        bool is_inside = tile && token >= all.first && token < all.end;
        copy_16(to + i * 16, from + i * 16, tile != NULL);
        copy_16(to + dims::side + i * 16, from + dims::side + i * 16, is_inside);
    }
}

/* ---- short runs ---- */

static __device__ inline uint32_t first_tile(uint32_t segment, struct reach all) {
    return max(segment * PER_SEGMENT, all.first / TILE);
}

/* Tile `t`, whose KV tile of this warp is `tile`, to its buffer. */
template <int D, bool IS_F8>
static __device__ inline void bring_tile(const struct cuda_attention &a,
                                         const struct short_work<D> &w, const uint8_t *tile,
                                         uint32_t t) {
    if (IS_F8)
        bring_f8<D>(tile, a.kv.base, w.ring + t % STAGES * mma_dims<D>::f8_stage);
    else
        bring<D>(tile, a.kv.base, t, w.all, w.ring + t % STAGES * mma_dims<D>::stage);
}

/* The first tile of a segment is on its way. */
template <int D, bool IS_F8>
static __device__ void bring_first(const struct cuda_attention &a, const struct short_work<D> &w,
                                   uint32_t segment) {
    uint32_t t = first_tile(segment, w.all);
    bring_tile<D, IS_F8>(a, w, find_tile(a, w.blocks, w.all, w.kv_head, t), t);
    copies_commit();
}

/* A segment whose first tile is on its way. Where the block goes on with the next segment, the
 * first tile of that is on its way at the end. */
template <int D, bool IS_F8>
static __device__ void attend_short(const struct cuda_attention &a, const struct short_work<D> &w,
                                    uint32_t segment, struct short_sums<D> *sums) {
    using dims = mma_dims<D>;
    uint32_t from = first_tile(segment, w.all);
    uint32_t to = min((segment + 1) * PER_SEGMENT, (w.all.end + TILE - 1) / TILE);
    uint32_t last = a.segments > 1 ? to : (w.all.end + TILE - 1) / TILE;
    const uint8_t *next = find_tile(a, w.blocks, w.all, w.kv_head, from + 1);
    for (uint32_t t = from; t < to; t++) {
        uint32_t stage = t % STAGES * (IS_F8 ? dims::f8_stage : dims::stage);
        if (t + 1 < last) bring_tile<D, IS_F8>(a, w, next, t + 1);
        copies_commit();
        next = find_tile(a, w.blocks, w.all, w.kv_head, t + 2);
        copies_wait<1>();
        __syncthreads();
        attend_tile<D, IS_F8>(a, w, t, stage, sums);
        __syncthreads(); /* this tile's buffer is free for the next but one */
    }
}

/* Of all segments so far. */
template <int D> struct all_sums { float max[2], sum[2], out[D / 32][4]; };

template <int D> static __device__ inline void clear_all(struct all_sums<D> *s) {
    s->max[0] = s->max[1] = -DEVICE_INF;
    s->sum[0] = s->sum[1] = 0.0f;
#pragma unroll
    for (uint32_t n = 0; n < D / 8; n++) s->out[n / 4][n % 4] = 0.0f;
}

template <int D>
static __device__ inline void join_segment(float factor, const struct short_sums<D> &s,
                                           struct all_sums<D> *all) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        struct join_factors f = join_of(&all->max[i], &all->sum[i], s.max[i], s.sum[2 * i], factor);
#pragma unroll
        for (uint32_t n = 0; n < D / 16; n++) {
            float *one = &all->out[n / 2][2 * i + n % 2];
            *one = join_one(f, *one, s.out[n / 2][2 * i + n % 2]);
        }
    }
}

template <int D>
static __device__ inline void store_all(const struct cuda_attention &a, const struct query q[2],
                                        const struct all_sums<D> &all) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float by[2] = {1.0f / all.sum[0], 1.0f / all.sum[1]};
#pragma unroll
    for (uint32_t n = 0; n < D / 16; n++) {
        uint32_t i = n % 2, d = warp * (D / 4) + n / 2 * 8 + lane % 4 * 2;
        store_two<D>(a, q[i], d, all.out[n / 2][2 * i] * by[i], all.out[n / 2][2 * i + 1] * by[i]);
    }
}

/* Where every row is the one new token of its sequence, tiles without that token hold what earlier
 * steps wrote, so the first of them is fetched before the kernels in front have ended. */
template <int D, bool IS_F8>
static __global__ void __launch_bounds__(THREADS)
    short_kernel(struct cuda_attention a, const struct cuda_row_run *table) {
    extern __shared__ __align__(128) uint8_t buffers[];
    __shared__ struct short_shared m;
    admit_next_kernel();
    struct cuda_row_run run = run_of(table, blockIdx.x);
    struct reach reach = reach_of_run(a, run);
    uint32_t lane = threadIdx.x % 32, kv_head = blockIdx.y;
    uint32_t from = reach.first / SEGMENT + blockIdx.z, end = (reach.end + SEGMENT - 1) / SEGMENT;
    bool is_idle = from >= end;
    struct short_work<D> w;
    w.blocks = a.blocks + a.seq[run.first] * a.blocks_stride;
    w.q[0] = query_of(a, run, kv_head, lane / 4);
    w.q[1] = query_of(a, run, kv_head, lane / 4 + 8);
    w.all = reach;
    w.kv_head = kv_head;
    w.ring = shared_address(buffers);
    w.buffers = buffers;
    w.shared = &m;
    bool is_old = !table && !is_idle && (first_tile(from, reach) + 1) * TILE < reach.end;
    if (is_old) bring_first<D, IS_F8>(a, w, from);
    wait_for_inputs();
    if (is_idle) return;
    if (!is_old) bring_first<D, IS_F8>(a, w, from);
    load_queries<D, IS_F8>(a, w.q, w.frags);
    struct all_sums<D> all;
    clear_all<D>(&all);
    if (a.segments > 1) end = from + 1;
    for (uint32_t segment = from; segment < end; segment++) {
        struct short_sums<D> s;
        clear_sums<D>(&s);
        attend_short<D, IS_F8>(a, w, segment, &s);
        if (a.segments > 1) {
            store_part<D>(a, w.q[0], segment, 0, s);
            store_part<D>(a, w.q[1], segment, 1, s);
        } else {
            join_segment<D>(exponent_factor(a), s, &all);
        }
    }
    if (a.segments == 1) store_all<D>(a, w.q, all);
}

/* ---- few sequences: all from the product of queries, keys and values on in one launch ---- */

/* A block's queries, then the newest key and value; later, its part of the result. */
template <int D> struct fresh_heads {
    __align__(16) float at[CUDA_SHORT_QUERIES + 2][D];
    float max[CUDA_SHORT_QUERIES], sum[CUDA_SHORT_QUERIES];
};

/* Norms and rotations of the block's queries, in shared memory alone; and of the newest key, which
 * goes to the cache with its value if the block attends to them. */
template <int D>
static __device__ void turn_fresh(const struct cuda_attention &a, const struct cuda_qkv &n,
                                  const struct turns &t, const struct short_work<D> &w,
                                  uint32_t row, bool is_newest, struct fresh_heads<D> *heads) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = a.heads / a.kv_heads;
    uint32_t count = group + (is_newest ? 2 : 0), pos = w.all.end - 1;
    for (uint32_t h = warp; h < count; h += WARPS) {
        const struct cuda_mat &from = h < group ? n.q : h == group ? n.k : n.v;
        const float *x = mat_f32(from, row) + (h < group ? w.kv_head * group + h : w.kv_head) * D;
        for (uint32_t i = lane; i < D; i += 32) heads->at[h][i] = x[i];
    }
    __syncwarp();
    for (uint32_t h = warp; h < count; h += WARPS) {
        bool is_value = h > group;
        if (!is_value) turn_head(n, h < group ? n.q_norm : n.k_norm, t, heads->at[h]);
        if (h < group) continue;
        uint8_t *tile = cuda_kv_tile(&n.kv, w.blocks, pos / CUDA_TILE_TOKENS, n.layer, w.kv_head);
        if (is_value) tile += cuda_kv_side_bytes(n.kv.type, n.kv.head_dim);
        write_side(n.kv, heads->at[h], is_value, pos % CUDA_TILE_TOKENS, tile);
    }
    __syncthreads();
}

/* The block's part to where the others of its cluster find it. */
template <int D>
static __device__ void keep_part(uint32_t i, const struct short_sums<D> &s, uint32_t query,
                                 struct fresh_heads<D> *heads) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (uint32_t n = 0; n < D / 32; n++) {
        uint32_t d = warp * (D / 4) + n * 8 + lane % 4 * 2;
        heads->at[query][d] = s.out[n][2 * i];
        heads->at[query][d + 1] = s.out[n][2 * i + 1];
    }
    if (warp != 0 || lane % 4 != 0) return;
    heads->max[query] = s.max[i];
    heads->sum[query] = s.sum[2 * i];
}

/* join_kernel's sums, by all blocks of a cluster: each has the part of the segment of its rank. */
template <int D>
static __device__ void join_cluster(const struct cuda_attention &a, const struct short_work<D> &w,
                                    uint32_t row, const struct fresh_heads<D> &heads) {
    uint32_t group = a.heads / a.kv_heads, parts = 0;
    if (w.all.end > 0) parts = (w.all.end - 1) / SEGMENT - w.all.first / SEGMENT + 1;
    float factor = exponent_factor(a);
    for (uint32_t i = blockIdx.z * THREADS + threadIdx.x; parts > 0 && i < group * D / 2;
         i += gridDim.z * THREADS) {
        uint32_t query = i / (D / 2), d = i % (D / 2) * 2;
        float max = -DEVICE_INF, sum = 0.0f;
        float2 out = make_float2(0.0f, 0.0f);
#pragma unroll 4
        for (uint32_t p = 0; p < parts; p++) {
            struct join_factors f = join_of(&max, &sum, cluster_float(&heads.max[query], p),
                                            cluster_float(&heads.sum[query], p), factor);
            out.x = join_one(f, out.x, cluster_float(&heads.at[query][d], p));
            out.y = join_one(f, out.y, cluster_float(&heads.at[query][d + 1], p));
        }
        const struct query q = {row, w.kv_head * group + query, w.all};
        float by = 1.0f / sum;
        store_two<D>(a, q, d, out.x * by, out.y * by);
    }
}

/* All blocks of the cluster call it, with their sums, unless they are idle. */
template <int D>
static __device__ void end_cluster(const struct cuda_attention &a, const struct short_work<D> &w,
                                   uint32_t row, bool is_idle, const struct short_sums<D> &s,
                                   struct fresh_heads<D> *heads) {
    uint32_t query = threadIdx.x % 32 / 4, group = a.heads / a.kv_heads;
    if (!is_idle && query < group) keep_part<D>(0, s, query, heads);
    if (!is_idle && query + 8 < group) keep_part<D>(1, s, query + 8, heads);
    cluster_barrier();
    join_cluster<D>(a, w, row, *heads);
    cluster_barrier(); /* the others have read this block's part */
}

/* short_kernel with norms, rotation and cache in front, and with the join behind if the segments of
 * a row and KV head are a cluster. The next kernel is admitted late: its blocks would take the room
 * of those in front of this one, some of them two on one multiprocessor. */
template <int D, bool IS_F8, bool IS_CLUSTER>
static __global__ void __launch_bounds__(THREADS)
    fresh_kernel(struct cuda_attention a, struct cuda_qkv n) {
    extern __shared__ __align__(128) uint8_t buffers[];
    __shared__ struct short_shared m;
    __shared__ struct fresh_heads<D> heads;
    const struct cuda_row_run run = {blockIdx.x, 1};
    uint32_t lane = threadIdx.x % 32, kv_head = blockIdx.y;
    struct reach reach = reach_of_run(a, run);
    uint32_t segment = reach.first / SEGMENT + blockIdx.z;
    bool is_idle = segment * SEGMENT >= reach.end;
    struct short_work<D> w;
    struct short_sums<D> s;
    struct turns t;
    w.blocks = a.blocks + a.seq[run.first] * a.blocks_stride;
    w.q[0] = query_of(a, run, kv_head, lane / 4);
    w.q[1] = query_of(a, run, kv_head, lane / 4 + 8);
    w.all = reach;
    w.kv_head = kv_head;
    w.ring = shared_address(buffers);
    w.buffers = buffers;
    w.shared = &m;
    bool is_newest = (segment + 1) * SEGMENT >= reach.end;
    bool is_old = !is_idle && (first_tile(segment, reach) + 1) * TILE < reach.end;
    if (is_old) bring_first<D, IS_F8>(a, w, segment);
    if (!is_idle) find_turns(n, (float)(reach.end - 1), &t);
    wait_for_inputs();
    admit_next_kernel();
    if (!is_idle) {
        const float *from[2];
        turn_fresh<D>(a, n, t, w, run.first, is_newest, &heads);
        if (!is_old) bring_first<D, IS_F8>(a, w, segment);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            from[i] = w.q[i].reach.end > 0 ? heads.at[lane / 4 + 8 * i] : NULL;
        take_queries<D, IS_F8>(from, w.frags);
        clear_sums<D>(&s);
        attend_short<D, IS_F8>(a, w, segment, &s);
    }
    if (!IS_CLUSTER && !is_idle) {
        store_part<D>(a, w.q[0], segment, 0, s);
        store_part<D>(a, w.q[1], segment, 1, s);
    }
    if (IS_CLUSTER) end_cluster<D>(a, w, run.first, is_idle, s, &heads);
}

/* A block owns a run, of which a warp owns a query; a thread every 32nd pair of dimensions. */
template <int D>
static __global__ void __launch_bounds__(THREADS)
    join_kernel(struct cuda_attention a, const struct cuda_row_run *table) {
    begin_kernel();
    struct cuda_row_run run = run_of(table, blockIdx.x);
    uint32_t row = run.first + blockIdx.y, head = blockIdx.z * WARPS + threadIdx.x / 32;
    if (blockIdx.y >= run.count || head >= a.heads || a.pos[row] < 0) return;
    struct query q = {row, head, reach_of(a, a.pos[row])};
    float2 out[D / 64];
    join_parts<D>(a, q, out);
#pragma unroll
    for (uint32_t n = 0; n < D / 64; n++)
        store_two<D>(a, q, n * 64 + threadIdx.x % 32 * 2, out[n].x, out[n].y);
}

/* ---- decoding ---- */

/* The newest rows of sequences (Hopper): of a row and a KV head all segments, or one. A block goes
 * on from one such item to the next. A fifth warp brings tiles by bulk copies into a ring of some
 * stages, as far ahead as it has room; those without the newest token before the kernels in front
 * have ended. */
struct stream_item {
    struct reach all;
    uint32_t row, kv_head, segment, from, to; /* tiles; none of a row that is not live */
};

static __device__ inline struct stream_item item_of(const struct cuda_attention &a, uint32_t i) {
    struct stream_item item;
    item.kv_head = i % a.kv_heads;
    item.row = i / a.kv_heads / a.segments;
    item.all = reach_of(a, a.pos[item.row]);
    item.segment = item.all.first / SEGMENT + i / a.kv_heads % a.segments;
    item.from = item.all.first / TILE;
    item.to = (item.all.end + TILE - 1) / TILE;
    if (a.segments > 1) {
        item.from = max(item.from, item.segment * PER_SEGMENT);
        item.to = min(item.to, (item.segment + 1) * PER_SEGMENT);
    }
    return item;
}

struct stream_ring {
    uint8_t *buffers;
    uint32_t at, full, used, stages;
};

/* A place in the ring: the stage, and how often the ring was gone through. */
struct stream_place {
    uint32_t stage, round;
};

static __device__ inline void go_on(const struct stream_ring &ring, struct stream_place *p) {
    if (++p->stage < ring.stages) return;
    p->stage = 0;
    p->round++;
}

template <int D, bool IS_F8>
static __device__ inline void bring_items(const struct cuda_attention &a, uint32_t items,
                                          const struct stream_ring &ring) {
    static constexpr uint32_t bytes = 2 * (IS_F8 ? mma_dims<D>::f8_side : mma_dims<D>::side);
    struct stream_place p = {0, 0};
    uint32_t lane = threadIdx.x % 32;
    bool is_behind = false; /* the kernels in front */
    for (uint32_t i = blockIdx.x; i < items; i += gridDim.x) {
        struct stream_item item = item_of(a, i);
        const uint32_t *blocks = a.blocks + a.seq[item.row] * a.blocks_stride;
        for (uint32_t t = item.from; t < item.to; t++, go_on(ring, &p)) {
            uint32_t first = t * TILE + lane * CUDA_TILE_TOKENS;
            bool is_mine = lane < KV_TILES && first < item.all.end &&
                           first + CUDA_TILE_TOKENS > item.all.first;
            const uint8_t *tile = is_mine ? cuda_kv_tile(&a.kv, blocks, first / CUDA_TILE_TOKENS,
                                                         a.layer, item.kv_head)
                                          : NULL;
            uint32_t tiles = __popc(__ballot_sync(0xffffffffu, is_mine));
            if (p.round > 0) arrival_wait(ring.used + p.stage * 8, p.round - 1);
            if (!is_behind && (t + 1) * TILE >= item.all.end) {
                wait_for_inputs();
                is_behind = true;
            }
            if (lane == 0) arrival_expect(ring.full + p.stage * 8, tiles * bytes);
            __syncwarp();
            uint32_t to = ring.at + (p.stage * KV_TILES + lane) * bytes;
            if (is_mine) copy_bulk(to, tile, bytes, ring.full + p.stage * 8);
        }
    }
    if (!is_behind) wait_for_inputs();
}

template <int D, bool IS_F8>
static __device__ inline void attend_items(const struct cuda_attention &a, uint32_t items,
                                           const struct stream_ring &ring, struct short_shared *m) {
    using dims = mma_dims<D>;
    uint32_t lane = threadIdx.x % 32;
    struct stream_place p = {0, 0};
    float factor = exponent_factor(a);
    for (uint32_t i = blockIdx.x; i < items; i += gridDim.x) {
        struct stream_item item = item_of(a, i);
        const struct cuda_row_run run = {item.row, 1};
        if (item.from >= item.to) continue;
        struct short_work<D> w;
        struct short_sums<D> sums;
        struct all_sums<D> all;
        w.q[0] = query_of(a, run, item.kv_head, lane / 4);
        w.q[1] = query_of(a, run, item.kv_head, lane / 4 + 8);
        w.all = item.all;
        w.ring = ring.at;
        w.buffers = ring.buffers;
        w.shared = m;
        load_queries<D, IS_F8>(a, w.q, w.frags);
        clear_sums<D>(&sums);
        clear_all<D>(&all);
        for (uint32_t t = item.from; t < item.to; t++, go_on(ring, &p)) {
            uint32_t stage = p.stage * (IS_F8 ? dims::f8_stage : dims::stage);
            arrival_wait(ring.full + p.stage * 8, p.round);
            if (!IS_F8) clean_values<D>(item.all, t, ring.buffers + stage);
            attend_tile<D, IS_F8>(a, w, t, stage, &sums);
            __syncwarp();
            if (lane == 0) arrival_expect(ring.used + p.stage * 8, 0);
            if (a.segments > 1 || ((t + 1) % PER_SEGMENT != 0 && t + 1 != item.to)) continue;
            join_segment<D>(factor, sums, &all);
            clear_sums<D>(&sums);
        }
        if (a.segments == 1) {
            store_all<D>(a, w.q, all);
            continue;
        }
        store_part<D>(a, w.q[0], item.segment, 0, sums);
        store_part<D>(a, w.q[1], item.segment, 1, sums);
    }
}

static constexpr uint32_t STREAM_THREADS = THREADS + 32, STREAM_STAGES = 4; /* at most */

template <int D, bool IS_F8>
static __global__ void __launch_bounds__(STREAM_THREADS, CUDA_WHOLE_BLOCKS)
    stream_kernel(struct cuda_attention a, uint32_t items, uint32_t stages) {
    extern __shared__ __align__(128) uint8_t buffers[];
    __shared__ struct short_shared m;
    __shared__ __align__(8) uint64_t barriers[2][STREAM_STAGES];
    const struct stream_ring ring = {buffers, shared_address(buffers), shared_address(barriers[0]),
                                     shared_address(barriers[1]), stages};
    admit_next_kernel();
    if (threadIdx.x == 0) {
        for (uint32_t k = 0; k < stages; k++) {
            arrival_init(ring.full + k * 8, 1);
            arrival_init(ring.used + k * 8, WARPS);
        }
        arrivals_publish();
    }
    __syncthreads();
    if (threadIdx.x >= THREADS) {
        bring_items<D, IS_F8>(a, items, ring);
        return;
    }
    wait_for_inputs();
    attend_items<D, IS_F8>(a, items, ring, &m);
}

/* ---- launching ---- */

static constexpr uint32_t CLUSTER_MAX = 8; /* blocks that every card can run together */
static constexpr uint32_t FRESH_ROWS = 4;  /* with 8 it was slower than three launches on an H200 */

template <int D, bool IS_F8> static constexpr uint32_t ring_bytes(void) {
    return STAGES * (IS_F8 ? mma_dims<D>::f8_stage : mma_dims<D>::stage);
}

template <int D, bool IS_F8>
static void launch_short(const struct cuda_attention *a, const struct cuda_row_runs *runs,
                         const struct cuda_queue *queue) {
    uint32_t group = a->heads / a->kv_heads, rows = runs->table ? CUDA_SHORT_QUERIES / group : 1;
    dim3 parts(runs->short_count, a->kv_heads, a->segments);
    dim3 joins(runs->short_count, rows, (a->heads + WARPS - 1) / WARPS);
    launch(queue, short_kernel<D, IS_F8>, parts, THREADS, ring_bytes<D, IS_F8>(), *a, runs->table);
    if (a->segments > 1) launch(queue, join_kernel<D>, joins, THREADS, 0, *a, runs->table);
}

/* Blocks do the same number of items: a last round of few blocks would leave the card idle. Where
 * there are no more items than multiprocessors, a block has a multiprocessor's memory. */
template <int D, bool IS_F8>
static void launch_stream(const struct cuda_attention *a, uint32_t rows,
                          const struct cuda_queue *queue) {
    uint32_t items = rows * a->kv_heads * a->segments;
    uint32_t most = CUDA_WHOLE_BLOCKS * a->multiprocessors;
    uint32_t rounds = (items + most - 1) / most, blocks = (items + rounds - 1) / rounds;
    uint32_t stages = items <= a->multiprocessors || IS_F8 ? STREAM_STAGES : STAGES;
    uint32_t bytes = stages * (IS_F8 ? mma_dims<D>::f8_stage : mma_dims<D>::stage);
    launch(queue, stream_kernel<D, IS_F8>, blocks, STREAM_THREADS, bytes, *a, items, stages);
    const struct cuda_row_run *each = NULL; /* a run each row */
    dim3 joins(rows, 1, (a->heads + WARPS - 1) / WARPS);
    if (a->segments > 1) launch(queue, join_kernel<D>, joins, THREADS, 0, *a, each);
}

template <int D, bool IS_F8>
static void launch_fresh(const struct cuda_attention *a, const struct cuda_qkv *n,
                         const struct cuda_queue *queue) {
    uint32_t rows = a->q.row_count, bytes = ring_bytes<D, IS_F8>();
    dim3 parts(rows, a->kv_heads, a->segments), joins(rows, 1, (a->heads + WARPS - 1) / WARPS);
    if (HAS_CLUSTERS && a->segments <= CLUSTER_MAX) {
        launch_clusters(queue, fresh_kernel<D, IS_F8, true>, parts, THREADS, bytes, a->segments, *a,
                        *n);
        return;
    }
    launch(queue, fresh_kernel<D, IS_F8, false>, parts, THREADS, bytes, *a, *n);
    launch(queue, join_kernel<D>, joins, THREADS, 0, *a, (const struct cuda_row_run *)NULL);
}

template <int D, bool IS_F8> static void prepare(void) {
    cudaFuncSetAttribute(short_kernel<D, IS_F8>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)ring_bytes<D, IS_F8>());
    cudaFuncSetAttribute(fresh_kernel<D, IS_F8, true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)ring_bytes<D, IS_F8>());
    cudaFuncSetAttribute(fresh_kernel<D, IS_F8, false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)ring_bytes<D, IS_F8>());
    cudaFuncSetAttribute(stream_kernel<D, IS_F8>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)(STREAM_STAGES * mma_dims<D>::stage));
}

void cuda_attention_mma_prepare(void) {
    prepare<64, false>();
    prepare<64, true>();
    prepare<128, false>();
    prepare<128, true>();
    cuda_attention_long_prepare();
    cuda_attention_chunk_prepare();
}

bool cuda_attention_mma_can(const struct cuda_attention *a) {
    return a->kv.base && cuda_attends_mma(a->kv.type, a->head_dim) &&
           a->heads / a->kv_heads <= CUDA_SHORT_QUERIES;
}

/* Whole sequences in fp8 that are more than the blocks at a time, and not many times more, are
 * faster with short_kernel, of which more blocks run at a time (on an H200 83 instead of 67 % of
 * the read ceiling with 512 items, 87 instead of 84 with 1,024; 89 instead of 91 with 2,048). */
static bool is_streamed(const struct cuda_attention *a, const struct cuda_row_runs *runs) {
    uint32_t items = runs->short_count * a->kv_heads, most = CUDA_WHOLE_BLOCKS * a->multiprocessors;
    bool is_between = items > most && items < 4 * most;
    return !runs->table && a->is_bulk && !(a->kv.type == KV_F8 && a->segments == 1 && is_between);
}

template <int D, bool IS_F8>
static void launch_few(const struct cuda_attention *a, const struct cuda_row_runs *runs,
                       const struct cuda_queue *queue) {
    if (is_streamed(a, runs))
        launch_stream<D, IS_F8>(a, runs->short_count, queue);
    else
        launch_short<D, IS_F8>(a, runs, queue);
}

void cuda_attention_mma(const struct cuda_attention *a, const struct cuda_row_runs *runs,
                        const struct cuda_queue *queue) {
    bool is_f8 = a->kv.type == KV_F8;
    if (runs->short_count > 0 && a->head_dim == 64 && is_f8)
        launch_few<64, true>(a, runs, queue);
    else if (runs->short_count > 0 && a->head_dim == 64)
        launch_few<64, false>(a, runs, queue);
    else if (runs->short_count > 0 && is_f8)
        launch_few<128, true>(a, runs, queue);
    else if (runs->short_count > 0)
        launch_few<128, false>(a, runs, queue);
    if (runs->long_count == 0) return;
    const struct cuda_row_run *table = runs->table + runs->short_count;
    if (cuda_attends_chunks(a->kv.type, a->by_groups))
        cuda_attention_chunk(a, table, runs->long_count, queue);
    else
        cuda_attention_long(a, table, runs->long_count, queue);
}

bool cuda_attention_fresh_can(const struct cuda_attention *a, const struct cuda_row_runs *runs) {
    return cuda_attention_mma_can(a) && !runs->table && a->q.row_count <= FRESH_ROWS &&
           (a->segments > 1 || HAS_CLUSTERS);
}

void cuda_attention_fresh(const struct cuda_attention *a, const struct cuda_qkv *n,
                          const struct cuda_queue *queue) {
    bool is_f8 = a->kv.type == KV_F8;
    if (a->q.row_count == 0) return;
    if (a->head_dim == 64 && is_f8)
        launch_fresh<64, true>(a, n, queue);
    else if (a->head_dim == 64)
        launch_fresh<64, false>(a, n, queue);
    else if (is_f8)
        launch_fresh<128, true>(a, n, queue);
    else
        launch_fresh<128, false>(a, n, queue);
}
