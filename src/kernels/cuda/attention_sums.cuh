/* kernels/cuda/attention_sums.cuh - steps of attention_mma.cuh's definition between its products:
 * from scores to weights, sums in terms of a new maximum, segments joined, results stored.
 */
#ifndef KERNELS_CUDA_ATTENTION_SUMS_CUH
#define KERNELS_CUDA_ATTENTION_SUMS_CUH

#include "kernels/cuda/attention_mma.cuh"

/* ---- scores and weights ---- */

static __device__ inline float exponent_factor(const struct cuda_attention &a) {
    return a.softcap > 0.0f ? LOG2E : a.scale * LOG2E;
}

/* Are all positions from `first` on attended, or is there no such query? */
static __device__ inline bool is_covered(const struct reach &r, uint32_t first, uint32_t count) {
    return r.end == 0 || (first >= r.first && first + count <= r.end);
}

/* Soft cap and mask; `first` is the position of s[0][0]'s token column 0. */
template <int N, bool HAS_CAP>
static __device__ inline void mask_scores(const struct cuda_attention &a, const struct query q[2],
                                          uint32_t first, float s[N][4]) {
    bool is_whole = is_covered(q[0].reach, first, N * 8) && is_covered(q[1].reach, first, N * 8);
    if (is_whole && !HAS_CAP) return;
#pragma unroll
    for (int i = 0; i < N * 4; i++) {
        uint32_t j = first + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        const struct reach &r = q[i % 4 / 2].reach;
        float &score = s[i / 4][i % 4];
        if (HAS_CAP) score = a.softcap * fm_tanh(score * a.scale / a.softcap);
        score = j >= r.first && j < r.end ? score : -DEVICE_INF;
    }
}

/* The largest of the thread's and its three neighbours' scores of query i. */
template <int N> static __device__ inline float max_of(const float s[N][4], int i) {
    float some[N];
#pragma unroll
    for (int n = 0; n < N; n++) some[n] = fmaxf(s[n][2 * i], s[n][2 * i + 1]);
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
        for (int n = 0; n < half; n++) some[n] = fmaxf(some[n], some[n + half]);
    float max = fmaxf(some[0], __shfl_xor_sync(0xffffffffu, some[0], 1));
    return fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
}

/* A maximum that can be subtracted: before the first attended place there is none. */
static __device__ inline float base_of(float max) { return max > -DEVICE_INF ? max : 0.0f; }

template <int N>
static __device__ inline void weights_of(const float max[2], float factor, float s[N][4]) {
#pragma unroll
    for (int i = 0; i < N * 4; i++) {
        float base = base_of(max[i % 4 / 2]) * factor;
        s[i / 4][i % 4] = exp2_fast(fmaf(s[i / 4][i % 4], factor, -base));
    }
}

/* Weights of 16 tokens as operand a: those of s[0] and s[1]. */
static __device__ inline void pack_weights(const float s[2][4], uint32_t p[4]) {
#pragma unroll
    for (int k = 0; k < 4; k++)
        p[k] = pack_halves(s[k / 2][2 * (k % 2)], s[k / 2][2 * (k % 2) + 1]);
}

/* A new maximum: all sums so far in its terms. Where no lane has one they would be multiplied by
 * 1. */
template <int N>
static __device__ inline void rescale(const float top[2], float factor, float max[2],
                                      float out[N][4], float sum[4]) {
    bool is_same = top[0] <= max[0] && top[1] <= max[1];
    if (!__ballot_sync(0xffffffffu, !is_same)) return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float next = fmaxf(max[i], top[i]);
        float by = exp2_fast((max[i] - base_of(next)) * factor);
        max[i] = next;
        sum[2 * i] *= by;
        sum[2 * i + 1] *= by;
#pragma unroll
        for (int n = 0; n < N; n++) {
            out[n][2 * i] *= by;
            out[n][2 * i + 1] *= by;
        }
    }
}

/* ---- joining segments ---- */

/* What both sides of a join are multiplied by; the joint maximum and sum are put in place. */
struct join_factors {
    float a, b;
};

static __device__ inline struct join_factors join_of(float *all_max, float *all_sum, float max,
                                                     float sum, float factor) {
    float most = fmaxf(*all_max, max), base = base_of(most);
    struct join_factors f = {exp2_fast((*all_max - base) * factor),
                             exp2_fast((max - base) * factor)};
    *all_max = most;
    *all_sum = fmaf(sum, f.b, *all_sum * f.a);
    return f;
}

static __device__ inline float join_one(struct join_factors f, float all, float part) {
    return fmaf(part, f.b, all * f.a);
}

/* ---- results ---- */

template <int D>
static __device__ inline void store_two(const struct cuda_attention &a, const struct query &q,
                                        uint32_t d, float x, float y) {
    if (q.reach.end == 0) return;
    if (a.dst.base) *(float2 *)(mat_f32(a.dst, q.row) + (size_t)q.head * D + d) = make_float2(x, y);
    if (a.half.x) store_half_2(a.half, q.row, q.head * D + d, x, y);
}

#endif
