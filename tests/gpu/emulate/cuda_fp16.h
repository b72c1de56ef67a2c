/* tests/gpu/emulate/cuda_fp16.h - f16 for emulated kernels, by tensor/dtype.h's rules. */
#ifndef TESTS_GPU_EMULATE_FP16_H
#define TESTS_GPU_EMULATE_FP16_H

#include "emulate.h"

extern "C" {
float f16_to_f32(uint16_t half);
uint16_t f16_from_f32(float value);
}

struct __half {
    uint16_t bits;
};
struct __half2 {
    __half x, y;
};
static inline float __half2float(__half h) { return f16_to_f32(h.bits); }
static inline __half __float2half_rn(float x) { return {f16_from_f32(x)}; }
static inline __half __ushort_as_half(uint16_t bits) { return {bits}; }
static inline uint16_t __half_as_ushort(__half h) { return h.bits; }
static inline __half2 __half2half2(__half h) { return {h, h}; }
static inline __half2 __hmul2(__half2 a, __half2 b) {
    return {__float2half_rn(__half2float(a.x) * __half2float(b.x)),
            __float2half_rn(__half2float(a.y) * __half2float(b.y))};
}
static inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }

#endif
