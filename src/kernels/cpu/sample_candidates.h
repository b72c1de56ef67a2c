/* kernels/cpu/sample_candidates.h - the tokens that may still be drawn, and the cuts.
 *
 * Candidates stand in the order of their ids. A cut by another order (rank, typicality) finds
 * where its prefix ends (sample_select.h); nothing is ever sorted. What is cut stays in its place
 * and weighs nothing from then on. graph/sampling.h states what each cut means.
 *
 * Lifetime: init for a vocabulary, deinit. Thread: its owner.
 * Memory: 24 bytes per token of the vocabulary, all taken by init.
 */
#ifndef KERNELS_CPU_SAMPLE_CANDIDATES_H
#define KERNELS_CPU_SAMPLE_CANDIDATES_H

#include <stdint.h>

#include "base/status.h"
#include "kernels/cpu/sample_dense.h"
#include "kernels/cpu/sample_select.h"

struct candidates {
    uint32_t count;
    uint32_t *token;  /* ascending */
    float *logit;     /* of each */
    uint64_t *weight; /* of each, exp((logit - largest logit) * scale) as base/fvec.h has it */
    float *nearness;  /* of each to what is typical; used by that cut only */
    uint64_t sum;     /* of the weights */
    float floor;      /* no logit is below it */
    struct select select;
};

enum status candidates_init(struct candidates *c, uint32_t vocab);
void candidates_deinit(struct candidates *c); /* a zeroed one is fine */

/* Start with the tokens whose logit is at least `floor`, which is finite. */
void candidates_fill(struct candidates *c, const struct dense *d, float floor);

/* Needed after fill, before what follows. */
void candidates_weigh(struct candidates *c, const struct dense *d, float scale);

/* Keep the first `top_k` in rank, be their weights what they may; the first of the cuts. */
void candidates_cut_count(struct candidates *c, const struct dense *d, uint32_t top_k);

/* Keep the shortest prefix that weighs `wanted`: from 1 to the sum. */
void candidates_cut_typical(struct candidates *c, const struct dense *d, float scale,
                            uint64_t wanted);
void candidates_cut_top(struct candidates *c, const struct dense *d, uint64_t wanted);

/* Keep those that weigh at least a ratio of the heaviest. */
void candidates_cut_min(struct candidates *c, const struct dense *d, double ratio);

/* The first one where the running sum of weights exceeds `target`, less than the sum. */
int32_t candidates_find(const struct candidates *c, uint64_t target);

#endif
