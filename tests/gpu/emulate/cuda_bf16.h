/* tests/gpu/emulate/cuda_bf16.h - bf16 for emulated kernels, by tensor/dtype.h's rules. */
#ifndef TESTS_GPU_EMULATE_BF16_H
#define TESTS_GPU_EMULATE_BF16_H

#include "emulate.h"

extern "C" {
float bf16_to_f32(uint16_t half);
uint16_t bf16_from_f32(float value);
}

struct __nv_bfloat16 {
    uint16_t bits;
};
static inline float __bfloat162float(__nv_bfloat16 h) { return bf16_to_f32(h.bits); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {bf16_from_f32(x)}; }

#endif
