/* kernels/cuda/device_mma.cuh - instructions of tensor cores, of asynchronous copies, of bytes.
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
/* The same for what other warps of the multiprocessor copy, too: it stays in the first cache. */
static __device__ inline void copy_16_cached(uint32_t to, const void *from, bool is_inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
                 "r"(is_inside ? 16 : 0));
}
static __device__ inline void copy_4(uint32_t to, const void *from, bool is_inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from),
                 "r"(is_inside ? 4 : 0));
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

/* Each 8 x 8 matrix transposed: a lane gets two neighbours of column lane / 4. */
static __device__ inline void ldmatrix_x4_turned(uint32_t r[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/* Byte i of the result is the one of b:a that digit i of `digits` names, which must be below 8: the
 * instruction itself, without the mask of __byte_perm. */
static __device__ inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t digits) {
    uint32_t picked;
    asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(picked) : "r"(a), "r"(b), "r"(digits));
    return picked;
}

/* 2^x to about 2 ulp; exact for 0 and for minus infinity. */
static __device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

static __device__ inline uint32_t pack_halves(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
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

/* Bytes, summed exactly. */
static __device__ inline void mma_s8_16x8x32(int32_t c[4], const uint32_t a[4],
                                             const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ inline void mma_s8_16x8x16(int32_t c[4], const uint32_t a[2], uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}

#endif
