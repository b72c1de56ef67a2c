/* engine/mean.h - the embedding of a text by a model that was made for writing.
 *
 * The mean of its last hidden states, scaled to unit length. States are added up in the order of
 * positions, so that it does not matter in how many pieces they come.
 *
 *     zeros -> mean_add for each piece, in order -> mean_finish
 */
#ifndef ENGINE_MEAN_H
#define ENGINE_MEAN_H

#include <stddef.h>
#include <stdint.h>

/* Rows of `dims` numbers, row_floats apart. */
void mean_add(float *sum, uint32_t dims, const float *rows, size_t row_floats, uint32_t count);
void mean_finish(float *sum, uint32_t dims);

#endif
