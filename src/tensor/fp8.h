/* tensor/fp8.h - numbers of eight bits with a floating point: e4m3, four bits of exponent and three
 * of mantissa.
 *
 *     code         sign, exponent e, mantissa m
 *     e > 0        (1 + m / 8) * 2^(e - 7), up to 448
 *     e = 0        m / 8 * 2^-6
 *
 * A float becomes the nearest of them, the even one at a tie; beyond 448 it becomes 448, and a NaN
 * becomes 0. So the code 0x7f, which is the format's NaN, is never written; it is read as 480.
 * Every number of the format is a number of f16 as well.
 *
 * Thread: any; there is no state.
 */
#ifndef TENSOR_FP8_H
#define TENSOR_FP8_H

#include <stdint.h>

#define FP8_MAX 448.0f

/* The same number as an f16 without the factor FP8_HALF_FACTOR: exponent and mantissa where f16 has
 * them. f16 has denormals also where a float's count as zero. */
#define FP8_HALF_FACTOR 256.0f
static inline uint16_t fp8_half_bits(uint8_t code) {
    return (uint16_t)((code & 0x80u) << 8 | (code & 0x7fu) << 7);
}

union fp8_float {
    float value;
    uint32_t bits;
};

static inline float fp8_to_f32(uint8_t code) {
    uint32_t size = code & 0x7fu;
    union fp8_float x = {.value = (float)size * 0x1p-9f}; /* e = 0 */
    if (size >= 8) x.bits = (size << 20) + (120u << 23);
    return code & 0x80u ? -x.value : x.value;
}

static inline uint8_t fp8_from_f32(float value) {
    union fp8_float x = {.value = value};
    uint32_t sign = x.bits >> 24 & 0x80u;
    x.bits &= 0x7fffffffu;
    if (x.bits > 0x7f800000u) return 0;                        /* NaN */
    if (x.bits >= 0x43e00000u) return (uint8_t)(sign | 0x7eu); /* 448 */
    if (x.bits < 0x3c800000u) {                                /* 2^-6 */
        x.value += 0x1p14f;                                    /* its last bit is 2^-9 */
        return (uint8_t)(sign | (x.bits - 0x46800000u));
    }
    x.bits += 0x7ffffu + (x.bits >> 20 & 1);
    return (uint8_t)(sign | ((x.bits >> 20) - (120u << 3)));
}

#endif
