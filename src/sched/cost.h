/* sched/cost.h - the cost model: how long a step takes, learned from past steps.
 *
 *     us = fixed + per_token * tokens + per_attended * attended_tokens
 *
 * The three weights start from a profile and are fitted online by recursive least squares with
 * forgetting. Outliers (over four times the prediction) are clipped. A weight never falls below a
 * hundredth of its start, so a prediction is never zero or negative. The model also learns the cost
 * of moving a KV block, which decides between swapping and recomputing. A plain value.
 */
#ifndef SCHED_COST_H
#define SCHED_COST_H

#include <stdint.h>

struct cost_profile {
    const char *name;
    double fixed_us, per_token_us, per_attended_us;
    double per_move_us; /* one block, out or in */
};

/* "h200-8b", "this-cpu" (figures of a two-core machine, corrected by the first steps). */
extern const struct cost_profile cost_profiles[];
extern const uint32_t cost_profile_count;
const struct cost_profile *cost_profile_find(const char *name); /* NULL if unknown */

struct cost_model {
    double weight[3]; /* fixed, per token, per attended token; us */
    double
        start[3]; /* of the profile: determines floors of the weights, limits of their variance */
    double cov[3][3]; /* covariance: how uncertain the weights are */
    double per_move_us, start_move_us;
    uint64_t seen; /* steps observed */
};

void cost_init(struct cost_model *m, const struct cost_profile *start);
/* What the model predicts now, as a profile. */
struct cost_profile cost_learned(const struct cost_model *m);
double cost_predict_us(const struct cost_model *m, uint32_t tokens, uint64_t attended);
void cost_observe(struct cost_model *m, uint32_t tokens, uint64_t attended, double us);

/* A step moved so many blocks and took `us` longer than predicted for its rows. */
void cost_observe_moves(struct cost_model *m, uint32_t moves, double us);

/* The number of tokens that `count` tokens from position `first` on attend to, added up. A step's
 * `attended` is the sum of this over its rows. */
uint64_t cost_attended(uint32_t first, uint32_t count);

/* The largest number of tokens of one sequence, from position `context` on, that fit into
 * `target_us` together with what the step already has; 0 .. max. */
uint32_t cost_tokens_within(const struct cost_model *m, double target_us, uint32_t tokens,
                            uint64_t attended, uint32_t context, uint32_t max);

#endif
