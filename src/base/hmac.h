/* base/hmac.h - HMAC-SHA-256 of many messages under one key. OpenSSL's.
 * Thread: one at a time. */
#ifndef BASE_HMAC_H
#define BASE_HMAC_H

#include <stddef.h>
#include <stdint.h>

enum { HMAC_BYTES = 32 };

struct hmac; /* opaque */

struct hmac *hmac_create(const void *key, size_t len); /* NULL when out of memory */
/* A message: begin, its pieces, end. */
void hmac_begin(struct hmac *h);
void hmac_add(struct hmac *h, const void *bytes, size_t len);
void hmac_end(struct hmac *h, uint8_t out[HMAC_BYTES]);
void hmac_destroy(struct hmac *h); /* NULL is fine */

#endif
