/* kernels/cuda/fp8.h - products of fp8 on a device: whether there are any, and what is found out
 * about them before the first one. */
#ifndef KERNELS_CUDA_FP8_H
#define KERNELS_CUDA_FP8_H

#include <stdbool.h>

struct cuda_device;

struct cuda_fp8_ways {
    bool is_wanted; /* weights of 16 bits become e4m3 */
    bool is_there;  /* the card has the instructions */
    bool is_open;   /* cuda_fp8_open was called */
    /* cuBLASLt's products have the bits of product_fp8.cu: with scales of powers of two, and with
     * any scales and nothing to add to. */
    bool has_own_bits, free_has_own_bits;
};

static inline bool cuda_fp8_is_own(const struct cuda_fp8_ways *ways, bool free_scales) {
    return free_scales ? ways->free_has_own_bits : ways->has_own_bits;
}

/* Prepares kernels and cuBLASLt, and finds out whether cuBLASLt's products have the bits of our own
 * kernel: not without cuBLASLt. Takes some tens of milliseconds the first time, as algorithms are
 * chosen, and nothing after that. */
void cuda_fp8_open(struct cuda_device *dev);

#endif
