/* kernels/cuda/resident_join.cuh - attention's parts joined in resident.cu, with the bits of
 * attention_mma.cu: by all blocks of the grid for all of them, or by each block for itself.
 */
#ifndef KERNELS_CUDA_RESIDENT_JOIN_CUH
#define KERNELS_CUDA_RESIDENT_JOIN_CUH

#include "kernels/cuda/resident_items.cuh"
#include "kernels/cuda/resident_rows.cuh"

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
