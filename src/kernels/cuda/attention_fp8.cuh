/* kernels/cuda/attention_fp8.cuh - attention_mma.cuh's products with keys and values of fp8 as they
 * lie in the cache (layout.h): a thread turns four bytes into the two halves of an operand.
 */
#ifndef KERNELS_CUDA_ATTENTION_FP8_CUH
#define KERNELS_CUDA_ATTENTION_FP8_CUH

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/device_fp8.cuh"

/* The warp's KV tile as it lies. */
template <int D>
static __device__ inline void bring_f8(const uint8_t *tile, const uint8_t *any, uint32_t stage) {
    static constexpr uint32_t bytes = 2 * mma_dims<D>::f8_side; /* keys and values */
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint8_t *from = tile ? tile : any;
#pragma unroll
    for (uint32_t i = lane; i < bytes / 16; i += 32)
        copy_16(stage + warp * bytes + i * 16, from + i * 16, tile != NULL);
}

/* Four bytes as operand b. */
static __device__ inline void load_f8(const uint8_t *four, uint32_t mask, uint32_t b[2]) {
    __half2 halves[2];
    fp8_halves(*(const uint32_t *)four & mask, halves);
    b[0] = *(const uint32_t *)&halves[0];
    b[1] = *(const uint32_t *)&halves[1];
}

/* score_tile for keys of fp8, as they lie. */
template <int D>
static __device__ inline void score_f8(const uint32_t q[mma_dims<D>::steps][4], const uint8_t *keys,
                                       float s[2][4]) {
    uint32_t token = threadIdx.x % 32 / 4, quarter = threadIdx.x % 4;
    const uint8_t *mine = keys + quarter / 2 * CUDA_TILE_TOKENS * 8 + token * 8 + quarter % 2 * 4;
#pragma unroll
    for (uint32_t step = 0; step < mma_dims<D>::steps; step++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t b[2];
            load_f8(mine + 2 * step * CUDA_TILE_TOKENS * 8 + half * 64, ~0u, b);
            mma_16x8x16<false>(s[half], q[step], b);
        }
}

/* Bytes of a thread's four tokens that are attended; the others may be anything. */
static __device__ inline uint32_t mask_f8(const struct reach &all, uint32_t first) {
    first += threadIdx.x % 4 * 4;
    if (first >= all.first && first + 4 <= all.end) return ~0u;
    uint32_t mask = 0;
    for (uint32_t i = 0; i < 4; i++)
        if (first + i >= all.first && first + i < all.end) mask |= 0xffu << 8 * i;
    return mask;
}

/* add_values for values of fp8, as they lie; `p` has tokens in the order of load_f8. */
template <int COLS>
static __device__ inline void add_f8(const uint32_t p[4], const uint8_t *values, uint32_t mask,
                                     float out[COLS / 8][4]) {
    const uint8_t *mine = values + threadIdx.x % 32 / 4 * CUDA_TILE_TOKENS + threadIdx.x % 4 * 4;
#pragma unroll
    for (uint32_t i = 0; i < COLS / 8; i++) {
        uint32_t b[2];
        load_f8(mine + i * 8 * CUDA_TILE_TOKENS, mask, b);
        mma_16x8x16<false>(out[i], p, b);
    }
}

#endif
