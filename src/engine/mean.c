/* engine/mean.c - see engine/mean.h for the contract. */
#include "engine/mean.h"

#include <math.h>

void mean_add(float *sum, uint32_t dims, const float *rows, size_t row_floats, uint32_t count) {
    for (uint32_t r = 0; r < count; r++)
        for (uint32_t i = 0; i < dims; i++) sum[i] += rows[r * row_floats + i];
}

/* To unit length; the count of rows falls out. */
void mean_finish(float *sum, uint32_t dims) {
    double squares = 0;
    for (uint32_t i = 0; i < dims; i++) squares += (double)sum[i] * (double)sum[i];
    double scale = squares > 0 ? 1 / sqrt(squares) : 0;
    for (uint32_t i = 0; i < dims; i++) sum[i] = (float)(sum[i] * scale);
}
