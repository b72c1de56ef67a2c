/* sched/cost_rows.c - see sched/cost_rows.h. */
#include "sched/cost_rows.h"

#include <stdbool.h>

#include "base/check.h"
#include "sched/cost.h"

/* Interruptions make single steps longer, never shorter: a mean falls faster than it rises. */
static const double RISE_RATE = 0.05, FALL_RATE = 0.2;
static const double FIRST_RISE_RATE = 0.5; /* of a size that was not measured before */
static const double OUTLIER_TIMES = 2;     /* more than this times what was expected is clipped */
static const double FORGET_RATE = 1.0 / 256;
static const double LEAST_US = 1;

/* The mean of n rows has changed: those of fewer rows are not above it, of more not below it. */
static void keep_order(struct cost_rows *c, uint32_t n) {
    for (uint32_t i = 1; i < n; i++)
        if (c->us[i] > c->us[n]) c->us[i] = c->us[n];
    for (uint32_t i = n + 1; i <= COST_ROWS_MAX; i++)
        if (c->us[i] > 0 && c->us[i] < c->us[n]) c->us[i] = c->us[n];
}

/* A time that is too long for a target is never measured again, however wrong it is. So times of
 * more rows than the step had approach, slowly, the cost model's price for the further rows. */
static void forget(struct cost_rows *c, const struct cost_model *m, uint32_t n) {
    double line_us = c->us[n];
    for (uint32_t i = n + 1; i <= COST_ROWS_MAX; i++) {
        line_us += m->weight[1];
        if (c->us[i] > line_us) c->us[i] -= FORGET_RATE * (c->us[i] - line_us);
    }
}

/* Without attention. */
static double rows_us(const struct cost_rows *c, const struct cost_model *m, uint32_t n) {
    uint32_t below = n < COST_ROWS_MAX ? n : COST_ROWS_MAX, above = n;
    while (below > 0 && !(c->us[below] > 0)) below--;
    while (above <= COST_ROWS_MAX && !(c->us[above] > 0)) above++;
    if (below > 0 && above <= COST_ROWS_MAX) {
        if (below == above) return c->us[n];
        double part = (double)(n - below) / (above - below);
        return c->us[below] + part * (c->us[above] - c->us[below]);
    }
    if (below > 0) return c->us[below] + m->weight[1] * (n - below);
    double us = m->weight[0] + m->weight[1] * n;
    return above <= COST_ROWS_MAX && us > c->us[above] ? c->us[above] : us;
}

static bool is_empty(const struct cost_rows *c) {
    for (uint32_t n = 1; n <= COST_ROWS_MAX; n++)
        if (c->us[n] > 0) return false;
    return true;
}

void cost_rows_observe(struct cost_rows *c, const struct cost_model *m, uint32_t rows,
                       uint64_t attended, double us) {
    if (rows == 0 || rows > COST_ROWS_MAX) return;
    us -= m->weight[2] * (double)attended;
    if (!(us > LEAST_US)) us = LEAST_US;
    double *mean = &c->us[rows], expected_us = is_empty(c) ? us : rows_us(c, m, rows);
    bool is_first = !(*mean > 0);
    if (us > OUTLIER_TIMES * expected_us) us = OUTLIER_TIMES * expected_us;
    double rate = us > expected_us ? RISE_RATE : FALL_RATE;
    if (is_first) rate = us > expected_us ? FIRST_RISE_RATE : 1;
    *mean = expected_us + rate * (us - expected_us);
    keep_order(c, rows);
    forget(c, m, rows);
}

double cost_rows_predict_us(const struct cost_rows *c, const struct cost_model *m, uint32_t rows,
                            uint64_t attended) {
    return rows_us(c, m, rows) + m->weight[2] * (double)attended;
}

void cost_rows_verify(const struct cost_rows *c) {
    double last_us = 0;
    for (uint32_t n = 1; n <= COST_ROWS_MAX; n++) {
        if (!(c->us[n] > 0)) continue;
        CHECK(c->us[n] >= last_us);
        last_us = c->us[n];
    }
}
