/* quant/pack.h - a matrix in the layout of a quantised folder: the tensors that stand for it.
 *
 *     gptq   NAME.qweight, .qzeros, .scales, .g_idx         4 bits, words along the inputs
 *     awq    NAME.qweight, .qzeros, .scales                 4 bits, words along the outputs
 *     int8   NAME.weight, .weight_scale                     compressed-tensors, W8A8
 *     nf4    NAME.weight, .weight.absmax, .quant_map, ...   bitsandbytes, double quantisation
 *
 * The layouts are described where they are read: format/quant_gptq.c, quant_ct.c, quant_bnb.c.
 *
 *     packed_init -> packed_put_ints or packed_put_floats, some rows at a time -> packed_finish
 *                 -> read parts -> packed_deinit
 *
 * Lifetime: the caller's storage. Thread: its owner; NF4 has threads of its own inside a call.
 * Memory: the packed matrix; NF4 also 4 bytes for each 64 elements.
 */
#ifndef QUANT_PACK_H
#define QUANT_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "quant/int_matrix.h"
#include "tensor/dtype.h"

enum pack_method { PACK_GPTQ, PACK_AWQ, PACK_INT8, PACK_NF4 };

struct pack_format {
    enum pack_method method;
    struct int_format ints; /* not of NF4 */
    enum dtype plain;       /* F16 or BF16: what the folder's readers compute in */
};

/* One tensor. */
struct packed_part {
    const char *suffix; /* behind NAME: ".qweight" */
    const char *format; /* "I32" */
    uint32_t dim_count;
    uint64_t dims[2];
    size_t bytes, at; /* in packed_matrix.data */
};
enum { PACKED_PARTS_MAX = 6 };

/* The tensors of a matrix; returns how many. The number of columns divides as pack_fits says. */
uint32_t pack_parts(const struct pack_format *format, uint32_t rows, uint32_t cols,
                    struct packed_part parts[PACKED_PARTS_MAX]);

/* Can a matrix of this shape be packed? GPTQ and AWQ: its groups are whole, and 8 divides its rows;
 * all: 32 divides its columns. */
bool pack_fits(const struct pack_format *format, uint64_t rows, uint64_t cols);

struct packed_matrix {
    struct pack_format format;
    uint32_t rows, cols, part_count;
    struct packed_part parts[PACKED_PARTS_MAX];
    uint8_t *data; /* heap; the bytes of all parts, after packed_finish */
    float *absmax; /* heap; NF4: of each block */
};

enum status packed_init(struct packed_matrix *m, const struct pack_format *format, uint32_t rows,
                        uint32_t cols, struct err *err);
void packed_deinit(struct packed_matrix *m); /* all zero is fine */

/* Rows from `first_row` on, a multiple of PACK_BAND_ROWS; every row once. */
enum { PACK_BAND_ROWS = 64 };
void packed_put_ints(struct packed_matrix *m, const struct int_matrix *ints, uint32_t first_row);
void packed_put_floats(struct packed_matrix *m, const float *w, uint32_t first_row, uint32_t rows);
void packed_finish(struct packed_matrix *m); /* once, after the last row */

#endif
