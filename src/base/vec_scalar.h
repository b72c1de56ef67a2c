/* base/vec_scalar.h - the operations of base/fmath_body.h on one float.
 *
 * Selects instead of branches, so that a compiler makes vectors of loops over them.
 * Thread: any.
 */
#ifndef BASE_VEC_SCALAR_H
#define BASE_VEC_SCALAR_H

#include <stdint.h>

#include "base/bits.h"
#include "base/fmath_poly.h"

#define VEC_INLINE static inline __attribute__((always_inline))

typedef float vec;

VEC_INLINE vec vec_set1(float c) { return c; }
VEC_INLINE vec vec_add(vec a, vec b) { return a + b; }
VEC_INLINE vec vec_sub(vec a, vec b) { return a - b; }
VEC_INLINE vec vec_mul(vec a, vec b) { return a * b; }
VEC_INLINE vec vec_div(vec a, vec b) { return a / b; }
VEC_INLINE vec vec_fma(vec a, vec b, vec c) { return __builtin_fmaf(a, b, c); }
VEC_INLINE vec vec_neg(vec a) { return -a; }
VEC_INLINE vec vec_abs(vec a) { return float_of_bits(bits_of_float(a) & 0x7fffffffu); }
VEC_INLINE vec vec_min(vec a, vec b) { return a < b ? a : b; }
VEC_INLINE vec vec_if_less(vec x, vec limit, vec a, vec b) { return x < limit ? a : b; }
VEC_INLINE vec vec_if_greater(vec x, vec limit, vec a, vec b) { return x > limit ? a : b; }
VEC_INLINE vec vec_zero_if_less(vec x, vec limit, vec a) { return x < limit ? 0.0f : a; }

VEC_INLINE vec vec_copysign(vec a, vec b) {
    return float_of_bits((bits_of_float(a) & 0x7fffffffu) | (bits_of_float(b) & 0x80000000u));
}

/* Unsigned, so that the k of a NaN is garbage but not undefined. */
VEC_INLINE vec vec_exp2(int32_t k) { return float_of_bits(((uint32_t)k + 127u) << 23); }

VEC_INLINE vec vec_mul_exp2(vec a, vec t) {
    int32_t k = (int32_t)(bits_of_float(t) - bits_of_float(FM_MAGIC));
    float y = a * vec_exp2(k >> 1);
    return y * vec_exp2((int32_t)((uint32_t)k - (uint32_t)(k >> 1)));
}

#endif
