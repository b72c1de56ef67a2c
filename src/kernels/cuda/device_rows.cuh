/* kernels/cuda/device_rows.cuh - steps that several kernels take with a row: the statistics of a
 * norm, and rounding to 16 bits or to 8.
 */
#ifndef KERNELS_CUDA_DEVICE_ROWS_CUH
#define KERNELS_CUDA_DEVICE_ROWS_CUH

#include "kernels/cuda/device_mat.cuh"
#include "kernels/cuda/device_math.cuh"

static constexpr uint32_t NORM_LANES = CUDA_NORM_LANES, NORM_AHEAD = 16;
static constexpr uint32_t Q8_BLOCK = 32;

/* ---- norms ---- */

/* The 16 lanes of a half warp, joined by halves; all of them get the sum. */
static __device__ inline float join_lanes(float lane_sum) {
    for (int width = NORM_LANES / 2; width > 0; width /= 2)
        lane_sum += __shfl_down_sync(0xffffffffu, lane_sum, width, NORM_LANES);
    return __shfl_sync(0xffffffffu, lane_sum, 0, NORM_LANES);
}

struct norm_stats {
    float mean, rate;
};

/* Of `group` numbers, by the 16 lanes of a half warp; `lane` is the thread's. */
static __device__ inline struct norm_stats norm_measure(const float *x, uint32_t group,
                                                        uint32_t lane, bool is_layer, float eps) {
    float sum = 0.0f, mean = 0.0f;
    if (is_layer) {
#pragma unroll 8
        for (uint32_t i = lane; i < group; i += NORM_LANES) sum += x[i];
        mean = join_lanes(sum) / (float)group;
    }
    float squares = 0.0f, ahead[NORM_AHEAD]; /* read while the chain of sums goes on */
    uint32_t i = lane, rounds = group / (NORM_AHEAD * NORM_LANES);
#pragma unroll
    for (uint32_t k = 0; k < NORM_AHEAD; k++) ahead[k] = rounds > 0 ? x[i + k * NORM_LANES] : 0.0f;
    for (uint32_t r = 0; r < rounds; r++) {
        float some[NORM_AHEAD];
        i += NORM_AHEAD * NORM_LANES;
#pragma unroll
        for (uint32_t k = 0; k < NORM_AHEAD; k++) {
            some[k] = ahead[k] - mean;
            if (r + 1 < rounds) ahead[k] = x[i + k * NORM_LANES];
        }
#pragma unroll
        for (uint32_t k = 0; k < NORM_AHEAD; k++) squares = fmaf(some[k], some[k], squares);
    }
    for (; i < group; i += NORM_LANES) {
        float d = x[i] - mean;
        squares = fmaf(d, d, squares);
    }
    float rate = 1.0f / sqrtf(join_lanes(squares) / (float)group + eps);
    return {mean, rate};
}

/* ---- activation ---- */

static __device__ inline float act_one(enum cuda_act_kind kind, float x) {
    if (kind == CUDA_SILU) return fm_silu(x);
    return kind == CUDA_GELU_TANH ? fm_gelu_tanh(x) : fm_gelu_erf(x);
}

/* ---- 16 bits ---- */

/* The largest f16 at most, but a NaN stays one. */
static __device__ inline __half half_of(float x) {
    x = x > 65504.0f ? 65504.0f : x;
    return __float2half_rn(x < -65504.0f ? -65504.0f : x);
}

static __device__ inline void store_half(const struct cuda_half &to, uint32_t row, uint32_t i,
                                         float number) {
    size_t at = (size_t)row * to.row_elems + i;
    if (to.form == CUDA_BF16)
        ((__nv_bfloat16 *)to.x)[at] = __float2bfloat16_rn(number);
    else
        ((__half *)to.x)[at] = half_of(number);
}

/* Numbers i and i + 1; i is even. */
static __device__ inline void store_half_2(const struct cuda_half &to, uint32_t row, uint32_t i,
                                           float x, float y) {
    uint32_t two;
    if (to.form == CUDA_BF16) {
        ((__nv_bfloat16 *)&two)[0] = __float2bfloat16_rn(x);
        ((__nv_bfloat16 *)&two)[1] = __float2bfloat16_rn(y);
    } else {
        ((__half *)&two)[0] = half_of(x);
        ((__half *)&two)[1] = half_of(y);
    }
    *(uint32_t *)((uint16_t *)to.x + (size_t)row * to.row_elems + i) = two;
}

/* Numbers i to i + 3; i is a multiple of 4. */
static __device__ inline void store_half_4(const struct cuda_half &to, uint32_t row, uint32_t i,
                                           float4 y) {
    uint2 four;
    const float in[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (to.form == CUDA_BF16)
            ((__nv_bfloat16 *)&four)[k] = __float2bfloat16_rn(in[k]);
        else
            ((__half *)&four)[k] = half_of(in[k]);
    *(uint2 *)((uint16_t *)to.x + (size_t)row * to.row_elems + i) = four;
}

/* ---- 8 bits ---- */

static __device__ inline int32_t quantise_one(float x, float inverse) {
    float y = x * inverse;
    if (y > 127.0f) return 127;
    if (y < -127.0f) return -127;
    return y == y ? (int32_t)rintf(y) : 0;
}

/* Eight numbers of a block, and the block's sums: of the lane's half, and of all. */
struct q8_eight {
    uint2 q;
    int32_t half, sum;
    float scale;
};

/* tensor/q8.h. Four lanes have a block, so that a warp has eight: few steps wait for each other. A
 * NaN is never greater, so it does not count. */
static __device__ inline struct q8_eight quantise_eight(const float x[8]) {
    struct q8_eight out = {{0, 0}, 0, 0, 0.0f};
    float max = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float size = fabsf(x[i]);
        max = fmaxf(max, size == size ? size : 0.0f);
    }
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
    max = max < FLOAT_MAX ? max : FLOAT_MAX;
    float inverse = max > 0.0f ? 127.0f / max : 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int32_t q = quantise_one(x[i], inverse);
        out.half += q;
        uint32_t byte = ((uint32_t)q & 255) << i % 4 * 8;
        if (i < 4)
            out.q.x |= byte;
        else
            out.q.y |= byte;
    }
    out.half += __shfl_xor_sync(0xffffffffu, out.half, 1);
    out.sum = out.half + __shfl_xor_sync(0xffffffffu, out.half, 2);
    out.scale = max / 127.0f;
    return out;
}

/* Numbers [8 * i, 8 * i + 8) of a row; lanes with neighbouring i, of a multiple of 4. */
static __device__ inline void quantise_eighth(const float x[8], uint32_t i, struct device_q8 out) {
    struct q8_eight mine = quantise_eight(x);
    uint32_t b = i / 4;
    *(uint2 *)(out.q + 8 * i) = mine.q;
    if (i % 2 == 0) out.dsum16[i / 2] = mine.scale * (float)mine.half;
    if (i % 4 != 0) return;
    out.scale[b] = mine.scale;
    out.isum[b] = mine.sum;
    out.dsum[b] = mine.scale * (float)mine.sum;
}

/* Block b of a row by a warp, a number each: tensor/q8.h. A NaN is never greater, so it does not
 * count. */
static __device__ inline void quantise_warp(float number, uint32_t b, struct device_q8 out) {
    uint32_t lane = threadIdx.x % 32;
    float max = fabsf(number);
    max = max == max ? max : 0.0f;
    for (int width = 16; width > 0; width /= 2)
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, width));
    max = max < FLOAT_MAX ? max : FLOAT_MAX;
    float inverse = max > 0.0f ? 127.0f / max : 0.0f, scale = max / 127.0f;
    int32_t q = quantise_one(number, inverse), sum = q;
    for (int width = 8; width > 0; width /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, width);
    int32_t other = __shfl_xor_sync(0xffffffffu, sum, 16);
    out.q[b * Q8_BLOCK + lane] = (int8_t)q;
    if (lane % 16 == 0) out.dsum16[2 * b + lane / 16] = scale * (float)sum;
    if (lane == 0) {
        out.scale[b] = scale;
        out.isum[b] = sum + other;
        out.dsum[b] = scale * (float)(sum + other);
    }
}

#endif
