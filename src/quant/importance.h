/* quant/importance.h - the importance of each column of each matrix: the mean square of its input.
 *
 * The error that a quantised matrix makes in its output is, for independent inputs, the sum over
 * its columns of (mean square of the input) * (error of the column)^2. So these means are the
 * weights that an encoder takes.
 *
 *     create -> add every row that a product reads -> find
 *
 * Lifetime: create, destroy; names are copied. Thread: its owner. Memory: 8 bytes for each column.
 */
#ifndef QUANT_IMPORTANCE_H
#define QUANT_IMPORTANCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct importance; /* opaque */

enum { IMPORTANCE_BYTES_MAX = 1 << 30 }; /* of one model */

enum status importance_create(struct importance **out, struct err *err);
void importance_destroy(struct importance *m); /* NULL is fine */

/* Columns [col, col + count) of a row of `cols` that is an input of the matrix `name`; a part that
 * begins at column 0 begins a row. Running out of memory is remembered, see importance_status. A
 * number that is not finite counts as 0. */
struct importance_part {
    struct str name;
    uint32_t cols, col, count;
    const float *x;
};
void importance_add(struct importance *m, const struct importance_part *part);
enum status importance_status(const struct importance *m, struct err *err);

/* Matrices that have got a row. */
size_t importance_count(const struct importance *m);

/* The means for the matrix, [cols], valid until the next importance_add; NULL: it has got no row,
 * or has another number of columns. */
const float *importance_find(struct importance *m, struct str name, uint64_t cols);

#endif
