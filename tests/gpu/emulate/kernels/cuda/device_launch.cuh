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
    emu_check_shared((emu_kernel *)kernel, shared_bytes);
    emu_launch(grid, block, shared_bytes, [&] { kernel(args...); });
}

/* A cluster's blocks share what is not dynamic shared memory, so kernels of which more is kept over
 * a barrier of the cluster go without. */
static constexpr bool HAS_CLUSTERS = false;
template <typename... P, typename... A>
static void launch_clusters(const struct cuda_queue *, void (*kernel)(P...), dim3 grid, dim3 block,
                            size_t shared_bytes, uint32_t blocks, A... args) {
    auto body = [&] { kernel(args...); };
    emu_check_shared((emu_kernel *)kernel, shared_bytes);
    emu_run(grid, block, shared_bytes, blocks, emu_call<decltype(body)>, &body);
}
static inline void cluster_barrier() { emu_cluster_barrier(); }
static inline float cluster_float(const float *here, uint32_t rank) {
    return *(const float *)emu_cluster_at(here, rank);
}

template <typename... P, typename... A>
static void launch_alone(const struct cuda_queue *queue, void (*kernel)(P...), dim3 grid,
                         dim3 block, size_t shared_bytes, A... args) {
    launch(queue, kernel, grid, block, shared_bytes, args...);
}

#endif
