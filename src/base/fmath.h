/* base/fmath.h - exp, log, sin, cos and similar functions, the same bits on every machine.
 *
 * The C library's functions differ in their last bits from version to version and from
 * processor to processor; a result that must be reproducible cannot pass through them. These
 * use only + - * /, one-rounding fused multiply-add and integer operations on the bits, in a
 * fixed order that base/fmath_body.h also gives to vector versions. Errors are in units in
 * the last place of the result (ulp) and are checked by tests/unit/base/test_fmath.c.
 *
 * Denormal results are zero and denormal arguments count as zero, as they do in the threads
 * that compute. NaN gives NaN.
 *
 * Thread: any; there is no state.
 */
#ifndef BASE_FMATH_H
#define BASE_FMATH_H

#include <stddef.h>

float fm_exp(float x);       /* 1.01 ulp; 0 below -87.33654, +inf above 88.72283 */
float fm_log(float x);       /* 1 ulp; -inf for 0, NaN below                  */
float fm_tanh(float x);      /* 2 ulp */
float fm_erf(float x);       /* 2 ulp */
float fm_sigmoid(float x);   /* 1/(1+exp(-x)), 3 ulp */
float fm_silu(float x);      /* x/(1+exp(-x)), 3 ulp */
float fm_gelu_tanh(float x); /* 0.5x(1+tanh(sqrt(2/pi)(x+0.044715x^3))) */
float fm_gelu_erf(float x);  /* 0.5x(1+erf(x/sqrt(2))) */

double fm_exp_d(double x); /* 1 ulp; 0 below -708.39, +inf above 709.78 */
double fm_log_d(double x); /* 1 ulp; -inf for 0, NaN below              */

/* exp(e * log(base)) for base > 0: a relative error of 2e-16 * (1 + |e * log(base)|). */
double fm_pow_d(double base, double e);

/* Absolute error under 2e-16 for |x| up to 1e8; NaN for infinities. */
void fm_sincos_d(double x, double *sine, double *cosine);

/* The sum of exp(x[i] - top) in whole 2^-39ths (base/fvec.h), so exact whatever the order; an
 * error of some 1e-7 of the sum. Elements that are NaN count as minus infinity. `top` is finite
 * and no smaller than any of them. */
double fm_sum_exp(const float *x, size_t count, float top);

#endif
