/* sched/cost_rows.h - how long a step of n decode rows takes, as measured.
 *
 * The cost model (cost.h) has one price for every token. Real devices do not: their kernels
 * compute rows in groups, so the second row of a group costs almost nothing and the first row of
 * the next one costs a lot. This table keeps the mean time of steps of n rows of one token each,
 * for small n, without what attention costs. It decides which rows of batch lines are cheap enough
 * beside others. A time that was never measured is interpolated between its neighbours, or
 * continued from the nearest one at the price of the cost model. More rows never take less time.
 *
 * Other programs interrupt single steps. So a mean falls faster than it rises, a time counts for at
 * most twice what was expected, and the times of more rows than a step had approach the price of
 * the cost model: rows that are expected to take too long are not planned, so no measurement could
 * correct them.
 * A plain value; zeroed: nothing was measured yet.
 */
#ifndef SCHED_COST_ROWS_H
#define SCHED_COST_ROWS_H

#include <stdint.h>

struct cost_model;

enum { COST_ROWS_MAX = 128 }; /* more rows: continued from this number */

struct cost_rows {
    double us[COST_ROWS_MAX + 1]; /* by the number of rows; 0: not measured */
};

/* A step of so many rows of one token each took `us`. */
void cost_rows_observe(struct cost_rows *c, const struct cost_model *m, uint32_t rows,
                       uint64_t attended, double us);
double cost_rows_predict_us(const struct cost_rows *c, const struct cost_model *m, uint32_t rows,
                            uint64_t attended);
void cost_rows_verify(const struct cost_rows *c); /* CHECKs that times do not fall */

#endif
