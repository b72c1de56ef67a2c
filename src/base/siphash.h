/* base/siphash.h - SipHash-2-4 with 128 bits: a hash that cannot be steered without its key.
 *
 * For tables whose keys come from clients: a client that does not know the hash key can neither
 * find two inputs with equal hashes nor choose where an input falls. Not for signatures: see
 * hmac.h. Thread: any.
 */
#ifndef BASE_SIPHASH_H
#define BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
    uint64_t low, high; /* bytes 0 .. 7 and 8 .. 15 of the key, least significant byte first */
};

struct siphash {
    uint64_t low, high;
};

struct siphash siphash_of(struct siphash_key key, const void *bytes, size_t len);

#endif
