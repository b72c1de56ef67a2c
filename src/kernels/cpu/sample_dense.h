/* kernels/cpu/sample_dense.h - the logits of the whole vocabulary, and what holds for all of them.
 *
 *     read      a model's logits come in, tamed (base/fvec.h); the owner may then edit `logit`
 *     survey    after the edits: where the largest ones are
 *     the rest  in any order, until the next read or survey
 *
 * Lifetime: init for a vocabulary, deinit. Thread: its owner.
 * Memory: 5 bytes for each token, all taken by init.
 */
#ifndef KERNELS_CPU_SAMPLE_DENSE_H
#define KERNELS_CPU_SAMPLE_DENSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fvec.h"
#include "base/status.h"
#include "kernels/cpu/sample_select.h"

struct dense {
    const struct fvec *fvec;
    uint32_t vocab;
    size_t chunks;
    float *logit;  /* [chunks * FVEC_CHUNK], minus infinity behind the vocabulary */
    float *peak;   /* [chunks * FVEC_PEAKS] */
    uint64_t *sum; /* [chunks], weights at `scale` */
    uint64_t total;
    float scale; /* 0: not summed yet */
    float top;   /* the largest logit */
    float low;   /* most logits are above it */
};

enum status dense_init(struct dense *d, uint32_t vocab);
void dense_deinit(struct dense *d); /* a zeroed one is fine */

void dense_read(struct dense *d, const float *logits);
void dense_survey(struct dense *d);

/* The first token in rank. */
int32_t dense_first(const struct dense *d);

/* The same of logits that `d` does not hold yet. False if the largest is one of those that taming
 * changes, so that others may become its equals. */
bool dense_first_of(const struct dense *d, const float *logits, int32_t *token);

/* A logit that at least `count` tokens reach, if so many are above minus infinity, and not many
 * more; finite. */
float dense_floor(const struct dense *d, struct select *select, uint32_t count);

/* The sum of all weights at `scale`, 1 / temperature. The largest logit is finite. */
uint64_t dense_sum(struct dense *d, float scale);

/* The first token, by id, where the running sum of weights exceeds `target`, which is less than
 * all of them. */
int32_t dense_find(struct dense *d, float scale, uint64_t target);

#endif
