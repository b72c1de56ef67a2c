/* kernels/cpu/kv_hadamard_body.h - the Hadamard transform of a head for KV_I4 (graph/kv_space.h),
 * for all vectors.
 *
 * The file that includes it includes <math.h> and its vec_X.h before, and defines
 * vec_hadamard(v, h): in lane i, for pairs (i, i + h), the sum where bit h of i is 0, else the
 * difference. h is a constant.
 * Thread: any.
 */
#ifndef KERNELS_CPU_KV_HADAMARD_BODY_H
#define KERNELS_CPU_KV_HADAMARD_BODY_H

#include "kernels/cpu/cpu_int.h"

/* Stages whose pairs lie in one vector. */
static inline vec hadamard_in_vector(vec v, uint32_t n) {
    if (n > 1) v = vec_hadamard(v, 1);
    if (n > 2) v = vec_hadamard(v, 2);
    if (n > 4 && VEC_LANES > 4) v = vec_hadamard(v, 4);
    if (n > 8 && VEC_LANES > 8) v = vec_hadamard(v, 8);
    return v;
}

/* What is left behind whole vectors, where n is less than a vector. */
static inline void hadamard_rest(float *x, uint32_t count, uint32_t n) {
    for (uint32_t h = 1; h < n; h *= 2)
        for (uint32_t i = 0; i < count; i++) {
            if (i & h) continue;
            float a = x[i], b = x[i + h];
            x[i] = a + b;
            x[i + h] = a - b;
        }
}

static inline void hadamard_head(float *x, uint32_t head_dim) {
    const uint32_t n = head_dim & (0 - head_dim), whole = head_dim / VEC_LANES * VEC_LANES;
    const float factor = 1.0f / sqrtf((float)n);
    for (uint32_t i = 0; i < whole; i += VEC_LANES)
        vec_store(x + i, hadamard_in_vector(vec_load(x + i), n));
    hadamard_rest(x + whole, head_dim - whole, n);
    for (uint32_t h = VEC_LANES; h < n; h *= 2)
        for (uint32_t first = 0; first < head_dim; first += 2 * h)
            for (uint32_t i = first; i < first + h; i += VEC_LANES) {
                vec a = vec_load(x + i), b = vec_load(x + i + h);
                vec_store(x + i, vec_add(a, b));
                vec_store(x + i + h, vec_sub(a, b));
            }
    for (uint32_t i = 0; i < whole; i += VEC_LANES)
        vec_store(x + i, vec_mul(vec_load(x + i), vec_set1(factor)));
    for (uint32_t i = whole; i < head_dim; i++) x[i] *= factor;
}

#endif
