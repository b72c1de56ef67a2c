/* base/fvec.h - loops over a model's logits, with the same bits on every machine.
 *
 * A logit weighs exp(scale * (logit - top)), as fm_exp gives it for the float product of scale
 * and the float difference, rounded to a whole number of 2^-39ths (half to even). Weights are
 * whole so that their sums are exact: no order of adding them, no width of a vector, no number
 * of threads shows in a result. 2^24 weights of 1 fit into 64 bits.
 *
 * The loops run over chunks of FVEC_CHUNK logits. An array that is not that long ends in minus
 * infinities, which weigh nothing; `tame` makes it so.
 *
 * Thread: any; there is no state.
 */
#ifndef BASE_FVEC_H
#define BASE_FVEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FVEC_CHUNK = 1024, FVEC_PEAKS = 16 };

enum { FVEC_ONE_LOG2 = 39 };
#define FVEC_ONE (UINT64_C(1) << FVEC_ONE_LOG2) /* what a weight of 1 is */

/* Below this exponent a weight is 0 for certain. */
#define FVEC_EXPONENT_MIN (-28.0f)

static inline size_t fvec_chunks(size_t count) { return (count + FVEC_CHUNK - 1) / FVEC_CHUNK; }

struct fvec {
    const char *name;

    /* Any of the `count` is NaN. */
    bool (*has_nan)(const float *x, size_t count);

    /* The largest of the `count` as they are, where a NaN counts as minus infinity. */
    float (*top)(const float *x, size_t count);

    /* out = x without surprises: NaN is minus infinity, plus infinity the largest number, what
     * is smaller than FLT_MIN is +0. Fills `out` up to a whole chunk. Not in place. */
    void (*tame)(const float *x, size_t count, float *out);

    /* The largest of every FVEC_PEAKS-th number of a chunk, FVEC_PEAKS of them for each chunk.
     * This and what follows is about tamed numbers. */
    void (*peaks)(const float *x, size_t chunks, float *peaks);

    /* sums[i] = the weights of chunk i together; the result is all of them. `top` is no smaller
     * than any of x, and finite; `scale` is positive and finite. */
    uint64_t (*sum)(const float *x, size_t chunks, float top, float scale, uint64_t *sums);

    /* weights[i] = the weight of x[i]; the result is their sum. */
    uint64_t (*weigh)(const float *x, size_t count, float top, float scale, uint64_t *weights);

    /* The places of those that are at least `floor`, in order; returns how many. places and
     * kept, which takes the numbers themselves, have room for all. */
    size_t (*take)(const float *x, size_t chunks, float floor, uint32_t *places, float *kept);

    /* weights[i] becomes 0 unless x[i] is above `floor`, or equals it and i < ties_end; the
     * result is the sum of what is left. */
    uint64_t (*keep)(const float *x, size_t count, float floor, size_t ties_end, uint64_t *weights);

    /* The same for weights that are not at least `ratio` of the largest. */
    uint64_t (*prune)(uint64_t *weights, size_t count, double ratio);

    /* buckets[i] = (x[i] - first) * factor without its fraction, kept from 0 to `last`. */
    void (*bucket)(const float *x, size_t count, float first, float factor, int32_t last,
                   uint32_t *buckets);
};

/* The fastest that this processor runs, then slower ones down to plain C; NULL past the end. */
const struct fvec *fvec_at(uint32_t index);

#endif
