/* quant/int_matrix.h - a matrix as whole numbers with scales and zero points: what folders of GPTQ,
 * AWQ and compressed-tensors hold.
 *
 *     element (n, k) = scales[n][g] * (codes[n][k] - zeros[n][g])
 *
 * where g = group_of[k], or k / group_cols without an order. Codes are 0 .. 2^bits - 1; int8 has
 * all zero points 128, so that code - 128 is the stored byte.
 *
 * Lifetime: init, fill (quant/round.h), deinit; may be filled again. Thread: its owner.
 * Memory: one byte for each element, 5 bytes for each group of a row.
 */
#ifndef QUANT_INT_MATRIX_H
#define QUANT_INT_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct int_format {
    uint32_t bits;       /* 4 or 8 */
    uint32_t group_cols; /* a multiple of 32, or 0: one group for each row */
    bool is_symmetric;   /* all zero points are 2^(bits - 1) */
    bool has_order;      /* columns of a group need not be neighbours: group_of is used */
    bool has_no_zero;    /* zero points are 1 or more: GPTQ's first version stores them less 1 */
};

struct int_matrix {
    struct int_format format;
    uint32_t rows, cols, groups;
    uint8_t *codes;     /* [rows][cols] */
    float *scales;      /* [rows][groups]; every one is a number that f16 holds exactly */
    uint8_t *zeros;     /* [rows][groups] */
    uint32_t *group_of; /* [cols]; NULL unless has_order */
};

/* Memory for the matrix; what it holds is not set. The last group is shorter if the groups do not
 * divide the columns. ST_NOMEM. */
enum status int_matrix_init(struct int_matrix *m, const struct int_format *format, uint32_t rows,
                            uint32_t cols, struct err *err);
void int_matrix_deinit(struct int_matrix *m); /* all zero is fine */

/* The group of a column. */
uint32_t int_matrix_group(const struct int_matrix *m, uint32_t col);

/* Row n as float32. */
void int_matrix_row(const struct int_matrix *m, uint32_t row, float *out);

#endif
