/* kernels/cuda/device_mat.cuh - rows of operands and of weights, as kernels read them. */
#ifndef KERNELS_CUDA_DEVICE_MAT_CUH
#define KERNELS_CUDA_DEVICE_MAT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/launch.h"

static __device__ inline float *mat_f32(const struct cuda_mat &m, uint32_t row) {
    return (float *)(m.base + row * m.row_bytes) + m.col;
}

static __device__ inline int32_t *mat_i32(const struct cuda_mat &m, uint32_t row) {
    return (int32_t *)(m.base + row * m.row_bytes) + m.col;
}

static __device__ inline bool mat_is_live(const struct cuda_mat &m, uint32_t row) {
    return !m.pos || m.pos[m.map ? m.map[row] : row] >= 0;
}

/* tensor/q8.h: the five arrays of a row. */
struct device_q8 {
    int8_t *q;
    float *scale, *dsum, *dsum16;
    int32_t *isum;
};

static __device__ inline struct device_q8 mat_q8(const struct cuda_mat &m, uint32_t row) {
    uint32_t blocks = m.all_cols / 32;
    struct device_q8 out;
    out.q = (int8_t *)(m.base + row * m.row_bytes);
    out.scale = (float *)(out.q + m.all_cols);
    out.dsum = out.scale + blocks;
    out.dsum16 = out.dsum + blocks;
    out.isum = (int32_t *)(out.dsum16 + 2 * (size_t)blocks);
    return out;
}

/* Codes of 4 bits: those in the low halves of 4 bytes, and in the high ones. */
static __device__ inline uint32_t low_codes(uint32_t two) { return two & 0x0f0f0f0fu; }
static __device__ inline uint32_t high_codes(uint32_t two) { return two >> 4 & 0x0f0f0f0fu; }
static __device__ inline int4 low_codes(int4 w) {
    return {(int)low_codes((uint32_t)w.x), (int)low_codes((uint32_t)w.y),
            (int)low_codes((uint32_t)w.z), (int)low_codes((uint32_t)w.w)};
}
static __device__ inline int4 high_codes(int4 w) {
    return {(int)high_codes((uint32_t)w.x), (int)high_codes((uint32_t)w.y),
            (int)high_codes((uint32_t)w.z), (int)high_codes((uint32_t)w.w)};
}

/* One element of a weight, as tensor/dtype.h dequantises it. */
static __device__ inline float matrix_at(const struct cuda_matrix &w, uint32_t row, uint32_t k) {
    size_t at = (size_t)row * w.row_elems + k;
    switch (w.form) {
    case CUDA_F32:
        return ((const float *)w.data)[at];
    case CUDA_BF16:
        return __bfloat162float(((const __nv_bfloat16 *)w.data)[at]);
    case CUDA_F16:
        return __half2float(((const __half *)w.data)[at]);
    default:
        break;
    }
    float q;
    if (w.bits == 4) {
        uint32_t two = ((const uint8_t *)w.data)[cuda_code4_index(row, k, w.cols)];
        q = (float)(cuda_code4_is_high(k) ? two >> 4 : two & 15);
    } else {
        q = (float)((const int8_t *)w.data)[cuda_code_index(row, k, w.cols)];
    }
    size_t group = cuda_scale_index(row, k / w.group, w.cols / w.group);
    return w.min ? fmaf(w.scale[group], q, w.min[group]) : w.scale[group] * q;
}

#endif
