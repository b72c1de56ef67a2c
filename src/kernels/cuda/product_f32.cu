/* kernels/cuda/product_f32.cu - products of f32 weights: one accumulator an output, rising k.
 *
 * Mapping: a block owns 64 weight rows and 16 rows of activations (one, with experts); a thread
 * owns one weight row and four rows. Both pass through shared memory, 32 columns at a time.
 * Cost: the chain of fma, 4 cycles a column: for small matrices (routers, encoders), not for speed.
 */
#include "kernels/cuda/device_launch.cuh"
#include "kernels/cuda/product.cuh"

static constexpr uint32_t F32_COLS = 32, F32_WEIGHTS = 64, F32_ROWS = 16, F32_THREADS = 256;
static constexpr uint32_t F32_OWN = F32_ROWS * F32_WEIGHTS / F32_THREADS; /* rows of a thread */

struct f32_tiles {
    float w[F32_WEIGHTS][F32_COLS + 1]; /* neighbouring rows in neighbouring banks */
    float x[F32_ROWS][F32_COLS];
};

static __device__ const float *f32_source(const struct cuda_product &a, uint32_t r) {
    struct product_row at = product_row(a, r);
    return mat_f32(a.src, at.row) + (a.src_per_expert ? (size_t)at.segment * a.w.cols : 0);
}

static __device__ void f32_fill(const struct cuda_product &a, struct f32_tiles *t, uint32_t first,
                                uint32_t rows, uint32_t k0) {
    uint32_t expert = product_row(a, first).expert;
    const float *w = (const float *)a.w.data + expert * a.w.expert_elems;
    for (uint32_t i = threadIdx.x; i < F32_WEIGHTS * F32_COLS; i += F32_THREADS) {
        uint32_t n = blockIdx.y * F32_WEIGHTS + i / F32_COLS, k = k0 + i % F32_COLS;
        bool is_inside = n < a.w.rows && k < a.w.cols;
        t->w[i / F32_COLS][i % F32_COLS] = is_inside ? w[(size_t)n * a.w.row_elems + k] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < rows * F32_COLS; i += F32_THREADS) {
        uint32_t k = k0 + i % F32_COLS;
        t->x[i / F32_COLS][i % F32_COLS] =
            k < a.w.cols ? f32_source(a, first + i / F32_COLS)[k] : 0.0f;
    }
}

static __global__ void __launch_bounds__(F32_THREADS) product_f32_kernel(struct cuda_product a) {
    begin_kernel();
    __shared__ struct f32_tiles t;
    uint32_t per_block = a.used ? 1 : F32_ROWS, first = blockIdx.x * per_block;
    uint32_t rows = min(per_block, a.row_count - first);
    uint32_t n = threadIdx.x % F32_WEIGHTS, own = threadIdx.x / F32_WEIGHTS * F32_OWN;
    float acc[F32_OWN] = {0.0f};
    if (a.used && !product_is_live(a, first)) return; /* its experts were not chosen */
    for (uint32_t k0 = 0; k0 < a.w.cols; k0 += F32_COLS) {
        f32_fill(a, &t, first, rows, k0);
        __syncthreads();
        uint32_t count = min(F32_COLS, a.w.cols - k0);
        for (uint32_t k = 0; k < count; k++)
#pragma unroll
            for (uint32_t i = 0; i < F32_OWN; i++)
                acc[i] = fmaf(t.w[n][k], t.x[own + i][k], acc[i]);
        __syncthreads();
    }
    if (blockIdx.y * F32_WEIGHTS + n >= a.w.rows) return;
#pragma unroll
    for (uint32_t i = 0; i < F32_OWN; i++)
        if (own + i < rows) product_store(a, first + own + i, blockIdx.y * F32_WEIGHTS + n, acc[i]);
}

void cuda_product_f32(const struct cuda_product *a, const struct cuda_queue *queue) {
    uint32_t per_block = a->used ? 1 : F32_ROWS;
    if (a->row_count == 0) return;
    dim3 grid((a->row_count + per_block - 1) / per_block,
              (a->w.rows + F32_WEIGHTS - 1) / F32_WEIGHTS);
    launch(queue, product_f32_kernel, grid, F32_THREADS, 0, *a);
}
