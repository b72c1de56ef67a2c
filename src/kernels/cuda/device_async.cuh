/* kernels/cuda/device_async.cuh - copies of many bytes that one thread asks for (Hopper), the
 * barriers in shared memory that tell of their arrival.
 */
#ifndef KERNELS_CUDA_DEVICE_ASYNC_CUH
#define KERNELS_CUDA_DEVICE_ASYNC_CUH

#include <stdint.h>

/* A barrier is 8 bytes of shared memory. Each of its phases ends when so many threads have arrived
 * and all bytes that they named (arrival_expect) or copied (arrive_with_copies) have come; phases
 * are counted from 0. */
static __device__ inline void arrival_init(uint32_t barrier, uint32_t threads) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(threads)
                 : "memory");
#endif
}

/* Barriers that this thread has initialised are known to the copies that it asks for. */
static __device__ inline void arrivals_publish() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
#endif
}

static __device__ inline void arrival_expect(uint32_t barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
#endif
}

static __device__ inline void arrive(uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
#endif
}

/* When all copies by cp.async have come that this thread has asked for. */
static __device__ inline void arrive_with_copies(uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier)
                 : "memory");
#endif
}

/* Until the phase has ended. All lanes of a warp call it. */
static __device__ inline void arrival_wait(uint32_t barrier, uint32_t phase) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}\n" ::"r"(barrier),
                 "r"(phase % 2)
                 : "memory");
#endif
}

/* ---- a number of each lane, for a warp of another block ---- */

/* `flag` is 0 before, and again when the other warp has taken the numbers. */
static __device__ inline void hand_over(float *numbers, uint32_t *flag, float mine) {
    uint32_t lane = threadIdx.x % 32;
    numbers[lane] = mine;
    __syncwarp();
    if (lane == 0)
        asm volatile("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%0], 1;\n" ::"l"(flag)
                     : "memory");
}

/* Waits for them. */
static __device__ inline float take_over(const float *numbers, uint32_t *flag) {
    uint32_t lane = threadIdx.x % 32, is_there = 0;
    while (lane == 0 && !is_there)
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n"
                     : "=r"(is_there)
                     : "l"(flag)
                     : "memory");
    __syncwarp();
    float mine = __ldcg(numbers + lane);
    __syncwarp();
    if (lane == 0) *flag = 0;
    return mine;
}

/* ---- copies ---- */

/* A multiple of 16 bytes, to and from multiples of 16. */
static __device__ inline void copy_bulk(uint32_t to, const void *from, uint32_t bytes,
                                        uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];\n" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
#endif
}

/* What this thread has written to shared memory, or copied there by cp.async and waited for, stands
 * before what copy_bulk and wgmma do after the next barrier. */
static __device__ inline void fence_async() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
#endif
}

#endif
