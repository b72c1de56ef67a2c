/* quant/divergence.h - how far the predictions of two models are apart, from their logits.
 *
 *     init -> add for each position of a text -> result -> deinit
 *
 * KL is the Kullback-Leibler divergence of b from a, in nats: the mean, under a's distribution of
 * the next token, of log(p_a / p_b). 0: the same distribution. All sums are doubles.
 *
 * Lifetime: the caller's storage. Thread: its owner. Memory: 8 bytes for each position.
 */
#ifndef QUANT_DIVERGENCE_H
#define QUANT_DIVERGENCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct divergence {
    double *kl; /* heap; of each position */
    size_t count, cap;
    size_t agreed; /* positions with the same most likely token */
    double kl_sum, loss_a, loss_b;
};

struct divergence_result {
    size_t positions;
    double kl_mean, kl_p99, kl_max;
    double top1_agree; /* share of the positions */
    double ppl_a, ppl_b;
};

/* KL of one position in nats, at least 0; infinite if a logit is not a number. */
double divergence_kl(const float *a, const float *b, uint32_t vocab);

void divergence_init(struct divergence *d);
void divergence_deinit(struct divergence *d);

/* One position: the logits of both models, and the token that follows in the text. Of equal logits
 * the first is the most likely. ST_NOMEM. */
enum status divergence_add(struct divergence *d, const float *a, const float *b, uint32_t vocab,
                           int32_t next);

/* p99: the smallest KL that at least 99 % of the positions do not exceed. Needs a position. */
void divergence_result(struct divergence *d, struct divergence_result *out);

#endif
