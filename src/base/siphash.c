/* base/siphash.c - see base/siphash.h. The letters are those of the paper (Aumasson, Bernstein). */
#include "base/siphash.h"

#include <string.h>

struct state {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotate(uint64_t x, unsigned by) { return x << by | x >> (64 - by); }

static void mix(struct state *s, unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 = rotate(s->v0, 32) + s->v3;
        s->v2 += s->v1;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v2 = rotate(s->v2, 32);
    }
}

static void absorb(struct state *s, uint64_t word) {
    s->v3 ^= word;
    mix(s, 2);
    s->v0 ^= word;
}

/* `len` bytes, at most 8, least significant first. */
static uint64_t word_at(const uint8_t *bytes, size_t len) {
    uint64_t word = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(&word, bytes, len);
#else
    for (size_t i = 0; i < len; i++) word |= (uint64_t)bytes[i] << 8 * i;
#endif
    return word;
}

struct siphash siphash_of(struct siphash_key key, const void *bytes, size_t len) {
    const uint8_t *at = bytes, *end = at + len / 8 * 8;
    struct state s = {.v0 = key.low ^ 0x736f6d6570736575,
                      .v1 = key.high ^ 0x646f72616e646f6d ^ 0xee,
                      .v2 = key.low ^ 0x6c7967656e657261,
                      .v3 = key.high ^ 0x7465646279746573};
    for (; at < end; at += 8) absorb(&s, word_at(at, 8));
    absorb(&s, (uint64_t)len << 56 | (len % 8 ? word_at(at, len % 8) : 0));
    s.v2 ^= 0xee;
    mix(&s, 4);
    struct siphash out = {.low = s.v0 ^ s.v1 ^ s.v2 ^ s.v3};
    s.v1 ^= 0xdd;
    mix(&s, 4);
    out.high = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    return out;
}
