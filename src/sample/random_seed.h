/* sample/random_seed.h - the seed of a request that does not give one.
 *
 * Thread: any. Memory: none.
 */
#ifndef SAMPLE_RANDOM_SEED_H
#define SAMPLE_RANDOM_SEED_H

#include <stdint.h>

/* From the system's random numbers, or from the clock if it has none. 53 bits: every JSON reader
 * keeps them exactly, so that a client can send the seed again. */
uint64_t random_seed(void);
/* The same from 64 random bits that the caller has. */
uint64_t random_seed_of(uint64_t bits);

#endif
