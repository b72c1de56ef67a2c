/* kernels/cuda/device_math.cuh - base/fmath.h on the device: the same steps, the same bits.
 *
 * Compiled with -fmad=false and -ftz=true: a multiply-add is fused where it is written so, and
 * denormals count as zero, as on the CPU. The steps of exp, tanh, erf and the activations are
 * those of base/fmath_body.h, for which a vector is one float of a thread. The functions of doubles
 * repeat the steps of base/fmath.c.
 */
#ifndef KERNELS_CUDA_DEVICE_MATH_CUH
#define KERNELS_CUDA_DEVICE_MATH_CUH

#include <stdint.h>

#include "base/fmath_poly.h"

#define DEVICE_INF __int_as_float(0x7f800000)
#define DEVICE_NAN __int_as_float(0x7fffffff)
static constexpr float FLOAT_MIN = 1.17549435e-38f, FLOAT_MAX = 3.40282347e+38f;

/* ---- what base/fmath_body.h needs ---- */

#define FM_INLINE static __device__ inline

typedef float vec;

FM_INLINE vec vec_set1(float c) { return c; }
FM_INLINE vec vec_add(vec a, vec b) { return a + b; }
FM_INLINE vec vec_sub(vec a, vec b) { return a - b; }
FM_INLINE vec vec_mul(vec a, vec b) { return a * b; }
FM_INLINE vec vec_div(vec a, vec b) { return a / b; }
FM_INLINE vec vec_fma(vec a, vec b, vec c) { return fmaf(a, b, c); }
FM_INLINE vec vec_neg(vec a) { return -a; }
FM_INLINE vec vec_min(vec a, vec b) { return a < b ? a : b; }
FM_INLINE vec vec_if_less(vec x, vec limit, vec a, vec b) { return x < limit ? a : b; }
FM_INLINE vec vec_if_greater(vec x, vec limit, vec a, vec b) { return x > limit ? a : b; }
FM_INLINE vec vec_zero_if_less(vec x, vec limit, vec a) { return x < limit ? 0.0f : a; }

FM_INLINE vec vec_copysign(vec a, vec b) {
    return __uint_as_float((__float_as_uint(a) & 0x7fffffffu) | (__float_as_uint(b) & 0x80000000u));
}
FM_INLINE vec vec_abs(vec a) { return vec_copysign(a, 0.0f); }

FM_INLINE vec vec_exp2(int32_t k) { return __uint_as_float(((uint32_t)k + 127u) << 23); }

FM_INLINE vec vec_mul_exp2(vec a, vec t) {
    int32_t k = (int32_t)(__float_as_uint(t) - __float_as_uint(FM_MAGIC));
    float y = a * vec_exp2(k >> 1);
    return y * vec_exp2((int32_t)((uint32_t)k - (uint32_t)(k >> 1)));
}

#include "base/fmath_body.h"

/* ---- base/fmath.h ---- */

FM_INLINE float fm_exp(float x) { return vec_exp(x); }
FM_INLINE float fm_tanh(float x) { return x != x ? x : vec_tanh(x); }
FM_INLINE float fm_silu(float x) { return vec_silu(x); }
FM_INLINE float fm_gelu_tanh(float x) { return vec_gelu_tanh(x); }
FM_INLINE float fm_gelu_erf(float x) { return vec_gelu_erf(x); }

#define DEVICE_MAGIC_D 0x1.8p52

/* base/fmath.c, fm_sincos_d. */
static __device__ inline void fm_sincos_d(double x, double *sine, double *cosine) {
    const double s[] = {
        1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
        1.0 / 362880,          -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
    const double c[] = {1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
                        1.0 / 40320,          -1.0 / 720,         1.0 / 24};
    double t = fma(x, 0x1.45f306dc9c883p-1, DEVICE_MAGIC_D);
    double n = t - DEVICE_MAGIC_D;
    double r = fma(n, -0x1.921fb54p+0, x);
    r = fma(n, -0x1.10b461p-30, r);
    r = fma(n, -0x1.a62633145c06ep-58, r);
    double z = r * r;
    double p = s[0], q = c[0];
#pragma unroll
    for (int i = 1; i < 8; i++) p = fma(p, z, s[i]);
#pragma unroll
    for (int i = 1; i < 7; i++) q = fma(q, z, c[i]);
    double sin_r = fma(p * z, r, r);
    double half = 0.5 * z;
    double rest = 1.0 - half;
    double cos_r = rest + fma(z * z, q, (1.0 - rest) - half);
    uint64_t quadrant = (uint64_t)__double_as_longlong(t) & 3u;
    double a = quadrant & 1u ? cos_r : sin_r;
    double b = quadrant & 1u ? sin_r : cos_r;
    *sine = quadrant & 2u ? -a : a;
    *cosine = (quadrant + 1u) & 2u ? -b : b;
}

/* base/fmath.c, fm_log_d, of a positive normal number. */
static __device__ inline double fm_log_d(double x) {
    const double c[] = {2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13,
                        2.0 / 11, 2.0 / 9,  2.0 / 7,  2.0 / 5,  2.0 / 3};
    const uint64_t root_half = 0x3fe6a09e667f3bcdull;
    uint64_t ix = (uint64_t)__double_as_longlong(x) - root_half;
    double e = (double)((int64_t)ix >> 52);
    double f = __longlong_as_double((int64_t)((ix & 0xfffffffffffffull) + root_half)) - 1.0;
    double s = f / (2.0 + f);
    double z = s * s;
    double p = c[0];
#pragma unroll
    for (int i = 1; i < 11; i++) p = fma(p, z, c[i]);
    double half_square = 0.5 * f * f;
    double tail = fma(e, 0x1.9ef35793c7673p-41, s * fma(p, z, half_square));
    return fma(e, 0x1.62e42fefa2p-1, f - (half_square - tail));
}

#endif
