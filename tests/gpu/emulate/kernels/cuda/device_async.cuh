/* tests/gpu/emulate/kernels/cuda/device_async.cuh - src/kernels/cuda/device_async.cuh in plain C++:
 * copies arrive at once. */
#ifndef KERNELS_CUDA_DEVICE_ASYNC_CUH
#define KERNELS_CUDA_DEVICE_ASYNC_CUH

#include <stdlib.h>

#include "kernels/cuda/device_mma.cuh"

/* Barriers by their addresses, which need not lie in dynamic shared memory. */
struct emu_barrier {
    uint32_t at, threads, arrived;
    uint32_t phases; /* that have ended */
    int64_t bytes;   /* that have been named, but have not come */
};
static struct emu_barrier emu_barriers[2048];
static uint32_t emu_barrier_count;

static inline struct emu_barrier *emu_barrier_at(uint32_t at) {
    uint32_t i = 0;
    while (i < emu_barrier_count && emu_barriers[i].at != at) i++;
    if (i == sizeof(emu_barriers) / sizeof(emu_barriers[0])) abort();
    emu_barrier_count = i < emu_barrier_count ? emu_barrier_count : i + 1;
    return &emu_barriers[i];
}

static inline void arrival_init(uint32_t barrier, uint32_t threads) {
    *emu_barrier_at(barrier) = {barrier, threads, 0, 0, 0};
}
static inline void arrivals_publish() {}

/* Blocks run one after the other, so a flag that is not set stays so. */
static inline void hand_over(float *numbers, uint32_t *flag, float mine) {
    if (emu_lane() == 0 && *flag != 0) abort();
    numbers[emu_lane()] = mine;
    __syncwarp();
    if (emu_lane() == 0) *flag = 1;
}
static inline float take_over(const float *numbers, uint32_t *flag) {
    if (emu_lane() == 0 && *flag == 0) abort();
    float mine = numbers[emu_lane()];
    __syncwarp();
    if (emu_lane() == 0) *flag = 0;
    return mine;
}
static inline void emu_arrive(uint32_t barrier, uint32_t threads, int64_t bytes) {
    struct emu_barrier *b = emu_barrier_at(barrier);
    b->arrived += threads;
    b->bytes += bytes;
    if (b->arrived < b->threads || b->bytes > 0) return;
    b->arrived = 0;
    b->phases++;
}
static inline void arrive(uint32_t barrier) { emu_arrive(barrier, 1, 0); }
static inline void arrive_with_copies(uint32_t barrier) { arrive(barrier); }
static inline void arrival_expect(uint32_t barrier, uint32_t bytes) {
    emu_arrive(barrier, 1, bytes);
}
static inline void arrival_wait(uint32_t barrier, uint32_t phase) {
    while (emu_barrier_at(barrier)->phases <= phase) emu_yield();
    emu_warp_barrier();
}
static inline void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    memcpy(emu_shared_at(to), from, bytes);
    emu_arrive(barrier, 0, -(int64_t)bytes);
}
static inline void fence_async() {}

#endif
