/* quant/super_body.h - blocks of 256 numbers whose scales are themselves quantised: Q4_K, Q5_K,
 * Q6_K and IQ4_XS. The layouts are described in tensor/dtype.c.
 *
 * Each group is fitted alone first. From its scales follow the 16-bit scale of scales (and of
 * minima) and whole codes for them. Then, in turns: each group tries the codes beside its own, and
 * the 16-bit scales are fitted to all codes by least squares; until that gains nothing.
 */
#ifndef QUANT_SUPER_BODY_H
#define QUANT_SUPER_BODY_H

#include "quant/small_body.h"

enum { QB_SUPER = 256, QB_GROUPS_MAX = 16, QB_TURNS = 4 };

static const struct qb_codes qb_codes_q6_k = {-32, 31, false, 29.5f, 0.3f, 12};

/* A block while it is being fitted: min codes and dmin only for planes. */
struct qb_super {
    struct qb_group group[QB_GROUPS_MAX];
    int16_t scale[QB_GROUPS_MAX], min[QB_GROUPS_MAX]; /* codes */
    uint16_t d, dmin;
    float error;
};

static inline int qb_whole(float v, int lo, int hi) {
    if (!(v > (float)lo)) return lo; /* a NaN, too */
    if (v >= (float)hi) return hi;
    return (int)(v + (v < 0 ? -0.5f : 0.5f));
}

/* ---- x = d * scale code * q ---- */

struct qb_line_form {
    const struct qb_codes *codes;
    int n, groups;          /* numbers in a group, groups */
    int scale_lo, scale_hi; /* of the codes of scales */
};

/* Each group takes the best scale code of its own one and those beside it. */
QB_INLINE void qb_choose_scales(struct qb_super *b, const struct qb_line_form *f) {
    float d = f16_to_f32(b->d);
    b->error = 0;
    for (int i = 0; i < f->groups; i++) {
        int from = b->scale[i];
        float least = qb_error(&b->group[i], f->n, f->codes, d * (float)from, 0);
        for (int by = -1; by <= 1; by += 2) {
            int code = from + by;
            if (code < f->scale_lo || code > f->scale_hi) continue;
            float e = qb_error(&b->group[i], f->n, f->codes, d * (float)code, 0);
            if (e < least) least = e, b->scale[i] = (int16_t)code;
        }
        b->error += least;
    }
}

/* The d of least squares for the codes as they are. */
QB_INLINE float qb_solve_line(const struct qb_super *b, const struct qb_line_form *f) {
    float d = f16_to_f32(b->d), xx = 0, qx = 0;
    for (int i = 0; i < f->groups; i++) {
        float s = (float)b->scale[i];
        if (s == 0 || d == 0) continue;
        struct qb_sums sums = qb_sums(&b->group[i], f->n, f->codes, 1.0f / (d * s), 0);
        xx += s * s * sums.qq;
        qx += s * sums.qx;
    }
    return xx > 0 ? qx / xx : d;
}

QB_INLINE void qb_fit_line_super(struct qb_super *b, const struct qb_line_form *f) {
    float scale[QB_GROUPS_MAX], widest = 0;
    for (int i = 0; i < f->groups; i++) {
        scale[i] = qb_fit_line(&b->group[i], f->n, f->codes);
        float was = widest < 0 ? -widest : widest, is = scale[i] < 0 ? -scale[i] : scale[i];
        if (is > was) widest = scale[i];
    }
    b->d = qb_half(widest / (float)f->scale_lo);
    float d = f16_to_f32(b->d), inverse = d != 0 ? 1.0f / d : 0;
    for (int i = 0; i < f->groups; i++)
        b->scale[i] = (int16_t)qb_whole(scale[i] * inverse, f->scale_lo, f->scale_hi);
    qb_choose_scales(b, f);
    for (int turn = 0; turn < QB_TURNS; turn++) {
        struct qb_super next = *b;
        next.d = qb_half(qb_solve_line(b, f));
        qb_choose_scales(&next, f);
        if (!(next.error < b->error)) break;
        *b = next;
    }
}

/* ---- x = d * scale code * q - dmin * min code ---- */

enum { QB_PLANE_GROUPS = 8, QB_PLANE_CODE_MAX = 63 };

/* The best of the nine pairs of codes around those of group i. */
QB_INLINE float qb_choose_pair(struct qb_super *b, int i, const struct qb_codes *c) {
    float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
    int scale = b->scale[i], min = b->min[i];
    float least = qb_error(&b->group[i], QB_SMALL, c, d * (float)scale, -(dmin * (float)min));
    for (int k = 0; k < 9; k++) {
        int s = scale + k % 3 - 1, m = min + k / 3 - 1;
        if (k == 4 || s < 0 || m < 0 || s > QB_PLANE_CODE_MAX || m > QB_PLANE_CODE_MAX) continue;
        float e = qb_error(&b->group[i], QB_SMALL, c, d * (float)s, -(dmin * (float)m));
        if (e < least) least = e, b->scale[i] = (int16_t)s, b->min[i] = (int16_t)m;
    }
    return least;
}

QB_INLINE void qb_choose_pairs(struct qb_super *b, const struct qb_codes *c) {
    b->error = 0;
    for (int i = 0; i < QB_PLANE_GROUPS; i++) b->error += qb_choose_pair(b, i, c);
}

/* d and dmin of least squares for the codes as they are. */
QB_INLINE void qb_solve_plane(const struct qb_super *b, const struct qb_codes *c, float *d_out,
                              float *dmin_out) {
    float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
    float ss = 0, sm = 0, mm = 0, sx = 0, mx = 0;
    for (int i = 0; i < QB_PLANE_GROUPS; i++) {
        const struct qb_group *g = &b->group[i];
        float s = (float)b->scale[i], m = (float)b->min[i];
        float inverse = d * s != 0 ? 1.0f / (d * s) : 0;
        struct qb_sums sums = qb_sums(g, QB_SMALL, c, inverse, dmin * m * inverse);
        ss += s * s * sums.qq;
        sm += s * m * sums.q;
        mm += m * m * g->sum_w;
        sx += s * sums.qx;
        mx += m * g->sum_wx;
    }
    float det = ss * mm - sm * sm;
    *d_out = d;
    *dmin_out = dmin;
    if (det > 1e-6f * ss * mm) {
        *d_out = (sx * mm - sm * mx) / det;
        *dmin_out = (sm * sx - ss * mx) / det;
    } else if (mm == 0 && ss > 0) {
        *d_out = sx / ss;
    }
}

/* Whole codes for the fitted scales and minima, by d and dmin. */
static inline void qb_start_pairs(struct qb_super *b, const struct qb_plane *fit) {
    float scale_max = 0, min_max = 0;
    for (int i = 0; i < QB_PLANE_GROUPS; i++) {
        scale_max = fit[i].scale > scale_max ? fit[i].scale : scale_max;
        min_max = -fit[i].min > min_max ? -fit[i].min : min_max;
    }
    b->d = qb_half(scale_max / QB_PLANE_CODE_MAX);
    b->dmin = qb_half(min_max / QB_PLANE_CODE_MAX);
    float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
    for (int i = 0; i < QB_PLANE_GROUPS; i++) {
        b->scale[i] = (int16_t)qb_whole(d > 0 ? fit[i].scale / d : 0, 0, QB_PLANE_CODE_MAX);
        b->min[i] = (int16_t)qb_whole(dmin > 0 ? -fit[i].min / dmin : 0, 0, QB_PLANE_CODE_MAX);
    }
}

QB_INLINE void qb_fit_plane_super(struct qb_super *b, const struct qb_codes *c) {
    struct qb_plane fit[QB_PLANE_GROUPS];
    for (int i = 0; i < QB_PLANE_GROUPS; i++) fit[i] = qb_fit_plane(&b->group[i], QB_SMALL, c, 0);
    qb_start_pairs(b, fit);
    qb_choose_pairs(b, c);
    for (int turn = 0; turn < QB_TURNS; turn++) {
        struct qb_super next = *b;
        float d, dmin;
        qb_solve_plane(b, c, &d, &dmin);
        next.d = qb_half(d > 0 ? d : 0);
        next.dmin = qb_half(dmin > 0 ? dmin : 0);
        qb_choose_pairs(&next, c);
        if (!(next.error < b->error)) break;
        *b = next;
    }
}

#endif
