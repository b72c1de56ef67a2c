/* kernels/cpu/numerics.h - in which order the CPU's tables compute, to the bit.
 *
 * graph/op_args.h says what an op is; this file says where each of its roundings happens and in
 * which order each of its sums is taken. All tables of kernels follow it, so that all give the same
 * bits; the reference kernels (ref_*.c, and drivers whose op has no kernel) are it, written out.
 * Other devices have orders of their own. Functions such as exp are those of base/fmath.h. "Joined
 * by halves": of 16 lanes, lane i gets lane i + 8 added, then i + 4, i + 2, i + 1.
 *
 *   embed       the number dequantised to float, * scale; then + dst.
 *   norm        Sums in NORM_LANES lanes by column mod NORM_LANES (squares by fma), joined by
 *               halves. mean = sum / group. rate = 1 / sqrt(sum of squares / group + eps).
 *               y = (x * rate) * weight, and with a bias fma((x - mean) * rate, weight, bias).
 *   quant       tensor/q8.h.
 *   matmul      Plain weights: one accumulator per output element, fma in rising k. Quantised
 *               weights: tensor/q8.h. Then + bias, then + dst.
 *   rope        The angle's sine and cosine in double, rounded to float, each times factor.
 *               a' = fma(a, cos, -(b * sin)), b' = fma(a, sin, b * cos).
 *   kv_write    graph/kv_space.h: it has no sums.
 *   attention   In segments of ATTN_SEGMENT absolute positions:
 *                   s_j = scale * sum over d of q[d] * k_j[d]   one accumulator, fma in rising d;
 *                                                               then * scale
 *                   s_j = cap * tanh(s_j / cap)                 if softcap > 0
 *                   m = max s_j; p_j = exp(s_j - m)
 *                   l = sum of p_j                              ATTN_LANES lanes by j mod
 *                                                               ATTN_LANES, joined by halves
 *                   o[d] = sum of p_j * v_j[d]                  one accumulator, fma in rising j
 *               In a cache of KV_I8, k_j[d] and v_j[d] are the bytes as floats; the scales enter
 *               once a token:
 *                   s_j = ((sum over d of q[d] * k_j[d]) * key scale_j) * scale
 *                   o[d] = sum of (p_j * value scale_j) * v_j[d], the product in brackets rounded
 *               KV_F8 has no scales: k_j[d] and v_j[d] are the numbers of tensor/fp8.h.
 *               In a cache of KV_I4, q is transformed first (graph/kv_space.h) and becomes whole
 *               numbers times a scale; with n_j[d] = step * (2 code - 16 - offset) of a key,
 *                   s_j = scale * ((sum of whole q[d] * n_j[d]) * key unit_j * q's scale - S)
 *               where S, the sum of smoothing mean[d] * q[d] of the query as given, by fma in 16
 *               lanes by d mod 16, joined by halves, is subtracted at positions below
 *               KEY_MEAN_FIRST alone. v_j[d] is the number that the code stands for, exact;
 *               and o is transformed after the division by l. The transform: for h = 1, 2, 4 ..
 *               below n, of every pair (i, i + h) the sum and the difference; then all times
 *               1 / sqrt(n).
 *               The segments are joined in rising order: with M = max(m1, m2), a = exp(m1 - M),
 *               b = exp(m2 - M): l = l1*a + l2*b, o = o1*a + o2*b (fma on the second product).
 *               Result o / l.
 *   self_attention  The same with K and V read as float rows.
 *   act         act(gate), rounded, * up.
 *   softcap     cap * tanh(x / cap), each step rounded.
 *   route       exp(logit - largest logit); their sum in rising order; a weight is its exponential
 *               / the sum; normalised, it is divided by the sum of the chosen in order of choice.
 *   expert_matmul   As matmul.
 *   expert_sum  One accumulator per column from 0, fma in rising j; then + dst.
 *   pool        MEAN: one accumulator per column, rising rows; then / count. To unit length:
 *               squares summed as a norm sums them; x / sqrt(sum).
 */
#ifndef KERNELS_CPU_NUMERICS_H
#define KERNELS_CPU_NUMERICS_H

#include <stdint.h>

enum { SUM_LANES = 16, NORM_LANES = SUM_LANES };
enum { ATTN_SEGMENT = 256, ATTN_LANES = SUM_LANES };

/* The sum of the lanes, joined by halves. */
static inline float sum_lanes(float lanes[SUM_LANES]) {
    for (uint32_t width = SUM_LANES / 2; width > 0; width /= 2)
        for (uint32_t i = 0; i < width; i++) lanes[i] += lanes[i + width];
    return lanes[0];
}

#endif
