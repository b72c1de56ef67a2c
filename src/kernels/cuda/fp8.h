/* kernels/cuda/fp8.h - what is found out about fp8 products when a device opens. */
#ifndef KERNELS_CUDA_FP8_H
#define KERNELS_CUDA_FP8_H

#include <stdbool.h>

struct cuda_device;

/* Do cuBLASLt's products have the bits of our own kernel? False without cuBLASLt. Takes some tens
 * of milliseconds: it chooses algorithms. */
bool cuda_fp8_check(struct cuda_device *dev);

#endif
