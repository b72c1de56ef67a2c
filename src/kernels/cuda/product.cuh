/* kernels/cuda/product.cuh - what the product kernels share: where a row comes from and goes to. */
#ifndef KERNELS_CUDA_PRODUCT_CUH
#define KERNELS_CUDA_PRODUCT_CUH

#include "kernels/cuda/device_mat.cuh"

/* Row r of a product: see struct cuda_product. */
struct product_row {
    uint32_t row;     /* of src and dst */
    uint32_t segment; /* of dst, and of src if src_per_expert */
    uint32_t expert;
};

static __device__ inline struct product_row product_row(const struct cuda_product &a, uint32_t r) {
    if (a.used == 0) return {r, 0, 0};
    uint32_t row = r / a.used, j = r % a.used;
    return {row, j, (uint32_t)mat_i32(a.ids, row)[j]};
}

static __device__ inline bool product_is_live(const struct cuda_product &a, uint32_t r) {
    return mat_is_live(a.dst, a.used ? r / a.used : r);
}

/* Put the product of row r with weight row n in its place. */
static __device__ inline void product_store(const struct cuda_product &a, uint32_t r, uint32_t n,
                                            float y) {
    if (!product_is_live(a, r)) return;
    uint32_t row = a.used ? r / a.used : r;
    size_t segment = a.used ? (size_t)(r % a.used) * a.dst_width : 0;
    float *out = mat_f32(a.dst, row) + segment + n;
    if (a.bias) y += a.bias[n];
    *out = a.add ? y + *out : y;
}

#endif
