/* kernels/cuda/peaks.cu - the card's ceiling: how fast memory can be read.
 *
 * Mapping: each thread reads 16 bytes at a time, neighbours next to each other, 8 reads in flight.
 */
#include "kernels/cuda/launch.h"

static constexpr uint32_t READ_THREADS = 512, READ_AHEAD = 8;

/* The sum is stored so that nothing is left out; the caller does not read it. */
static __global__ void __launch_bounds__(READ_THREADS)
    read_kernel(const uint4 *from, size_t count, uint32_t *sink) {
    size_t stride = (size_t)gridDim.x * READ_THREADS, at = blockIdx.x * READ_THREADS + threadIdx.x;
    uint32_t sum = 0;
    for (; at + (READ_AHEAD - 1) * stride < count; at += READ_AHEAD * stride) {
        uint4 some[READ_AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < READ_AHEAD; i++) some[i] = from[at + i * stride];
#pragma unroll
        for (uint32_t i = 0; i < READ_AHEAD; i++)
            sum += some[i].x ^ some[i].y ^ some[i].z ^ some[i].w;
    }
    if (sum == 1) *sink = sum;
}

void cuda_read(const void *from, size_t bytes, uint32_t *sink, uint32_t multiprocessors,
               struct CUstream_st *stream) {
    read_kernel<<<multiprocessors * 4, READ_THREADS, 0, stream>>>((const uint4 *)from, bytes / 16,
                                                                  sink);
}
