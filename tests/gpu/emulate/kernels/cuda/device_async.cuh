/* tests/gpu/emulate/kernels/cuda/device_async.cuh - src/kernels/cuda/device_async.cuh in plain C++:
 * bulk copies arrive late and in any order, while threads wait; others at once. */
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

/* Bulk copies on their way; each block that runs has its own. */
struct emu_copy {
    uint32_t to, bytes, barrier;
    uint8_t *data;
};
static constexpr uint32_t EMU_COPIES = 64, EMU_LATE = 16; /* looks before one comes, on average */
static struct emu_copy emu_copies[EMU_RESIDENT_MAX][EMU_COPIES];
static uint32_t emu_copy_counts[EMU_RESIDENT_MAX], emu_chance = 1;

static inline void emu_copy_arrives(void) {
    struct emu_copy *all = emu_copies[emu_block_rank()];
    uint32_t *count = &emu_copy_counts[emu_block_rank()];
    if (*count == 0) return;
    /* Mostly the youngest, so that some come very late. */
    uint32_t i = emu_chance >> 8 & 15 ? *count - 1 : (emu_chance >> 12) % *count;
    struct emu_copy c = all[i];
    all[i] = all[--*count];
    memcpy(emu_shared_at(c.to), c.data, c.bytes);
    free(c.data);
    emu_arrive(c.barrier, 0, -(int64_t)c.bytes);
}
static inline void arrival_wait(uint32_t barrier, uint32_t phase) {
    /* As the card: the phase that ended last has this parity. */
    while (emu_barrier_at(barrier)->phases % 2 == phase % 2) {
        emu_chance = emu_chance * 1664525u + 1013904223u;
        if ((emu_chance >> 16) % EMU_LATE == 0) emu_copy_arrives();
        emu_yield();
    }
    emu_warp_barrier();
}
static inline void emu_copy_begins(uint32_t to, uint8_t *data, uint32_t bytes, uint32_t barrier) {
    uint32_t *count = &emu_copy_counts[emu_block_rank()];
    if (*count == EMU_COPIES) emu_copy_arrives();
    emu_copies[emu_block_rank()][(*count)++] = {to, bytes, barrier, data};
}
static inline void copy_bulk(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    uint8_t *data = (uint8_t *)malloc(bytes);
    memcpy(data, from, bytes);
    emu_copy_begins(to, data, bytes, barrier);
}
static inline void fence_async() {}

#endif
