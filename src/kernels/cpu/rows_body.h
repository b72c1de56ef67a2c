/* kernels/cpu/rows_body.h - activations, softcap and rope of one row, for AVX2 and NEON. What does
 * not fill a vector goes through a padded copy of one vector.
 *
 * The file that includes it includes <math.h> and its vec_X.h before.
 * Thread: any.
 */
#ifndef KERNELS_CPU_ROWS_BODY_H
#define KERNELS_CPU_ROWS_BODY_H

#include "base/fmath_body.h"
#include "kernels/cpu/cpu_int.h"

#define ROWS_INLINE static inline __attribute__((always_inline))

ROWS_INLINE vec act_vector(enum act_kind kind, vec x) {
    switch (kind) {
    case ACT_SILU:
        return vec_silu(x);
    case ACT_GELU_TANH:
        return vec_gelu_tanh(x);
    default:
        return vec_gelu_erf(x);
    }
}

ROWS_INLINE void act_row(enum act_kind kind, const float *gate, const float *up, uint32_t count,
                         float *y) {
    uint32_t i = 0;
    for (; i + VEC_LANES <= count; i += VEC_LANES) {
        vec a = act_vector(kind, vec_load(gate + i));
        vec_store(y + i, up ? vec_mul(a, vec_load(up + i)) : a);
    }
    if (i == count) return;
    float rest[VEC_LANES];
    vec_store(rest, act_vector(kind, vec_load_some(gate + i, count - i)));
    for (uint32_t j = 0; i < count; i++, j++) y[i] = up ? rest[j] * up[i] : rest[j];
}

ROWS_INLINE vec softcap_vector(vec cap, vec x) { return vec_mul(cap, vec_tanh(vec_div(x, cap))); }

ROWS_INLINE void softcap_row(float cap, uint32_t count, float *x) {
    const vec c = vec_set1(cap);
    uint32_t i = 0;
    for (; i + VEC_LANES <= count; i += VEC_LANES)
        vec_store(x + i, softcap_vector(c, vec_load(x + i)));
    if (i == count) return;
    float rest[VEC_LANES];
    vec_store(rest, softcap_vector(c, vec_load_some(x + i, count - i)));
    for (uint32_t j = 0; i < count; i++, j++) x[i] = rest[j];
}

/* Rotates a pair by its angle: a becomes a * c - b * s, b becomes a * s + b * c. */
ROWS_INLINE void rotate(vec *a, vec *b, vec c, vec s) {
    vec x = *a, y = *b;
    *a = vec_fms(x, c, vec_mul(y, s));
    *b = vec_fma(x, s, vec_mul(y, c));
}

/* The pairs i and i + pairs, as many as fill vectors; returns how many. */
ROWS_INLINE uint32_t rope_neox(uint32_t pairs, const float *cosine, const float *sine,
                               float *head) {
    uint32_t i = 0;
    for (; i + VEC_LANES <= pairs; i += VEC_LANES) {
        vec a = vec_load(head + i), b = vec_load(head + pairs + i);
        rotate(&a, &b, vec_load(cosine + i), vec_load(sine + i));
        vec_store(head + i, a);
        vec_store(head + pairs + i, b);
    }
    return i;
}

/* The pairs from pair i on, one by one. */
ROWS_INLINE void rope_rest(const struct op_rope *r, uint32_t i, const float *cosine,
                           const float *sine, float *head) {
    const uint32_t pairs = r->rot_dims / 2;
    const bool neox = r->style == ROPE_NEOX;
    for (; i < pairs; i++) {
        float *a = head + (neox ? i : 2 * i), *b = a + (neox ? pairs : 1), x = *a, y = *b;
        *a = fmaf(x, cosine[i], -(y * sine[i]));
        *b = fmaf(x, sine[i], y * cosine[i]);
    }
}

#endif
