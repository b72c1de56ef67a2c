/* kernels/cuda/device_mma.cuh - instructions of tensor cores and of asynchronous copies.
 */
#ifndef KERNELS_CUDA_DEVICE_MMA_CUH
#define KERNELS_CUDA_DEVICE_MMA_CUH

#include <stdint.h>

static __device__ inline uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes, or as many zeros. */
static __device__ inline void copy_16(uint32_t to, const void *from, bool is_inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
                 "r"(is_inside ? 16 : 0));
}
static __device__ inline void copies_commit() { asm volatile("cp.async.commit_group;\n"); }
template <int LEFT> static __device__ inline void copies_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT));
}

static __device__ inline void ldmatrix_x4(uint32_t r[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}
static __device__ inline void ldmatrix_x2(uint32_t r[2], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(at));
}

template <bool IS_BF16>
static __device__ inline void mma_16x8x16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    if (IS_BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif
