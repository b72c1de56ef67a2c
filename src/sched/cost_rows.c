/* sched/cost_rows.c - see sched/cost_rows.h. */
#include "sched/cost_rows.h"

#include "base/check.h"
#include "sched/cost.h"

static const double LEARN_RATE = 0.05;
static const double OUTLIER_TIMES = 2; /* more than this times the mean is clipped */
static const double LEAST_US = 1;

/* The mean of n rows has changed: those of fewer rows are not above it, of more not below it. */
static void keep_order(struct cost_rows *c, uint32_t n) {
    for (uint32_t i = 1; i < n; i++)
        if (c->us[i] > c->us[n]) c->us[i] = c->us[n];
    for (uint32_t i = n + 1; i <= COST_ROWS_MAX; i++)
        if (c->us[i] > 0 && c->us[i] < c->us[n]) c->us[i] = c->us[n];
}

void cost_rows_observe(struct cost_rows *c, const struct cost_model *m, uint32_t rows,
                       uint64_t attended, double us) {
    if (rows == 0 || rows > COST_ROWS_MAX) return;
    us -= m->weight[2] * (double)attended;
    if (!(us > LEAST_US)) us = LEAST_US;
    double *mean = &c->us[rows];
    if (*mean > 0 && us > OUTLIER_TIMES * *mean) us = OUTLIER_TIMES * *mean;
    *mean = *mean > 0 ? *mean + LEARN_RATE * (us - *mean) : us;
    keep_order(c, rows);
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
