/* quant/pack_body.h - the bytes of fitted blocks of 256 numbers; see super_body.h.
 *
 * "Plane p of 32" means: element e has its bits in byte e % 32, at bit position p.
 */
#ifndef QUANT_PACK_BODY_H
#define QUANT_PACK_BODY_H

#include "quant/super_body.h"

QB_INLINE void qb_load_super(struct qb_super *b, const float *x, const float *w, int n) {
    for (int i = 0; i < QB_SUPER / n; i++) qb_load(&b->group[i], x + i * n, w + i * n, n);
}

/* 12 bytes of eight scale and eight minimum codes of 6 bits. */
static inline void qb_put_pairs(const struct qb_super *b, uint8_t *s) {
    for (int g = 0; g < 4; g++) {
        int scale = b->scale[4 + g], min = b->min[4 + g];
        s[g] = (uint8_t)(b->scale[g] | (scale >> 4) << 6);
        s[4 + g] = (uint8_t)(b->min[g] | (min >> 4) << 6);
        s[8 + g] = (uint8_t)((scale & 15) | (min & 15) << 4);
    }
}

/* Head and nibbles of Q4_K and Q5_K; `nibbles`: where they begin. */
QB_INLINE void qb_plane_super(const struct qb_codes *c, const float *x, const float *w,
                              uint8_t *out, int nibbles, int8_t *q) {
    struct qb_super b;
    qb_load_super(&b, x, w, QB_SMALL);
    qb_fit_plane_super(&b, c);
    float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
    for (int i = 0; i < QB_PLANE_GROUPS; i++)
        qb_take_codes(&b.group[i], QB_SMALL, c, d * (float)b.scale[i], -(dmin * (float)b.min[i]),
                      q + i * QB_SMALL);
    qb_put_u16(out, b.d);
    qb_put_u16(out + 2, b.dmin);
    qb_put_pairs(&b, out + 4);
    for (int e = 0; e < QB_SUPER / 2; e++) {
        const int8_t *pair = q + e / 32 * 64 + e % 32;
        out[nibbles + e] = (uint8_t)((pair[0] & 15) | (pair[32] & 15) << 4);
    }
}

static void qb_q4_k(const float *x, const float *w, uint8_t *out) {
    int8_t q[QB_SUPER];
    qb_plane_super(&qb_codes_4_bits, x, w, out, 16, q);
}

static void qb_q5_k(const float *x, const float *w, uint8_t *out) {
    int8_t q[QB_SUPER];
    qb_plane_super(&qb_codes_5_bits, x, w, out, 48, q);
    memset(out + 16, 0, 32);
    for (int e = 0; e < QB_SUPER; e++)
        out[16 + e % 32] = (uint8_t)(out[16 + e % 32] | (q[e] >> 4 & 1) << (e / 32));
}

QB_INLINE void qb_line_super(const struct qb_line_form *f, const float *x, const float *w,
                             struct qb_super *b, int8_t *q) {
    qb_load_super(b, x, w, f->n);
    qb_fit_line_super(b, f);
    float d = f16_to_f32(b->d);
    for (int i = 0; i < f->groups; i++)
        qb_take_codes(&b->group[i], f->n, f->codes, d * (float)b->scale[i], 0, q + i * f->n);
}

/* 0: nibbles, 64 bytes for each run of 128, low halves first; 128: the two high bits, 32 bytes
 * for each run of 128, four planes of 32; 192: 16 scales int8; 208: scale f16. */
static void qb_q6_k(const float *x, const float *w, uint8_t *out) {
    const struct qb_line_form form = {&qb_codes_q6_k, 16, 16, -128, 127};
    struct qb_super b;
    int8_t q[QB_SUPER];
    qb_line_super(&form, x, w, &b, q);
    memset(out, 0, 192);
    for (int e = 0; e < QB_SUPER; e++) {
        int code = q[e] + 32;
        uint8_t *low = out + e / 128 * 64 + e % 64, *high = out + 128 + e / 128 * 32 + e % 32;
        *low = (uint8_t)(*low | (code & 15) << (e % 128 / 64 * 4));
        *high = (uint8_t)(*high | (code >> 4) << (e % 128 / 32 * 2));
    }
    for (int g = 0; g < 16; g++) out[192 + g] = (uint8_t)b.scale[g];
    qb_put_u16(out + 208, b.d);
}

/* 0: scale of scales f16; 2: the two high bits of eight scales; 4: their low four bits; 8: eight
 * groups of 16 bytes of nibbles. */
static void qb_iq4_xs(const float *x, const float *w, uint8_t *out) {
    const struct qb_line_form form = {&qb_codes_iq4, 32, 8, -32, 31};
    struct qb_super b;
    int8_t q[QB_SUPER];
    unsigned high = 0;
    qb_line_super(&form, x, w, &b, q);
    qb_index_curve(q, QB_SUPER);
    memset(out + 4, 0, 4);
    for (int g = 0; g < 8; g++) {
        unsigned code = (unsigned)(b.scale[g] + 32);
        out[4 + g / 2] = (uint8_t)(out[4 + g / 2] | (code & 15) << (g % 2 * 4));
        high |= (code >> 4) << (2 * g);
        qb_put_nibbles(q + g * QB_SMALL, out + 8 + g * 16);
    }
    qb_put_u16(out, b.d);
    qb_put_u16(out + 2, (uint16_t)high);
}

#endif
