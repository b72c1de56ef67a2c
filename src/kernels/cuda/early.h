/* kernels/cuda/early.h - cuBLASLt's algorithms timed when a program is made. */
#ifndef KERNELS_CUDA_EARLY_H
#define KERNELS_CUDA_EARLY_H

#include "kernels/cuda/cuda_int.h"

struct cuda_early {
    const struct cuda_device *dev;
    const struct tape *tape;
    const struct cuda_plan *plan;
    const struct cuda_scratch *scratch;
    uint8_t *slab; /* of the program; it and the scratch memory are zeros afterwards */
    size_t slab_bytes;
};

/* Every product for every range of rows. Waits for the card. */
enum status cuda_early_products(const struct cuda_early *e, struct err *err);

#endif
