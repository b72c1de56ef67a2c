/* kernels/cuda/device_grid.cuh - for kernels whose blocks are all on the card at once: a barrier of
 * the grid, barriers for some of a block's warps, copies of boxes of a matrix.
 *
 * The barrier of the grid is a counter in global memory that only rises, by one for each block that
 * arrives, from launch to launch. Every launch adds a multiple of the number of blocks. So at its
 * first barrier a block knows the value at the start of the launch: the counter rounded down to
 * such a multiple.
 */
#ifndef KERNELS_CUDA_DEVICE_GRID_CUH
#define KERNELS_CUDA_DEVICE_GRID_CUH

#include "kernels/cuda/device_launch.cuh"

/* Of `threads` threads, whole warps; 0 and 1 are __syncthreads and warpgroup_barrier(1). */
static __device__ inline void threads_barrier(uint32_t barrier, uint32_t threads) {
    asm volatile("bar.sync %0, %1;\n" ::"r"(barrier), "r"(threads) : "memory");
}

/* Returns x, but the compiler cannot know that. So it computes values that depend on x where they
 * are used, and keeps them in no register during the other phases of a loop. */
static __device__ inline uint32_t computed_here(uint32_t x) {
    asm volatile("" : "+r"(x));
    return x;
}

/* ---- the grid ---- */

static __device__ inline uint64_t arrivals_now(const uint64_t *counter) {
    uint64_t now;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];\n" : "=l"(now) : "l"(counter) : "memory");
    return now;
}

static __device__ inline uint64_t arrivals_before(const uint64_t *counter, uint32_t blocks) {
    uint64_t now = arrivals_now(counter);
    return now - now % blocks;
}

/* By one thread, behind a barrier of those whose writes the other blocks are to see. */
static __device__ inline void grid_arrive(uint64_t *counter) {
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;\n" ::"l"(counter), "l"((uint64_t)1)
                 : "memory");
}

static __device__ inline uint64_t time_ns(void) {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;\n" : "=l"(now));
    return now;
}

/* By one thread, in front of a barrier of those that are to see what the others wrote. A step takes
 * milliseconds: where a barrier takes seconds, something is wrong, and the launch fails instead of
 * occupying the card for ever. */
static __device__ inline void grid_wait(const uint64_t *counter, uint64_t arrivals) {
    static constexpr uint64_t LONGEST_NS = 4000000000ull;
    static constexpr uint32_t LOOKS = 4096; /* between two looks at the time */
    uint64_t begin = 0;
    for (uint32_t i = 1; arrivals_now(counter) < arrivals; i++) {
        if (i % LOOKS != 0) continue;
        uint64_t now = time_ns();
        if (begin == 0) begin = now;
        if (now - begin > LONGEST_NS) __trap();
    }
}

/* ---- copies ---- */

/* A box of a matrix that `map` describes, which begins at these coordinates, to shared memory. What
 * lies outside of the matrix becomes zeros. */
static __device__ inline void copy_box(uint32_t to, const void *map, const uint32_t at[4],
                                       uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];\n" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
                 : "memory");
#endif
}

/* Prefetches the description. */
static __device__ inline void expect_map(const void *map) {
#if __CUDA_ARCH__ >= 900
    asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
#endif
}

/* Prefetches a line of 128 bytes to the L2 cache. */
static __device__ inline void expect_line(const void *line) {
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(line));
}

/* ---- launching ---- */

/* `blocks` blocks, each with a multiprocessor of its own. A cooperative launch is not needed: the
 * kernel before this one waits for nothing from it, so it ends and leaves the multiprocessors free.
 */
template <typename... P, typename... A>
static void launch_resident(const struct cuda_queue *queue, void (*kernel)(P...), uint32_t blocks,
                            uint32_t threads, size_t shared_bytes, A... args) {
    launch(queue, kernel, blocks, threads, shared_bytes, args...);
}

/* Can a multiprocessor have a block of it? */
template <typename... P>
static bool is_resident_possible(void (*kernel)(P...), uint32_t threads, size_t shared_bytes) {
    int blocks = 0;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    cudaError_t rc =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, (int)threads, shared_bytes);
    return rc == cudaSuccess && blocks > 0;
}

#endif
