/* quant/group_body.h - sums over one group of 16 or 32 numbers, written once for all processors.
 *
 * encode_X.c is compiled for an instruction set and includes this. The vectors are those of the
 * compiler; every lane is added in the same order everywhere, no operation is joined with another,
 * so all processors give the same bits.
 *
 * A code is a whole number from lo to hi, or, for a curve, one of the 16 values of IQ4.
 */
#ifndef QUANT_GROUP_BODY_H
#define QUANT_GROUP_BODY_H

#include <stdbool.h>
#include <stdint.h>

/* Vectors are passed only between functions that are all inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define QB_INLINE static inline __attribute__((always_inline))

enum { QB_LANES = 8, QB_GROUP_MAX = 32 };

typedef float qb_vec __attribute__((vector_size(32)));
typedef int32_t qb_mask __attribute__((vector_size(32)));

struct qb_group {
    qb_vec x[QB_GROUP_MAX / QB_LANES];
    qb_vec w[QB_GROUP_MAX / QB_LANES];
    qb_vec wx[QB_GROUP_MAX / QB_LANES];
    float sum_w, sum_wx, sum_wxx;
    float least, most, peak; /* of x; peak: of the magnitudes */
};

/* What codes there are, and which scales a search tries: those that put the largest magnitude at
 * first, first + step, ... (`tries` of them), with either sign. */
struct qb_codes {
    float lo, hi;
    bool curve;
    float first, step;
    int tries;
};

QB_INLINE float qb_sum(qb_vec v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

QB_INLINE qb_vec qb_all(float value) {
    return (qb_vec){value, value, value, value, value, value, value, value};
}

QB_INLINE qb_vec qb_select(qb_mask mask, qb_vec yes, qb_vec no) {
    return (qb_vec)(((qb_mask)yes & mask) | ((qb_mask)no & ~mask));
}

/* To the nearest whole number, ties to even, for magnitudes below 2^22: next to 1.5 * 2^23 floats
 * have steps of 1. */
QB_INLINE qb_vec qb_round(qb_vec v) {
    const qb_vec magic = qb_all(12582912.0f);
    return (v + magic) - magic;
}

QB_INLINE qb_vec qb_clamp(qb_vec v, float lo, float hi) {
    const qb_vec low = qb_all(lo), high = qb_all(hi);
    v = qb_select(v > low, v, low);
    return qb_select(v < high, v, high);
}

/* The value of IQ4 next to v: the first one, and for each middle between two that v exceeds, the
 * distance to the following. */
QB_INLINE qb_vec qb_curve(qb_vec v) {
    static const float middles[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f,
                                      -28.5f,  -16.0f, -4.5f,  7.0f,   19.0f,
                                      31.5f,   45.5f,  61.0f,  79.0f,  101.0f};
    static const float gaps[15] = {23, 21, 18, 16, 14, 13, 12, 11, 12, 12, 13, 15, 16, 20, 24};
    qb_vec sum = qb_all(-127.0f);
    for (int i = 0; i < 15; i++)
        sum += (qb_vec)((qb_mask)qb_all(gaps[i]) & (v > qb_all(middles[i])));
    return sum;
}

QB_INLINE qb_vec qb_code(qb_vec v, const struct qb_codes *c) {
    return c->curve ? qb_curve(v) : qb_clamp(qb_round(v), c->lo, c->hi);
}

QB_INLINE void qb_load(struct qb_group *g, const float *x, const float *w, int n) {
    qb_vec sw = qb_all(0), swx = sw, swxx = sw;
    g->least = g->most = x[0];
    for (int i = 0; i < n; i++) {
        g->x[i / QB_LANES][i % QB_LANES] = x[i];
        g->w[i / QB_LANES][i % QB_LANES] = w[i];
        g->least = x[i] < g->least ? x[i] : g->least;
        g->most = x[i] > g->most ? x[i] : g->most;
    }
    for (int v = 0; v < n / QB_LANES; v++) {
        g->wx[v] = g->w[v] * g->x[v];
        sw += g->w[v];
        swx += g->wx[v];
        swxx += g->wx[v] * g->x[v];
    }
    g->sum_w = qb_sum(sw);
    g->sum_wx = qb_sum(swx);
    g->sum_wxx = qb_sum(swxx);
    g->peak = -g->least > g->most ? -g->least : g->most;
}

struct qb_sums {
    float q, qq, qx; /* of w * q, w * q^2, w * q * x */
};

/* Of the codes that x * inverse + shift rounds to. */
QB_INLINE struct qb_sums qb_sums(const struct qb_group *g, int n, const struct qb_codes *c,
                                 float inverse, float shift) {
    qb_vec sq = qb_all(0), sqq = sq, sqx = sq;
    const qb_vec factor = qb_all(inverse), added = qb_all(shift);
    for (int v = 0; v < n / QB_LANES; v++) {
        qb_vec q = qb_code(g->x[v] * factor + added, c), wq = g->w[v] * q;
        sq += wq;
        sqq += wq * q;
        sqx += g->wx[v] * q;
    }
    return (struct qb_sums){qb_sum(sq), qb_sum(sqq), qb_sum(sqx)};
}

/* The weighted squared error of scale * q + min with the best codes q. */
QB_INLINE float qb_error(const struct qb_group *g, int n, const struct qb_codes *c, float scale,
                         float min) {
    const qb_vec s = qb_all(scale), m = qb_all(min),
                 inverse = qb_all(scale != 0 ? 1.0f / scale : 0.0f);
    qb_vec sum = qb_all(0);
    for (int v = 0; v < n / QB_LANES; v++) {
        qb_vec rest = g->x[v] - m;
        qb_vec e = rest - s * qb_code(rest * inverse, c);
        sum += g->w[v] * e * e;
    }
    return qb_sum(sum);
}

/* The codes themselves: whole numbers, or the values of the curve. */
QB_INLINE void qb_take_codes(const struct qb_group *g, int n, const struct qb_codes *c, float scale,
                             float min, int8_t *out) {
    const qb_vec m = qb_all(min), inverse = qb_all(scale != 0 ? 1.0f / scale : 0.0f);
    for (int v = 0; v < n / QB_LANES; v++) {
        qb_vec q = qb_code((g->x[v] - m) * inverse, c);
        for (int i = 0; i < QB_LANES; i++) out[v * QB_LANES + i] = (int8_t)q[i];
    }
}

#endif
