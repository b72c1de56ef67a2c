/* kernels/cuda/attention_mma.cuh - attention over a cache of f16 or fp8 on tensor cores, heads of
 * 64 and 128 dimensions: its definition, and what its kernels share: queries, tiles and products.
 *
 * Queries are rounded to f16. In segments of 256 absolute positions, in tiles of 64:
 *
 *     s_j = sum over d of q[d] * k_j[d]     mma, rising d in steps of 16; then the soft cap
 *     m = max(m, max s_j)                   o and l times 2^((old m - m) * c)
 *     p_j = 2^(s_j * c - m * c)             rounded to f16; c is scale * log2 e
 *     o[d] += sum of p_j * v_j[d]           mma, rising j in steps of 16; l += sum of p_j likewise
 *
 * The segments are joined in rising order, the result is o * (1 / l). A place that is not attended
 * has p = 0 and changes no bit, so a row's bits do not depend on which rows share its block. A
 * "query" is a row and a head; those of a block share a KV head. Numbers of fp8 become f16, which
 * has all of them, on their way: the bits are those of a cache of f16 that holds the same numbers.
 *
 *     attention_mma.cu    few rows: 16 queries to a block
 *     attention_long.cu   prompts: 64 queries to a block
 *     attention_chunk.cu  prompts on Hopper: 128 queries to a block
 */
#ifndef KERNELS_CUDA_ATTENTION_MMA_CUH
#define KERNELS_CUDA_ATTENTION_MMA_CUH

#include <cuda_runtime.h>

#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_rows.cuh"
#include "kernels/cuda/launch_attention.h"

static constexpr uint32_t SEGMENT = CUDA_ATTN_SEGMENT, TILE = 64, PER_SEGMENT = SEGMENT / TILE;
static constexpr uint32_t WARPS = 4, THREADS = WARPS * 32; /* of a block */
static constexpr uint32_t KV_TILES = TILE / CUDA_TILE_TOKENS, STAGES = 2;
static constexpr float LOG2E = 1.44269504f;
static_assert(KV_TILES == WARPS, "a warp brings one KV tile");

template <int D> struct mma_dims {
    static constexpr uint32_t side = CUDA_TILE_TOKENS * D * 2; /* bytes of K or V of a KV tile */
    static constexpr uint32_t stage = KV_TILES * 2 * side;
    static constexpr uint32_t f8_side = side / 2, f8_stage = stage / 2; /* as fp8 */
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

/* All that rows of the run attend to: their positions rise. What all of them attend to is put in
 * `common`. */
static __device__ inline struct reach reach_of_run(const struct cuda_attention &a,
                                                   const struct cuda_row_run &run,
                                                   struct reach *common = NULL) {
    uint32_t low = 0, high = run.count;
    while (low < run.count && a.pos[run.first + low] < 0) low++;
    while (high > low && a.pos[run.first + high - 1] < 0) high--;
    if (common) *common = {0, 0};
    if (low == high) return {0, 0};
    struct reach lowest = reach_of(a, a.pos[run.first + low]);
    struct reach highest = reach_of(a, a.pos[run.first + high - 1]);
    if (common) *common = {highest.first, lowest.end};
    return {lowest.first, highest.end};
}

/* One query of a thread's two: rows lane / 4 and lane / 4 + 8 of the warp's 16. */
struct query {
    uint32_t row, head;
    struct reach reach; /* {0, 0}: there is no such query */
};

static __device__ inline struct query query_of(const struct cuda_attention &a,
                                               const struct cuda_row_run &run, uint32_t kv_head,
                                               uint32_t i) {
    uint32_t group = a.heads / a.kv_heads, row = run.first + i / group;
    struct query q = {row, kv_head * group + i % group, {0, 0}};
    if (i / group < run.count) q.reach = reach_of(a, a.pos[row]);
    return q;
}

/* Operand a of all steps over d; NULL: no such query. The order of the 16 dimensions within a step
 * does not change the result; over an fp8 cache it is chosen so that a thread reads four adjacent
 * bytes of a key. */
template <int D, bool IS_F8>
static __device__ inline void take_queries(const float *const from[2],
                                           uint32_t out[mma_dims<D>::steps][4]) {
#pragma unroll
    for (uint32_t i = 0; i < mma_dims<D>::steps * 4; i++) {
        uint32_t d = i / 4 * 16 + (IS_F8 ? i % 4 / 2 * 2 + threadIdx.x % 4 * 4
                                         : i % 4 / 2 * 8 + threadIdx.x % 4 * 2);
        float2 two = make_float2(0.0f, 0.0f);
        if (from[i % 2]) two = *(const float2 *)(from[i % 2] + d);
        two.x = fminf(fmaxf(two.x, -65504.0f), 65504.0f);
        two.y = fminf(fmaxf(two.y, -65504.0f), 65504.0f);
        out[i / 4][i % 4] = pack_halves(two.x, two.y);
    }
}

template <int D, bool IS_F8>
static __device__ inline void load_queries(const struct cuda_attention &a, const struct query q[2],
                                           uint32_t out[mma_dims<D>::steps][4]) {
    const float *from[2] = {NULL, NULL};
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (q[i].reach.end > 0) from[i] = mat_f32(a.q, q[i].row) + (size_t)q[i].head * D;
    take_queries<D, IS_F8>(from, out);
}

/* ---- finding tiles ---- */

/* The warp's KV tile of tile `t`: NULL where nothing is attended. */
static __device__ inline const uint8_t *find_tile(const struct cuda_attention &a,
                                                  const uint32_t *blocks, struct reach all,
                                                  uint32_t kv_head, uint32_t t) {
    uint32_t kv_tile = t * KV_TILES + threadIdx.x / 32;
    uint32_t first = kv_tile * CUDA_TILE_TOKENS;
    if (first >= all.end || first + CUDA_TILE_TOKENS <= all.first) return NULL;
    return cuda_kv_tile(&a.kv, blocks, kv_tile, a.layer, kv_head);
}

/* ---- products ---- */

/* In shared memory, 16-byte piece p (dimensions 8 * p and on) of token t lies at p * NEXT + t * 16,
 * of keys and of values: as in the cache, or with more tokens side by side. */
static constexpr uint32_t AS_IN_CACHE = CUDA_TILE_TOKENS * 16;

/* Scores of 16 queries and 16 tokens. */
template <int D, int NEXT>
static __device__ inline void score_tile(const uint32_t q[mma_dims<D>::steps][4], uint32_t keys,
                                         float s[2][4]) {
    uint32_t lane = threadIdx.x % 32, token = lane % 8 + lane / 16 * 8;
#pragma unroll
    for (uint32_t step = 0; step < mma_dims<D>::steps; step++) {
        uint32_t b[4], piece = 2 * step + lane / 8 % 2;
        ldmatrix_x4(b, keys + piece * NEXT + token * 16);
        mma_16x8x16<false>(s[0], q[step], b);
        mma_16x8x16<false>(s[1], q[step], b + 2);
    }
}

/* out += p * V for 16 tokens and COLS dimensions from piece `first` on. */
template <int COLS, int NEXT>
static __device__ inline void add_values(const uint32_t p[4], uint32_t values, uint32_t first,
                                         float out[COLS / 8][4]) {
    uint32_t lane = threadIdx.x % 32, token = lane % 8 + lane / 8 % 2 * 8;
#pragma unroll
    for (uint32_t i = 0; i < COLS / 16; i++) {
        uint32_t b[4], piece = first + 2 * i + lane / 16;
        ldmatrix_x4_turned(b, values + piece * NEXT + token * 16);
        mma_16x8x16<false>(out[2 * i], p, b);
        mma_16x8x16<false>(out[2 * i + 1], p, b + 2);
    }
}

#endif
