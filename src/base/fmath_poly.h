/* base/fmath_poly.h - the constants of exp, tanh, erf and the activations.
 *
 * base/fmath_body.h has the steps that use them, for every processor and GPU. tools/fit_fmath.py
 * derives the polynomials and states their errors.
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
