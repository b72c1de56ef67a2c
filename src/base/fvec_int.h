/* base/fvec_int.h - the loops of base/fvec.h, written once.
 *
 * Each fvec_X.c is compiled for another instruction set and includes this; the compiler makes
 * vectors of the loops, which is why they have selects instead of branches. They use one-rounding
 * operations only, none of which may be joined or reordered, so that all of them give the same
 * bits.
 */
#ifndef BASE_FVEC_INT_H
#define BASE_FVEC_INT_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/vec_scalar.h"

#include "base/fmath_body.h"
#include "base/fvec.h"

#define FV_INLINE static inline __attribute__((always_inline))

/* Exponents stop here; what lies below weighs nothing anyway. */
#define FV_CLAMP (-64.0f)

/* vec_exp for FV_CLAMP <= x <= 0. There 2^k is a normal number and multiplying by it is adding to
 * the exponent; the magic number's own bits are shifted out. */
FV_INLINE float fv_exp(float x) {
    float t = vec_exp_power(x);
    return float_of_bits(bits_of_float(vec_exp_fraction(x, t)) + (bits_of_float(t) << 23));
}

/* A weight before it is rounded to a whole number. Exponents up to 0 rise as their bits fall, and
 * whole numbers are compared faster than floats; multiplying by FVEC_ONE is adding, too. */
FV_INLINE float fv_steps(float logit, float top, float scale) {
    uint32_t x = bits_of_float((logit - top) * scale), least = bits_of_float(FV_CLAMP);
    float weight = fv_exp(float_of_bits(x < least ? x : least));
    return float_of_bits(bits_of_float(weight) + ((uint32_t)FVEC_ONE_LOG2 << 23));
}

/* Next to 2^52 a double has whole steps and the number of them in its lowest bits. */
FV_INLINE uint64_t fv_weight(float logit, float top, float scale) {
    double steps = (double)fv_steps(logit, top, scale) + 0x1p52;
    uint64_t bits;
    memcpy(&bits, &steps, sizeof(bits));
    return bits & UINT64_C(0xfffffffffffff);
}

static inline bool fv_has_nan(const float *x, size_t count) {
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) found |= x[i] != x[i];
    return found;
}

static inline void fv_tame(const float *restrict x, size_t count, float *restrict out) {
    size_t i = 0;
    for (; i < count; i++) {
        float y = x[i] < FLT_MAX ? x[i] : FLT_MAX;
        y = fabsf(x[i]) >= FLT_MIN ? y : 0.0f;
        out[i] = x[i] == x[i] ? y : -HUGE_VALF;
    }
    for (; i % FVEC_CHUNK != 0; i++) out[i] = -HUGE_VALF;
}

/* Against what is there already, a NaN loses. */
static inline float fv_top(const float *x, size_t count) {
    enum { WIDTH = 64 };
    float most[WIDTH];
    size_t i = 0;
    for (size_t j = 0; j < WIDTH; j++) most[j] = -HUGE_VALF;
    for (; i + WIDTH <= count; i += WIDTH)
        for (size_t j = 0; j < WIDTH; j++) most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
    for (size_t half = WIDTH / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++)
            most[j] = most[half + j] > most[j] ? most[half + j] : most[j];
    for (; i < count; i++) most[0] = x[i] > most[0] ? x[i] : most[0];
    return most[0];
}

FV_INLINE float fv_larger(float a, float b) { return a > b ? a : b; }

/* Four rows at a time, because the compiler keeps `out` in memory. */
static inline void fv_peaks(const float *restrict x, size_t chunks, float *restrict out) {
    enum { WIDTH = FVEC_PEAKS };
    for (size_t c = 0; c < chunks; c++, x += FVEC_CHUNK, out += WIDTH) {
        memcpy(out, x, WIDTH * sizeof(out[0]));
        for (size_t i = 0; i < FVEC_CHUNK; i += 4 * WIDTH) {
            for (size_t j = 0; j < WIDTH; j++) {
                const float *p = x + i + j;
                float most =
                    fv_larger(fv_larger(p[0], p[WIDTH]), fv_larger(p[2 * WIDTH], p[3 * WIDTH]));
                out[j] = fv_larger(out[j], most);
            }
        }
    }
}

static inline uint64_t fv_sum(const float *restrict x, size_t chunks, float top, float scale,
                              uint64_t *restrict sums) {
    uint64_t all = 0;
    for (size_t c = 0; c < chunks; c++, x += FVEC_CHUNK) {
        uint64_t chunk = 0;
        for (int i = 0; i < FVEC_CHUNK; i++) chunk += fv_weight(x[i], top, scale);
        sums[c] = chunk;
        all += chunk;
    }
    return all;
}

static inline uint64_t fv_weigh(const float *restrict x, size_t count, float top, float scale,
                                uint64_t *restrict weights) {
    uint64_t all = 0;
    for (size_t i = 0; i < count; i++) {
        weights[i] = fv_weight(x[i], top, scale);
        all += weights[i];
    }
    return all;
}

static inline uint64_t fv_keep(const float *restrict x, size_t count, float floor, size_t ties_end,
                               uint64_t *restrict weights) {
    uint64_t all = 0;
    for (size_t i = 0; i < ties_end; i++) {
        weights[i] = x[i] >= floor ? weights[i] : 0;
        all += weights[i];
    }
    for (size_t i = ties_end; i < count; i++) {
        weights[i] = x[i] > floor ? weights[i] : 0;
        all += weights[i];
    }
    return all;
}

static inline uint64_t fv_prune(uint64_t *weights, size_t count, double ratio) {
    uint64_t top = 0, all = 0;
    for (size_t i = 0; i < count; i++) top = weights[i] > top ? weights[i] : top;
    uint64_t least = (uint64_t)ceil(ratio * (double)top);
    for (size_t i = 0; i < count; i++) {
        weights[i] = weights[i] >= least ? weights[i] : 0;
        all += weights[i];
    }
    return all;
}

static inline void fv_bucket(const float *restrict x, size_t count, float first, float factor,
                             int32_t last, uint32_t *restrict buckets) {
    for (size_t i = 0; i < count; i++) {
        float at = (x[i] - first) * factor;
        at = at < (float)last ? at : (float)last;
        at = at > 0.0f ? at : 0.0f;
        buckets[i] = (uint32_t)(int32_t)at;
    }
}

/* A group that holds none is passed over; in one that does, all are written and the place moves
 * on only behind those that are wanted. */
static inline size_t fv_take(const float *x, size_t chunks, float floor, uint32_t *restrict places,
                             float *restrict kept) {
    enum { GROUP = 64 };
    size_t count = 0;
    for (size_t i = 0; i < chunks * FVEC_CHUNK; i += GROUP) {
        uint32_t any = 0;
        for (size_t j = 0; j < GROUP; j++) any |= x[i + j] >= floor;
        if (!any) continue;
        for (size_t j = i; j < i + GROUP; j++) {
            places[count] = (uint32_t)j;
            kept[count] = x[j];
            count += x[j] >= floor;
        }
    }
    return count;
}

#define FV_TABLE(label, sum_loop, take_loop)                                                       \
    {                                                                                              \
        .name = label, .has_nan = fv_has_nan, .top = fv_top, .tame = fv_tame, .peaks = fv_peaks,   \
        .sum = sum_loop, .weigh = fv_weigh, .take = take_loop, .keep = fv_keep, .prune = fv_prune, \
        .bucket = fv_bucket                                                                        \
    }

#endif
