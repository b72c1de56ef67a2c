/* engine/cache_salt.h - which requests may share cached prefixes: the salt of a request.
 *
 *     salt = the first 128 bits of HMAC-SHA-256(secret; tenant, the request's cache_salt)
 *
 * Requests share cached blocks only if their salts are equal. A client chooses the text
 * `cache_salt` and prompts, but it does not know the secret, so it cannot look for a text that
 * gives another tenant's salt: it can only guess, with a chance of 2^-128 for each try and salt in
 * use. The keys of KV blocks are hashed under the same secret (kv/prefix.h).
 *
 * Lifetime: create, find, destroy. Thread: any; the salts are under a lock.
 */
#ifndef ENGINE_CACHE_SALT_H
#define ENGINE_CACHE_SALT_H

#include <stdint.h>

#include "base/siphash.h"
#include "base/status.h"
#include "base/str.h"
#include "kv/prefix.h"

enum { CACHE_SECRET_BYTES = 32 };

struct cache_secret {
    uint8_t bytes[CACHE_SECRET_BYTES];
};

/* The contents of a file of at least CACHE_SECRET_BYTES bytes that only its owner may read, hashed;
 * `path` NULL: random bytes. ST_BAD: `err` says what is wrong with the file. */
enum status cache_secret_make(const char *path, struct cache_secret *out, struct err *err);

struct cache_salts; /* opaque */

struct cache_salts *cache_salts_create(const struct cache_secret *secret); /* NULL: no memory */
void cache_salts_destroy(struct cache_salts *s);                           /* NULL is fine */
/* Without a text a tenant shares with its own requests that have none. */
struct kv_salt cache_salts_find(struct cache_salts *s, uint32_t tenant, struct str text);
/* The secret of the keys of KV blocks. */
struct siphash_key cache_salts_block_secret(struct cache_salts *s);

#endif
