/* kernels/cuda/attention_mma.cu - attention_mma.cuh for rows that are few or in short runs, and the
 * entry points for all.
 *
 * Mapping: 4 warps, 16 queries and one segment, or all where there are many rows; each warp takes
 * 16 tokens of a tile, then a quarter of the dimensions. Tiles come by cp.async into two buffers,
 * as they lie.
 * Cost: decoding reads K and V once for all queries of a KV head; 64 KB in flight for each block.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/attention_fp8.cuh"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_sums.cuh"
#include "kernels/cuda/device_async.cuh"
#include "kernels/cuda/device_qkv.cuh"

/* ---- what a block works on ---- */

/* Of one query and segment: D numbers, the maximum, the sum. */
template <int D>
static __device__ float *part_of(const struct cuda_attention &a, const struct query &q,
                                 uint32_t segment) {
    size_t at = ((size_t)q.row * a.heads + q.head) * a.segments + segment;
    return a.parts + at * (D + 2);
}

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

static constexpr uint32_t P_ROW = TILE + 8; /* halves; rows begin in different banks */
struct short_shared {
    float max[WARPS][16];
    __align__(16) uint16_t p[16][P_ROW];
};

/* The weights of a tile, from all warps to all: the maxima first. */
static __device__ void share_weights(float factor, const float most[2], float s[2][4], float top[2],
                                     struct short_shared *m) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float mine = max_of<2>(s, i);
        if (lane % 4 == 0) m->max[warp][lane / 4 + 8 * i] = mine;
    }
    __syncthreads();
    float next[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = m->max[0][lane / 4 + 8 * i];
        for (uint32_t w = 1; w < WARPS; w++) top[i] = fmaxf(top[i], m->max[w][lane / 4 + 8 * i]);
        next[i] = fmaxf(most[i], top[i]);
    }
    weights_of<2>(next, factor, s);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t row = lane / 4 + i % 2 * 8, col = warp * 16 + i / 2 * 8 + lane % 4 * 2;
        *(uint32_t *)&m->p[row][col] =
            pack_halves(s[i / 2][2 * (i % 2)], s[i / 2][2 * (i % 2) + 1]);
    }
    __syncthreads();
}

/* What a block of a short run works on. */
template <int D> struct short_work {
    const uint32_t *blocks; /* of the sequence */
    struct query q[2];
    struct reach all;
    uint32_t kv_head, ring;
    uint8_t *buffers; /* at `ring` */
    uint32_t frags[mma_dims<D>::steps][4];
    struct short_shared *shared;
};

/* Sums of a segment: the warp's quarter of the dimensions. */
template <int D> struct short_sums { float max[2], sum[4], out[D / 32][4]; };

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

/* Tile `t`, which lies in `stage` of the ring. */
template <int D, bool IS_F8>
static __device__ inline void attend_tile(const struct cuda_attention &a,
                                          const struct short_work<D> &w, uint32_t t, uint32_t stage,
                                          struct short_sums<D> *sums) {
    using dims = mma_dims<D>;
    const uint32_t ones[2] = {0x3c003c00u, 0x3c003c00u};
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const struct short_shared &m = *w.shared;
    float s[2][4] = {{0.0f}}, top[2], factor = exponent_factor(a);
    if (IS_F8)
        score_f8<D>(w.frags, w.buffers + stage + warp * 2 * dims::f8_side, s);
    else
        score_tile<D, AS_IN_CACHE>(w.frags, w.ring + stage + warp * 2 * dims::side, s);
    if (a.softcap > 0.0f)
        mask_scores<2, true>(a, w.q, t * TILE + warp * CUDA_TILE_TOKENS, s);
    else
        mask_scores<2, false>(a, w.q, t * TILE + warp * CUDA_TILE_TOKENS, s);
    share_weights(factor, sums->max, s, top, w.shared);
    rescale<D / 32>(top, factor, sums->max, sums->out, sums->sum);
#pragma unroll
    for (uint32_t i = 0; i < KV_TILES; i++) {
        uint32_t p[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            p[k] = *(const uint32_t *)&m
                        .p[lane / 4 + k % 2 * 8]
                          [i * 16 + (IS_F8 ? k / 2 * 2 + lane % 4 * 4 : k / 2 * 8 + lane % 4 * 2)];
        if (IS_F8)
            add_f8<D / 4>(p,
                          w.buffers + stage + (2 * i + 1) * dims::f8_side +
                              warp * (D / 4) * CUDA_TILE_TOKENS,
                          mask_f8(w.all, t * TILE + i * CUDA_TILE_TOKENS), sums->out);
        else
            add_values<D / 4, AS_IN_CACHE>(p, w.ring + stage + (2 * i + 1) * dims::side,
                                           warp * (D / 32), sums->out);
        mma_16x8x16<false>(sums->sum, p, ones);
    }
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

template <int D> static __device__ inline void clear_sums(struct short_sums<D> *s) {
    s->max[0] = s->max[1] = -DEVICE_INF;
#pragma unroll
    for (uint32_t n = 0; n < 4; n++) s->sum[n] = 0.0f;
#pragma unroll
    for (uint32_t n = 0; n < D / 8; n++) s->out[n / 4][n % 4] = 0.0f;
}

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
#pragma unroll
    for (uint32_t n = 0; n < D / 16; n++) {
        uint32_t i = n % 2, d = warp * (D / 4) + n / 2 * 8 + lane % 4 * 2;
        if (q[i].reach.end == 0) continue;
        store_two<D>(a, q[i], d, all.out[n / 2][2 * i] / all.sum[i],
                     all.out[n / 2][2 * i + 1] / all.sum[i]);
    }
}

template <int D>
static __device__ void store_part(const struct cuda_attention &a, const struct query &q,
                                  uint32_t segment, int i, const struct short_sums<D> &s) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t first = q.reach.first / SEGMENT;
    if (q.reach.end == 0 || segment < first || segment * SEGMENT >= q.reach.end) return;
    float *part = part_of<D>(a, q, segment - first);
#pragma unroll
    for (uint32_t n = 0; n < D / 32; n++) {
        uint32_t d = warp * (D / 4) + n * 8 + lane % 4 * 2;
        part[d] = s.out[n][2 * i];
        part[d + 1] = s.out[n][2 * i + 1];
    }
    if (warp != 0 || lane % 4 != 0) return;
    part[D] = s.max[i];
    part[D + 1] = s.sum[2 * i];
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
        store_two<D>(a, q, d, out.x / sum, out.y / sum);
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
    uint32_t count = (q.reach.end - 1) / SEGMENT - q.reach.first / SEGMENT + 1;
    float factor = exponent_factor(a), max = -DEVICE_INF, sum = 0.0f;
    float2 out[D / 64];
#pragma unroll
    for (uint32_t n = 0; n < D / 64; n++) out[n] = make_float2(0.0f, 0.0f);
#pragma unroll 4
    for (uint32_t i = 0; i < count; i++) {
        const float *part = part_of<D>(a, q, i);
        struct join_factors f = join_of(&max, &sum, part[D], part[D + 1], factor);
#pragma unroll
        for (uint32_t n = 0; n < D / 64; n++) {
            float2 two = *(const float2 *)(part + n * 64 + threadIdx.x % 32 * 2);
            out[n].x = join_one(f, out[n].x, two.x);
            out[n].y = join_one(f, out[n].y, two.y);
        }
    }
#pragma unroll
    for (uint32_t n = 0; n < D / 64; n++)
        store_two<D>(a, q, n * 64 + threadIdx.x % 32 * 2, out[n].x / sum, out[n].y / sum);
}

/* ---- many sequences ---- */

/* The newest rows of sequences, each with all of its segments (Hopper). A block goes on from one
 * row and KV head to another; tiles come by bulk copies, the first of the next row while the last
 * of this one is worked on. A row that is not live has one tile, of which nothing is attended. */
struct whole_item {
    const uint32_t *blocks;
    struct reach all;
    uint32_t row, kv_head, from, to; /* tiles */
};

static __device__ inline struct whole_item item_of(const struct cuda_attention &a, uint32_t i,
                                                   int32_t pos, uint32_t seq) {
    struct whole_item item;
    item.blocks = a.blocks + seq * a.blocks_stride;
    item.all = reach_of(a, pos);
    item.row = i / a.kv_heads;
    item.kv_head = i % a.kv_heads;
    item.from = item.all.first / TILE;
    item.to = max(item.from + 1, (item.all.end + TILE - 1) / TILE);
    return item;
}

/* The warp's KV tile of tile `t`: all warps together bring the tile. */
template <int D, bool IS_F8>
static __device__ inline void bring_whole(const struct cuda_attention &a,
                                          const struct whole_item &item, uint32_t t, uint32_t stage,
                                          uint32_t arrival) {
    static constexpr uint32_t bytes = 2 * (IS_F8 ? mma_dims<D>::f8_side : mma_dims<D>::side);
    const uint8_t *tile = find_tile(a, item.blocks, item.all, item.kv_head, t);
    if (threadIdx.x % 32 != 0) return;
    arrival_expect(arrival, tile ? bytes : 0);
    if (tile) copy_bulk(stage + threadIdx.x / 32 * bytes, tile, bytes, arrival);
}

/* Values of tokens that are not attended become zeros: they may be anything, and 0 times that must
 * be 0. A warp does those that it has brought; all read them behind the next barrier. */
template <int D>
static __device__ inline void clean_values(const struct reach &all, uint32_t t, uint8_t *stage) {
    uint32_t warp = threadIdx.x / 32, first = t * TILE + warp * CUDA_TILE_TOKENS;
    if (first >= all.first && first + CUDA_TILE_TOKENS <= all.end) return;
    uint8_t *values = stage + (2 * warp + 1) * mma_dims<D>::side;
    for (uint32_t i = threadIdx.x % 32; i < mma_dims<D>::side / 16; i += 32) {
        uint32_t token = first + i % CUDA_TILE_TOKENS;
        if (token < all.first || token >= all.end) *(uint4 *)(values + i * 16) = uint4{0, 0, 0, 0};
    }
    fence_async();
}

template <int D, bool IS_F8>
static __global__ void __launch_bounds__(THREADS, CUDA_WHOLE_BLOCKS)
    whole_kernel(struct cuda_attention a, uint32_t items) {
    using dims = mma_dims<D>;
    extern __shared__ __align__(128) uint8_t buffers[];
    __shared__ struct short_shared m;
    __shared__ __align__(8) uint64_t arrivals[STAGES];
    admit_next_kernel();
    uint32_t lane = threadIdx.x % 32, i = blockIdx.x, done = 0; /* tiles */
    uint32_t ring = shared_address(buffers), arrival = shared_address(arrivals);
    struct whole_item item = item_of(a, i, a.pos[i / a.kv_heads], a.seq[i / a.kv_heads]);
    if (threadIdx.x == 0) {
        for (uint32_t k = 0; k < STAGES; k++) arrival_init(arrival + k * 8, WARPS);
        arrivals_publish();
    }
    __syncthreads();
    bool is_old = (item.from + 1) * TILE < item.all.end; /* without the newest token */
    static constexpr uint32_t size = IS_F8 ? dims::f8_stage : dims::stage;
    if (is_old) bring_whole<D, IS_F8>(a, item, item.from, ring, arrival);
    wait_for_inputs();
    if (!is_old) bring_whole<D, IS_F8>(a, item, item.from, ring, arrival);
    for (; i < items; i += gridDim.x) {
        uint32_t next = i + gridDim.x, next_row = min(next, items - 1) / a.kv_heads;
        int32_t next_pos = a.pos[next_row];
        uint32_t next_seq = a.seq[next_row];
        const struct cuda_row_run run = {item.row, 1};
        struct whole_item following = item;
        struct short_work<D> w;
        struct short_sums<D> sums;
        struct all_sums<D> all;
        w.q[0] = query_of(a, run, item.kv_head, lane / 4);
        w.q[1] = query_of(a, run, item.kv_head, lane / 4 + 8);
        w.all = item.all;
        w.ring = ring;
        w.buffers = buffers;
        w.shared = &m;
        load_queries<D, IS_F8>(a, w.q, w.frags);
        clear_sums<D>(&sums);
        clear_all<D>(&all);
        for (uint32_t t = item.from; t < item.to; t++, done++) {
            uint32_t stage = done % STAGES * size, ahead = (done + 1) % STAGES;
            bool is_last = t + 1 == item.to;
            uint32_t to = ring + ahead * size;
            uint32_t comes = arrival + ahead * 8;
            if (!is_last) bring_whole<D, IS_F8>(a, item, t + 1, to, comes);
            if (is_last && next < items) {
                following = item_of(a, next, next_pos, next_seq);
                bring_whole<D, IS_F8>(a, following, following.from, to, comes);
            }
            arrival_wait(arrival + done % STAGES * 8, done / STAGES);
            if (!IS_F8) clean_values<D>(item.all, t, buffers + stage);
            attend_tile<D, IS_F8>(a, w, t, stage, &sums);
            __syncthreads(); /* this tile's buffer is free for the next but one */
            if ((t + 1) % PER_SEGMENT != 0 && !is_last) continue;
            join_segment<D>(exponent_factor(a), sums, &all);
            clear_sums<D>(&sums);
        }
        store_all<D>(a, w.q, all);
        item = following;
    }
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

template <int D, bool IS_F8>
static void launch_whole(const struct cuda_attention *a, uint32_t rows,
                         const struct cuda_queue *queue) {
    uint32_t items = rows * a->kv_heads, most = CUDA_WHOLE_BLOCKS * a->multiprocessors;
    launch(queue, whole_kernel<D, IS_F8>, items < most ? items : most, THREADS,
           ring_bytes<D, IS_F8>(), *a, items);
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
    cudaFuncSetAttribute(whole_kernel<D, IS_F8>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)ring_bytes<D, IS_F8>());
    cudaFuncSetAttribute(fresh_kernel<D, IS_F8, true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)ring_bytes<D, IS_F8>());
    cudaFuncSetAttribute(fresh_kernel<D, IS_F8, false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)ring_bytes<D, IS_F8>());
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

template <int D, bool IS_F8>
static void launch_few(const struct cuda_attention *a, const struct cuda_row_runs *runs,
                       const struct cuda_queue *queue) {
    if (!runs->table && a->segments == 1 && a->is_bulk)
        launch_whole<D, IS_F8>(a, runs->short_count, queue);
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
