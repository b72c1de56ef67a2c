/* kernels/cuda/fp8_rows.cu - rows that become e4m3 with a scale each: norms, acts, other results,
 * and weights while they are loaded. See fp8_scale.h.
 *
 * Mapping: a block owns a row, since its scale needs all of it. Threads take four columns at a
 * time, so that a warp writes 128 bytes.
 * Cost: bound by memory and, with few rows, by the launch.
 */
#include <cuda_runtime.h>

#include "kernels/cuda/device_fp8.cuh"
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/device_mat.cuh"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/device_rows.cuh"
#include "kernels/cuda/fp8_scale.h"
#include "kernels/cuda/launch_fp8.h"

static constexpr uint32_t NORM_THREADS = 256, WIDE_THREADS = 1024, WARPS_MAX = 32;
static constexpr uint32_t MANY_ROWS = 100; /* as many as keep the card busy */

/* ---- a row ---- */

/* A NaN is never greater, so it does not count; an infinite number counts as a large one. */
static __device__ inline float larger(float most, float number) {
    number = fabsf(number);
    return number > most ? number : most;
}

/* The largest of all threads' numbers, for all of them. */
static __device__ inline float block_most(float most) {
    __shared__ float of_warps[WARPS_MAX];
    uint32_t lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int width = 16; width > 0; width /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, width));
    if (lane == 0) of_warps[threadIdx.x / 32] = most;
    __syncthreads();
    most = lane < warps ? of_warps[lane] : 0.0f;
    for (int width = 16; width > 0; width /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, width));
    return most;
}

static __device__ inline uint32_t fp8_four(const float y[4], float inverse, bool by_card) {
    uint32_t four = 0;
    if (by_card)
        return fp8_two(y[2] * inverse, y[3] * inverse) << 16 |
               fp8_two(y[0] * inverse, y[1] * inverse);
#pragma unroll
    for (int k = 0; k < 4; k++) four |= (uint32_t)fp8_of(y[k] * inverse) << 8 * k;
    return four;
}

/* Columns i to i + 3; i is a multiple of 4. */
static __device__ inline void store_four(uint8_t *row, uint32_t i, const float y[4], float inverse,
                                         bool by_card) {
    *(uint32_t *)(row + i) = fp8_four(y, inverse, by_card);
}

/* ---- norm ---- */

static __device__ inline float norm_number(const struct cuda_norm &a, struct norm_stats s, float x,
                                           uint32_t i) {
    float unit = (x - s.mean) * s.rate;
    return a.bias ? fmaf(unit, a.weight[i], a.bias[i]) : unit * a.weight[i];
}

static __global__ void norm_fp8_kernel(struct cuda_norm a) {
    extern __shared__ __align__(16) float kept[];
    __shared__ struct norm_stats stats;
    begin_kernel();
    uint32_t row = blockIdx.x;
    if (!mat_is_live(a.src, row)) return;
    const float *x = mat_f32(a.src, row);
    for (uint32_t i = threadIdx.x; i < a.group; i += NORM_THREADS) kept[i] = x[i];
    __syncthreads();
    if (threadIdx.x < 32) {
        struct norm_stats s =
            norm_measure(kept, a.group, threadIdx.x % NORM_LANES, a.is_layer, a.eps);
        if (threadIdx.x == 0) stats = s;
    }
    __syncthreads();
    float most = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.group; i += NORM_THREADS) {
        float number = norm_number(a, stats, kept[i], i);
        if (a.dst.base) mat_f32(a.dst, row)[i] = number;
        kept[i] = number;
        most = larger(most, number);
    }
    most = block_most(most); /* all have written their part of `kept` */
    float inverse = cuda_fp8_inverse(most);
    uint8_t *out = (uint8_t *)a.half.x + (size_t)row * a.half.row_elems;
    for (uint32_t i = threadIdx.x * 4; i < a.group; i += NORM_THREADS * 4)
        store_four(out, i, kept + i, inverse, a.half.by_card);
    if (threadIdx.x == 0) a.half.scale[row] = cuda_fp8_scale(most);
}

/* The same without bias, four numbers at a time: up to FOURS fours a thread stay in registers, and
 * their weights are read before the row is there. */
template <int FOURS> static __global__ void norm_fp8_wide_kernel(struct cuda_norm a) {
    extern __shared__ __align__(16) float fours[];
    __shared__ struct norm_stats stats;
    admit_next_kernel();
    uint32_t row = blockIdx.x, first = threadIdx.x * 4;
    float w[FOURS][4], y[FOURS][4], most = 0.0f;
#pragma unroll
    for (uint32_t k = 0; k < FOURS; k++) {
        uint32_t i = first + k * NORM_THREADS * 4;
        if (i < a.group) *(float4 *)w[k] = *(const float4 *)(a.weight + i);
    }
    wait_for_inputs();
    if (!mat_is_live(a.src, row)) return;
#pragma unroll
    for (uint32_t k = 0; k < FOURS; k++) {
        uint32_t i = first + k * NORM_THREADS * 4;
        if (i >= a.group) continue;
        *(float4 *)y[k] = *(const float4 *)(mat_f32(a.src, row) + i);
        *(float4 *)(fours + i) = *(const float4 *)y[k];
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        struct norm_stats s =
            norm_measure(fours, a.group, threadIdx.x % NORM_LANES, a.is_layer, a.eps);
        if (threadIdx.x == 0) stats = s;
    }
    __syncthreads();
    struct norm_stats s = stats;
#pragma unroll
    for (uint32_t k = 0; k < FOURS; k++) {
        uint32_t i = first + k * NORM_THREADS * 4;
        if (i >= a.group) continue;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            y[k][n] = (y[k][n] - s.mean) * s.rate * w[k][n];
            most = larger(most, y[k][n]);
        }
        if (a.dst.base) *(float4 *)(mat_f32(a.dst, row) + i) = *(const float4 *)y[k];
    }
    most = block_most(most);
    float inverse = cuda_fp8_inverse(most);
    uint8_t *out = (uint8_t *)a.half.x + (size_t)row * a.half.row_elems;
#pragma unroll
    for (uint32_t k = 0; k < FOURS; k++) {
        uint32_t i = first + k * NORM_THREADS * 4;
        if (i < a.group) store_four(out, i, y[k], inverse, a.half.by_card);
    }
    if (threadIdx.x == 0) a.half.scale[row] = cuda_fp8_scale(most);
}

/* The same of many rows, with few threads and registers: what would stay in registers is read again
 * from shared memory and the first cache. While one warp makes the chain of sums the others wait,
 * so a multiprocessor should have many rows at once. */
static constexpr uint32_t DENSE_THREADS = 128, DENSE_BLOCKS = 12, DENSE_ROWS = 512;
static __global__ void __launch_bounds__(DENSE_THREADS, DENSE_BLOCKS)
    norm_fp8_dense_kernel(struct cuda_norm a) {
    extern __shared__ __align__(16) float fours[];
    __shared__ struct norm_stats stats;
    begin_kernel();
    uint32_t row = blockIdx.x;
    float most = 0.0f;
    if (!mat_is_live(a.src, row)) return;
    const float *x = mat_f32(a.src, row);
#pragma unroll 4
    for (uint32_t i = threadIdx.x * 4; i < a.group; i += DENSE_THREADS * 4)
        *(float4 *)(fours + i) = *(const float4 *)(x + i);
    __syncthreads();
    if (threadIdx.x < 32) {
        struct norm_stats s =
            norm_measure(fours, a.group, threadIdx.x % NORM_LANES, a.is_layer, a.eps);
        if (threadIdx.x == 0) stats = s;
    }
    __syncthreads();
    struct norm_stats s = stats;
#pragma unroll 2
    for (uint32_t i = threadIdx.x * 4; i < a.group; i += DENSE_THREADS * 4) {
        float w[4], y[4];
        *(float4 *)w = *(const float4 *)(a.weight + i);
        *(float4 *)y = *(const float4 *)(fours + i);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            y[n] = (y[n] - s.mean) * s.rate * w[n];
            most = larger(most, y[n]);
        }
        *(float4 *)(fours + i) = *(const float4 *)y;
        if (a.dst.base) *(float4 *)(mat_f32(a.dst, row) + i) = *(const float4 *)y;
    }
    most = block_most(most);
    float inverse = cuda_fp8_inverse(most);
    uint8_t *out = (uint8_t *)a.half.x + (size_t)row * a.half.row_elems;
#pragma unroll 2
    for (uint32_t i = threadIdx.x * 4; i < a.group; i += DENSE_THREADS * 4) {
        float y[4];
        *(float4 *)y = *(const float4 *)(fours + i);
        store_four(out, i, y, inverse, a.half.by_card);
    }
    if (threadIdx.x == 0) a.half.scale[row] = cuda_fp8_scale(most);
}

/* Do columns begin at a multiple of 16 bytes, in every row? */
static bool is_wide(const struct cuda_mat *m) {
    return !m->base || (m->col % 4 == 0 && m->row_bytes % 16 == 0);
}

static bool launch_norm_wide(const struct cuda_norm *a, const struct cuda_queue *queue) {
    static constexpr uint32_t at_once = NORM_THREADS * 4;
    if (!a->is_wide || a->bias || !is_wide(&a->src) || !is_wide(&a->dst)) return false;
    uint32_t rows = a->src.row_count, bytes = a->group * (uint32_t)sizeof(float);
    if (a->group > 8 * at_once) return false;
    if (a->is_dense && rows >= DENSE_ROWS)
        launch(queue, norm_fp8_dense_kernel, rows, DENSE_THREADS, bytes, *a);
    else if (a->group <= at_once)
        launch(queue, norm_fp8_wide_kernel<1>, rows, NORM_THREADS, bytes, *a);
    else if (a->group <= 4 * at_once)
        launch(queue, norm_fp8_wide_kernel<4>, rows, NORM_THREADS, bytes, *a);
    else
        launch(queue, norm_fp8_wide_kernel<8>, rows, NORM_THREADS, bytes, *a);
    return true;
}

void cuda_fp8_norm(const struct cuda_norm *a, const struct cuda_queue *queue) {
    if (a->src.row_count == 0 || launch_norm_wide(a, queue)) return;
    launch(queue, norm_fp8_kernel, a->src.row_count, NORM_THREADS, a->group * sizeof(float), *a);
}

/* ---- acts and conversions ---- */

/* What a row is made of. `four` gives columns i to i + 3. */
struct act_source {
    struct cuda_act a;
    bool is_aligned;
    __device__ bool is_live(uint32_t row) const { return mat_is_live(a.gate, row); }
    __device__ uint32_t cols() const { return a.gate.cols; }
    __device__ void four(uint32_t row, uint32_t i, float y[4]) const {
        float gate[4], up[4] = {1.0f, 1.0f, 1.0f, 1.0f};
        if (is_aligned) {
            *(float4 *)gate = *(const float4 *)(mat_f32(a.gate, row) + i);
            if (a.up.base) *(float4 *)up = *(const float4 *)(mat_f32(a.up, row) + i);
        }
        float *out = a.dst.base ? mat_f32(a.dst, row) + i : NULL;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (!is_aligned) gate[k] = mat_f32(a.gate, row)[i + k];
            if (!is_aligned && a.up.base) up[k] = mat_f32(a.up, row)[i + k];
            y[k] = act_one(a.kind, gate[k]);
            if (a.up.base) y[k] *= up[k];
            if (out) out[k] = y[k];
        }
    }
};

struct plain_source {
    struct cuda_mat src;
    bool is_aligned;
    __device__ bool is_live(uint32_t row) const { return mat_is_live(src, row); }
    __device__ uint32_t cols() const { return src.cols; }
    __device__ void four(uint32_t row, uint32_t i, float y[4]) const {
        const float *x = mat_f32(src, row);
        if (is_aligned) {
            *(float4 *)y = *(const float4 *)(x + i);
            return;
        }
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) y[k] = i + k < src.cols ? x[i + k] : 0.0f;
    }
};

/* A row stays in shared memory until its scale is known. Few enough threads that several rows share
 * a multiprocessor: one is read while another is written. */
template <class SOURCE>
static __global__ void __launch_bounds__(WIDE_THREADS)
    fp8_rows_kernel(SOURCE source, struct cuda_half to) {
    extern __shared__ __align__(16) float kept[];
    begin_kernel();
    uint32_t row = blockIdx.x;
    if (!source.is_live(row)) return;
    float most = 0.0f;
#pragma unroll 2
    for (uint32_t i = threadIdx.x * 4; i < to.row_elems; i += blockDim.x * 4) {
        float y[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (i < source.cols()) source.four(row, i, y);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            kept[i + n] = y[n];
            most = larger(most, y[n]);
        }
    }
    most = block_most(most);
    float inverse = cuda_fp8_inverse(most);
    uint8_t *out = (uint8_t *)to.x + (size_t)row * to.row_elems;
    for (uint32_t i = threadIdx.x * 4; i < to.row_elems; i += blockDim.x * 4)
        store_four(out, i, kept + i, inverse, to.by_card);
    if (threadIdx.x == 0) to.scale[row] = cuda_fp8_scale(most);
}

/* A row of an act by the blocks of a cluster, four columns a thread: the blocks tell each other
 * their largest numbers. */
static constexpr uint32_t ACT_CLUSTER = 8;
static __global__ void __launch_bounds__(WIDE_THREADS)
    act_fp8_cluster_kernel(struct act_source source, struct cuda_half to) {
    extern __shared__ __align__(16) float block_has[];
    begin_kernel();
    uint32_t row = blockIdx.x, i = (blockIdx.z * blockDim.x + threadIdx.x) * 4;
    bool is_live = source.is_live(row);
    float y[4] = {0.0f, 0.0f, 0.0f, 0.0f}, most = 0.0f;
    if (is_live && i < source.cols()) source.four(row, i, y);
#pragma unroll
    for (int n = 0; n < 4; n++) most = larger(most, y[n]);
    most = block_most(most);
    if (threadIdx.x == 0) block_has[0] = most;
    cluster_barrier();
    for (uint32_t block = 0; block < ACT_CLUSTER; block++)
        most = fmaxf(most, cluster_float(block_has, block));
    cluster_barrier(); /* the others have read this block's */
    if (!is_live) return;
    uint8_t *out = (uint8_t *)to.x + (size_t)row * to.row_elems;
    if (i < to.row_elems) store_four(out, i, y, cuda_fp8_inverse(most), to.by_card);
    if (i == 0) to.scale[row] = cuda_fp8_scale(most);
}

template <class SOURCE>
static void launch_rows(const SOURCE &source, uint32_t rows, const struct cuda_half *to,
                        const struct cuda_queue *queue) {
    uint32_t fours = to->row_elems / 4, threads = (fours + 31) / 32 * 32;
    uint32_t most = rows < MANY_ROWS ? WIDE_THREADS : WIDE_THREADS / 2;
    launch(queue, fp8_rows_kernel<SOURCE>, rows, threads < most ? threads : most,
           to->row_elems * sizeof(float), source, *to);
}

void cuda_fp8_rows_prepare(void) {
    static constexpr int bytes = CUDA_FP8_COLS_MAX * (int)sizeof(float);
    cudaFuncSetAttribute(norm_fp8_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         CUDA_NORM_SHARED * (int)sizeof(float));
    cudaFuncSetAttribute(fp8_rows_kernel<struct act_source>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaFuncSetAttribute(fp8_rows_kernel<struct plain_source>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

void cuda_fp8_act(const struct cuda_act *a, const struct cuda_queue *queue) {
    if (a->gate.row_count == 0) return;
    struct act_source source = {*a, is_wide(&a->gate) && is_wide(&a->up)};
    launch_rows(source, a->gate.row_count, &a->half, queue);
}

void cuda_fp8_act_few(const struct cuda_act *a, const struct cuda_queue *queue) {
    if (a->gate.row_count == 0) return;
    struct act_source source = {*a, is_wide(&a->gate) && is_wide(&a->up)};
    uint32_t threads = (a->half.row_elems / 4 + ACT_CLUSTER - 1) / ACT_CLUSTER;
    launch_clusters(queue, act_fp8_cluster_kernel, dim3(a->gate.row_count, 1, ACT_CLUSTER),
                    (threads + 31) / 32 * 32, sizeof(float), ACT_CLUSTER, source, a->half);
}

void cuda_fp8_convert(const struct cuda_mat *src, const struct cuda_half *to,
                      const struct cuda_queue *queue) {
    if (src->row_count == 0) return;
    struct plain_source source = {*src, is_wide(src) && src->cols % 4 == 0};
    launch_rows(source, src->row_count, to, queue);
}

/* ---- weights ---- */

static __device__ inline float weight_number(const struct cuda_fp8_weights &a, uint32_t row,
                                             uint32_t i) {
    size_t at = (size_t)row * a.from_elems + i;
    if (i >= a.cols) return 0.0f;
    if (a.form == CUDA_BF16) return __bfloat162float(((const __nv_bfloat16 *)a.from)[at]);
    return __half2float(((const __half *)a.from)[at]);
}

static __global__ void fp8_weights_kernel(struct cuda_fp8_weights a) {
    begin_kernel();
    uint32_t row = blockIdx.x;
    float most = 0.0f;
    for (uint32_t i = threadIdx.x; i < a.cols; i += NORM_THREADS)
        most = larger(most, weight_number(a, row, i));
    most = block_most(most);
    float inverse = cuda_fp8_inverse(most);
    uint8_t *out = a.codes + (size_t)row * a.row_elems;
    for (uint32_t i = threadIdx.x * 4; i < a.row_elems; i += NORM_THREADS * 4) {
        float y[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) y[k] = weight_number(a, row, i + k);
        store_four(out, i, y, inverse, false);
    }
    if (threadIdx.x == 0) a.scale[row] = cuda_fp8_scale(most);
}

void cuda_fp8_weights(const struct cuda_fp8_weights *a, const struct cuda_queue *queue) {
    launch(queue, fp8_weights_kernel, a->rows, NORM_THREADS, 0, *a);
}
