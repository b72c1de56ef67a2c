/* kernels/cuda/resident_rows.cuh - brings the rows of a product in resident.cu to shared memory, in
 * 16 bits: copied from global memory, or computed by a norm with the bits of rows.cu.
 */
#ifndef KERNELS_CUDA_RESIDENT_ROWS_CUH
#define KERNELS_CUDA_RESIDENT_ROWS_CUH

#include "kernels/cuda/resident_ring.cuh"

/* A row's 16-byte piece (8 columns) among rows in 16 bits: [group][row][piece]. */
static __device__ inline uint32_t piece_at(uint32_t rows, uint32_t row, uint32_t piece) {
    return piece / PIECES * rows * STAGE_ROW_BYTES + swizzle(row, piece % PIECES);
}

template <bool IS_BF16> static __device__ inline uint32_t pack_two(float a, float b) {
    uint32_t two;
    if (IS_BF16) {
        ((__nv_bfloat16 *)&two)[0] = __float2bfloat16_rn(a);
        ((__nv_bfloat16 *)&two)[1] = __float2bfloat16_rn(b);
    } else {
        ((__half *)&two)[0] = half_of(a);
        ((__half *)&two)[1] = half_of(b);
    }
    return two;
}

/* Groups [first, first + count) of rows that lie in 16 bits in global memory, zeros behind column
 * `cols`. All computing threads; the rows are there for all of them behind the next barrier. */
static __device__ inline void bring_rows(const struct resident_block &b, const struct cuda_half &x,
                                         uint32_t cols, uint32_t rows, uint32_t first,
                                         uint32_t count) {
    uint32_t pieces = count * PIECES, begin = first * PIECES;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = threadIdx.x; i < pieces; i += COMPUTING) {
            const uint8_t *from = (const uint8_t *)x.x + (size_t)r * x.row_elems * 2;
            bool is_there = (begin + i) * 8 < cols;
            copy_16(b.rows_at + piece_at(rows, r, i), from + (is_there ? (begin + i) * 16 : 0),
                    is_there);
        }
    copies_commit();
    copies_wait<0>();
}

/* The rows of a product behind a norm; returns where they lie in 16 bits. All computing threads. */
template <bool IS_BF16>
static __device__ inline uint32_t make_normed(const struct cuda_resident &r,
                                              const struct resident_block &b, const float *weight,
                                              uint32_t groups) {
    uint32_t cols = r.x.cols, rows = r.rows, warp = threadIdx.x / 32;
    float *floats = (float *)b.rows;
    uint32_t made = rows * groups * CUDA_SLOT_GROUP * 4, there = cols / 8;
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t i = threadIdx.x * 4; i < cols; i += COMPUTING * 4)
            copy_16(b.rows_at + (row * cols + i) * 4, mat_f32(r.x, row) + i, true);
    copies_commit();
    copies_wait<0>();
    computing_barrier();
    if (warp < rows) {
        struct norm_stats s =
            norm_measure(floats + warp * cols, cols, threadIdx.x % NORM_LANES, false, r.norm_eps);
        if (threadIdx.x % 32 == 0) b.kept->stats[warp] = s;
    }
    computing_barrier();
    for (uint32_t i = threadIdx.x; i < groups * PIECES; i += COMPUTING) {
        float by[8];
#pragma unroll
        for (uint32_t n = 0; n < 8; n++) by[n] = i < there ? weight[i * 8 + n] : 0.0f;
        for (uint32_t row = 0; row < rows; row++) {
            const struct norm_stats s = b.kept->stats[row];
            const float *from = floats + row * cols + i * 8;
            uint4 some = {0, 0, 0, 0};
            uint32_t *two = (uint32_t *)&some;
#pragma unroll
            for (uint32_t n = 0; n < 4; n++)
                if (i < there)
                    two[n] = pack_two<IS_BF16>((from[2 * n] - s.mean) * s.rate * by[2 * n],
                                               (from[2 * n + 1] - s.mean) * s.rate * by[2 * n + 1]);
            *(uint4 *)(b.rows + made + piece_at(rows, row, i)) = some;
        }
    }
    computing_barrier();
    return b.rows_at + made;
}

#endif
