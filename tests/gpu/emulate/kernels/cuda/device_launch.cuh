/* tests/gpu/emulate/kernels/cuda/device_launch.cuh - src/kernels/cuda/device_launch.cuh for
 * kernels that run one after the other. */
#ifndef KERNELS_CUDA_DEVICE_LAUNCH_CUH
#define KERNELS_CUDA_DEVICE_LAUNCH_CUH

#include "kernels/cuda/queue.h"

static inline void admit_next_kernel() {}
static inline void wait_for_inputs() {}
static inline void begin_kernel() {}

template <typename... P, typename... A>
static void launch(const struct cuda_queue *, void (*kernel)(P...), dim3 grid, dim3 block,
                   size_t shared_bytes, A... args) {
    emu_launch(grid, block, shared_bytes, [&] { kernel(args...); });
}

/* Blocks run one after the other, so none can wait for another. */
static constexpr bool HAS_CLUSTERS = false;
template <typename... P, typename... A>
static void launch_clusters(const struct cuda_queue *, void (*)(P...), dim3, dim3, size_t, uint32_t,
                            A...) {}
static inline void cluster_barrier() {}
static inline float cluster_float(const float *here, uint32_t) { return *here; }

template <typename... P, typename... A>
static void launch_alone(const struct cuda_queue *queue, void (*kernel)(P...), dim3 grid,
                         dim3 block, size_t shared_bytes, A... args) {
    launch(queue, kernel, grid, block, shared_bytes, args...);
}

#endif
