/* kernels/cpu/ops_experts.c - drivers of the small ops of mixtures of experts.
 *
 * Entry points: op_route_run, op_expert_sum_run.
 */
#include <math.h>

#include "base/fmath.h"
#include "kernels/cpu/cpu_int.h"

static bool is_chosen(const int32_t *ids, uint32_t count, uint32_t expert) {
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == (int32_t)expert) return true;
    return false;
}

/* The expert with the largest logit among those not yet chosen, the lower of equals. A NaN is
 * never larger, so some expert is found whatever the logits are. */
static uint32_t best_expert(const struct op_route *r, const float *logits, const int32_t *ids,
                            uint32_t chosen) {
    uint32_t best = r->experts;
    for (uint32_t e = 0; e < r->experts; e++) {
        if (is_chosen(ids, chosen, e)) continue;
        if (best == r->experts || logits[e] > logits[best]) best = e;
    }
    return best;
}

/* Softmax: exponentials of the distance to the largest logit, their sum in rising order. */
static void route_row(const struct op_route *r, const float *logits, int32_t *ids, float *weights) {
    for (uint32_t j = 0; j < r->used; j++) ids[j] = (int32_t)best_expert(r, logits, ids, j);
    float top = logits[ids[0]], sum = 0.0f, chosen = 0.0f;
    for (uint32_t e = 0; e < r->experts; e++) sum += fm_exp(logits[e] - top);
    for (uint32_t j = 0; j < r->used; j++) {
        weights[j] = fm_exp(logits[ids[j]] - top) / sum;
        chosen += weights[j];
    }
    for (uint32_t j = 0; j < r->used && r->normalise; j++) weights[j] /= chosen;
}

void op_route_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_route *r = &op->route;
    struct mat logits = mat_of(x, r->logits);
    struct mat ids = mat_of(x, r->ids), weights = mat_of(x, r->weights);
    struct range rows = range_share(logits.row_count, ith, nth);
    for (uint32_t row = rows.first; row < rows.end; row++)
        if (run_row_is_live(x, logits.kind, row))
            route_row(r, mat_f32(&logits, row), mat_i32(&ids, row), mat_f32(&weights, row));
}

/* One accumulator per column, from 0, fma in rising j; then + dst. */
void op_expert_sum_run(const struct cpu_run *x, const struct op *op, uint32_t ith, uint32_t nth) {
    const struct op_expert_sum *s = &op->expert_sum;
    struct mat src = mat_of(x, s->src), weights = mat_of(x, s->weights), dst = mat_of(x, s->dst);
    struct range rows = range_share(dst.row_count, ith, nth);
    for (uint32_t r = rows.first; r < rows.end; r++) {
        if (!run_row_is_live(x, dst.kind, r)) continue;
        const float *in = mat_f32(&src, r), *w = mat_f32(&weights, r);
        float *out = mat_f32(&dst, r);
        for (uint32_t i = 0; i < dst.cols; i++) {
            float acc = 0.0f;
            for (uint32_t j = 0; j < s->used; j++)
                acc = fmaf(w[j], in[(size_t)j * dst.cols + i], acc);
            out[i] = s->add ? acc + out[i] : acc;
        }
    }
}
