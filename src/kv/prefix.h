/* kv/prefix.h - keys of token prefixes, and tables that find a number by such a key.
 *
 * A key identifies a whole prefix: it hashes the tokens of one block and the key of the block
 * before it; the chain starts with the identity of the model and the request's salt. Equal keys
 * mean equal text from the first token on. The hash is SipHash-2-4 with 128 bits under a secret, so
 * a client cannot look for a prompt whose key equals another's: it can only guess. Two of q blocks
 * have equal keys with a probability of at most q * q / 2^129, which for 2^32 blocks is 2^-65.
 *
 * A table holds at most key_max keys, in open addressing, at most half full. Removal moves later
 * keys back and leaves no marks, so look-ups stay as fast as in a new table.
 *
 * Lifetime: with its cache. Thread: the engine thread. Memory: all allocated by create; put, find
 * and remove are O(1) expected.
 */
#ifndef KV_PREFIX_H
#define KV_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"
#include "base/status.h"

/* Which requests may share blocks: those with equal salts. All 128 bits are compared. */
struct kv_salt {
    uint64_t low, high;
};

static inline bool kv_salt_eq(struct kv_salt a, struct kv_salt b) {
    return a.low == b.low && a.high == b.high;
}

struct kv_key {
    uint64_t low, high;
};

static inline bool kv_key_eq(struct kv_key a, struct kv_key b) {
    return a.low == b.low && a.high == b.high;
}

/* The key before the first block of a sequence. */
struct kv_key kv_key_root(struct siphash_key secret, uint64_t identity, struct kv_salt salt);

/* The key of a block of `count` tokens that follows `before`. `scratch` has room for
 * kv_key_scratch_bytes(count), in which the input is put together. */
struct kv_key kv_key_next(struct siphash_key secret, struct kv_key before, const int32_t *tokens,
                          uint32_t count, uint8_t *scratch);
size_t kv_key_scratch_bytes(uint32_t count);

struct kv_prefix; /* key -> number below KV_PREFIX_NONE; opaque */

#define KV_PREFIX_NONE UINT32_MAX /* no such key */

enum status kv_prefix_create(struct kv_prefix **out, uint32_t key_max);
void kv_prefix_destroy(struct kv_prefix *t); /* NULL is fine */

uint32_t kv_prefix_find(const struct kv_prefix *t, struct kv_key key); /* KV_PREFIX_NONE if not */

/* False, and nothing has changed, if the key is there already or the table is full. */
bool kv_prefix_put(struct kv_prefix *t, struct kv_key key, uint32_t value);
void kv_prefix_remove(struct kv_prefix *t, struct kv_key key); /* it must be there */

uint32_t kv_prefix_count(const struct kv_prefix *t);
void kv_prefix_verify(const struct kv_prefix *t); /* CHECK that every key can be found; slow */

#endif
