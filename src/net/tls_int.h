/* net/tls_int.h - one TLS session without a socket: bytes in, bytes out.
 *
 * The caller lends received ciphertext to the session for the calls that follow; ciphertext to be
 * sent is appended to a buffer that the caller empties. So an idle session holds no ciphertext.
 * (OpenSSL's memory BIOs would keep their buffers for ever.)
 *
 * Lifetime: create, handshake until done, read and write, destroy. It holds a reference to its
 * certificate. Thread: the I/O thread.
 */
#ifndef NET_TLS_INT_H
#define NET_TLS_INT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "net/tls.h"

struct tls_session;

enum tls_step { TLS_DONE, TLS_MORE, TLS_EOF, TLS_FAILED };

/* `out` must outlive it. NULL: out of memory. */
struct tls_session *tls_session_create(struct tls_context *t, struct buf *out);
void tls_session_destroy(struct tls_session *s); /* NULL is fine */

/* Lend ciphertext: call handshake or read until they return TLS_MORE; then all of it is used. */
void tls_session_feed(struct tls_session *s, struct str cipher);
/* TLS_FAILED: what is in `out` may be sent before the connection ends: an alert, or for a client
 * that speaks plain HTTP a response with status 400. */
enum tls_step tls_session_handshake(struct tls_session *s);
bool tls_session_is_h2(const struct tls_session *s); /* ALPN has selected h2 */
/* TLS_DONE: *got bytes are in `plain`; TLS_EOF: the peer has sent close_notify. */
enum tls_step tls_session_read(struct tls_session *s, char *plain, size_t plain_bytes, size_t *got);
bool tls_session_write(struct tls_session *s, const char *plain, size_t plain_bytes);
void tls_session_close_notify(struct tls_session *s);

#endif
