/* kernels/cuda/queue.h - the stream that launches go to, and how closely they follow each other. */
#ifndef KERNELS_CUDA_QUEUE_H
#define KERNELS_CUDA_QUEUE_H

#include <stdbool.h>

struct CUstream_st; /* cudaStream_t points to it */

struct cuda_queue {
    struct CUstream_st *stream;
    bool overlaps; /* a kernel may be started before the one in front of it has ended */
};

#endif
