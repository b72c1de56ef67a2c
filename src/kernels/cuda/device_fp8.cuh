/* kernels/cuda/device_fp8.cuh - numbers of eight bits with a floating point (tensor/fp8.h).
 */
#ifndef KERNELS_CUDA_DEVICE_FP8_CUH
#define KERNELS_CUDA_DEVICE_FP8_CUH

#include <cuda_fp16.h>
#include <stdint.h>

static __device__ inline uint8_t fp8_of(float x) {
    uint32_t bits = __float_as_uint(x), sign = bits >> 24 & 0x80u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) return 0;                        /* NaN */
    if (bits >= 0x43e00000u) return (uint8_t)(sign | 0x7eu); /* 448 */
    if (bits < 0x3c800000u) {                                /* 2^-6 */
        bits = __float_as_uint(__uint_as_float(bits) + 16384.0f) - 0x46800000u;
        return (uint8_t)(sign | bits);
    }
    bits += 0x7ffffu + (bits >> 20 & 1);
    return (uint8_t)(sign | ((bits >> 20) - (120u << 3)));
}

/* Two numbers, the first in the lower byte, by the card's own instruction where it has one. It
 * rounds and saturates as fp8_of does; only of a NaN it makes another code. */
static __device__ inline uint32_t fp8_two(float x, float y) {
#if __CUDA_ARCH__ >= 890
    uint16_t two;
    x = x == x ? x : 0.0f;
    y = y == y ? y : 0.0f;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\n" : "=h"(two) : "f"(y), "f"(x));
    return two;
#else
    return (uint32_t)fp8_of(y) << 8 | fp8_of(x);
#endif
}

/* Two numbers in the upper bytes of each half of `pair`, as halves: exponent and mantissa where f16
 * has them are the number / 256. */
static __device__ inline __half2 fp8_spread(uint32_t pair) {
    uint32_t bits = (pair & 0x80008000u) | (pair & 0x7f007f00u) >> 1;
    return __hmul2(*(const __half2 *)&bits, __half2half2(__ushort_as_half(0x5c00)));
}

/* Four numbers, the first in the lowest byte. */
static __device__ inline void fp8_halves(uint32_t four, __half2 out[2]) {
#if __CUDA_ARCH__ >= 890
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}\n"
        : "=r"(*(uint32_t *)&out[0]), "=r"(*(uint32_t *)&out[1])
        : "r"(four));
#else
    out[0] = fp8_spread(__byte_perm(four, 0, 0x1404));
    out[1] = fp8_spread(__byte_perm(four, 0, 0x3424));
#endif
}

#endif
