/* unit/sample/random_settings.h - seeded settings and logits for tests of sampling. */
#ifndef UNIT_SAMPLE_RANDOM_SETTINGS_H
#define UNIT_SAMPLE_RANDOM_SETTINGS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "sample/sampler.h"

static inline float random_real(struct rng *r, const float *values, uint32_t count) {
    return values[rng_below(r, count)];
}

/* `bias` has room for 4, and is borrowed by the result. */
static inline struct sample_params random_params(struct rng *r, uint32_t vocab,
                                                 struct logit_bias *bias) {
    static const int32_t ends[] = {0, 0};
    static const float temperatures[] = {0.0f, 1e-6f, 0.3f, 0.8f, 1.0f, 2.0f, 10.0f};
    static const float shares[] = {1.0f, 0.0f, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f};
    static const float ratios[] = {0.0f, 0.0f, 0.05f, 0.5f, 1.0f};
    static const float penalties[] = {0.0f, 0.0f, 0.5f, -0.5f, 2.0f};
    static const float repetitions[] = {1.0f, 1.0f, 1.1f, 0.8f, 3.0f};
    static const int32_t windows[] = {-1, 0, 1, 5, 64};
    struct sample_params p = sample_params_default();
    p.temperature = random_real(r, temperatures, 7);
    p.top_k = rng_below(r, 2) ? (uint32_t)rng_below(r, vocab + 2) : 0;
    p.top_p = rng_below(r, 2) ? random_real(r, shares, 7) : 1.0f;
    p.typical_p = rng_below(r, 3) ? 1.0f : random_real(r, shares, 7);
    p.min_p = random_real(r, ratios, 5);
    p.repetition_penalty = random_real(r, repetitions, 5);
    p.presence_penalty = random_real(r, penalties, 5);
    p.frequency_penalty = random_real(r, penalties, 5);
    p.penalty_window = windows[rng_below(r, 5)];
    p.penalty_answer_only = rng_below(r, 2);
    p.min_tokens = (uint32_t)rng_below(r, 3) * 5;
    p.ends = ends;
    p.end_count = (uint32_t)rng_below(r, 3);
    p.seed = rng_next(r);
    p.bias = bias;
    p.bias_count = (uint32_t)rng_below(r, 4);
    for (uint32_t i = 0; i < p.bias_count; i++)
        bias[i] = (struct logit_bias){(int32_t)rng_below(r, vocab),
                                      i == 2 ? -HUGE_VALF : (float)rng_below(r, 20) - 10.0f};
    return p;
}

/* Coarse values, so that many tie; sometimes minus infinity and NaN. */
static inline void random_logits(struct rng *r, float *logits, uint32_t vocab) {
    bool coarse = rng_below(r, 2);
    for (uint32_t t = 0; t < vocab; t++) {
        double x = rng_unit(r) + rng_unit(r) + rng_unit(r) - 1.5;
        logits[t] = coarse ? (float)(int)(x * 6.0) : (float)(x * 12.0);
        if (rng_below(r, 50) == 0) logits[t] = rng_below(r, 2) ? -HUGE_VALF : NAN;
    }
}

#endif
