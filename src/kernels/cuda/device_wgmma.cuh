/* kernels/cuda/device_wgmma.cuh - products of a warpgroup (4 warps, Hopper's own machine code
 * alone): 64 rows of a, in registers as mma.sync has them, 16 to a warp; b in shared memory.
 *
 * The bits are those of mma.sync with the same steps of k.
 */
#ifndef KERNELS_CUDA_DEVICE_WGMMA_CUH
#define KERNELS_CUDA_DEVICE_WGMMA_CUH

#include <stdint.h>

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WGMMA 1
#else
#define HAS_WGMMA 0
#endif

/* Operand b, 16 x N numbers of 16 bits, in pieces of 128 bytes: 8 rows of 16 bytes. A row is 8
 * neighbours in k of one n, or, turned, 8 neighbours in n of one k. Bytes from a piece to the next
 * one in k and in n. */
static __device__ inline uint64_t wgmma_operand(uint32_t at, uint32_t next_in_k,
                                                uint32_t next_in_n) {
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(next_in_k >> 4) << 16 |
           (uint64_t)(next_in_n >> 4) << 32;
}

/* The operand `bytes` behind, of the same shape. */
static __device__ inline uint64_t wgmma_operand_at(uint64_t operand, uint32_t bytes) {
    return operand + (bytes >> 4);
}

/* Registers and shared memory that were written before it may be read by wgmma after it. */
static __device__ inline void wgmma_begin() {
#if HAS_WGMMA
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#endif
}
static __device__ inline void wgmma_end() {
#if HAS_WGMMA
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
#endif
}
/* Until all but the last LEFT groups of instructions, each closed by wgmma_end, are done. */
template <int LEFT> static __device__ inline void wgmma_wait() {
#if HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(LEFT) : "memory");
#endif
}
/* ptxas moves a wait in front of the arithmetic that stands before it, which then runs beside
 * nothing; over a branch it moves none. So a wait stands in both ways of a branch, each with a
 * PLACE of its own, lest they be made one. */
template <int PLACE> static __device__ inline void wgmma_wait_behind_branch() {
#if HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned 0; // place %0\n" ::"n"(PLACE) : "memory");
#endif
}

/* How many registers a thread of this warpgroup has from here on: fewer, or more when another one
 * has given some. */
template <int COUNT> static __device__ inline void give_registers() {
#if HAS_WGMMA
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(COUNT));
#endif
}
template <int COUNT> static __device__ inline void take_registers() {
#if HAS_WGMMA
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(COUNT));
#endif
}

/* All threads of a warpgroup that name this barrier: not 0, which is __syncthreads. */
static __device__ inline void warpgroup_barrier(uint32_t barrier) {
    asm volatile("bar.sync %0, 128;\n" ::"r"(barrier) : "memory");
}

/* Keeps the compiler from moving what it does with accumulators over a wait. */
template <int N> static __device__ inline void wgmma_hold(float d[N / 8][4]) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}

#define FOUR_OF(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define EIGHT_OF(d, i) FOUR_OF(d, i), FOUR_OF(d, i + 1)

/* d += a * b, or d = a * b, for 32 columns: columns 8 * i to 8 * i + 7, as in mma_16x8x16, in
 * d[2 * i]. */
static __device__ inline void wgmma_32_apart(float (*d)[4], const uint32_t a[4], uint64_t b,
                                             uint32_t adds) {
#if HAS_WGMMA
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, "
                 "%8, %9, %10, %11, %12, %13, %14, %15}, "
                 "{%16, %17, %18, %19}, %20, adds, 1, 1, 0;\n}\n"
                 : FOUR_OF(d, 0), FOUR_OF(d, 2), FOUR_OF(d, 4), FOUR_OF(d, 6)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
#endif
}
/* The same for 72 and 136 columns, in d and, the last eight, in `more`. */
template <bool IS_TURNED>
static __device__ inline void wgmma_72(float d[8][4], float more[4], const uint32_t a[4],
                                       uint64_t b, uint32_t adds) {
#if HAS_WGMMA
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %42, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n72k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, "
                 "%8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, "
                 "%24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35}, "
                 "{%36, %37, %38, %39}, %40, adds, 1, 1, %41;\n}\n"
                 : EIGHT_OF(d, 0), EIGHT_OF(d, 2), EIGHT_OF(d, 4), EIGHT_OF(d, 6), "+f"(more[0]),
                   "+f"(more[1]), "+f"(more[2]), "+f"(more[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(IS_TURNED), "r"(adds));
#endif
}
template <bool IS_TURNED>
static __device__ inline void wgmma_136(float d[16][4], float more[4], const uint32_t a[4],
                                        uint64_t b, uint32_t adds) {
#if HAS_WGMMA
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %74, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n136k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, "
                 "%8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, "
                 "%24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, "
                 "%40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, "
                 "%56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67}, "
                 "{%68, %69, %70, %71}, %72, adds, 1, 1, %73;\n}\n"
                 : EIGHT_OF(d, 0), EIGHT_OF(d, 2), EIGHT_OF(d, 4), EIGHT_OF(d, 6), EIGHT_OF(d, 8),
                   EIGHT_OF(d, 10), EIGHT_OF(d, 12), EIGHT_OF(d, 14), "+f"(more[0]), "+f"(more[1]),
                   "+f"(more[2]), "+f"(more[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(IS_TURNED), "r"(adds));
#endif
}
#undef EIGHT_OF
#undef FOUR_OF

#endif
