/* tests/gpu/emulate/kernels/cuda/device_async.cuh - src/kernels/cuda/device_async.cuh in plain C++:
 * copies arrive at once. */
#ifndef KERNELS_CUDA_DEVICE_ASYNC_CUH
#define KERNELS_CUDA_DEVICE_ASYNC_CUH

#include <stdlib.h>

#include "kernels/cuda/device_mma.cuh"

/* Barriers by their addresses, which need not lie in dynamic shared memory; each block that runs
 * has its own. */
struct emu_barrier {
    uint32_t at, threads, arrived;
    uint32_t phases; /* that have ended */
    int64_t bytes;   /* that have been named, but have not come */
};
static constexpr uint32_t EMU_BARRIERS = 2048;
static struct emu_barrier emu_barriers[EMU_RESIDENT_MAX][EMU_BARRIERS];
static uint32_t emu_barrier_counts[EMU_RESIDENT_MAX];

static inline struct emu_barrier *emu_barrier_at(uint32_t at) {
    struct emu_barrier *all = emu_barriers[emu_block_rank()];
    uint32_t *count = &emu_barrier_counts[emu_block_rank()], i = 0;
    while (i < *count && all[i].at != at) i++;
    if (i == EMU_BARRIERS) abort();
    *count = i < *count ? *count : i + 1;
    return &all[i];
}

static inline void arrival_init(uint32_t barrier, uint32_t threads) {
    *emu_barrier_at(barrier) = {barrier, threads, 0, 0, 0};
}
static inline void arrivals_publish() {}
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
    /* As the card: the phase that ended last has this parity. */
    while (emu_barrier_at(barrier)->phases % 2 == phase % 2) emu_yield();
    emu_warp_barrier();
}
static inline void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    memcpy(emu_shared_at(to), from, bytes);
    emu_arrive(barrier, 0, -(int64_t)bytes);
}
static inline void fence_async() {}

#endif
