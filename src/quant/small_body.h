/* quant/small_body.h - blocks of 32 numbers with 16-bit scales: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and
 * IQ4_NL. The layouts are described in tensor/dtype.c.
 */
#ifndef QUANT_SMALL_BODY_H
#define QUANT_SMALL_BODY_H

#include "quant/fit_body.h"
#include "tensor/dtype.h"

enum { QB_SMALL = 32 };

static const struct qb_codes qb_codes_q4_0 = {-8, 7, false, 6.6f, 0.2f, 14};
static const struct qb_codes qb_codes_q5_0 = {-16, 15, false, 14.2f, 0.2f, 15};
static const struct qb_codes qb_codes_q8_0 = {-127, 127, false, 125.4f, 0.3f, 7};
static const struct qb_codes qb_codes_iq4 = {-127, 113, true, 98.0f, 3.0f, 15};
static const struct qb_codes qb_codes_4_bits = {0, 15, false, 0, 0, 0};
static const struct qb_codes qb_codes_5_bits = {0, 31, false, 0, 0, 0};

static inline void qb_put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* The next f16 number of larger (by 1) or smaller (by -1) magnitude; 0 and the largest stay. */
static inline uint16_t qb_beside(uint16_t half, int by) {
    int magnitude = (half & 0x7FFF) + by;
    return magnitude < 0 || magnitude > 0x7BFF ? half : (uint16_t)((half & 0x8000) | magnitude);
}

/* The nearest f16, where the largest stands for what is beyond it. */
static inline uint16_t qb_half(float v) {
    return f16_from_f32(v > F16_MAX ? F16_MAX : v < -F16_MAX ? -F16_MAX : v);
}

/* The 16-bit scale next to `scale` that gives the smallest error. */
QB_INLINE uint16_t qb_settle_line(const struct qb_group *g, const struct qb_codes *c, float scale) {
    uint16_t near = qb_half(scale), best = near;
    float error = qb_error(g, QB_SMALL, c, f16_to_f32(near), 0);
    for (int by = -1; by <= 1; by += 2) {
        uint16_t other = qb_beside(near, by);
        float e = qb_error(g, QB_SMALL, c, f16_to_f32(other), 0);
        if (e < error) error = e, best = other;
    }
    return best;
}

/* The same for a scale and a minimum. */
QB_INLINE void qb_settle_plane(const struct qb_group *g, const struct qb_codes *c,
                               const struct qb_plane *p, uint16_t *scale, uint16_t *min) {
    uint16_t near_s = qb_half(p->scale), near_m = qb_half(p->min);
    *scale = near_s;
    *min = near_m;
    float error = qb_error(g, QB_SMALL, c, f16_to_f32(near_s), f16_to_f32(near_m));
    for (int k = 0; k < 9; k++) {
        uint16_t s = qb_beside(near_s, k % 3 - 1), m = qb_beside(near_m, k / 3 - 1);
        float e = qb_error(g, QB_SMALL, c, f16_to_f32(s), f16_to_f32(m));
        if (e < error) error = e, *scale = s, *min = m;
    }
}

/* Element i < 16 is the low half of byte i, element 16 + i the high half. */
static inline void qb_put_nibbles(const int8_t *q, uint8_t *out) {
    for (int i = 0; i < QB_SMALL / 2; i++)
        out[i] = (uint8_t)((q[i] & 15) | (q[i + QB_SMALL / 2] & 15) << 4);
}

static inline void qb_put_fifth_bits(const int8_t *q, uint8_t *out) {
    memset(out, 0, QB_SMALL / 8);
    for (int i = 0; i < QB_SMALL; i++)
        out[i / 8] = (uint8_t)(out[i / 8] | (q[i] >> 4 & 1) << (i % 8));
}

/* The index of each value of IQ4 in the list of all. */
static inline void qb_index_curve(int8_t *q, int n) {
    const int8_t *values = dtype_code_values(DTYPE_IQ4_NL);
    for (int i = 0; i < n; i++) {
        int index = 0;
        for (int k = 1; k < 16; k++) index += q[i] >= values[k];
        q[i] = (int8_t)index;
    }
}

QB_INLINE void qb_line_block(const struct qb_group *g, const struct qb_codes *c, uint8_t *out,
                             int8_t *q) {
    uint16_t d = qb_settle_line(g, c, qb_fit_line(g, QB_SMALL, c));
    qb_put_u16(out, d);
    qb_take_codes(g, QB_SMALL, c, f16_to_f32(d), 0, q);
}

QB_INLINE void qb_plane_block(const struct qb_group *g, const struct qb_codes *c, uint8_t *out,
                              int8_t *q) {
    struct qb_plane p = qb_fit_plane(g, QB_SMALL, c, F16_MAX);
    uint16_t d, m;
    qb_settle_plane(g, c, &p, &d, &m);
    qb_put_u16(out, d);
    qb_put_u16(out + 2, m);
    qb_take_codes(g, QB_SMALL, c, f16_to_f32(d), f16_to_f32(m), q);
}

static void qb_q4_0(const float *x, const float *w, uint8_t *out) {
    struct qb_group g;
    int8_t q[QB_SMALL];
    qb_load(&g, x, w, QB_SMALL);
    qb_line_block(&g, &qb_codes_q4_0, out, q);
    for (int i = 0; i < QB_SMALL; i++) q[i] = (int8_t)(q[i] + 8);
    qb_put_nibbles(q, out + 2);
}

static void qb_q5_0(const float *x, const float *w, uint8_t *out) {
    struct qb_group g;
    int8_t q[QB_SMALL];
    qb_load(&g, x, w, QB_SMALL);
    qb_line_block(&g, &qb_codes_q5_0, out, q);
    for (int i = 0; i < QB_SMALL; i++) q[i] = (int8_t)(q[i] + 16);
    qb_put_fifth_bits(q, out + 2);
    qb_put_nibbles(q, out + 6);
}

static void qb_q8_0(const float *x, const float *w, uint8_t *out) {
    struct qb_group g;
    int8_t q[QB_SMALL];
    qb_load(&g, x, w, QB_SMALL);
    qb_line_block(&g, &qb_codes_q8_0, out, q);
    memcpy(out + 2, q, QB_SMALL);
}

static void qb_iq4_nl(const float *x, const float *w, uint8_t *out) {
    struct qb_group g;
    int8_t q[QB_SMALL];
    qb_load(&g, x, w, QB_SMALL);
    qb_line_block(&g, &qb_codes_iq4, out, q);
    qb_index_curve(q, QB_SMALL);
    qb_put_nibbles(q, out + 2);
}

static void qb_q4_1(const float *x, const float *w, uint8_t *out) {
    struct qb_group g;
    int8_t q[QB_SMALL];
    qb_load(&g, x, w, QB_SMALL);
    qb_plane_block(&g, &qb_codes_4_bits, out, q);
    qb_put_nibbles(q, out + 4);
}

static void qb_q5_1(const float *x, const float *w, uint8_t *out) {
    struct qb_group g;
    int8_t q[QB_SMALL];
    qb_load(&g, x, w, QB_SMALL);
    qb_plane_block(&g, &qb_codes_5_bits, out, q);
    qb_put_fifth_bits(q, out + 4);
    qb_put_nibbles(q, out + 8);
}

#endif
