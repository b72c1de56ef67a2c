/* quant/choose.h - which type each tensor of a model is stored as.
 *
 * The rules are those of llama.cpp:
 *
 *   - matrices are converted; vectors, norms, the router of experts and tables of positions stay;
 *   - the output matrix, or the embedding if the model has no other output, takes at least Q6_K
 *     (Q8_0 if its rows do not divide into blocks of 256);
 *   - a type whose blocks do not divide the rows is replaced: Q4_K by Q5_0, Q5_K by Q5_1, Q6_K by
 *     Q8_0, IQ4_XS by IQ4_NL, and any by F16 if the rows do not divide into blocks of 32.
 *
 * Thread: any; there is no state.
 */
#ifndef QUANT_CHOOSE_H
#define QUANT_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "tensor/dtype.h"

/* Is a tensor with this name and shape converted at all? */
bool choose_converts(struct str name, const uint64_t *dims, uint32_t dim_count);

/* `type`, or what replaces it for rows of `width`. */
enum dtype choose_fallback(enum dtype type, uint64_t width);

/* The type of a tensor that is converted, without the fallback. has_output: the model has an
 * output matrix beside the embedding. */
enum dtype choose_type(enum dtype type, struct str name, uint64_t width, bool has_output);

/* What llama.cpp calls a file most of whose matrices have the type: the number under
 * general.file_type. */
uint32_t choose_file_type(enum dtype type);

#endif
