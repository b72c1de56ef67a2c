/* tests/gpu/emulate/emulate.h - enough of CUDA on the host to run the kernels without a GPU.
 *
 * For finding wrong indices, missing barriers between the phases of a block and wrong arithmetic
 * where there is no card; speed and races inside a phase do not show. Blocks run one after the
 * other, those of a cluster and those of a grid that is resident in turns. A block's threads are
 * fibers that run until they meet a barrier: of the block, of its cluster, or of the warp
 * (shuffles). Threads that have ended count as arrived.
 *
 * emulate.py turns <<<...>>> into emu_launch() and dynamic shared memory into a pointer; this file
 * is included in front of every .cu.
 */
#ifndef TESTS_GPU_EMULATE_H
#define TESTS_GPU_EMULATE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
    uint32_t x, y, z;
    dim3(uint32_t a = 1, uint32_t b = 1, uint32_t c = 1) : x(a), y(b), z(c) {}
};
struct int4 {
    int x, y, z, w;
};
struct uint4 {
    uint32_t x, y, z, w;
};
struct uint2 {
    uint32_t x, y;
};
struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
struct char2 {
    signed char x, y;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

/* ---- running ---- */

typedef void emu_body_fn(void *ctx);
void emu_run(dim3 grid, dim3 block, size_t shared_bytes, uint32_t cluster, emu_body_fn *body,
             void *ctx);
/* All blocks of a grid in turns, so that they may wait for each other by emu_yield_block. */
void emu_run_resident(uint32_t blocks, uint32_t threads, size_t shared_bytes, emu_body_fn *body,
                      void *ctx);
enum { EMU_RESIDENT_MAX = 8 }; /* blocks */
void *emu_dynamic_shared(void);
/* What a kernel may ask for; it ends the program to ask for more. */
typedef void emu_kernel(void);
void emu_allow_shared(emu_kernel *kernel, size_t bytes);
void emu_check_shared(emu_kernel *kernel, size_t bytes);
void emu_block_barrier(void);
void emu_warp_barrier(void);
void emu_cluster_barrier(void);
/* The same place in the dynamic shared memory of another block of the cluster. */
const void *emu_cluster_at(const void *here, uint32_t rank);
void emu_yield(void);                                       /* let other threads run */
void emu_yield_block(void);                                 /* and other blocks */
void emu_named_barrier(uint32_t barrier, uint32_t threads); /* bar.sync, of whole warps */
uint32_t emu_block_rank(void);                              /* among those that run in turns */
/* All lanes of the warp give 8 bytes; the result is the table of them, valid until the next. */
const uint64_t *emu_exchange(uint64_t mine);
uint32_t emu_lane(void);

template <typename F> static void emu_call(void *ctx) { (*(F *)ctx)(); }
template <typename F> static void emu_launch(dim3 grid, dim3 block, size_t shared, F body) {
    emu_run(grid, block, shared, 1, emu_call<F>, &body);
}

/* ---- intrinsics ---- */

static inline void __syncthreads() { emu_block_barrier(); }
static inline void __syncwarp() { emu_warp_barrier(); }
int __syncthreads_or(int flag);

template <typename T> static inline T emu_from(T mine, uint32_t lane) {
    uint64_t bits = 0;
    T out;
    memcpy(&bits, &mine, sizeof(T));
    const uint64_t *all = emu_exchange(bits);
    memcpy(&out, &all[lane], sizeof(T));
    return out;
}
template <typename T> static inline T __shfl_sync(uint32_t, T v, int lane, int width = 32) {
    return emu_from(v, emu_lane() / width * width + lane % width);
}
template <typename T> static inline T __shfl_xor_sync(uint32_t, T v, int mask, int = 32) {
    return emu_from(v, emu_lane() ^ (uint32_t)mask);
}
template <typename T> static inline T __shfl_down_sync(uint32_t, T v, uint32_t d, int width = 32) {
    uint32_t lane = emu_lane();
    return emu_from(v, lane % width + d < (uint32_t)width ? lane + d : lane);
}
template <typename T> static inline T __shfl_up_sync(uint32_t, T v, uint32_t d, int width = 32) {
    uint32_t lane = emu_lane();
    return emu_from(v, lane % width >= d ? lane - d : lane);
}
static inline uint32_t __ballot_sync(uint32_t, int flag) {
    uint32_t out = 0;
    const uint64_t *all = emu_exchange(flag != 0);
    for (int i = 0; i < 32; i++) out |= (uint32_t)(all[i] & 1) << i;
    return out;
}
/* Byte i is the one of b:a that digit i of `pick` names. */
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t pick) {
    uint64_t all = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) out |= (uint32_t)(all >> (pick >> 4 * i & 7) * 8 & 255) << 8 * i;
    return out;
}
static inline int __popc(uint32_t x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }

template <typename T> static inline T emu_bits(const void *from) {
    T out;
    memcpy(&out, from, sizeof(T));
    return out;
}
static inline uint32_t __float_as_uint(float x) { return emu_bits<uint32_t>(&x); }
static inline float __uint_as_float(uint32_t x) { return emu_bits<float>(&x); }
static inline float __int_as_float(int x) { return emu_bits<float>(&x); }
static inline long long __double_as_longlong(double x) { return emu_bits<long long>(&x); }
static inline double __longlong_as_double(long long x) { return emu_bits<double>(&x); }
static inline unsigned long long __float2ull_rn(float x) {
    return (unsigned long long)rint((double)x);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}
template <typename T> static inline T atomicAdd(T *at, T more) {
    T old = *at;
    *at += more;
    return old;
}
template <typename T> static inline T min(T a, T b) { return a < b ? a : b; }
template <typename T> static inline T max(T a, T b) { return a > b ? a : b; }

#endif
