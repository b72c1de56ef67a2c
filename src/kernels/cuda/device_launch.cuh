/* kernels/cuda/device_launch.cuh - launching kernels that overlap (programmatic dependent launch),
 * and kernels that run by themselves.
 *
 * A kernel may be started while the one in front of it still runs. It then waits at wait_for_inputs
 * until that one has ended and its writes are visible; what it does before, setting up or reading
 * weights, costs no time. Two rules keep the order of a stream:
 *
 *   - Every block of every kernel that launch() starts calls wait_for_inputs before it touches
 *     memory that a kernel of the step writes, and before it ends. So when a kernel has ended,
 *     all kernels in front of it have ended, too.
 *   - A kernel that is not started by launch(), but by launch_alone() or cuBLASLt, starts after the
 *     end of those in front of it.
 *
 * The next kernel is admitted as soon as all blocks of this one run: it can take the room that is
 * left, and never the room of a block of this one.
 */
#ifndef KERNELS_CUDA_DEVICE_LAUNCH_CUH
#define KERNELS_CUDA_DEVICE_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/cuda/queue.h"

static __device__ inline void admit_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

static __device__ inline void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

/* The first statement of a kernel that has nothing to do before its inputs are there. */
static __device__ inline void begin_kernel() {
    admit_next_kernel();
    wait_for_inputs();
}

/* All kernels that overlap ask for the largest shared memory: a multiprocessor is divided anew only
 * when it is empty, so kernels that divide it differently would not share it. */
template <typename... P, typename... A>
static void launch(const struct cuda_queue *queue, void (*kernel)(P...), dim3 grid, dim3 block,
                   size_t shared_bytes, A... args) {
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[1].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = queue->stream;
    config.attrs = attributes;
    config.numAttrs = queue->overlaps ? 2 : 0;
    cudaLaunchKernelEx(&config, kernel, P(args)...);
}

/* Blocks that follow each other in z form clusters of `blocks`. */
static constexpr bool HAS_CLUSTERS = true;
template <typename... P, typename... A>
static void launch_clusters(const struct cuda_queue *queue, void (*kernel)(P...), dim3 grid,
                            dim3 block, size_t shared_bytes, uint32_t blocks, A... args) {
    cudaLaunchAttribute attributes[3] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = attributes[0].val.clusterDim.y = 1;
    attributes[0].val.clusterDim.z = blocks;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    attributes[2].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[2].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = queue->stream;
    config.attrs = attributes;
    config.numAttrs = queue->overlaps ? 3 : 1;
    cudaLaunchKernelEx(&config, kernel, P(args)...);
}

/* All threads of the cluster's blocks. */
static __device__ inline void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;\n" ::
                     : "memory");
#endif
}

/* A float of block `rank` of the cluster, which lies there as it does here. */
static __device__ inline float cluster_float(const float *here, uint32_t rank) {
    float out = 0.0f;
#if __CUDA_ARCH__ >= 900
    uint32_t at = (uint32_t)__cvta_generic_to_shared(here);
    asm volatile("{\n.reg .u32 there;\n"
                 "mapa.shared::cluster.u32 there, %1, %2;\n"
                 "ld.shared::cluster.f32 %0, [there];\n}\n"
                 : "=f"(out)
                 : "r"(at), "r"(rank)
                 : "memory");
#endif
    return out;
}

/* For kernels that are slower with overlap than without: starts when the kernel in front has ended,
 * with the division of memory that the driver chooses. Such a kernel does not call
 * admit_next_kernel, so the next one starts when this one has ended. */
template <typename... P, typename... A>
static void launch_alone(const struct cuda_queue *queue, void (*kernel)(P...), dim3 grid,
                         dim3 block, size_t shared_bytes, A... args) {
    const struct cuda_queue in_order = {queue->stream, false};
    launch(&in_order, kernel, grid, block, shared_bytes, args...);
}

#endif
