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

/* A code of 4 bits as the number that it stands for. */
static __device__ inline int32_t code4_at(const struct cuda_matrix &w, uint32_t row, uint32_t k) {
    uint32_t two = ((const uint8_t *)w.data)[cuda_code4_index(w.code, row, k, w.cols)];
    uint32_t code = cuda_code4_is_high(w.code, k) ? two >> 4 : two & 15;
    if (w.code == CUDA_CODE_4_PLACE) return (int8_t)(w.table[code / 4] >> code % 4 * 8);
    return w.code == CUDA_CODE_4_SIGNED ? (int32_t)(code ^ 8) - 8 : (int32_t)code;
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
    int32_t q = w.code == CUDA_CODE_8 ? ((const int8_t *)w.data)[cuda_code_index(row, k, w.cols)]
                                      : code4_at(w, row, k);
    size_t group = cuda_scale_index(row, k / w.group, w.cols / w.group);
    return w.min ? fmaf(w.scale[group], (float)q, w.min[group]) : w.scale[group] * (float)q;
}

#endif
