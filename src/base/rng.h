/* base/rng.h - random numbers that are a function of where they are used.
 *
 * Counter-based (Philox4x32-10, Salmon et al. 2011): the number drawn for (seed, stream,
 * index) does not depend on what was drawn before, by whom or in which order, which is what
 * lets a request be batched, preempted and resumed without changing its answer.
 *
 * Thread: any; there is no state. struct rng below is a convenience for tests and tools.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

uint64_t rng_at(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in [0, 1), 53 bits. */
double rng_unit_at(uint64_t seed, uint64_t stream, uint64_t index);

/* A walk along index, for seeded tests. */
struct rng {
    uint64_t seed, index;
};
uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t limit); /* 0 .. limit-1, limit > 0, unbiased */
double rng_unit(struct rng *r);

#endif
