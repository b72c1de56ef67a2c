/* sched/cost.h - how long a step takes, learned from the steps that were.
 *
 *     us = fixed + per_token * tokens + per_attended * attended_tokens
 *
 * fitted online by recursive least squares with forgetting, started from a profile; outliers
 * (over four times the prediction) are clipped. Weights never fall below a hundredth of where
 * they started, so a prediction is never zero or negative. Also the price of moving KV, which
 * decides between swapping and recomputing. Pure arithmetic; a value type.
 */
#ifndef SCHED_COST_H
#define SCHED_COST_H

#include <stdint.h>

struct cost_profile {
    const char *name;
    double fixed_us, per_token_us, per_attended_us;
    double per_move_us; /* one block, out or in */
};

/* "h200-8b", "this-cpu" (numbers of a two-core machine, refined as soon as steps are seen). */
extern const struct cost_profile cost_profiles[];
extern const uint32_t cost_profile_count;
const struct cost_profile *cost_profile_find(const char *name); /* NULL if unknown */

struct cost_model {
    double weight[3]; /* fixed, per token, per attended token; us */
    double start[3];  /* the profile's: floors of the weights, limits of their doubt */
    double cov[3][3];
    double per_move_us, start_move_us;
    uint64_t seen;
};

void cost_init(struct cost_model *m, const struct cost_profile *start);
double cost_predict_us(const struct cost_model *m, uint32_t tokens, uint64_t attended);
void cost_observe(struct cost_model *m, uint32_t tokens, uint64_t attended, double us);

/* A step took `us` longer than predicted and moved so many blocks. */
void cost_observe_moves(struct cost_model *m, uint32_t moves, double us);

/* The context that `count` tokens from position `first` on read in all: what a step's
 * `attended` is the sum of. */
uint64_t cost_attended(uint32_t first, uint32_t count);

/* The most tokens of one sequence, from position `context` on, that fit into `target_us` beside
 * what the step already holds; 0 .. max. */
uint32_t cost_tokens_within(const struct cost_model *m, double target_us, uint32_t tokens,
                            uint64_t attended, uint32_t context, uint32_t max);

#endif
