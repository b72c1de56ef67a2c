/* base/fmath_poly.h - the constants of base/fmath.h, for those who repeat its steps in vectors.
 *
 * A vector version gives the same bits as the scalar one if it performs the operations below
 * in this order: FMA(a,b,c) is one rounding of a*b+c, everything else rounds by itself. All
 * loops are written out, there are no branches, only selects. bits() is the IEEE pattern.
 * tools/fit_fmath.py derives the polynomials and states their errors.
 *
 *   exp(x):   t = FMA(x, LOG2E, MAGIC)      n = t - MAGIC      k = (int)(bits(t) - bits(MAGIC))
 *             r = FMA(n, -LN2_HI, x)        r = FMA(n, -LN2_LO, r)
 *             p = E4   p = FMA(p,r,E3)  FMA(p,r,E2)  FMA(p,r,E1)  FMA(p,r,E0)
 *             p = FMA(p, r*r, r)            p = p + 1
 *             y = p * 2^(k>>1)              y = y * 2^(k-(k>>1))     (>> is arithmetic)
 *             x > EXP_MAX: +inf             x < EXP_MIN: 0           NaN stays NaN
 *
 *   tanh(x):  a = |x|   z = x*x
 *             small: p = T5   p = FMA(p,z,T4) .. FMA(p,z,T0)   p = p*z   s = FMA(p, a, a)
 *             large: l = 1 - 2/(exp(a+a) + 1)
 *             y = a < TANH_SPLIT ? s : l, with the sign of x
 *
 *   erf(x):   a = |x|   z = x*x
 *             small: p = S6   p = FMA(p,z,S5) .. FMA(p,z,S0)   s = FMA(p, a, a)
 *             b = a < ERF_MAX ? a : ERF_MAX
 *             large: p = L8   p = FMA(p,b,L7) .. FMA(p,b,L0)   l = 1 - exp(p)
 *             y = a < ERF_SPLIT ? s : l, with the sign of x
 *
 *   sigmoid(x)   = 1 / (1 + exp(-x))
 *   silu(x)      = x / (1 + exp(-x))
 *   gelu_tanh(x): u = (x*x)*x   u = FMA(GELU_CUBE, u, x)   t = tanh(u*SQRT_2_PI)
 *                 h = 0.5*x     y = FMA(h, t, h)
 *   gelu_erf(x):  t = erf(x*SQRT_HALF)   h = 0.5*x   y = FMA(h, t, h)
 */
#ifndef BASE_FMATH_POLY_H
#define BASE_FMATH_POLY_H

#define FM_MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds to a whole number */
#define FM_LOG2E 0x1.715476p+0f
#define FM_LN2_HI 0x1.62e4p-1f /* 15 bits: n * LN2_HI is exact */
#define FM_LN2_LO 0x1.7f7d1cp-20f
#define FM_EXP_MAX 88.7228317f    /* the largest argument with a finite result */
#define FM_EXP_MIN (-87.3365402f) /* the smallest with a normal result; below it is 0 */

#define FM_E0 0.49999994f
#define FM_E1 0.166665211f
#define FM_E2 0.041668389f
#define FM_E3 0.0083687352f
#define FM_E4 0.00138145604f

#define FM_TANH_SPLIT 0.65f
#define FM_T0 (-0.333333284f)
#define FM_T1 0.133331522f
#define FM_T2 (-0.0539399423f)
#define FM_T3 0.0216634031f
#define FM_T4 (-0.00808562618f)
#define FM_T5 0.00205958053f

#define FM_ERF_SPLIT 0.92f
#define FM_ERF_MAX 4.0f
#define FM_S0 0.128379166f
#define FM_S1 (-0.376126349f)
#define FM_S2 0.112836957f
#define FM_S3 (-0.0268594418f)
#define FM_S4 0.00520117069f
#define FM_S5 (-0.000814450264f)
#define FM_S6 8.37838961e-05f
#define FM_L0 0.00016039719f
#define FM_L1 (-1.12943411f)
#define FM_L2 (-0.633543551f)
#define FM_L3 (-0.108011819f)
#define FM_L4 0.0248950962f
#define FM_L5 (-0.00405338965f)
#define FM_L6 0.000396672403f
#define FM_L7 (-1.43052075e-05f)
#define FM_L8 (-5.2234742e-07f)

#define FM_GELU_CUBE 0.044715f
#define FM_SQRT_2_PI 0.797884561f
#define FM_SQRT_HALF 0.707106781f

#endif
