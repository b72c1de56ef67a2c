/* kernels/cpu/kv_range.h - the f16 numbers that a key or a value is stored with (graph/kv_space.h):
 * a scale rounded up, a minimum rounded down. The definition, which every table calls.
 * Thread: any. */
#ifndef KERNELS_CPU_KV_RANGE_H
#define KERNELS_CPU_KV_RANGE_H

#include <stdint.h>

#include "tensor/dtype.h"

/* For x >= 0; at most the largest f16. Positive halves are in the order of their bits. */
static inline uint16_t half_not_below(float x) {
    if (x >= F16_MAX) return f16_from_f32(F16_MAX);
    uint16_t half = f16_from_f32(x);
    return f16_to_f32(half) < x ? (uint16_t)(half + 1) : half;
}

/* Of either sign, within the range of f16. The bits of negative halves fall as they rise. */
static inline uint16_t half_not_above(float x) {
    if (x == 0.0f) return 0;
    if (x < -F16_MAX) x = -F16_MAX;
    if (x > F16_MAX) x = F16_MAX;
    uint16_t half = f16_from_f32(x);
    if (f16_to_f32(half) <= x) return half;
    return (uint16_t)(x < 0.0f ? half + 1 : half - 1);
}

/* Of the smallest number and the largest; without any, lo is above hi. */
struct int4_range {
    uint16_t scale, min;
};
static inline struct int4_range int4_range(float lo, float hi) {
    if (lo > hi) return (struct int4_range){0, 0};
    struct int4_range r = {.min = half_not_above(lo)};
    float want = (hi - f16_to_f32(r.min)) / 15.0f;
    if (want > 0.0f) r.scale = half_not_below(want);
    return r;
}

#endif
