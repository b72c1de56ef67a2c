/* kernels/cuda/fp8_scale.h - the scale of a row of numbers that become e4m3 (tensor/fp8.h).
 *
 *     scale = the least power of two with |x| / scale <= 448 for all x of the row
 *     code  = e4m3(x / scale)
 *
 * Multiplying by a power of two is exact, so the order in which a sum is multiplied by its two
 * scales does not matter; the only rounding is in a later addition. So our kernels and cuBLASLt
 * agree.
 *
 * Scales lie between 2^-40 and 2^40, so the product of two scales fits a float. Magnitudes above
 * 448 * 2^40 become 448 * 2^40, and those below 2^-50 become 0.
 *
 * Compiled for the host and for the device; tests call it on the host.
 */
#ifndef KERNELS_CUDA_FP8_SCALE_H
#define KERNELS_CUDA_FP8_SCALE_H

#include <stdint.h>

#include "kernels/cuda/layout.h"

enum { CUDA_FP8_EXPONENT_MIN = 127 - 40, CUDA_FP8_EXPONENT_MAX = 127 + 40 };

union cuda_fp8_float {
    uint32_t bits;
    float value;
};

/* A float's exponent is 127 more than the power of two. */
BOTH_SIDES float cuda_fp8_power(int32_t exponent) {
    union cuda_fp8_float x;
    x.bits = (uint32_t)exponent << 23;
    return x.value;
}

/* Of a row whose largest magnitude is `most`. 448 is 1.75 * 2^8. */
BOTH_SIDES int32_t cuda_fp8_exponent(float most) {
    union cuda_fp8_float x;
    x.value = most;
    int32_t exponent = (int32_t)(x.bits >> 23 & 0xff) - 8 + ((x.bits & 0x7fffffu) > 0x600000u);
    if (exponent < CUDA_FP8_EXPONENT_MIN) return CUDA_FP8_EXPONENT_MIN;
    return exponent > CUDA_FP8_EXPONENT_MAX ? CUDA_FP8_EXPONENT_MAX : exponent;
}
BOTH_SIDES float cuda_fp8_scale(float most) { return cuda_fp8_power(cuda_fp8_exponent(most)); }
BOTH_SIDES float cuda_fp8_inverse(float most) {
    return cuda_fp8_power(2 * 127 - cuda_fp8_exponent(most));
}

#endif
