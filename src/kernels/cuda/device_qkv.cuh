/* kernels/cuda/device_qkv.cuh - steps between the product of queries, keys and values and
 * attention: the norm and the rotation of a head, and writing one to the cache; each by a warp.
 */
#ifndef KERNELS_CUDA_DEVICE_QKV_CUH
#define KERNELS_CUDA_DEVICE_QKV_CUH

#include "kernels/cuda/device_fp8.cuh"
#include "kernels/cuda/device_mat.cuh"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/device_rows.cuh"
#include "kernels/cuda/launch_attention.h"

static constexpr uint32_t QKV_HEAD_MAX = CUDA_QKV_HEAD_MAX;

/* ---- writing ---- */

/* The least f16 not below max / 127; positive halves are in the order of their bits. */
static __device__ inline __half int8_scale(float max) {
    float want = max / 127.0f;
    if (want >= 65504.0f) return __ushort_as_half(0x7bff);
    __half half = __float2half_rn(want);
    return __half2float(half) < want ? __ushort_as_half(__half_as_ushort(half) + 1) : half;
}

static __device__ inline int8_t int8_of(float x, float scale) {
    float y = scale > 0.0f ? x / scale : 0.0f;
    if (y > 127.0f) return 127;
    if (y < -127.0f) return -127;
    return y == y ? (int8_t)rintf(y) : (int8_t)0;
}

/* K or V of one token and head, by one warp. */
static __device__ inline void write_side(const struct cuda_kv &kv, const float *x, bool is_value,
                                         uint32_t token, uint8_t *tile) {
    uint32_t lane = threadIdx.x % 32;
    float max = 0.0f, scale = 0.0f;
    if (kv.type == KV_I8) {
        for (uint32_t d = lane; d < kv.head_dim; d += 32)
            max = fabsf(x[d]) > max ? fabsf(x[d]) : max;
        for (int width = 16; width > 0; width /= 2)
            max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, width));
        __half half = int8_scale(max);
        scale = __half2float(half);
        if (lane == 0) ((__half *)(tile + cuda_kv_scales_offset(kv.head_dim)))[token] = half;
    }
    for (uint32_t d = lane; d < kv.head_dim; d += 32) {
        size_t at =
            is_value ? cuda_v_index(kv.type, token, d, kv.head_dim) : cuda_k_index(token, d);
        if (kv.type == KV_F32)
            ((float *)tile)[at] = x[d];
        else if (kv.type == KV_F16)
            ((__half *)tile)[at] = __float2half_rn(x[d]);
        else if (kv.type == KV_F8)
            tile[at] = fp8_of(x[d]);
        else
            ((int8_t *)tile)[at] = int8_of(x[d], scale);
    }
}

/* ---- turning ---- */

/* Sine and cosine of the pairs lane, lane + 32, ... of a head. */
struct turns {
    float sine[QKV_HEAD_MAX / 64], cosine[QKV_HEAD_MAX / 64];
};

static __device__ inline void find_turns(const struct cuda_qkv &a, float pos, struct turns *t) {
    uint32_t lane = threadIdx.x % 32, pairs = a.rope.rot_dims / 2;
#pragma unroll
    for (uint32_t k = 0; k < QKV_HEAD_MAX / 64; k++) {
        double sine = 0.0, cosine = 0.0;
        if (lane + k * 32 < pairs)
            fm_sincos_d((double)(pos * a.rope.freqs[lane + k * 32]), &sine, &cosine);
        t->sine[k] = (float)sine * a.rope.factor;
        t->cosine[k] = (float)cosine * a.rope.factor;
    }
}

/* The norm and the rotation of one head in `head` (shared memory). */
static __device__ inline void turn_head(const struct cuda_qkv &a, const float *norm,
                                        const struct turns &t, float *head) {
    uint32_t lane = threadIdx.x % 32, pairs = a.rope.rot_dims / 2;
    if (norm) {
        struct norm_stats s =
            norm_measure(head, a.kv.head_dim, lane % NORM_LANES, false, a.norm_eps);
        __syncwarp();
        for (uint32_t i = lane; i < a.kv.head_dim; i += 32) head[i] = head[i] * s.rate * norm[i];
        __syncwarp();
    }
#pragma unroll
    for (uint32_t k = 0; k < QKV_HEAD_MAX / 64; k++) {
        uint32_t i = lane + k * 32;
        if (i >= pairs) break;
        float sine = t.sine[k], cosine = t.cosine[k];
        uint32_t first = a.rope.is_neox ? i : 2 * i;
        uint32_t second = a.rope.is_neox ? i + pairs : 2 * i + 1;
        float p = head[first], q = head[second];
        head[first] = fmaf(p, cosine, -(q * sine));
        head[second] = fmaf(p, sine, q * cosine);
    }
    __syncwarp();
}

#endif
