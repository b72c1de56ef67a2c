/* base/fmath.c - see base/fmath.h for the contract and base/fmath_body.h for the float steps.
 *
 * The double functions use series, whose coefficients need no table: 1/k! for exp, sin and
 * cos, 2/(2k+1) for the logarithm through atanh. Enough terms are taken that what is left out
 * is below a tenth of an ulp.
 *
 * Each entry point is compiled twice where the processor may lack FMA: with the instruction,
 * and with the C library's fma(), which rounds once as well and so gives the same bits. (clang 14
 * emits the clones under names that do not link, and the thread sanitizer cannot be called by
 * what picks one while the program is still being loaded; there it is the library's fma() alone.)
 */
#include "base/fmath.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/vec_scalar.h"

#include "base/fmath_body.h"
#include "base/fvec.h"

#if defined(__x86_64__) && !defined(__FMA__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("fma", "default")))
#else
#define CLONES
#endif

#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t bits_of_d(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

INLINE double from_bits_d(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* 2^k; unsigned, so that the k of a NaN is garbage but not undefined. */
INLINE double pow2_d(int64_t k) { return from_bits_d(((uint64_t)k + 1023u) << 52); }

CLONES float fm_exp(float x) { return vec_exp(x); }

/* x = 2^e * m with m in [sqrt(1/2), sqrt(2)), f = m - 1, and
 * log(1+f) = f - f^2/2 + f^3 P(f). f is exact, so that results near log(1) lose nothing. */
CLONES float fm_log(float x) {
    static const float p9[] = {0.0674673021f, -0.116757847f, 0.118881956f,
                               -0.124055706f, 0.142195463f,  -0.166679963f,
                               0.200021192f,  -0.250000089f, 0.333333135f};
    const uint32_t root_half = 0x3f3504f3u;
    uint32_t ix = bits_of_float(x) - root_half;
    float e = (float)((int32_t)ix >> 23);
    float f = float_of_bits((ix & 0x7fffffu) + root_half) - 1.0f;
    float p = p9[0];
    for (int i = 1; i < 9; i++) p = fmaf(p, f, p9[i]);
    float z = f * f;
    p = p * f * z;
    p = fmaf(e, FM_LN2_LO, p);
    p = fmaf(-0.5f, z, p);
    float y = fmaf(e, FM_LN2_HI, f + p);
    y = x > FLT_MAX ? x : y;
    y = x < FLT_MIN ? -HUGE_VALF : y;
    return x <= -FLT_MIN || x != x ? NAN : y;
}

CLONES float fm_tanh(float x) { return x != x ? x : vec_tanh(x); }
CLONES float fm_erf(float x) { return x != x ? x : vec_erf(x); }
CLONES float fm_sigmoid(float x) { return vec_sigmoid(x); }
CLONES float fm_silu(float x) { return vec_silu(x); }

CLONES float fm_gelu_tanh(float x) { return vec_gelu_tanh(x); }
CLONES float fm_gelu_erf(float x) { return vec_gelu_erf(x); }

#define MAGIC_D 0x1.8p52

INLINE double exp_core_d(double x) {
    /* 1/k! for k = 13 .. 2 */
    static const double c[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                               1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                               1.0 / 120,        1.0 / 24,        1.0 / 6,        1.0 / 2};
    double t = fma(x, 0x1.71547652b82fep+0, MAGIC_D);
    double n = t - MAGIC_D;
    int64_t k = (int64_t)(bits_of_d(t) - bits_of_d(MAGIC_D));
    double r = fma(n, -0x1.62e42fefa2p-1, x); /* 40 bits of ln 2: the product is exact */
    r = fma(n, -0x1.9ef35793c7673p-41, r);
    double p = c[0];
    for (int i = 1; i < 12; i++) p = fma(p, r, c[i]);
    p = fma(p, r * r, r) + 1.0;
    double y = p * pow2_d(k >> 1);
    y = y * pow2_d((int64_t)((uint64_t)k - (uint64_t)(k >> 1)));
    y = x > 709.782712893384 ? HUGE_VAL : y;
    return x < -708.396418532264 ? 0.0 : y;
}

CLONES double fm_exp_d(double x) { return exp_core_d(x); }

/* x = 2^e * m, f = m - 1, s = f/(2+f): log(1+f) = 2 atanh(s) = 2s + s R with
 * R = 2/3 s^2 + 2/5 s^4 + ... ; 2s = f - s f turns the leading terms into f - f^2/2 + s(...),
 * where f is exact. */
INLINE double log_core_d(double x) {
    /* 2/(2k+1) for k = 11 .. 1 */
    static const double c[] = {2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13,
                               2.0 / 11, 2.0 / 9,  2.0 / 7,  2.0 / 5,  2.0 / 3};
    const uint64_t root_half = 0x3fe6a09e667f3bcdu;
    uint64_t ix = bits_of_d(x) - root_half;
    double e = (double)((int64_t)ix >> 52);
    double f = from_bits_d((ix & 0xfffffffffffffu) + root_half) - 1.0;
    double s = f / (2.0 + f);
    double z = s * s;
    double p = c[0];
    for (int i = 1; i < 11; i++) p = fma(p, z, c[i]);
    double half_square = 0.5 * f * f;
    double tail = fma(e, 0x1.9ef35793c7673p-41, s * fma(p, z, half_square));
    double y = fma(e, 0x1.62e42fefa2p-1, f - (half_square - tail));
    y = x > DBL_MAX ? x : y;
    y = x < DBL_MIN ? -HUGE_VAL : y;
    return x <= -DBL_MIN || x != x ? (double)NAN : y;
}

CLONES double fm_log_d(double x) { return log_core_d(x); }
CLONES double fm_pow_d(double base, double e) { return exp_core_d(e * log_core_d(base)); }

/* x = k * pi/2 + r with pi/2 in three pieces, the first two of 27 bits, so that their products
 * with a k of 26 bits are exact; then the series on |r| <= pi/4 and the quadrant k mod 4. */
CLONES void fm_sincos_d(double x, double *sine, double *cosine) {
    static const double s[] = {
        /* (-1)^k / (2k+1)! for k = 8 .. 1 */
        1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
        1.0 / 362880,          -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
    static const double c[] = {
        /* (-1)^k / (2k)! for k = 8 .. 2 */
        1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
        1.0 / 40320,          -1.0 / 720,         1.0 / 24};
    double t = fma(x, 0x1.45f306dc9c883p-1, MAGIC_D);
    double n = t - MAGIC_D;
    double r = fma(n, -0x1.921fb54p+0, x);
    r = fma(n, -0x1.10b461p-30, r);
    r = fma(n, -0x1.a62633145c06ep-58, r);
    double z = r * r;
    double p = s[0], q = c[0];
    for (int i = 1; i < 8; i++) p = fma(p, z, s[i]);
    for (int i = 1; i < 7; i++) q = fma(q, z, c[i]);
    double sin_r = fma(p * z, r, r);
    double half = 0.5 * z;
    double rest = 1.0 - half;
    double cos_r = rest + fma(z * z, q, (1.0 - rest) - half);
    uint64_t quadrant = bits_of_d(t) & 3u;
    double a = quadrant & 1u ? cos_r : sin_r;
    double b = quadrant & 1u ? sin_r : cos_r;
    *sine = quadrant & 2u ? -a : a;
    *cosine = (quadrant + 1u) & 2u ? -b : b;
}

double fm_sum_exp(const float *x, size_t count, float top) {
    const struct fvec *fvec = fvec_at(0);
    float tamed[FVEC_CHUNK];
    uint64_t all = 0, sum;
    for (size_t i = 0; i < count; i += FVEC_CHUNK) {
        fvec->tame(x + i, count - i < FVEC_CHUNK ? count - i : FVEC_CHUNK, tamed);
        all += fvec->sum(tamed, 1, top, 1.0f, &sum);
    }
    return (double)all / (double)FVEC_ONE;
}
