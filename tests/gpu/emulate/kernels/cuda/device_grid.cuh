/* tests/gpu/emulate/kernels/cuda/device_grid.cuh - src/kernels/cuda/device_grid.cuh in plain C++:
 * blocks run in turns. */
#ifndef KERNELS_CUDA_DEVICE_GRID_CUH
#define KERNELS_CUDA_DEVICE_GRID_CUH

#include "emulate_map.h"
#include "kernels/cuda/device_async.cuh"
#include "kernels/cuda/device_launch.cuh"

static inline void threads_barrier(uint32_t barrier, uint32_t threads) {
    emu_named_barrier(barrier, threads);
}

static inline uint32_t computed_here(uint32_t x) { return x; }

static inline uint64_t arrivals_before(const uint64_t *counter, uint32_t blocks) {
    return *counter - *counter % blocks;
}
static inline void grid_arrive(uint64_t *counter) { ++*counter; }
static inline void grid_wait(const uint64_t *counter, uint64_t arrivals) {
    while (*counter < arrivals) emu_yield_block();
}

/* Rows of 128 bytes, whose pieces of 16 bytes are turned by the number of the row. */
static inline void copy_box(uint32_t to, const void *map, const uint32_t at[4], uint32_t barrier) {
    const struct emulate_map *m = (const struct emulate_map *)map;
    uint32_t row_bytes = m->box[0] * m->elem_bytes, row = 0;
    uint32_t rows = m->box[1] * m->box[2] * m->box[3];
    uint8_t *data = (uint8_t *)malloc(rows * 128);
    if (row_bytes != 128 || to % 1024 != 0) abort();
    for (uint32_t d = 0; d < m->box[3]; d++)
        for (uint32_t c = 0; c < m->box[2]; c++)
            for (uint32_t b = 0; b < m->box[1]; b++, row++) {
                uint64_t from[4] = {at[0], at[1] + b, at[2] + c, at[3] + d};
                bool is_inside = from[0] < m->size[0] && from[1] < m->size[1] &&
                                 from[2] < m->size[2] && from[3] < m->size[3];
                const uint8_t *bytes = m->base + from[0] * m->elem_bytes + from[1] * m->stride[0] +
                                       from[2] * m->stride[1] + from[3] * m->stride[2];
                for (uint32_t p = 0; p < 8; p++) {
                    uint8_t *piece = data + row * 128 + (p ^ row % 8) * 16;
                    if (is_inside)
                        memcpy(piece, bytes + p * 16, 16);
                    else
                        memset(piece, 0, 16);
                }
            }
    emu_copy_begins(to, data, rows * 128, barrier);
}
static inline void expect_map(const void *) {}
static inline void expect_line(const void *) {}

template <typename... P, typename... A>
static void launch_resident(const struct cuda_queue *, void (*kernel)(P...), uint32_t blocks,
                            uint32_t threads, size_t shared_bytes, A... args) {
    auto body = [&] { kernel(args...); };
    emu_run_resident(blocks, threads, shared_bytes, emu_call<decltype(body)>, &body);
}
template <typename... P> static bool is_resident_possible(void (*)(P...), uint32_t, size_t) {
    return true;
}

#endif
