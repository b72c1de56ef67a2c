/* quant/int_matrix.c - see quant/int_matrix.h for the contract. */
#include "quant/int_matrix.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/size.h"

static void check_format(const struct int_format *format, uint32_t rows, uint32_t cols) {
    CHECK(format->bits == 4 || format->bits == 8);
    CHECK(format->group_cols % 32 == 0);
    CHECK(rows > 0);
    CHECK(cols > 0);
}

enum status int_matrix_init(struct int_matrix *m, const struct int_format *format, uint32_t rows,
                            uint32_t cols, struct err *err) {
    check_format(format, rows, cols);
    uint32_t group = format->group_cols ? format->group_cols : cols;
    *m = (struct int_matrix){.format = *format, .rows = rows, .cols = cols};
    m->groups = cols / group + (cols % group != 0);
    size_t groups = (size_t)rows * m->groups;
    m->codes = mem_alloc_array(rows, cols);
    m->scales = mem_alloc_array(groups, sizeof(m->scales[0]));
    m->zeros = mem_alloc(groups);
    if (format->has_order) m->group_of = mem_alloc_array(cols, sizeof(m->group_of[0]));
    if (m->codes && m->scales && m->zeros && (m->group_of || !format->has_order)) return ST_OK;
    int_matrix_deinit(m);
    return err_set(err, ST_NOMEM, "out of memory for the codes of a matrix of %u x %u", rows, cols);
}

void int_matrix_deinit(struct int_matrix *m) {
    mem_free(m->codes);
    mem_free(m->scales);
    mem_free(m->zeros);
    mem_free(m->group_of);
    *m = (struct int_matrix){.rows = 0};
}

uint32_t int_matrix_group(const struct int_matrix *m, uint32_t col) {
    if (m->group_of) return m->group_of[col];
    return m->format.group_cols ? col / m->format.group_cols : 0;
}

void int_matrix_row(const struct int_matrix *m, uint32_t row, float *out) {
    CHECK(row < m->rows);
    const uint8_t *codes = m->codes + (size_t)row * m->cols;
    const float *scales = m->scales + (size_t)row * m->groups;
    const uint8_t *zeros = m->zeros + (size_t)row * m->groups;
    for (uint32_t k = 0; k < m->cols; k++) {
        uint32_t g = int_matrix_group(m, k);
        out[k] = scales[g] * (float)((int32_t)codes[k] - (int32_t)zeros[g]);
    }
}
