/* sample/random_seed.c - see sample/random_seed.h for the contract. */
#include "sample/random_seed.h"

#include <sys/random.h>
#include <sys/types.h>

#include "base/clock.h"

enum { SEED_BITS = 53 };

uint64_t random_seed_of(uint64_t bits) { return bits >> (64 - SEED_BITS); }

uint64_t random_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        seed = (uint64_t)clock_now(&clock_real) * 0x9e3779b97f4a7c15u;
    return random_seed_of(seed);
}
