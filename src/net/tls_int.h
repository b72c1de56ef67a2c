/* net/tls_int.h - one TLS conversation, without a socket: bytes in, bytes out.
 *
 * Ciphertext that has come is lent to the session for the time of the calls that follow; what it
 * wants to send is appended to a buffer that the caller empties. So a session that waits holds no
 * ciphertext at all, unlike one on OpenSSL's memory BIOs, which never give their memory back.
 *
 * Lifetime: create, handshake until done, read and write, destroy; it keeps its certificate alive.
 * Thread: the loop's.
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

/* Lend ciphertext: all of it is used up by handshake and read until they say TLS_MORE. */
void tls_session_feed(struct tls_session *s, struct str cipher);
enum tls_step tls_session_handshake(struct tls_session *s);
bool tls_session_is_h2(const struct tls_session *s); /* what ALPN chose */
/* TLS_DONE: *got bytes are in `plain`; TLS_EOF: the peer has said goodbye. */
enum tls_step tls_session_read(struct tls_session *s, char *plain, size_t plain_bytes, size_t *got);
bool tls_session_write(struct tls_session *s, const char *plain, size_t plain_bytes);
void tls_session_goodbye(struct tls_session *s);

#endif
