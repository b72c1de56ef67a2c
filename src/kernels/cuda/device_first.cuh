/* kernels/cuda/device_first.cuh - the start of a product of few rows (struct cuda_first): copy its
 * rows to shared memory and compute their norms, with the bits of rows.cu. All threads of the block
 * call each function. Only the first `threads` threads copy; they have no other cp.async pending.
 */
#ifndef KERNELS_CUDA_DEVICE_FIRST_CUH
#define KERNELS_CUDA_DEVICE_FIRST_CUH

#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_rows.cuh"

static constexpr uint32_t FIRST_ROWS = 4;

/* In shared memory: [cols] weights of the norm, then [rows][cols] numbers. */
static __host__ __device__ inline uint32_t first_bytes(const struct cuda_few &f) {
    uint32_t rows = f.product.row_count + (f.first.weight ? 1 : 0);
    return f.first.src.base ? rows * f.product.w.cols * 4 : 0;
}

struct first_rows {
    const float *weight; /* NULL: no norm */
    float *rows;
    uint32_t cols;
};

static __device__ inline struct first_rows first_at(const struct cuda_few &f, uint8_t *shared) {
    float *to = (float *)shared;
    uint32_t cols = f.product.w.cols;
    return {f.first.weight ? to : NULL, f.first.weight ? to + cols : to, cols};
}

static __device__ inline void copy_floats(float *to, const float *from, uint32_t count,
                                          uint32_t threads) {
    for (uint32_t i = threadIdx.x * 4; threadIdx.x < threads && i < count; i += threads * 4)
        copy_16_cached(shared_address(to + i), from + i, true);
}

/* Before the inputs are there. */
static __device__ inline void first_begin(const struct cuda_few &f, const struct first_rows &m,
                                          uint32_t threads) {
    if (m.weight) copy_floats((float *)m.weight, f.first.weight, m.cols, threads);
}

/* Rows and statistics, for all threads. */
static __device__ inline void first_read(const struct cuda_few &f, const struct first_rows &m,
                                         uint32_t threads, struct norm_stats stats[FIRST_ROWS]) {
    uint32_t warp = threadIdx.x / 32;
    for (uint32_t r = 0; r < f.product.row_count; r++)
        copy_floats(m.rows + r * m.cols, mat_f32(f.first.src, r), m.cols, threads);
    copies_commit();
    if (threadIdx.x < threads) copies_wait<0>();
    __syncthreads();
    if (!m.weight) return;
    for (uint32_t r = warp; r < f.product.row_count; r += blockDim.x / 32) {
        struct norm_stats s =
            norm_measure(m.rows + r * m.cols, m.cols, threadIdx.x % NORM_LANES, false, f.first.eps);
        if (threadIdx.x % 32 == 0) stats[r] = s;
    }
    __syncthreads();
}

static __device__ inline float first_one(const struct first_rows &m, const struct norm_stats &s,
                                         uint32_t row, uint32_t i) {
    float x = m.rows[row * m.cols + i];
    return m.weight ? (x - s.mean) * s.rate * m.weight[i] : x;
}

#endif
