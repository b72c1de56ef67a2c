/* tests/gpu/emulate/kernels/cuda/device_async.cuh - src/kernels/cuda/device_async.cuh in plain C++:
 * copies arrive at once, so a wait is for the lanes that ask for them. */
#ifndef KERNELS_CUDA_DEVICE_ASYNC_CUH
#define KERNELS_CUDA_DEVICE_ASYNC_CUH

#include "kernels/cuda/device_mma.cuh"

static inline void arrival_init(uint32_t, uint32_t) {}
static inline void arrivals_publish() {}
static inline void arrival_expect(uint32_t, uint32_t) {}
static inline void arrival_wait(uint32_t, uint32_t) { emu_warp_barrier(); }
static inline void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t) {
    memcpy(emu_shared_at(to), from, bytes);
}
static inline void fence_async() {}

#endif
