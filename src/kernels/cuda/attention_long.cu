/* kernels/cuda/attention_long.cu - attention_mma.cuh for prompts: runs of many rows.
 *
 * Mapping: 4 warps and 64 queries, 16 to a warp; all segments, tile after tile. The longest runs
 * come first. Tiles come by cp.async into two buffers: of keys and of values, 64 tokens of a piece
 * side by side. Where there is wgmma, attention_chunk.cu does the same.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/attention_fp8.cuh"
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_sums.cuh"

static constexpr uint32_t SIDE_BY_SIDE = TILE * 16; /* from a piece to the next */

/* The warp's KV tile to its place among the 64 tokens; values of tokens that are not attended
 * become zeros. */
template <int D>
static __device__ inline void bring(const uint8_t *tile, const uint8_t *any, uint32_t t,
                                    struct reach all, uint32_t stage) {
    using dims = mma_dims<D>;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t first = t * TILE + warp * CUDA_TILE_TOKENS, to = stage + warp * AS_IN_CACHE;
    const uint8_t *from = tile ? tile : any;
#pragma unroll
    for (uint32_t i = lane; i < dims::side / 16; i += 32) {
        uint32_t at = i / CUDA_TILE_TOKENS * SIDE_BY_SIDE + i % CUDA_TILE_TOKENS * 16;
        uint32_t token = first + i % CUDA_TILE_TOKENS;
        bool is_inside = tile && token >= all.first && token < all.end;
        copy_16(to + at, from + i * 16, tile != NULL);
        copy_16(to + dims::stage / 2 + at, from + dims::side + i * 16, is_inside);
    }
}

/* Of fp8 a block's memory is one stage of f16, which is worked on, then STAGES of bytes. */
template <int D> static __device__ inline uint32_t f8_stage_at(uint32_t i) {
    return mma_dims<D>::stage + i % STAGES * mma_dims<D>::f8_stage;
}

template <int D, bool IS_F8>
static __device__ inline void bring_tile(const struct cuda_attention &a, const uint8_t *tile,
                                         uint32_t t, struct reach all, uint32_t ring) {
    if (IS_F8)
        bring_f8<D>(tile, a.kv.base, ring + f8_stage_at<D>(t));
    else
        bring<D>(tile, a.kv.base, t, all, ring + t % STAGES * mma_dims<D>::stage);
}

/* ---- tiles of fp8 ---- */

/* Values of tokens that are not attended become zeros: `first` is the first of eight. */
static __device__ inline void clean_eight(const struct reach &all, uint32_t first, uint4 *eight) {
    if (first >= all.first && first + 8 <= all.end) return;
    uint16_t *halves = (uint16_t *)eight;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        if (first + i < all.first || first + i >= all.end) halves[i] = 0;
}

/* The warp's bytes to f16, keys as those of a cache of f16, values as they lie: 16 bytes are 8
 * dimensions of two keys, or one dimension of 16 values, 8 of which go side by side:
 * [2][D][8 tokens]. */
template <int D>
static __device__ inline void spread_tile(uint32_t t, struct reach all, uint8_t *buffers) {
    using dims = mma_dims<D>;
    static constexpr uint32_t of_a_piece = CUDA_TILE_TOKENS / 2;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t first = t * TILE + warp * CUDA_TILE_TOKENS;
    const uint8_t *mine = buffers + f8_stage_at<D>(t) + warp * 2 * dims::f8_side;
    uint8_t *keys = buffers + warp * AS_IN_CACHE;
    uint8_t *values = buffers + dims::stage / 2 + warp * dims::side;
#pragma unroll
    for (uint32_t n = lane; n < 2 * D; n += 32) {
        uint32_t i = n % D;
        uint4 raw = *(const uint4 *)(mine + n * 16), out[2];
        fp8_halves(raw.x, (__half2 *)&out[0].x);
        fp8_halves(raw.y, (__half2 *)&out[0].z);
        fp8_halves(raw.z, (__half2 *)&out[1].x);
        fp8_halves(raw.w, (__half2 *)&out[1].z);
        if (n < D) {
            uint4 *place = (uint4 *)(keys + i / of_a_piece * SIDE_BY_SIDE) + i % of_a_piece * 2;
            place[0] = out[0];
            place[1] = out[1];
        } else {
            clean_eight(all, first, &out[0]);
            clean_eight(all, first + 8, &out[1]);
            ((uint4 *)values)[i] = out[0];
            ((uint4 *)values)[D + i] = out[1];
        }
    }
}

/* ---- products ---- */

template <int D>
static __device__ inline void score(const uint32_t q[mma_dims<D>::steps][4], uint32_t keys,
                                    float s[TILE / 8][4]) {
#pragma unroll
    for (uint32_t i = 0; i < KV_TILES; i++)
        score_tile<D, SIDE_BY_SIDE>(q, keys + i * AS_IN_CACHE, s + 2 * i);
}

/* add_values of values as spread_tile leaves them. */
template <int D>
static __device__ inline void add_spread(const uint32_t p[4], uint32_t values,
                                         float out[D / 8][4]) {
    uint32_t lane = threadIdx.x % 32, half = lane / 8 % 2, d = lane % 8 + lane / 16 * 8;
#pragma unroll
    for (uint32_t i = 0; i < D / 16; i++) {
        uint32_t b[4];
        ldmatrix_x4(b, values + (half * D + i * 16 + d) * 16);
        mma_16x8x16<false>(out[2 * i], p, b);
        mma_16x8x16<false>(out[2 * i + 1], p, b + 2);
    }
}

/* out += p * V and sum += p * 1, 16 tokens after 16. */
template <int D, bool IS_F8>
static __device__ inline void add_tile(const float s[TILE / 8][4], uint32_t values,
                                       float out[D / 8][4], float sum[4]) {
    const uint32_t ones[2] = {0x3c003c00u, 0x3c003c00u};
#pragma unroll
    for (uint32_t i = 0; i < KV_TILES; i++) {
        uint32_t p[4];
        pack_weights(s + 2 * i, p);
        if (IS_F8)
            add_spread<D>(p, values + i * mma_dims<D>::side, out);
        else
            add_values<D, SIDE_BY_SIDE>(p, values + i * AS_IN_CACHE, 0, out);
        mma_16x8x16<false>(sum, p, ones);
    }
}

/* ---- the kernel ---- */

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

template <int D, bool IS_F8, bool HAS_CAP>
static __global__ void __launch_bounds__(THREADS, 2)
    long_kernel(struct cuda_attention a, const struct cuda_row_run *table) {
    begin_kernel();
    using dims = mma_dims<D>;
    extern __shared__ __align__(128) uint8_t buffers[];
    struct cuda_row_run run = table[gridDim.y - 1 - blockIdx.y];
    struct reach all = reach_of_run(a, run);
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, kv_head = blockIdx.x;
    if (all.end == 0) return;
    const uint32_t *blocks = a.blocks + a.seq[run.first] * a.blocks_stride;
    struct query q[2] = {query_of(a, run, kv_head, warp * 16 + lane / 4),
                         query_of(a, run, kv_head, warp * 16 + lane / 4 + 8)};
    uint32_t frags[dims::steps][4], ring = shared_address(buffers);
    float *kept = (float *)(buffers + STAGES * dims::stage), factor = exponent_factor(a);
    float all_max[2] = {-DEVICE_INF, -DEVICE_INF}, all_sum[2] = {0.0f, 0.0f};
    float max[2] = {-DEVICE_INF, -DEVICE_INF}, sum[4] = {0.0f}, out[D / 8][4] = {{0.0f}};
    load_queries<D, false>(a, q, frags);
    uint32_t from = all.first / TILE, to = (all.end + TILE - 1) / TILE;
    const uint8_t *next = find_tile(a, blocks, all, kv_head, from);
    bring_tile<D, IS_F8>(a, next, from, all, ring);
    copies_commit();
    next = find_tile(a, blocks, all, kv_head, from + 1);
    for (uint32_t t = from; t < to; t++) {
        uint32_t stage = ring + (IS_F8 ? 0 : t % STAGES * dims::stage);
        if (t + 1 < to) bring_tile<D, IS_F8>(a, next, t + 1, all, ring);
        copies_commit();
        next = find_tile(a, blocks, all, kv_head, t + 2);
        copies_wait<1>();
        if (IS_F8) spread_tile<D>(t, all, buffers);
        __syncthreads();
        float s[TILE / 8][4] = {{0.0f}}, top[2];
        score<D>(frags, stage, s);
        mask_scores<TILE / 8, HAS_CAP>(a, q, t * TILE, s);
        top[0] = max_of<TILE / 8>(s, 0);
        top[1] = max_of<TILE / 8>(s, 1);
        rescale<D / 8>(top, factor, max, out, sum);
        weights_of<TILE / 8>(max, factor, s);
        add_tile<D, IS_F8>(s, stage + dims::stage / 2, out, sum);
        if ((t + 1) % PER_SEGMENT == 0 || t + 1 == to) {
            bool is_first = t / PER_SEGMENT == from / PER_SEGMENT;
            join_long<D>(factor, max, sum, out, is_first, kept, all_max, all_sum);
#pragma unroll
            for (uint32_t n = 0; n < D / 2; n++) out[n / 4][n % 4] = 0.0f;
            max[0] = max[1] = -DEVICE_INF;
            sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
        }
        __syncthreads(); /* this tile's buffer is free for the next but one */
    }
    const float by[2] = {1.0f / all_sum[0], 1.0f / all_sum[1]};
#pragma unroll
    for (uint32_t n = 0; n < D / 4; n++) {
        uint32_t i = n % 2, k = n / 2; /* dimensions k * 8 + ... of query i */
        const float *two = kept + (4 * k + i) * THREADS + threadIdx.x;
        store_two<D>(a, q[i], k * 8 + lane % 4 * 2, two[0] * by[i], two[2 * THREADS] * by[i]);
    }
}

/* ---- launching ---- */

template <int D> static constexpr uint32_t shared_bytes(void) {
    return STAGES * mma_dims<D>::stage + mma_dims<D>::kept * THREADS * (uint32_t)sizeof(float);
}

template <int D, bool IS_F8>
static void launch_long(const struct cuda_attention *a, const struct cuda_row_run *table,
                        uint32_t count, const struct cuda_queue *queue) {
    dim3 grid(a->kv_heads, count);
    if (a->softcap > 0.0f)
        launch(queue, long_kernel<D, IS_F8, true>, grid, THREADS, shared_bytes<D>(), *a, table);
    else
        launch(queue, long_kernel<D, IS_F8, false>, grid, THREADS, shared_bytes<D>(), *a, table);
}

template <int D, bool IS_F8> static void prepare(void) {
    cudaFuncSetAttribute(long_kernel<D, IS_F8, false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)shared_bytes<D>());
    cudaFuncSetAttribute(long_kernel<D, IS_F8, true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)shared_bytes<D>());
}

void cuda_attention_long_prepare(void) {
    prepare<64, false>();
    prepare<64, true>();
    prepare<128, false>();
    prepare<128, true>();
}

void cuda_attention_long(const struct cuda_attention *a, const struct cuda_row_run *table,
                         uint32_t count, const struct cuda_queue *queue) {
    bool is_f8 = a->kv.type == KV_F8;
    if (a->head_dim == 64 && is_f8)
        launch_long<64, true>(a, table, count, queue);
    else if (a->head_dim == 64)
        launch_long<64, false>(a, table, count, queue);
    else if (is_f8)
        launch_long<128, true>(a, table, count, queue);
    else
        launch_long<128, false>(a, table, count, queue);
}
