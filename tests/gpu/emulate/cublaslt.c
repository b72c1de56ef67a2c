/* tests/gpu/emulate/cublaslt.c - what the device calls of cuBLASLt, for an emulated card.
 *
 * Products of bf16, f16 and fp8 with the sums of the emulated kernels: steps of 16 columns, or 32
 * of fp8, are added exactly, then to the accumulator with one rounding; what is there is added by a
 * fused multiply-add, as the real library may do. With the environment
 * variable JITNEY_CUBLASLT_STEPS=2 a step has twice as many columns, so that the bits are others.
 * What the real library refuses is refused: fp8 without vectors of scales, or with sizes and
 * addresses that are no multiple of 16. */
#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/dtype.h"
#include "tensor/fp8.h"

enum { ALGOS = 3 };

struct product {
    const float *w_scale, *x_scale;
    int32_t w_mode, x_mode;
    int8_t is_fast;
};

struct layout {
    cudaDataType type;
    uint64_t rows, cols; /* a column is a row of ours */
    int64_t stride;
};

size_t cublasLtGetVersion(void) { return 0; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    *out = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptions ---- */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = calloc(1, sizeof(struct product));
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes) {
    struct product *p = (struct product *)desc;
    void *to = name == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER   ? (void *)&p->w_scale
               : name == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER ? (void *)&p->x_scale
               : name == CUBLASLT_MATMUL_DESC_A_SCALE_MODE    ? (void *)&p->w_mode
               : name == CUBLASLT_MATMUL_DESC_B_SCALE_MODE    ? (void *)&p->x_mode
               : name == CUBLASLT_MATMUL_DESC_FAST_ACCUM      ? (void *)&p->is_fast
                                                              : NULL;
    if (to) memcpy(to, value, bytes);
    return to || name == CUBLASLT_MATMUL_DESC_TRANSA ? CUBLAS_STATUS_SUCCESS
                                                     : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t stride) {
    struct layout *l = malloc(sizeof(*l));
    *l = (struct layout){type, rows, cols, stride};
    *out = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    *out = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t bytes) {
    (void)preference, (void)name, (void)value, (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- algorithms ---- */

static int is_multiple(const void *address) { return address && (uintptr_t)address % 16 == 0; }

static cublasStatus_t check(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t w_layout) {
    const struct product *p = (const struct product *)desc;
    const struct layout *w = (const struct layout *)w_layout;
    if (w->type != CUDA_R_8F_E4M3) return CUBLAS_STATUS_SUCCESS;
    int is_outer =
        p->w_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F && p->x_mode == p->w_mode;
    int fits = w->rows % 16 == 0 && w->cols % 16 == 0;
    return is_outer && fits && p->is_fast && is_multiple(p->w_scale) && is_multiple(p->x_scale)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t w, cublasLtMatrixLayout_t x,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t dst,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t out[], int *count) {
    (void)handle, (void)x, (void)c, (void)dst, (void)preference;
    *count = most < ALGOS ? most : ALGOS;
    memset(out, 0, (size_t)*count * sizeof(out[0]));
    return check(desc, w);
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t name,
                                                    const void *value, size_t bytes) {
    (void)algo, (void)name, (void)value, (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t w, cublasLtMatrixLayout_t x,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t dst,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *out) {
    (void)handle, (void)x, (void)c, (void)dst, (void)algo;
    memset(out, 0, sizeof(*out));
    return check(desc, w);
}

/* ---- products ---- */

static double number(cudaDataType type, const void *data, uint64_t at) {
    if (type == CUDA_R_8F_E4M3) return (double)fp8_to_f32(((const uint8_t *)data)[at]);
    uint16_t bits = ((const uint16_t *)data)[at];
    return (double)(type == CUDA_R_16BF ? bf16_to_f32(bits) : f16_to_f32(bits));
}

/* All rows, without gaps; the caller frees it. */
static double *numbers(const struct layout *l, const void *data) {
    double *out = malloc(l->rows * l->cols * sizeof(double));
    for (uint64_t r = 0; out && r < l->cols; r++)
        for (uint64_t k = 0; k < l->rows; k++)
            out[r * l->rows + k] = number(l->type, data, r * (uint64_t)l->stride + k);
    return out;
}

/* In steps of so many columns. */
static float sum_of(const double *w, const double *x, uint64_t count, uint64_t step) {
    float acc = 0.0f;
    for (uint64_t k = 0; k < count; k += step) {
        double sum = 0;
        for (uint64_t i = k; i < k + step && i < count; i++) sum += w[i] * x[i];
        acc = (float)((double)acc + sum);
    }
    return acc;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *w, cublasLtMatrixLayout_t w_layout, const void *x,
                              cublasLtMatrixLayout_t x_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *dst,
                              cublasLtMatrixLayout_t dst_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream) {
    (void)handle, (void)alpha, (void)c, (void)c_layout, (void)algo, (void)workspace;
    (void)workspace_bytes, (void)stream;
    const struct product *p = (const struct product *)desc;
    const struct layout *wl = (const struct layout *)w_layout;
    const struct layout *xl = (const struct layout *)x_layout;
    const struct layout *to = (const struct layout *)dst_layout;
    int is_fp8 = wl->type == CUDA_R_8F_E4M3;
    const char *factor = getenv("JITNEY_CUBLASLT_STEPS");
    uint64_t step = (is_fp8 ? 32 : 16) * (factor ? strtoull(factor, NULL, 10) : 1);
    if (check(desc, w_layout) != CUBLAS_STATUS_SUCCESS) return CUBLAS_STATUS_NOT_SUPPORTED;
    double *ws = numbers(wl, w), *xs = numbers(xl, x);
    for (uint64_t i = 0; ws && xs && i < xl->cols * wl->cols; i++) {
        uint64_t m = i / wl->cols, n = i % wl->cols;
        float *out = (float *)dst + m * (uint64_t)to->stride + n;
        float y = sum_of(ws + n * wl->rows, xs + m * xl->rows, wl->rows, step);
        float scale = is_fp8 ? p->w_scale[n] * p->x_scale[m] : 1.0f;
        *out = *(const float *)beta != 0.0f ? fmaf(y, scale, *out) : y * scale;
    }
    free(ws);
    free(xs);
    return CUBLAS_STATUS_SUCCESS;
}
