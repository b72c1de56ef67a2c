/* quant/recode.h - the bytes of a tensor in another type, computed on all threads.
 *
 * A tensor is read in pieces of 65,536 elements: each is decoded to float32, encoded, given
 * to the sink and dropped from memory. So memory does not grow with the tensor.
 *
 * Lifetime: create, recode as many tensors as needed, destroy. Thread: its owner; it starts threads
 * of its own.
 */
#ifndef QUANT_RECODE_H
#define QUANT_RECODE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "format/model_file.h"
#include "tensor/dtype.h"

struct recoder; /* opaque */

/* `threads`: 0 for the default of base/pool.h. */
enum status recoder_create(uint32_t threads, struct recoder **out, struct err *err);
void recoder_destroy(struct recoder *r); /* NULL is fine */

/* Where encoded bytes go, in order. */
typedef enum status recode_sink_fn(void *ctx, const void *bytes, size_t len, struct err *err);

struct recode {
    const struct model_file *file; /* of the tensor; its pages are released as they are read */
    const struct tensor_info *tensor;
    enum dtype to;
    const float *importance; /* of each column, or NULL */
    recode_sink_fn *sink;
    void *ctx;
};

/* ST_BAD: a number that the type cannot hold; what the sink returns. The same type is copied as it
 * is. */
enum status recode_tensor(struct recoder *r, const struct recode *job, struct err *err);

#endif
