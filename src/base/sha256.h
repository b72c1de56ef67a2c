/* base/sha256.h - SHA-256, a piece at a time. OpenSSL's, behind three calls. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>

#include "base/status.h"

enum { SHA256_HEX_BYTES = 65 }; /* 64 digits and a NUL */

struct sha256; /* opaque */

struct sha256 *sha256_create(void); /* NULL when out of memory */
void sha256_add(struct sha256 *h, const void *bytes, size_t len);
void sha256_hex(struct sha256 *h, char out[SHA256_HEX_BYTES]); /* ends it; call once */
void sha256_destroy(struct sha256 *h);                         /* NULL is fine */

enum status sha256_file(const char *path, char out[SHA256_HEX_BYTES], struct err *err);

#endif
