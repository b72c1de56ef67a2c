/* kernels/cuda/device_fp8_mma.cuh - products of e4m3 numbers by a warpgroup (needs sm_90a).
 * On Hopper mma.sync has no e4m3 instruction: the compiler replaces it by f16 products, whose bits
 * differ.
 */
#ifndef KERNELS_CUDA_DEVICE_FP8_MMA_CUH
#define KERNELS_CUDA_DEVICE_FP8_MMA_CUH

#include "kernels/cuda/device_wgmma.cuh"

/* d += a * b: 16 rows of a warp's with 32 columns, in registers as ldmatrix_x4 leaves them, and 8
 * rows of b in pieces of 8 rows x 16 bytes (wgmma_operand). d as in mma_16x8x16. */
static __device__ inline void wgmma_fp8(float d[4], const uint32_t a[4], uint64_t b) {
#if HAS_WGMMA
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, adds, 1, 1;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

#endif
