/* sample/candidates.h - the tokens that may still be drawn, and the cuts that make them fewer.
 *
 * Candidates always stand in the order of their ids, so sums over them have one order whatever
 * was cut before. A cut that needs another order (rank, typicality) takes just as many from a
 * heap as it keeps; nothing sorts the vocabulary. sample/sampler.h states what each cut means.
 *
 * Lifetime: init for a vocabulary, deinit. Thread: its owner.
 * Memory: 29 bytes per token of the vocabulary, all taken by init.
 */
#ifndef SAMPLE_CANDIDATES_H
#define SAMPLE_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct candidate {
    double weight; /* exp((logit - largest logit) / temperature) */
    float logit;
    int32_t token;
};

struct candidates {
    uint32_t count, cap;
    struct candidate *list; /* [cap], ascending token */
    double *key;            /* [cap], order of a cut: the smallest goes first */
    uint32_t *order;        /* [cap], a heap of places in `list` by key */
    bool *keep;             /* [cap] */
};

enum status candidates_init(struct candidates *c, uint32_t vocab);
void candidates_deinit(struct candidates *c); /* a zeroed one is fine */

/* Start with the first `top_k` in rank (0: all) of the logits that are above minus infinity. */
void candidates_fill(struct candidates *c, const float *logits, uint32_t vocab, uint32_t top_k);

/* Needed once after fill, before what follows; the largest logit is finite. */
void candidates_weigh(struct candidates *c, float temperature);

void candidates_cut_typical(struct candidates *c, double share);
void candidates_cut_top(struct candidates *c, double share);
void candidates_cut_min(struct candidates *c, double ratio);

/* The candidate at `unit`, 0 <= unit < 1, of the summed weights. */
int32_t candidates_draw(const struct candidates *c, double unit);

#endif
