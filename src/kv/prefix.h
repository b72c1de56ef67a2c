/* kv/prefix.h - keys of token prefixes, and tables that find a number by such a key.
 *
 * A key identifies a whole prefix: it hashes the tokens of one block and the key of the block
 * before it; the chain starts with the identity of the model and the tenant's salt. Equal keys mean
 * equal text from the first token on. With 128 bits an accidental collision is less likely than a
 * flipped bit in memory; a provoked one stays within its tenant, because the cache also compares
 * salts.
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

#include "base/status.h"

struct kv_key {
    uint64_t low, high;
};

static inline bool kv_key_eq(struct kv_key a, struct kv_key b) {
    return a.low == b.low && a.high == b.high;
}

/* The key before the first block of a sequence. */
struct kv_key kv_key_root(uint64_t identity, uint64_t salt);

/* The key of a block of `count` tokens that follows `before`. `scratch` has room for
 * kv_key_scratch_bytes(count): hashing in one call is several times faster than in pieces. */
struct kv_key kv_key_next(struct kv_key before, const int32_t *tokens, uint32_t count,
                          uint8_t *scratch);
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
