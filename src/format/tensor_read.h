/* format/tensor_read.h - the elements of a tensor, whether they lie in the file or a source makes
 * them.
 *
 * Elements count from the first of the first row. A range begins and ends between blocks of the
 * tensor's type; it may span parts of rows. Thread: any number at once.
 */
#ifndef FORMAT_TENSOR_READ_H
#define FORMAT_TENSOR_READ_H

#include <stddef.h>
#include <stdint.h>

struct tensor_info;

uint64_t tensor_elems(const struct tensor_info *t);

/* In the tensor's own type. */
void tensor_read(const struct tensor_info *t, uint64_t first, size_t elems, uint8_t *out);
/* As float32; columns are in the order of the file (tensor_info.order is not applied). */
void tensor_read_f32(const struct tensor_info *t, uint64_t first, size_t elems, float *out);

#endif
