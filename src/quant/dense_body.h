/* quant/dense_body.h - the product of quant/dense.h, compiled for each instruction set.
 *
 * Sixteen columns of b are copied together, DENSE_DEPTH rows of them; six rows of a at a time meet
 * them, with all twelve sums in registers.
 */
#ifndef QUANT_DENSE_BODY_H
#define QUANT_DENSE_BODY_H

#include "quant/dense.h"
#include "quant/group_body.h"

enum { DN_COLS = 2 * QB_LANES, DN_ROWS = 6 };

struct dn_panel {
    uint32_t k, depth; /* its rows of b */
    float b[DENSE_DEPTH][DN_COLS];
};

static inline void dn_pack(const struct dense_product *p, uint32_t col, struct dn_panel *out) {
    uint32_t cols = p->cols - col < DN_COLS ? p->cols - col : DN_COLS;
    for (uint32_t i = 0; i < out->depth; i++) {
        if (cols < DN_COLS) memset(out->b[i], 0, sizeof(out->b[i]));
        memcpy(out->b[i], p->b + (out->k + i) * p->b_stride + col, cols * sizeof(float));
    }
}

/* `count` is a constant wherever this is inlined. */
QB_INLINE void dn_rows(const struct dense_product *p, const struct dn_panel *panel, uint32_t row,
                       uint32_t count, qb_vec sum[DN_ROWS][2]) {
    const float *a = p->a + row * p->a_stride + panel->k;
    for (uint32_t i = 0; i < count; i++) sum[i][0] = sum[i][1] = qb_all(0.0f);
    for (uint32_t at = 0; at < panel->depth; at++) {
        qb_vec b0, b1;
        memcpy(&b0, panel->b[at], sizeof(b0));
        memcpy(&b1, panel->b[at] + QB_LANES, sizeof(b1));
#pragma GCC unroll 6
        for (uint32_t i = 0; i < count; i++) {
            qb_vec x = qb_all(a[i * p->a_stride + at]);
            sum[i][0] += x * b0;
            sum[i][1] += x * b1;
        }
    }
}

QB_INLINE void dn_store(const struct dense_product *p, uint32_t row, uint32_t count, uint32_t col,
                        qb_vec sum[DN_ROWS][2]) {
    uint32_t cols = p->cols - col < DN_COLS ? p->cols - col : DN_COLS;
    for (uint32_t i = 0; i < count; i++) {
        float *c = p->c + (row + i) * p->c_stride + col;
        for (uint32_t j = 0; j < cols; j++) c[j] += sum[i][j / QB_LANES][j % QB_LANES];
    }
}

static inline void dn_panel_rows(const struct dense_product *p, const struct dn_panel *panel,
                                 uint32_t col) {
    qb_vec sum[DN_ROWS][2];
    uint32_t row = 0;
    for (; row + DN_ROWS <= p->rows; row += DN_ROWS) {
        dn_rows(p, panel, row, DN_ROWS, sum);
        dn_store(p, row, DN_ROWS, col, sum);
    }
    for (; row < p->rows; row++) {
        dn_rows(p, panel, row, 1, sum);
        dn_store(p, row, 1, col, sum);
    }
}

static inline void dn_multiply(const struct dense_product *p) {
    struct dn_panel panel;
    for (panel.k = 0; panel.k < p->depth; panel.k += DENSE_DEPTH) {
        panel.depth = p->depth - panel.k < DENSE_DEPTH ? p->depth - panel.k : DENSE_DEPTH;
        for (uint32_t col = 0; col < p->cols; col += DN_COLS) {
            dn_pack(p, col, &panel);
            dn_panel_rows(p, &panel, col);
        }
    }
}

#endif
