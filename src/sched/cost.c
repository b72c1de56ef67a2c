/* sched/cost.c - see sched/cost.h.
 *
 * Recursive least squares with a noise that is a share of the prediction, so that a 5 ms step
 * counts as much as a 500 ms one. If all steps are alike, forgetting makes the variance of some
 * weights grow without limit; each variance is therefore capped at its start value.
 */
#include "sched/cost.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/check.h"

enum { WEIGHTS = 3 };
static const double FORGET = 0.995;     /* the last 140 steps have half of the weight */
static const double NOISE_SHARE = 0.1;  /* spread of a step around its prediction */
static const double OUTLIER_TIMES = 4;  /* more than this times the prediction is clipped */
static const double FLOOR_SHARE = 0.01; /* of a weight's start */
static const double SCALE_STEP = 0.1;
static const double MOVE_LEARN_RATE = 0.1;

/* h200-8b: Llama-3.1-8B in bf16 on one H200. 16 GB of weights at 4.3 TB/s are 3.7 ms; published
 * engines need 5 ms at batch 1, launches included. 16 GFLOP a token at the 600 TFLOP/s that
 * served prompts reach (39 k tokens/s) are 26 us. A decoded token reads 128 KiB of KV per
 * attended token (0.033 us), a prompt's tokens share those reads (0.001 us); 0.012 us is their
 * mean at the lengths of the azure_conv trace. A block of 16 tokens is 2 MiB over PCIe at 50 GB/s.
 *
 * this-cpu: SmolLM2-135M on two cores: 5 ms for one sequence, prompts at 700 tokens/s. */
const struct cost_profile cost_profiles[] = {
    {.name = "h200-8b",
     .fixed_us = 5000,
     .per_token_us = 26,
     .per_attended_us = 0.012,
     .per_move_us = 42},
    {.name = "this-cpu",
     .fixed_us = 3600,
     .per_token_us = 1350,
     .per_attended_us = 0.5,
     .per_move_us = 60},
};
const uint32_t cost_profile_count = sizeof(cost_profiles) / sizeof(cost_profiles[0]);

const struct cost_profile *cost_profile_find(const char *name) {
    for (uint32_t i = 0; i < cost_profile_count; i++)
        if (strcmp(cost_profiles[i].name, name) == 0) return &cost_profiles[i];
    return NULL;
}

void cost_init(struct cost_model *m, const struct cost_profile *start) {
    CHECK(start->fixed_us > 0);
    CHECK(start->per_token_us > 0);
    CHECK(start->per_attended_us >= 0);
    CHECK(start->per_move_us >= 0);
    *m = (struct cost_model){
        .start = {start->fixed_us, start->per_token_us, start->per_attended_us},
        .per_move_us = start->per_move_us,
        .start_move_us = start->per_move_us,
    };
    for (int i = 0; i < WEIGHTS; i++) {
        m->weight[i] = m->start[i];
        m->cov[i][i] = m->start[i] * m->start[i]; /* standard deviation = the weight itself */
    }
}

struct cost_profile cost_learned(const struct cost_model *m) {
    return (struct cost_profile){.name = "learned",
                                 .fixed_us = m->weight[0],
                                 .per_token_us = m->weight[1],
                                 .per_attended_us = m->weight[2],
                                 .per_move_us = m->per_move_us};
}

double cost_predict_us(const struct cost_model *m, uint32_t tokens, uint64_t attended) {
    return m->weight[0] + m->weight[1] * tokens + m->weight[2] * (double)attended;
}

/* Scale row and column i so that the variance of weight i is at most its limit. */
static void cap_variance(struct cost_model *m) {
    for (int i = 0; i < WEIGHTS; i++) {
        double limit = m->start[i] * m->start[i];
        if (m->cov[i][i] <= limit) continue;
        double share = sqrt(limit / m->cov[i][i]);
        for (int j = 0; j < WEIGHTS; j++) {
            m->cov[i][j] *= share;
            m->cov[j][i] *= share;
        }
    }
}

static double at_least(double w, double floor) { return w > floor ? w : floor; }

/* Set weight i to its floor and adjust the others by conditioning the normal distribution on that
 * value, so that the model still explains the observed steps. */
static void pin_to_floor(struct cost_model *m, int i) {
    double floor = m->start[i] * FLOOR_SHARE, variance = m->cov[i][i];
    for (int j = 0; j < WEIGHTS && variance > 0; j++) {
        if (j == i) continue;
        double share = m->cov[j][i] / variance;
        m->weight[j] += share * (floor - m->weight[i]);
        for (int k = 0; k < WEIGHTS; k++)
            if (k != i) m->cov[j][k] -= share * m->cov[i][k];
    }
    for (int j = 0; j < WEIGHTS; j++) m->cov[i][j] = m->cov[j][i] = 0;
    m->cov[i][i] = floor * floor;
    m->weight[i] = floor;
}

static void move_weights(struct cost_model *m, const double *gain, double error) {
    for (int i = 0; i < WEIGHTS; i++) m->weight[i] += gain[i] * error;
    for (int turn = 0; turn < WEIGHTS; turn++)
        for (int i = 0; i < WEIGHTS; i++)
            if (m->weight[i] < m->start[i] * FLOOR_SHARE) pin_to_floor(m, i);
    for (int i = 0; i < WEIGHTS; i++)
        m->weight[i] = at_least(m->weight[i], m->start[i] * FLOOR_SHARE);
}

/* If the floors have made the prediction worse: scale all weights up or down by at most 10 %. */
static void scale_weights(struct cost_model *m, const double *before, double ratio) {
    ratio = ratio > 1 + SCALE_STEP   ? 1 + SCALE_STEP
            : ratio < 1 - SCALE_STEP ? 1 - SCALE_STEP
                                     : ratio;
    for (int i = 0; i < WEIGHTS; i++)
        m->weight[i] = at_least(before[i] * ratio, m->start[i] * FLOOR_SHARE);
}

void cost_observe(struct cost_model *m, uint32_t tokens, uint64_t attended, double us) {
    if (!(us > 0)) return;
    const double x[WEIGHTS] = {1, tokens, (double)attended};
    double predicted = cost_predict_us(m, tokens, attended);
    if (us > OUTLIER_TIMES * predicted) us = OUTLIER_TIMES * predicted;

    double px[WEIGHTS] = {0}, spread = 0; /* P x and x' P x */
    for (int i = 0; i < WEIGHTS; i++)
        for (int j = 0; j < WEIGHTS; j++) px[i] += m->cov[i][j] * x[j];
    for (int i = 0; i < WEIGHTS; i++) spread += x[i] * px[i];
    double noise = NOISE_SHARE * predicted;
    double scale = 1 / (FORGET * noise * noise + spread);

    double gain[WEIGHTS], before[WEIGHTS];
    memcpy(before, m->weight, sizeof(before));
    for (int i = 0; i < WEIGHTS; i++) gain[i] = px[i] * scale;
    for (int i = 0; i < WEIGHTS; i++)
        for (int j = 0; j < WEIGHTS; j++)
            m->cov[i][j] = (m->cov[i][j] - px[i] * px[j] * scale) / FORGET;
    cap_variance(m);
    move_weights(m, gain, us - predicted);
    if (fabs(us - cost_predict_us(m, tokens, attended)) > fabs(us - predicted))
        scale_weights(m, before, us / predicted);
    m->seen++;
}

void cost_observe_moves(struct cost_model *m, uint32_t moves, double us) {
    if (moves == 0) return;
    double each = us / moves, most = OUTLIER_TIMES * m->per_move_us;
    if (each > most) each = most;
    m->per_move_us += MOVE_LEARN_RATE * (each - m->per_move_us);
    double floor = m->start_move_us * FLOOR_SHARE;
    if (m->per_move_us < floor) m->per_move_us = floor;
}

uint64_t cost_attended(uint32_t first, uint32_t count) {
    return (uint64_t)count * first + (uint64_t)count * ((uint64_t)count + 1) / 2;
}

/* n tokens add n * token + attended_weight * (n * context + n (n + 1) / 2): a parabola in n. */
uint32_t cost_tokens_within(const struct cost_model *m, double target_us, uint32_t tokens,
                            uint64_t attended, uint32_t context, uint32_t max) {
    double left = target_us - cost_predict_us(m, tokens, attended);
    if (!(left > 0)) return 0;
    double a = m->weight[2] / 2;
    double b = m->weight[1] + m->weight[2] * ((double)context + 0.5);
    double n = a > 0 ? 2 * left / (b + sqrt(b * b + 4 * a * left)) : left / b;
    if (n >= max) return max;
    return (uint32_t)n;
}
