/* loadgen/tls.h - the client's side of TLS, for https:// addresses.
 *
 * The certificate is checked against the authorities of a file, or of the system (SSL_CERT_FILE and
 * SSL_CERT_DIR count), and must name the host. The handshake happens within the first send.
 *
 * Lifetime: one context for all connections, a session for each open socket, which it borrows.
 * Thread:   a session has one owner. Writing to a closed socket raises SIGPIPE: the program ignores
 *           that signal.
 */
#ifndef LOADGEN_TLS_H
#define LOADGEN_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct loadgen_tls;         /* opaque */
struct loadgen_tls_session; /* opaque */

struct loadgen_tls_options {
    const char *authorities; /* a PEM file; NULL: the system's */
    bool is_unchecked;       /* any certificate is accepted */
};
enum status loadgen_tls_create(const struct loadgen_tls_options *options, struct loadgen_tls **out,
                               struct err *err);
void loadgen_tls_destroy(struct loadgen_tls *tls); /* NULL is fine */

/* For a socket that is connected to `host`, a name or an address. NULL: out of memory. */
struct loadgen_tls_session *loadgen_tls_open(struct loadgen_tls *tls, int fd, const char *host);
void loadgen_tls_close(struct loadgen_tls_session *s); /* NULL is fine */

/* As send() and recv() on the socket: the number of bytes; 0 from receive: the server has closed;
 * -1 and errno. EPROTO: `err` says what is wrong. After EAGAIN, wants_input says for which event of
 * the socket the call waits. */
int64_t loadgen_tls_send(struct loadgen_tls_session *s, const char *bytes, size_t len,
                         struct err *err);
int64_t loadgen_tls_receive(struct loadgen_tls_session *s, char *bytes, size_t len,
                            struct err *err);
bool loadgen_tls_wants_input(const struct loadgen_tls_session *s);

#endif
