/* net/tls.h - certificates for listeners; they can be reloaded while connections are open.
 *
 * TLS 1.2 and 1.3, ALPN for h2 and http/1.1, no renegotiation, no compression. A reload creates a
 * new OpenSSL context; open connections keep the one that they started with.
 *
 * Lifetime: create, listen with it, destroy after the server. Thread: the I/O thread.
 */
#ifndef NET_TLS_H
#define NET_TLS_H

#include "base/status.h"

struct tls_context; /* opaque */

/* PEM files: a certificate chain and its key, not encrypted. Errors name the file. */
enum status tls_context_create(const char *cert_path, const char *key_path,
                               struct tls_context **out, struct err *err);
void tls_context_destroy(struct tls_context *t); /* NULL is fine */

/* Read the files again; on an error the old certificate stays in use. */
enum status tls_context_reload(struct tls_context *t, struct err *err);

#endif
