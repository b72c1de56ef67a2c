/* quant/fit_body.h - the scale, or scale and minimum, that suit one group; see group_body.h.
 *
 * With given codes the best scale is that of least squares; with a given scale the best codes are
 * the nearest. A search starts from several scales, takes the best, and repeats the two steps a few
 * times. Neither step makes the error larger.
 */
#ifndef QUANT_FIT_BODY_H
#define QUANT_FIT_BODY_H

#include "quant/group_body.h"

enum { QB_REFINES = 3, QB_CLIPS = 5 };

/* What is smaller decodes to 0 with every 16-bit scale. */
#define QB_TINY 0x1p-40f

/* The scale for x = scale * q. */
QB_INLINE float qb_fit_line(const struct qb_group *g, int n, const struct qb_codes *c) {
    if (!(g->peak > QB_TINY)) return 0;
    float best = 0, scale = 0;
    for (int k = 0; k < 2 * c->tries; k++) {
        float at = c->first + c->step * (float)(k >> 1);
        float inverse = (k & 1 ? -at : at) / g->peak;
        struct qb_sums s = qb_sums(g, n, c, inverse, 0);
        float gain = s.qq > 0 ? s.qx * s.qx / s.qq : 0;
        if (gain > best) best = gain, scale = s.qx / s.qq;
    }
    for (int k = 0; k < QB_REFINES && scale != 0; k++) {
        struct qb_sums s = qb_sums(g, n, c, 1.0f / scale, 0);
        float gain = s.qq > 0 ? s.qx * s.qx / s.qq : 0;
        if (!(gain > best)) break;
        best = gain, scale = s.qx / s.qq;
    }
    return scale;
}

struct qb_plane {
    float scale, min, error;
};

/* Least squares for x = scale * q + min, given the sums; min_max: min may not be larger. */
QB_INLINE struct qb_plane qb_solve(const struct qb_group *g, const struct qb_sums *s,
                                   float min_max) {
    struct qb_plane p = {0, 0, g->sum_wxx};
    float det = g->sum_w * s->qq - s->q * s->q;
    if (!(det > 1e-6f * g->sum_w * s->qq)) return p;
    p.scale = (g->sum_w * s->qx - g->sum_wx * s->q) / det;
    p.min = (s->qq * g->sum_wx - s->q * s->qx) / det;
    if (p.min > min_max) {
        p.min = min_max;
        p.scale = (s->qx - min_max * s->q) / s->qq;
    }
    /* Sum of w * (x - scale * q - min)^2, multiplied out. */
    p.error = g->sum_wxx + p.scale * (p.scale * s->qq + 2 * (p.min * s->q - s->qx)) +
              p.min * (p.min * g->sum_w - 2 * g->sum_wx);
    return p;
}

/* The scale and the minimum for x = scale * q + min. The search moves either end of the codes
 * inwards or outwards by parts of a step. */
QB_INLINE struct qb_plane qb_fit_plane(const struct qb_group *g, int n, const struct qb_codes *c,
                                       float min_max) {
    static const float clips[QB_CLIPS] = {-0.35f, 0.0f, 0.35f, 0.7f, 1.1f};
    float least = g->least < min_max ? g->least : min_max;
    float range = g->most - least;
    if (!(range > QB_TINY)) return (struct qb_plane){0, least, 0};
    struct qb_plane best = {range / c->hi, least, 0};
    best.error = qb_error(g, n, c, best.scale, best.min);
    for (int k = 0; k < QB_CLIPS * QB_CLIPS; k++) {
        float low = clips[k % QB_CLIPS], high = clips[k / QB_CLIPS];
        float inverse = (c->hi + low + high) / range;
        struct qb_sums s = qb_sums(g, n, c, inverse, -least * inverse - low);
        struct qb_plane p = qb_solve(g, &s, min_max);
        if (p.scale > 0 && p.error < best.error) best = p;
    }
    for (int k = 0; k < QB_REFINES; k++) {
        struct qb_sums s = qb_sums(g, n, c, 1.0f / best.scale, -best.min / best.scale);
        struct qb_plane p = qb_solve(g, &s, min_max);
        if (!(p.scale > 0 && p.error < best.error)) break;
        best = p;
    }
    return best;
}

#endif
