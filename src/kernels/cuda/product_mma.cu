/* kernels/cuda/product_mma.cu - products of bf16 and f16 weights with few rows, on tensor cores.
 *
 * mma.sync m16n8k16 with one f32 accumulator, k rising in steps of 16: the bits of cuBLASLt with a
 * split-K of 1 (measured on H200; docs/identity.md), which takes over where there are many rows.
 *
 * Mapping: a warp owns 16 weight rows, which are the m of the instruction, and 8 or 16 rows of
 * activations, its n, over all columns. Both come through the warp's own ring in shared memory by
 * cp.async, 64 columns at a time (device_stage.cuh). Warps never wait for each other.
 * Cost: bound by memory. A block has 72 or 80 KB in flight.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mma.cuh"
#include "kernels/cuda/device_rows.cuh"
#include "kernels/cuda/device_stage.cuh"
#include "kernels/cuda/product.cuh"

static constexpr uint32_t MMA_WARPS = 2, MMA_WEIGHTS = 16;

/* TILES: of 8 rows of activations. */
template <int TILES> struct mma_sizes {
    static constexpr uint32_t rows = TILES * 8;
    static constexpr uint32_t stages = TILES == 1 ? 12 : 10;
    static constexpr uint32_t weight_bytes = MMA_WEIGHTS * STAGE_ROW_BYTES;
    static constexpr uint32_t stage_bytes = weight_bytes + rows * STAGE_ROW_BYTES;
    static constexpr uint32_t warp_bytes = stages * stage_bytes;
};

/* What a warp brings, stage by stage: both as rows of row_elems 16-bit numbers. */
struct mma_source {
    const uint16_t *w, *x;
    uint32_t weights, rows; /* that there are; the rest is zeros */
    uint32_t row_elems;
};

/* Where a lane's copies come from: rows lane / 8, + 4, ... of both, and one piece of each. */
template <int TILES> struct mma_lane {
    const uint16_t *w[MMA_WEIGHTS / 4], *x[TILES * 2];
    bool has_w[MMA_WEIGHTS / 4], has_x[TILES * 2];
};

template <int TILES> static __device__ struct mma_lane<TILES> mma_lane_of(const mma_source &s) {
    struct mma_lane<TILES> out;
    uint32_t lane = threadIdx.x % 32, k = lane % PIECES * 8;
#pragma unroll
    for (uint32_t i = 0; i < MMA_WEIGHTS / 4; i++) {
        out.has_w[i] = lane / PIECES + 4 * i < s.weights;
        out.w[i] = s.w + (size_t)(out.has_w[i] ? lane / PIECES + 4 * i : 0) * s.row_elems + k;
    }
#pragma unroll
    for (uint32_t i = 0; i < TILES * 2; i++) {
        out.has_x[i] = lane / PIECES + 4 * i < s.rows;
        out.x[i] = s.x + (size_t)(out.has_x[i] ? lane / PIECES + 4 * i : 0) * s.row_elems + k;
    }
    return out;
}

/* A quarter of a stage's copies. */
template <int TILES>
static __device__ inline void mma_bring(const struct mma_lane<TILES> &l, uint32_t stage,
                                        uint32_t to, uint32_t quarter) {
    uint32_t row = threadIdx.x % 32 / PIECES + 4 * quarter, piece = threadIdx.x % PIECES;
    const uint32_t k = stage * STAGE_COLS, x_at = mma_sizes<TILES>::weight_bytes;
    copy_16(to + swizzle(row, piece), l.w[quarter] + k, l.has_w[quarter]);
    if (quarter < TILES * 2)
        copy_16(to + x_at + swizzle(row, piece), l.x[quarter] + k, l.has_x[quarter]);
}

/* The products of a stage. The copies of a later one are issued between them, while a product waits
 * for the one before it. */
template <bool IS_BF16, int TILES>
static __device__ inline void mma_stage(uint32_t at, const struct mma_lane<TILES> &l, bool brings,
                                        uint32_t next, uint32_t to, float acc[TILES][4]) {
    uint32_t lane = threadIdx.x % 32, x_at = at + mma_sizes<TILES>::weight_bytes;
    uint32_t a[STAGE_COLS / 16][4], b[STAGE_COLS / 16][4];
#pragma unroll
    for (uint32_t step = 0; step < STAGE_COLS / 16; step++) {
        ldmatrix_x4(a[step], at + swizzle(lane % 16, 2 * step + lane / 16));
        if (TILES == 1)
            ldmatrix_x2(b[step], x_at + swizzle(lane % 8, 2 * step + lane / 8 % 2));
        else
            ldmatrix_x4(b[step], x_at + swizzle(lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
    }
#pragma unroll
    for (uint32_t step = 0; step < STAGE_COLS / 16; step++) {
#pragma unroll
        for (int t = 0; t < TILES; t++) mma_16x8x16<IS_BF16>(acc[t], a[step], b[step] + 2 * t);
        if (brings) mma_bring<TILES>(l, next, to, step);
    }
}

template <int TILES>
static __device__ struct mma_source mma_source_of(const struct cuda_product &a, uint32_t first,
                                                  uint32_t n0) {
    struct product_row at = product_row(a, first);
    struct mma_source s;
    uint32_t x_row = a.used && !a.src_per_expert ? at.row : first;
    s.row_elems = a.w.row_elems;
    s.w = (const uint16_t *)a.w.data + at.expert * a.w.expert_elems + (size_t)n0 * s.row_elems;
    s.x = (const uint16_t *)a.x + (size_t)x_row * s.row_elems;
    s.weights = a.w.rows - n0;
    s.rows = a.used ? 1 : a.row_count - first;
    return s;
}

template <bool IS_BF16, int TILES>
static __global__ void __launch_bounds__(MMA_WARPS * 32) mma_kernel(struct cuda_product a) {
    begin_kernel();
    using sizes = mma_sizes<TILES>;
    extern __shared__ __align__(128) uint8_t rings[];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t n0 = (blockIdx.y * MMA_WARPS + warp) * MMA_WEIGHTS;
    uint32_t first = blockIdx.x * (a.used ? 1 : sizes::rows);
    if (n0 >= a.w.rows) return;
    if (a.used && !product_is_live(a, first)) return; /* its experts were not chosen */
    uint32_t ring = shared_address(rings + warp * sizes::warp_bytes);
    struct mma_source s = mma_source_of<TILES>(a, first, n0);
    uint32_t stage_count = s.row_elems / STAGE_COLS;
    float acc[TILES][4] = {{0.0f}};
    struct mma_lane<TILES> l = mma_lane_of<TILES>(s);
    for (uint32_t i = 0; i < sizes::stages - 1; i++) {
#pragma unroll
        for (uint32_t q = 0; q < 4; q++)
            if (i < stage_count) mma_bring<TILES>(l, i, ring + i * sizes::stage_bytes, q);
        copies_commit();
    }
    for (uint32_t i = 0, slot = 0; i < stage_count; i++) {
        copies_wait<sizes::stages - 2>();
        __syncwarp();
        uint32_t next = i + sizes::stages - 1;
        uint32_t free_slot = slot == 0 ? sizes::stages - 1 : slot - 1;
        mma_stage<IS_BF16, TILES>(ring + slot * sizes::stage_bytes, l, next < stage_count, next,
                                  ring + free_slot * sizes::stage_bytes, acc);
        copies_commit();
        slot = slot + 1 == sizes::stages ? 0 : slot + 1;
    }
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t n = lane / 4 + i / 2 * 8, r = t * 8 + lane % 4 * 2 + i % 2;
            if (n < s.weights && r < s.rows) product_store(a, first + r, n0 + n, acc[t][i]);
        }
}

template <bool IS_BF16, int TILES>
static void launch_mma(const struct cuda_product *a, const struct cuda_queue *queue) {
    using sizes = mma_sizes<TILES>;
    uint32_t weights = MMA_WARPS * MMA_WEIGHTS, rows = a->used ? 1 : sizes::rows;
    uint32_t bytes = MMA_WARPS * sizes::warp_bytes;
    dim3 grid((a->row_count + rows - 1) / rows, (a->w.rows + weights - 1) / weights);
    launch(queue, mma_kernel<IS_BF16, TILES>, grid, MMA_WARPS * 32, bytes, *a);
}

template <bool IS_BF16, int TILES> static void prepare_mma(void) {
    cudaFuncSetAttribute(mma_kernel<IS_BF16, TILES>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)(MMA_WARPS * mma_sizes<TILES>::warp_bytes));
}

void cuda_product_mma_prepare(void) {
    prepare_mma<true, 1>();
    prepare_mma<true, 2>();
    prepare_mma<false, 1>();
    prepare_mma<false, 2>();
}

void cuda_product_mma(const struct cuda_product *a, const struct cuda_queue *queue) {
    bool is_bf16 = a->w.form == CUDA_BF16, is_narrow = a->used || a->row_count <= 8;
    if (a->row_count == 0) return;
    if (is_bf16 && is_narrow)
        launch_mma<true, 1>(a, queue);
    else if (is_bf16)
        launch_mma<true, 2>(a, queue);
    else if (is_narrow)
        launch_mma<false, 1>(a, queue);
    else
        launch_mma<false, 2>(a, queue);
}

/* ---- what stands before and behind a product ---- */

static constexpr uint32_t CONVERT_THREADS = 256, CONVERT_COLS = 2048;

static __global__ void convert_kernel(struct cuda_convert a) {
    begin_kernel();
    uint32_t row = blockIdx.x / a.segments, segment = blockIdx.x % a.segments;
    uint32_t cols = a.src.cols / a.segments;
    const float *in = mat_f32(a.src, row) + (size_t)segment * cols;
    uint32_t end = min((blockIdx.y + 1) * CONVERT_COLS, a.to.row_elems);
    for (uint32_t i = blockIdx.y * CONVERT_COLS + threadIdx.x; i < end; i += CONVERT_THREADS) {
        float number = i < cols ? in[i] : 0.0f;
        store_half(a.to, blockIdx.x, i, number);
    }
}

void cuda_convert(const struct cuda_convert *a, const struct cuda_queue *queue) {
    if (a->src.row_count == 0) return;
    dim3 grid(a->src.row_count * a->segments, (a->to.row_elems + CONVERT_COLS - 1) / CONVERT_COLS);
    launch(queue, convert_kernel, grid, CONVERT_THREADS, 0, *a);
}

static __global__ void finish_kernel(struct cuda_finish a) {
    begin_kernel();
    uint32_t row = blockIdx.x;
    const float *from = a.from + (size_t)row * a.dst.cols;
    float *out = mat_f32(a.dst, row);
    if (!mat_is_live(a.dst, row)) return;
    for (uint32_t i = threadIdx.x; i < a.dst.cols; i += CONVERT_THREADS) {
        float y = a.bias ? from[i] + a.bias[i] : from[i];
        out[i] = a.add ? y + out[i] : y;
    }
}

void cuda_finish(const struct cuda_finish *a, const struct cuda_queue *queue) {
    if (a->dst.row_count == 0) return;
    launch(queue, finish_kernel, a->dst.row_count, CONVERT_THREADS, 0, *a);
}
