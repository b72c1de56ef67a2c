/* quant/round.h - rounds a matrix of float32 to whole numbers, by three published procedures.
 *
 *     nearest  each number by itself, scale and zero point from the least and the largest of its
 *              group
 *     gptq     column by column; the columns that are not rounded yet are changed so that they
 *              compensate the error, as far as the second moments of the inputs allow (Frantar et
 *              al. 2022); the grid of a group is searched
 *     awq, smooth   scales for the inputs: the columns of the matrices that read an input are
 *              multiplied with its scale, and what makes the input is divided by it (Lin et al.
 *              2023, Xiao et al. 2022); then `nearest`
 *
 * The same input gives the same bytes with any number of threads.
 *
 * Thread: any; threads of its own run inside a call. Memory: as said at each function.
 */
#ifndef QUANT_ROUND_H
#define QUANT_ROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "quant/int_matrix.h"

struct moments;

/* `w`: [rows][cols] of `out`, which int_matrix_init has made. */
void round_nearest(const float *w, struct int_matrix *out);

/* The damping that the number of rows asks for: 3 * (1 + 1 / m) / rows, m being the mean squared
 * correlation of two inputs; at least 0.01, the published share, and at most 1. The fewer the rows,
 * the more of the correlations in the moments are chance. Compensation by those makes the error on
 * another text larger. */
double gptq_damp(const struct moments *moments);

struct gptq_options {
    double damp;      /* this share of the mean of the diagonal is added to it; 0: gptq_damp */
    uint32_t threads; /* 0: the default of base/pool.h */
};

/* The format's has_order asks for act order: columns are taken by falling diagonal. ST_BAD: the
 * moments cannot be factored even with a hundred times the damping; `err` says so. Memory: 4 bytes
 * * cols^2, and 1 KiB * cols for each thread. */
enum status round_gptq(const float *w, const struct moments *moments,
                       const struct gptq_options *options, struct int_matrix *out, struct err *err);

/* Matrices that read the same input. */
struct same_input {
    const float *const *w; /* [count], each [rows[i]][cols] */
    const uint32_t *rows;  /* [count] */
    uint32_t count, cols;
    const struct moments *moments;
};

/* The scales with the least error after rounding: for each input abs_mean^a, with a from 0 to 1 in
 * 20 steps, normalised so that the largest times the least is 1. All of them are positive and
 * finite. Of each matrix AWQ_ROWS_MAX rows at most are tried, evenly spread. ST_NOMEM. */
enum { AWQ_ROWS_MAX = 512, AWQ_STEPS = 20 };
enum status awq_scales(const struct same_input *in, const struct int_format *format, float *scales,
                       struct err *err);

/* abs_max(x)^alpha / abs_max(w)^(1 - alpha), for activations that are rounded to 8 bits as well;
 * alpha from 0 to 1. All of them are positive and finite. */
void smooth_scales(const struct same_input *in, double alpha, float *scales);

#endif
