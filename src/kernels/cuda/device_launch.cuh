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
