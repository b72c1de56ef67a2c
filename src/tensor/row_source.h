/* tensor/row_source.h - a matrix whose rows are made when they are asked for.
 *
 * A folder that another tool quantised holds codes, scales and zero points as tensors of their own,
 * often column by column. What loads a weight asks for pieces of it and gets blocks of one of the
 * formats of tensor/dtype.h, so that the rewritten weight as a whole is never in memory.
 *
 * Lifetime: the model file's. Thread: any number at once; reading changes nothing.
 */
#ifndef TENSOR_ROW_SOURCE_H
#define TENSOR_ROW_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Columns count in blocks of the matrix's format. */
struct row_piece {
    uint32_t first_row, row_count;
    uint32_t first_block, block_count;
};

enum { ROW_PARTS_MAX = 6 };
struct row_source {
    /* Writes the piece row by row, a row's blocks one after the other. */
    void (*read)(const struct row_source *self, const struct row_piece *piece, uint8_t *out);

    bool has_row_scales; /* of F8: all of a row has one scale */

    /* The bytes of the file that rows are made of; those that are not there are empty. */
    struct row_part {
        const void *ptr;
        size_t bytes;
    } parts[ROW_PARTS_MAX];

    /* Further parts, if they are many; NULL if not. */
    const struct row_part *more;
    uint32_t more_count;
};

#endif
