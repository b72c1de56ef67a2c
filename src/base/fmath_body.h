/* base/fmath_body.h - the steps of exp, tanh, erf and the activations, for vectors of any width.
 *
 * This is the only place where the steps are written down: base/fmath.c compiles them for one
 * float, the kernels for the vectors of their instruction set or for one thread of a GPU. All give
 * the same bits, because every operation rounds by itself, fma(a, b, c) once, and nothing branches.
 *
 * Before including it, a file defines what a vector is, with vec_scalar.h, with vec_X.h of
 * kernels/cpu, or as kernels/cuda/device_math.cuh does (FM_INLINE: how its functions are declared):
 *
 *     vec                              a vector of floats, or one float
 *     vec_set1(c)                      c in every lane
 *     vec_add, vec_sub, vec_mul, vec_div
 *     vec_fma(a, b, c)                 a * b + c, rounded once
 *     vec_neg(a), vec_abs(a)
 *     vec_copysign(a, b)               the magnitude of a with the sign of b
 *     vec_min(a, b), vec_max(a, b)     a < b ? a : b, a > b ? a : b: b if either is NaN
 *     vec_if_less(x, limit, a, b)      x < limit ? a : b, lane by lane
 *     vec_if_greater(x, limit, a, b)   x > limit ? a : b
 *     vec_zero_if_less(x, limit, a)    x < limit ? 0 : a
 *     vec_mul_exp2(a, t)               a * 2^k with k = bits(t) - bits(FM_MAGIC), that is, t is
 *                                      k + FM_MAGIC. k may be 128, so that 2^k is not a float:
 *                                      the product is taken as (a * 2^(k >> 1)) * 2^(k - (k >> 1))
 *                                      or in one step where the result is normal, which rounds the
 *                                      same. What is not normal is replaced by the caller.
 *
 * Thread: any.
 */
#ifndef BASE_FMATH_BODY_H
#define BASE_FMATH_BODY_H

#include "base/fmath_poly.h"

#ifndef FM_INLINE
#define FM_INLINE static inline __attribute__((always_inline))
#endif

FM_INLINE vec vec_fma1(vec a, vec b, float c) { return vec_fma(a, b, vec_set1(c)); }

/* x / ln 2 to the nearest whole number, plus FM_MAGIC. */
FM_INLINE vec vec_exp_power(vec x) { return vec_fma1(x, vec_set1(FM_LOG2E), FM_MAGIC); }

/* exp(x) is the result times 2^k, for t = vec_exp_power(x) = k + FM_MAGIC. */
FM_INLINE vec vec_exp_fraction(vec x, vec t) {
    vec n = vec_sub(t, vec_set1(FM_MAGIC));
    vec r = vec_fma(n, vec_set1(-FM_LN2_HI), x);
    r = vec_fma(n, vec_set1(-FM_LN2_LO), r);
    vec p = vec_set1(FM_E4);
    p = vec_fma1(p, r, FM_E3);
    p = vec_fma1(p, r, FM_E2);
    p = vec_fma1(p, r, FM_E1);
    p = vec_fma1(p, r, FM_E0);
    p = vec_fma(p, vec_mul(r, r), r);
    return vec_add(p, vec_set1(1.0f));
}

/* NaN stays NaN. */
FM_INLINE vec vec_exp(vec x) {
    vec t = vec_exp_power(x);
    vec y = vec_mul_exp2(vec_exp_fraction(x, t), t);
    y = vec_if_greater(x, vec_set1(FM_EXP_MAX), vec_set1(__builtin_huge_valf()), y);
    return vec_zero_if_less(x, vec_set1(FM_EXP_MIN), y);
}

FM_INLINE vec vec_tanh(vec x) {
    vec a = vec_abs(x), z = vec_mul(x, x);
    vec p = vec_set1(FM_T5);
    p = vec_fma1(p, z, FM_T4);
    p = vec_fma1(p, z, FM_T3);
    p = vec_fma1(p, z, FM_T2);
    p = vec_fma1(p, z, FM_T1);
    p = vec_fma1(p, z, FM_T0);
    p = vec_mul(p, z);
    vec small = vec_fma(p, a, a);
    const vec one = vec_set1(1.0f), two = vec_set1(2.0f);
    vec e = vec_add(vec_exp(vec_add(a, a)), one);
    vec large = vec_sub(one, vec_div(two, e));
    return vec_copysign(vec_if_less(a, vec_set1(FM_TANH_SPLIT), small, large), x);
}

FM_INLINE vec vec_erf(vec x) {
    vec a = vec_abs(x), z = vec_mul(x, x);
    vec p = vec_set1(FM_S6);
    p = vec_fma1(p, z, FM_S5);
    p = vec_fma1(p, z, FM_S4);
    p = vec_fma1(p, z, FM_S3);
    p = vec_fma1(p, z, FM_S2);
    p = vec_fma1(p, z, FM_S1);
    p = vec_fma1(p, z, FM_S0);
    vec small = vec_fma(p, a, a);
    vec b = vec_min(a, vec_set1(FM_ERF_MAX));
    vec q = vec_set1(FM_L8);
    q = vec_fma1(q, b, FM_L7);
    q = vec_fma1(q, b, FM_L6);
    q = vec_fma1(q, b, FM_L5);
    q = vec_fma1(q, b, FM_L4);
    q = vec_fma1(q, b, FM_L3);
    q = vec_fma1(q, b, FM_L2);
    q = vec_fma1(q, b, FM_L1);
    q = vec_fma1(q, b, FM_L0);
    vec large = vec_sub(vec_set1(1.0f), vec_exp(q));
    return vec_copysign(vec_if_less(a, vec_set1(FM_ERF_SPLIT), small, large), x);
}

FM_INLINE vec vec_sigmoid(vec x) {
    const vec one = vec_set1(1.0f);
    return vec_div(one, vec_add(one, vec_exp(vec_neg(x))));
}

FM_INLINE vec vec_silu(vec x) { return vec_div(x, vec_add(vec_set1(1.0f), vec_exp(vec_neg(x)))); }

FM_INLINE vec vec_gelu_tanh(vec x) {
    vec u = vec_mul(vec_mul(x, x), x);
    u = vec_fma(vec_set1(FM_GELU_CUBE), u, x);
    vec t = vec_tanh(vec_mul(u, vec_set1(FM_SQRT_2_PI)));
    vec h = vec_mul(vec_set1(0.5f), x);
    return vec_fma(h, t, h);
}

FM_INLINE vec vec_gelu_erf(vec x) {
    vec t = vec_erf(vec_mul(x, vec_set1(FM_SQRT_HALF)));
    vec h = vec_mul(vec_set1(0.5f), x);
    return vec_fma(h, t, h);
}

#endif
