/* kernels/cuda/resident_join.cuh - joins the parts of attention in resident.cu, with the bits of
 * attention_mma.cu. The blocks divide the queries among them, or each block joins all queries for
 * itself.
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

/* Of some queries with few parts: results of parts, 2 numbers of every 64; the maximum and the sum
 * of query k's part i are with lane k * CUDA_RESIDENT_JOIN + i. */
static constexpr uint32_t JOINED_AT_ONCE = 5; /* all of 32 heads in one round */
template <int D> struct few_parts {
    float2 out[JOINED_AT_ONCE][CUDA_RESIDENT_JOIN][D / 64];
    float max, sum;
};

static __device__ inline uint32_t parts_count(const struct query &q) {
    return q.reach.end > 0 ? (q.reach.end - 1) / SEGMENT - q.reach.first / SEGMENT + 1 : 0;
}

/* Queries first, first + CUDA_RESIDENT_WARPS, ...; all of it is on its way before any is used. */
template <int D>
static __device__ inline void read_parts(const struct cuda_resident &r,
                                         const struct resident_block &b, uint32_t first,
                                         struct few_parts<D> *p) {
    uint32_t lane = threadIdx.x % 32, last = r.rows * r.attention.heads - 1;
    uint32_t own = lane / CUDA_RESIDENT_JOIN % JOINED_AT_ONCE;
    const struct query mine = query_at(r, b, min(first + own * CUDA_RESIDENT_WARPS, last));
    p->max = p->sum = 0.0f;
    if (lane % CUDA_RESIDENT_JOIN < parts_count(mine)) {
        const float *part = part_of<D>(r.attention, mine, lane % CUDA_RESIDENT_JOIN);
        p->max = part[D];
        p->sum = part[D + 1];
    }
#pragma unroll
    for (uint32_t k = 0; k < JOINED_AT_ONCE; k++) {
        const struct query q = query_at(r, b, min(first + k * CUDA_RESIDENT_WARPS, last));
        uint32_t count = parts_count(q);
        const float *part = part_of<D>(r.attention, q, 0) + lane * 2;
#pragma unroll
        for (uint32_t i = 0; i < CUDA_RESIDENT_JOIN; i++)
#pragma unroll
            for (uint32_t n = 0; n < D / 64; n++)
                if (i < count) p->out[k][i][n] = *(const float2 *)(part + i * (D + 2) + n * 64);
    }
}

/* join_parts of query k; all lanes call it. */
template <int D>
static __device__ inline void join_few(float factor, const struct few_parts<D> &p, uint32_t k,
                                       uint32_t count, float2 out[D / 64]) {
    float max = -DEVICE_INF, sum = 0.0f;
#pragma unroll
    for (uint32_t n = 0; n < D / 64; n++) out[n] = make_float2(0.0f, 0.0f);
#pragma unroll
    for (uint32_t i = 0; i < CUDA_RESIDENT_JOIN; i++) {
        float part_max = __shfl_sync(0xffffffffu, p.max, k * CUDA_RESIDENT_JOIN + i);
        float part_sum = __shfl_sync(0xffffffffu, p.sum, k * CUDA_RESIDENT_JOIN + i);
        if (i >= count) continue;
        struct join_factors f = join_of(&max, &sum, part_max, part_sum, factor);
#pragma unroll
        for (uint32_t n = 0; n < D / 64; n++) {
            out[n].x = join_one(f, out[n].x, p.out[k][i][n].x);
            out[n].y = join_one(f, out[n].y, p.out[k][i][n].y);
        }
    }
    float by = 1.0f / sum;
#pragma unroll
    for (uint32_t n = 0; n < D / 64; n++) out[n] = make_float2(out[n].x * by, out[n].y * by);
}

/* Each block joins all queries for itself and writes them as the rows of the product after
 * attention. If there are few parts, this takes less time than a further barrier of the grid. The
 * parts of several queries are read before the first is joined, because each read waits for the L2
 * cache. */
template <int D, bool IS_BF16>
static __device__ inline void make_joined(const struct cuda_resident &r,
                                          const struct resident_block &b, uint32_t groups) {
    uint32_t lane = threadIdx.x % 32, warp = computed_here(threadIdx.x / 32);
    uint32_t queries = r.rows * r.attention.heads;
    for (uint32_t i = threadIdx.x; i < r.rows * groups * PIECES; i += COMPUTING)
        *(uint4 *)(b.rows + i * 16) = uint4{0, 0, 0, 0};
    computing_barrier();
#pragma unroll 1
    for (uint32_t first = warp; first < queries; first += JOINED_AT_ONCE * CUDA_RESIDENT_WARPS) {
        struct few_parts<D> parts;
        read_parts<D>(r, b, first, &parts);
#pragma unroll
        for (uint32_t k = 0; k < JOINED_AT_ONCE; k++) {
            uint32_t i = first + k * CUDA_RESIDENT_WARPS, row = i / r.attention.heads;
            float2 out[D / 64];
            if (i >= queries) continue;
            uint32_t count = parts_count(query_at(r, b, i));
            if (count == 0) continue;
            join_few<D>(exponent_factor(r.attention), parts, k, count, out);
#pragma unroll
            for (uint32_t n = 0; n < D / 64; n++) {
                uint32_t col = i % r.attention.heads * D + n * 64 + lane * 2;
                *(uint32_t *)(b.rows + piece_at(r.rows, row, col / 8) + col % 8 * 2) =
                    pack_two<IS_BF16>(out[n].x, out[n].y);
            }
        }
    }
}

#endif
