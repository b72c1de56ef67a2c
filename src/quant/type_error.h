/* quant/type_error.h - how large the error of a tensor is in each of several types.
 *
 * The error is the sum of importance * (source - decoded)^2, which the encoders make small. It is
 * measured on rows that are spread evenly over the tensor, TYPE_ERROR_ELEMS elements or one row,
 * and scaled to all of it.
 *
 * Lifetime: create, measure as many tensors as needed, destroy. Thread: its owner; it starts
 * threads of its own. The results do not depend on their number. Memory: the sampled rows, and two
 * rows for each thread.
 */
#ifndef QUANT_TYPE_ERROR_H
#define QUANT_TYPE_ERROR_H

#include <stdint.h>

#include "base/status.h"
#include "format/model_file.h"
#include "tensor/dtype.h"

struct type_error; /* opaque */

enum { TYPE_ERROR_ELEMS = 1 << 18 };

/* `threads`: 0 for the default of base/pool.h. */
enum status type_error_create(uint32_t threads, struct type_error **out, struct err *err);
void type_error_destroy(struct type_error *e); /* NULL is fine */

struct type_error_job {
    const struct model_file *file; /* for messages */
    const struct tensor_info *tensor;
    const float *importance; /* of each column, or NULL */
    const enum dtype *types; /* with encoders; their blocks divide the rows */
    uint32_t type_count;
};
/* errors: [type_count]. ST_BAD: a number that a type cannot hold. */
enum status type_error_measure(struct type_error *e, const struct type_error_job *job,
                               double *errors, struct err *err);

#endif
