/* kernels/cuda/sample_block.cuh - what all threads of a block do together over one row of logits:
 * sums, the best in rank, and where a prefix ends. Sums are of whole numbers, so
 * their order does not change a result.
 */
#ifndef KERNELS_CUDA_SAMPLE_BLOCK_CUH
#define KERNELS_CUDA_SAMPLE_BLOCK_CUH

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/launch_sample.h"

static constexpr uint32_t SAMPLE_THREADS = 1024, SAMPLE_WARPS = SAMPLE_THREADS / 32;
static constexpr uint32_t BIN_BITS = 11, BINS = 1u << BIN_BITS;
static_assert(BINS == 2 * SAMPLE_THREADS, "a thread owns two bins");
static constexpr uint32_t ONE_LOG2 = 39; /* base/fvec.h: what a weight of 1 is */

struct sample_shared {
    unsigned long long bins[BINS];
    unsigned long long warp[SAMPLE_WARPS];
    unsigned long long found_before;
    uint32_t found;
};

/* ---- numbers ---- */

/* graph/sampling.h, 1; a NaN counts as minus infinity. */
static __device__ inline float tame(float logit) {
    if (!(logit >= -FLOAT_MAX)) return -DEVICE_INF;
    if (fabsf(logit) < FLOAT_MIN) return 0.0f;
    return logit > FLOAT_MAX ? FLOAT_MAX : logit;
}

/* Rises with the number; without NaN and -0. */
static __device__ inline uint32_t order_of(float number) {
    uint32_t bits = __float_as_uint(number);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
static __device__ inline float number_of(uint32_t order) {
    return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

/* base/fvec_int.h, fv_weight: exp((logit - top) * scale) in 2^-39ths. */
static __device__ inline unsigned long long weight_of(float logit, float top, float scale) {
    uint32_t bits = __float_as_uint((logit - top) * scale), least = __float_as_uint(-64.0f);
    float x = __uint_as_float(bits < least ? bits : least);
    float t = vec_exp_power(x);
    float p = vec_exp_fraction(x, t);
    uint32_t y = __float_as_uint(p) + (__float_as_uint(t) << 23) + (ONE_LOG2 << 23);
    return __float2ull_rn(__uint_as_float(y));
}

/* ---- reductions: every thread gets the result ---- */

static __device__ unsigned long long block_sum(unsigned long long mine, struct sample_shared *m) {
    for (int width = 16; width > 0; width /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, width);
    __syncthreads();
    if (threadIdx.x % 32 == 0) m->warp[threadIdx.x / 32] = mine;
    __syncthreads();
    unsigned long long all = m->warp[threadIdx.x % 32];
    for (int width = 16; width > 0; width /= 2) all += __shfl_xor_sync(0xffffffffu, all, width);
    return all;
}

static __device__ unsigned long long block_max(unsigned long long mine, struct sample_shared *m) {
    for (int width = 16; width > 0; width /= 2)
        mine = max(mine, __shfl_xor_sync(0xffffffffu, mine, width));
    __syncthreads();
    if (threadIdx.x % 32 == 0) m->warp[threadIdx.x / 32] = mine;
    __syncthreads();
    unsigned long long all = m->warp[threadIdx.x % 32];
    for (int width = 16; width > 0; width /= 2)
        all = max(all, __shfl_xor_sync(0xffffffffu, all, width));
    return all;
}

/* The sum of all threads before this one. */
static __device__ unsigned long long block_before(unsigned long long mine,
                                                  struct sample_shared *m) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned long long sum = mine;
    for (uint32_t width = 1; width < 32; width *= 2) {
        unsigned long long other = __shfl_up_sync(0xffffffffu, sum, width);
        if (lane >= width) sum += other;
    }
    __syncthreads();
    if (lane == 31) m->warp[warp] = sum;
    __syncthreads();
    unsigned long long before = 0;
    for (uint32_t w = 0; w < warp; w++) before += m->warp[w];
    return before + sum - mine;
}

/* ---- finding the end of a prefix ---- */

static __device__ void bins_clear(struct sample_shared *m) {
    __syncthreads();
    m->bins[threadIdx.x] = 0;
    m->bins[threadIdx.x + SAMPLE_THREADS] = 0;
    __syncthreads();
}

/* The bin, from the highest down (or from the lowest up), in which *before + the bins' sum reaches
 * `wanted`, which all together do; *before grows by the bins that are passed. */
static __device__ uint32_t bins_find(struct sample_shared *m, bool is_falling,
                                     unsigned long long wanted, unsigned long long *before) {
    uint32_t a = 2 * threadIdx.x, b = a + 1;
    if (is_falling) a = BINS - 1 - a, b = BINS - 1 - b;
    __syncthreads();
    unsigned long long first = m->bins[a], second = m->bins[b];
    unsigned long long at = *before + block_before(first + second, m);
    if (at < wanted && at + first >= wanted) {
        m->found = a;
        m->found_before = at;
    } else if (at + first < wanted && at + first + second >= wanted) {
        m->found = b;
        m->found_before = at + first;
    }
    __syncthreads();
    *before = m->found_before;
    return m->found;
}

#endif
