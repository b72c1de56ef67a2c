/* quant/quant.h - encoders: from float32 to the number formats of model files.
 *
 * An encoder chooses, block by block, the codes and scales whose decoded values are nearest to
 * the source: it makes the sum of importance * (source - decoded)^2 small. Without importance
 * every element counts the same. The search tries several scales, then improves codes and scales
 * in turn; it is heuristic, so a block is good but not always the best possible.
 *
 * The same input gives the same bytes on every machine, with any number of threads: a block
 * depends on nothing outside it, and every instruction set computes the same roundings.
 *
 * Thread: any; there is no state. Memory: none but the stack.
 */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

bool quant_has_encoder(enum dtype type);

/* The names of all types with an encoder, separated by ", ". Static. */
const char *quant_known_types(void);

/* Can `type` hold these numbers? False: *bad is the first that is not finite, or too large for the
 * 16-bit scale of the type (beyond F16_MAX; for BF16 and F32 every finite number fits). */
bool quant_can_hold(enum dtype type, const float *src, size_t elems, size_t *bad);

/* Encode `elems` numbers, a multiple of the block, which quant_can_hold has accepted. importance:
 * NULL, or a weight for each element, finite and not negative; a block whose weights are all 0 is
 * encoded as if they were all 1. `dst` has the bytes that dtype_bytes gives, of any alignment. */
void quant_encode(enum dtype type, const float *src, const float *importance, size_t elems,
                  void *dst);

/* The same with the code of one instruction set; NULL past the last. For tests: all of them give
 * the same bytes. */
typedef void quant_encode_fn(enum dtype type, const float *src, const float *importance,
                             size_t elems, uint8_t *dst);
struct quant_isa {
    const char *name; /* "avx2" */
    quant_encode_fn *encode;
};
const struct quant_isa *quant_isa_at(uint32_t index);

#endif
