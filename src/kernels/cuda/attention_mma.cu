/* kernels/cuda/attention_mma.cu - attention over a cache of f16 on tensor cores, heads of 64 and
 * 128 dimensions.
 *
 * Queries are rounded to f16. In segments of 256 absolute positions, in tiles of 64:
 *
 *     s_j = sum over d of q[d] * k_j[d]     mma, rising d in steps of 16; then the soft cap
 *     m = max(m, max s_j)                   o and l times 2^((old m - m) * c)
 *     p_j = 2^(s_j * c - m * c)             rounded to f16; c is scale * log2 e
 *     o[d] += sum of p_j * v_j[d]           mma, rising j in steps of 16; l += sum of p_j likewise
 *
 * The segments are joined in rising order, the result is o / l. A place that is not attended has
 * p = 0 and changes no bit, so a row's bits do not depend on which rows share its block.
 *
 * Mapping: 4 warps. A "query" is a row and a head; those of a block share a KV head. Short runs
 * (decoding): 16 queries and one segment; each warp takes 16 tokens of a tile, then a quarter of
 * the dimensions. Long runs (prompts): 64 queries, 16 to a warp, and all segments. Tiles come by
 * cp.async into two buffers; K as it lies, which suits ldmatrix, V with 16-byte piece p of token t
 * at p ^ (t & 7).
 * Cost: decoding reads K and V once for all queries of a KV head; 64 KB in flight for each block.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_rows.cuh"
#include "kernels/cuda/launch_attention.h"

static constexpr uint32_t SEGMENT = CUDA_ATTN_SEGMENT, TILE = 64, WARPS = 4, THREADS = WARPS * 32;
static constexpr uint32_t KV_TILES = TILE / CUDA_TILE_TOKENS, STAGES = 2;
static constexpr float LOG2E = 1.44269504f;
static_assert(KV_TILES == WARPS, "a warp brings one KV tile");

template <int D> struct mma_dims {
    static constexpr uint32_t side = CUDA_TILE_TOKENS * D * 2; /* bytes of K or V of a KV tile */
    static constexpr uint32_t stage = KV_TILES * 2 * side;
    static constexpr uint32_t pieces = D / 8; /* of a token: 16 bytes each */
    static constexpr uint32_t steps = D / 16;
    static constexpr uint32_t kept = D / 2; /* numbers that a thread holds of 16 queries' result */
};

/* ---- what a block and a thread work on ---- */

/* Positions [first, end) that are attended; none if both are 0. */
struct reach {
    uint32_t first, end;
};

static __device__ inline struct reach reach_of(const struct cuda_attention &a, int32_t pos) {
    if (pos < 0) return {0, 0};
    uint32_t end = (uint32_t)pos + 1;
    return {a.window > 0 && end > a.window ? end - a.window : 0, end};
}

/* All that rows of the run attend to: their positions rise. */
static __device__ struct reach reach_of_run(const struct cuda_attention &a,
                                            const struct cuda_row_run &run) {
    uint32_t low = 0, high = run.count;
    while (low < run.count && a.pos[run.first + low] < 0) low++;
    while (high > low && a.pos[run.first + high - 1] < 0) high--;
    if (low == high) return {0, 0};
    return {reach_of(a, a.pos[run.first + low]).first,
            reach_of(a, a.pos[run.first + high - 1]).end};
}

/* One query of a thread's two: rows lane / 4 and lane / 4 + 8 of the warp's 16. */
struct query {
    uint32_t row, head;
    struct reach reach; /* {0, 0}: there is no such query */
};

static __device__ struct query query_of(const struct cuda_attention &a,
                                        const struct cuda_row_run &run, uint32_t kv_head,
                                        uint32_t i) {
    uint32_t group = a.heads / a.kv_heads, row = run.first + i / group;
    struct query q = {row, kv_head * group + i % group, {0, 0}};
    if (i / group < run.count) q.reach = reach_of(a, a.pos[row]);
    return q;
}

/* Operand a of all steps over d. */
template <int D>
static __device__ void load_queries(const struct cuda_attention &a, const struct query q[2],
                                    uint32_t out[mma_dims<D>::steps][4]) {
#pragma unroll
    for (uint32_t i = 0; i < mma_dims<D>::steps * 4; i++) {
        const struct query &mine = q[i % 2];
        uint32_t d = i / 4 * 16 + i % 4 / 2 * 8 + threadIdx.x % 4 * 2;
        float2 two = make_float2(0.0f, 0.0f);
        if (mine.reach.end > 0)
            two = *(const float2 *)(mat_f32(a.q, mine.row) + (size_t)mine.head * D + d);
        two.x = fminf(fmaxf(two.x, -65504.0f), 65504.0f);
        two.y = fminf(fmaxf(two.y, -65504.0f), 65504.0f);
        out[i / 4][i % 4] = pack_halves(two.x, two.y);
    }
}

/* ---- bringing tiles ---- */

/* The warp's KV tile of tile `t`: NULL where nothing is attended. */
static __device__ const uint8_t *find_tile(const struct cuda_attention &a, const uint32_t *blocks,
                                           struct reach all, uint32_t kv_head, uint32_t t) {
    uint32_t kv_tile = t * KV_TILES + threadIdx.x / 32;
    uint32_t first = kv_tile * CUDA_TILE_TOKENS;
    if (first >= all.end || first + CUDA_TILE_TOKENS <= all.first) return NULL;
    return cuda_kv_tile(&a.kv, blocks, kv_tile, a.layer, kv_head);
}

template <int D>
static __device__ void bring(const uint8_t *tile, const uint8_t *any, uint32_t t, struct reach all,
                             uint32_t stage) {
    using dims = mma_dims<D>;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t first = t * TILE + warp * CUDA_TILE_TOKENS, to = stage + warp * 2 * dims::side;
    const uint8_t *from = tile ? tile : any;
#pragma unroll
    for (uint32_t i = lane; i < dims::side / 16; i += 32) {
        uint32_t token = i / dims::pieces, piece = i % dims::pieces;
        bool is_inside = tile && first + token >= all.first && first + token < all.end;
        copy_16(to + i * 16, from + i * 16, tile != NULL);
        copy_16(to + dims::side + token * D * 2 + (piece ^ (token & 7)) * 16,
                from + dims::side + i * 16, is_inside);
    }
}

/* ---- products ---- */

/* Scores of 16 queries and the 16 tokens of a KV tile. */
template <int D>
static __device__ inline void score_tile(const uint32_t q[mma_dims<D>::steps][4], uint32_t keys,
                                         float s[2][4]) {
    uint32_t lane = threadIdx.x % 32, token = lane % 8 + lane / 16 * 8;
#pragma unroll
    for (uint32_t step = 0; step < mma_dims<D>::steps; step++) {
        uint32_t b[4], octet = 2 * step + lane / 8 % 2;
        ldmatrix_x4(b, keys + (octet * CUDA_TILE_TOKENS + token) * 16);
        mma_16x8x16<false>(s[0], q[step], b);
        mma_16x8x16<false>(s[1], q[step], b + 2);
    }
}

/* out += p * V for 16 tokens and COLS dimensions from `octet` * 8 on. */
template <int D, int COLS>
static __device__ inline void add_values(const uint32_t p[4], uint32_t values, uint32_t octet,
                                         float out[COLS / 8][4]) {
    uint32_t lane = threadIdx.x % 32, token = lane % 8 + lane / 8 % 2 * 8;
#pragma unroll
    for (uint32_t i = 0; i < COLS / 16; i++) {
        uint32_t b[4], piece = octet + 2 * i + lane / 16;
        ldmatrix_x4_turned(b, values + token * D * 2 + (piece ^ (token & 7)) * 16);
        mma_16x8x16<false>(out[2 * i], p, b);
        mma_16x8x16<false>(out[2 * i + 1], p, b + 2);
    }
}

/* ---- scores and weights ---- */

static __device__ inline float exponent_factor(const struct cuda_attention &a) {
    return a.softcap > 0.0f ? LOG2E : a.scale * LOG2E;
}

/* Soft cap and mask; `first` is the position of s[0][0]'s token column 0. */
template <int N>
static __device__ inline void mask_scores(const struct cuda_attention &a, const struct query q[2],
                                          uint32_t first, float s[N][4]) {
    uint32_t end = first + N * 8;
    bool is_whole = first >= q[0].reach.first && first >= q[1].reach.first &&
                    end <= q[0].reach.end && end <= q[1].reach.end;
    if (is_whole && !(a.softcap > 0.0f)) return;
#pragma unroll
    for (int i = 0; i < N * 4; i++) {
        uint32_t j = first + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        const struct reach &r = q[i % 4 / 2].reach;
        float &score = s[i / 4][i % 4];
        if (a.softcap > 0.0f) score = a.softcap * fm_tanh(score * a.scale / a.softcap);
        score = j >= r.first && j < r.end ? score : -DEVICE_INF;
    }
}

/* The largest of the thread's and its three neighbours' scores of query i. */
template <int N> static __device__ inline float max_of(const float s[N][4], int i) {
    float max = -DEVICE_INF;
#pragma unroll
    for (int n = 0; n < N; n++) max = fmaxf(max, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
    return fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
}

/* A maximum that can be subtracted: before the first attended place there is none. */
static __device__ inline float base_of(float max) { return max > -DEVICE_INF ? max : 0.0f; }

template <int N>
static __device__ inline void weights_of(const float max[2], float factor, float s[N][4]) {
#pragma unroll
    for (int i = 0; i < N * 4; i++) {
        float base = base_of(max[i % 4 / 2]) * factor;
        s[i / 4][i % 4] = exp2_fast(fmaf(s[i / 4][i % 4], factor, -base));
    }
}

/* A new maximum: all sums so far in its terms. */
template <int N>
static __device__ inline void rescale(const float top[2], float factor, float max[2],
                                      float out[N][4], float sum[4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float next = fmaxf(max[i], top[i]);
        float by = exp2_fast((max[i] - base_of(next)) * factor);
        max[i] = next;
        sum[2 * i] *= by;
        sum[2 * i + 1] *= by;
#pragma unroll
        for (int n = 0; n < N; n++) {
            out[n][2 * i] *= by;
            out[n][2 * i + 1] *= by;
        }
    }
}

/* ---- joining segments ---- */

/* What both sides of a join are multiplied by; the joint maximum and sum are put in place. */
struct join_factors {
    float a, b;
};

static __device__ inline struct join_factors join_of(float *all_max, float *all_sum, float max,
                                                     float sum, float factor) {
    float most = fmaxf(*all_max, max), base = base_of(most);
    struct join_factors f = {exp2_fast((*all_max - base) * factor),
                             exp2_fast((max - base) * factor)};
    *all_max = most;
    *all_sum = fmaf(sum, f.b, *all_sum * f.a);
    return f;
}

static __device__ inline float join_one(struct join_factors f, float all, float part) {
    return fmaf(part, f.b, all * f.a);
}

/* ---- results ---- */

template <int D>
static __device__ inline void store_two(const struct cuda_attention &a, const struct query &q,
                                        uint32_t d, float x, float y) {
    if (a.dst.base) *(float2 *)(mat_f32(a.dst, q.row) + (size_t)q.head * D + d) = make_float2(x, y);
    if (!a.half.x) return;
    store_half(a.half, q.row, q.head * D + d, x);
    store_half(a.half, q.row, q.head * D + d + 1, y);
}

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
    uint32_t frags[mma_dims<D>::steps][4];
    struct short_shared *shared;
};

/* Sums of a segment: the warp's quarter of the dimensions. */
template <int D> struct short_sums { float max[2], sum[4], out[D / 32][4]; };

static constexpr uint32_t PER_SEGMENT = SEGMENT / TILE;

static __device__ inline uint32_t first_tile(uint32_t segment, struct reach all) {
    return max(segment * PER_SEGMENT, all.first / TILE);
}

/* The first tile of a segment is on its way. */
template <int D>
static __device__ void bring_first(const struct cuda_attention &a, const struct short_work<D> &w,
                                   uint32_t segment) {
    uint32_t t = first_tile(segment, w.all);
    bring<D>(find_tile(a, w.blocks, w.all, w.kv_head, t), a.kv.base, t, w.all,
             w.ring + t % STAGES * mma_dims<D>::stage);
    copies_commit();
}

/* A segment whose first tile is on its way. Where the block goes on with the next segment, the
 * first tile of that is on its way at the end. */
template <int D>
static __device__ void attend_short(const struct cuda_attention &a, const struct short_work<D> &w,
                                    uint32_t segment, struct short_sums<D> *sums) {
    using dims = mma_dims<D>;
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const struct short_shared &m = *w.shared;
    uint32_t from = first_tile(segment, w.all);
    uint32_t to = min((segment + 1) * PER_SEGMENT, (w.all.end + TILE - 1) / TILE);
    uint32_t last = a.segments > 1 ? to : (w.all.end + TILE - 1) / TILE;
    const uint32_t ones[2] = {0x3c003c00u, 0x3c003c00u};
    float factor = exponent_factor(a);
    const uint8_t *next = find_tile(a, w.blocks, w.all, w.kv_head, from + 1);
    for (uint32_t t = from; t < to; t++) {
        uint32_t stage = w.ring + t % STAGES * dims::stage;
        if (t + 1 < last)
            bring<D>(next, a.kv.base, t + 1, w.all, w.ring + (t + 1) % STAGES * dims::stage);
        copies_commit();
        next = find_tile(a, w.blocks, w.all, w.kv_head, t + 2);
        copies_wait<1>();
        __syncthreads();
        float s[2][4] = {{0.0f}}, top[2];
        score_tile<D>(w.frags, stage + warp * 2 * dims::side, s);
        mask_scores<2>(a, w.q, t * TILE + warp * CUDA_TILE_TOKENS, s);
        share_weights(factor, sums->max, s, top, w.shared);
        rescale<D / 32>(top, factor, sums->max, sums->out, sums->sum);
#pragma unroll
        for (uint32_t i = 0; i < KV_TILES; i++) {
            uint32_t p[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                p[k] = *(const uint32_t *)&m
                            .p[lane / 4 + k % 2 * 8][i * 16 + k / 2 * 8 + lane % 4 * 2];
            add_values<D, D / 4>(p, stage + i * 2 * dims::side + dims::side, warp * (D / 32),
                                 sums->out);
            mma_16x8x16<false>(sums->sum, p, ones);
        }
        __syncthreads(); /* this tile's buffer is free for the next but one */
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
template <int D>
static __global__ void __launch_bounds__(THREADS)
    short_kernel(struct cuda_attention a, const struct cuda_row_run *table) {
    extern __shared__ __align__(128) uint8_t buffers[];
    __shared__ struct short_shared m;
    admit_next_kernel();
    struct cuda_row_run run = run_of(table, blockIdx.x);
    struct reach all = reach_of_run(a, run);
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, kv_head = blockIdx.y;
    uint32_t from = all.first / SEGMENT + blockIdx.z, end = (all.end + SEGMENT - 1) / SEGMENT;
    bool is_idle = from >= end;
    struct short_work<D> w;
    w.blocks = a.blocks + a.seq[run.first] * a.blocks_stride;
    w.q[0] = query_of(a, run, kv_head, lane / 4);
    w.q[1] = query_of(a, run, kv_head, lane / 4 + 8);
    w.all = all;
    w.kv_head = kv_head;
    w.ring = shared_address(buffers);
    w.shared = &m;
    bool is_old = !table && !is_idle && (first_tile(from, all) + 1) * TILE < all.end;
    if (is_old) bring_first<D>(a, w, from);
    wait_for_inputs();
    if (is_idle) return;
    if (!is_old) bring_first<D>(a, w, from);
    load_queries<D>(a, w.q, w.frags);
    float factor = exponent_factor(a), all_out[D / 32][4];
    float all_max[2] = {-DEVICE_INF, -DEVICE_INF}, all_sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (uint32_t n = 0; n < D / 8; n++) all_out[n / 4][n % 4] = 0.0f;
    if (a.segments > 1) end = from + 1;
    for (uint32_t segment = from; segment < end; segment++) {
        struct short_sums<D> s = {
            {-DEVICE_INF, -DEVICE_INF}, {0.0f}, {
                { 0.0f }
            }
        };
        attend_short<D>(a, w, segment, &s);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (a.segments > 1) {
                store_part<D>(a, w.q[i], segment, i, s);
                continue;
            }
            struct join_factors f =
                join_of(&all_max[i], &all_sum[i], s.max[i], s.sum[2 * i], factor);
#pragma unroll
            for (uint32_t n = 0; n < D / 16; n++) {
                float *one = &all_out[n / 2][2 * i + n % 2];
                *one = join_one(f, *one, s.out[n / 2][2 * i + n % 2]);
            }
        }
    }
    if (a.segments > 1) return;
#pragma unroll
    for (uint32_t n = 0; n < D / 16; n++) {
        uint32_t i = n % 2, d = warp * (D / 4) + n / 2 * 8 + lane % 4 * 2;
        if (w.q[i].reach.end == 0) continue;
        store_two<D>(a, w.q[i], d, all_out[n / 2][2 * i] / all_sum[i],
                     all_out[n / 2][2 * i + 1] / all_sum[i]);
    }
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

/* ---- long runs ---- */

/* Numbers of earlier segments wait in shared memory: number k of thread t at k * THREADS + t. */
template <int D>
static __device__ void join_long(float factor, const float max[2], const float sum[4],
                                 const float out[D / 8][4], bool is_first, float *kept,
                                 float all_max[2], float all_sum[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        struct join_factors f = join_of(&all_max[i], &all_sum[i], max[i], sum[2 * i], factor);
#pragma unroll
        for (uint32_t n = 0; n < D / 4; n++) {
            float *one = kept + (2 * n + i) * THREADS + threadIdx.x;
            *one = join_one(f, is_first ? 0.0f : *one, out[n / 2][2 * i + n % 2]);
        }
    }
}

template <int D>
static __global__ void __launch_bounds__(THREADS, 2)
    long_kernel(struct cuda_attention a, const struct cuda_row_run *table) {
    begin_kernel();
    using dims = mma_dims<D>;
    extern __shared__ __align__(128) uint8_t buffers[];
    struct cuda_row_run run = table[blockIdx.x];
    struct reach all = reach_of_run(a, run);
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, kv_head = blockIdx.y;
    if (all.end == 0) return;
    const uint32_t *blocks = a.blocks + a.seq[run.first] * a.blocks_stride;
    struct query q[2] = {query_of(a, run, kv_head, warp * 16 + lane / 4),
                         query_of(a, run, kv_head, warp * 16 + lane / 4 + 8)};
    uint32_t frags[dims::steps][4], ring = shared_address(buffers);
    float *kept = (float *)(buffers + STAGES * dims::stage), factor = exponent_factor(a);
    float all_max[2] = {-DEVICE_INF, -DEVICE_INF}, all_sum[2] = {0.0f, 0.0f};
    float max[2] = {-DEVICE_INF, -DEVICE_INF}, sum[4] = {0.0f}, out[D / 8][4] = {{0.0f}};
    const uint32_t ones[2] = {0x3c003c00u, 0x3c003c00u};
    load_queries<D>(a, q, frags);
    uint32_t from = all.first / TILE, to = (all.end + TILE - 1) / TILE;
    const uint8_t *next = find_tile(a, blocks, all, kv_head, from);
    bring<D>(next, a.kv.base, from, all, ring + from % STAGES * dims::stage);
    copies_commit();
    next = find_tile(a, blocks, all, kv_head, from + 1);
    for (uint32_t t = from; t < to; t++) {
        uint32_t stage = ring + t % STAGES * dims::stage;
        if (t + 1 < to)
            bring<D>(next, a.kv.base, t + 1, all, ring + (t + 1) % STAGES * dims::stage);
        copies_commit();
        next = find_tile(a, blocks, all, kv_head, t + 2);
        copies_wait<1>();
        __syncthreads();
        float s[TILE / 8][4] = {{0.0f}}, top[2];
#pragma unroll
        for (uint32_t i = 0; i < KV_TILES; i++)
            score_tile<D>(frags, stage + i * 2 * dims::side, s + 2 * i);
        mask_scores<TILE / 8>(a, q, t * TILE, s);
        top[0] = max_of<TILE / 8>(s, 0);
        top[1] = max_of<TILE / 8>(s, 1);
        rescale<D / 8>(top, factor, max, out, sum);
        weights_of<TILE / 8>(max, factor, s);
#pragma unroll
        for (uint32_t i = 0; i < KV_TILES; i++) {
            uint32_t p[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                p[k] =
                    pack_halves(s[2 * i + k / 2][2 * (k % 2)], s[2 * i + k / 2][2 * (k % 2) + 1]);
            add_values<D, D>(p, stage + i * 2 * dims::side + dims::side, 0, out);
            mma_16x8x16<false>(sum, p, ones);
        }
        if ((t + 1) % (SEGMENT / TILE) == 0 || t + 1 == to) {
            bool is_first = t / (SEGMENT / TILE) == from / (SEGMENT / TILE);
            join_long<D>(factor, max, sum, out, is_first, kept, all_max, all_sum);
#pragma unroll
            for (uint32_t n = 0; n < D / 2; n++) out[n / 4][n % 4] = 0.0f;
            max[0] = max[1] = -DEVICE_INF;
            sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
        }
        __syncthreads(); /* this tile's buffer is free for the next but one */
    }
#pragma unroll
    for (uint32_t n = 0; n < D / 4; n++) {
        uint32_t i = n % 2, k = n / 2; /* dimensions k * 8 + ... of query i */
        if (q[i].reach.end == 0) continue;
        const float *two = kept + (4 * k + i) * THREADS + threadIdx.x;
        store_two<D>(a, q[i], k * 8 + lane % 4 * 2, two[0] / all_sum[i],
                     two[2 * THREADS] / all_sum[i]);
    }
}

/* ---- launching ---- */

template <int D>
static void launch_width(const struct cuda_attention *a, const struct cuda_row_runs *runs,
                         const struct cuda_queue *queue) {
    using dims = mma_dims<D>;
    uint32_t ring = STAGES * dims::stage, kept = dims::kept * THREADS * sizeof(float);
    uint32_t group = a->heads / a->kv_heads, rows = runs->table ? CUDA_SHORT_QUERIES / group : 1;
    dim3 parts(runs->short_count, a->kv_heads, a->segments);
    dim3 joins(runs->short_count, rows, (a->heads + WARPS - 1) / WARPS);
    dim3 longs(runs->long_count, a->kv_heads);
    if (runs->short_count > 0)
        launch(queue, short_kernel<D>, parts, THREADS, ring, *a, runs->table);
    if (runs->short_count > 0 && a->segments > 1)
        launch(queue, join_kernel<D>, joins, THREADS, 0, *a, runs->table);
    const struct cuda_row_run *table = runs->table + runs->short_count;
    if (runs->long_count > 0) launch(queue, long_kernel<D>, longs, THREADS, ring + kept, *a, table);
}

template <int D> static void prepare(void) {
    uint32_t ring = STAGES * mma_dims<D>::stage;
    uint32_t kept = mma_dims<D>::kept * THREADS * sizeof(float);
    cudaFuncSetAttribute(short_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)ring);
    cudaFuncSetAttribute(long_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)(ring + kept));
}

void cuda_attention_mma_prepare(void) {
    prepare<64>();
    prepare<128>();
}

bool cuda_attention_mma_can(const struct cuda_attention *a) {
    if (!a->kv.base || a->kv.type != KV_F16 || a->heads / a->kv_heads > CUDA_SHORT_QUERIES)
        return false;
    return a->head_dim == 64 || a->head_dim == 128;
}

void cuda_attention_mma(const struct cuda_attention *a, const struct cuda_row_runs *runs,
                        const struct cuda_queue *queue) {
    if (a->head_dim == 64)
        launch_width<64>(a, runs, queue);
    else
        launch_width<128>(a, runs, queue);
}
