/* base/rng.c - see base/rng.h for the contract. */
#include "base/rng.h"

#include "base/check.h"

static void philox_round(uint32_t x[4], uint32_t key0, uint32_t key1) {
    uint64_t a = (uint64_t)0xD2511F53u * x[0];
    uint64_t b = (uint64_t)0xCD9E8D57u * x[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ x[1] ^ key0, (uint32_t)b,
                        (uint32_t)(a >> 32) ^ x[3] ^ key1, (uint32_t)a};
    for (int i = 0; i < 4; i++) x[i] = next[i];
}

uint64_t rng_at(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t x[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                     (uint32_t)(stream >> 32)};
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        philox_round(x, key0, key1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return (uint64_t)x[1] << 32 | x[0];
}

static double to_unit(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

double rng_unit_at(uint64_t seed, uint64_t stream, uint64_t index) {
    return to_unit(rng_at(seed, stream, index));
}

uint64_t rng_next(struct rng *r) { return rng_at(r->seed, 0, r->index++); }

uint64_t rng_below(struct rng *r, uint64_t limit) {
    CHECK(limit > 0);
    uint64_t reject_below = (0 - limit) % limit; /* 2^64 mod limit: the uneven rest */
    for (;;) {
        uint64_t bits = rng_next(r);
        if (bits >= reject_below) return bits % limit;
    }
}

double rng_unit(struct rng *r) { return to_unit(rng_next(r)); }
