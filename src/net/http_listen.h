/* net/http_listen.h - where an HTTP server listens, and which peers it trusts.
 *
 * Lifetime: listeners live until http_server_close. Thread: the I/O thread. Memory: a handle each.
 */
#ifndef NET_HTTP_LISTEN_H
#define NET_HTTP_LISTEN_H

#include <stdint.h>

#include "base/status.h"

struct http_server;
struct tls_context;

/* Listeners. `tls` may be NULL. ST_UNAVAILABLE: the port is in use. *port returns the port that
 * the system chose for port 0. A socket file at `path` that no process listens on is replaced; if
 * one listens, that is ST_UNAVAILABLE. `fd`: a listening socket from the service manager. */
enum status http_listen_tcp(struct http_server *s, const char *host, uint16_t *port,
                            struct tls_context *tls, struct err *err);
enum status http_listen_unix(struct http_server *s, const char *path, struct err *err);
enum status http_listen_fd(struct http_server *s, int fd, struct tls_context *tls, struct err *err);

/* Addresses ("10.0.0.7", "fd00::1") and networks ("10.0.0.0/8") of proxies that carry many clients:
 * their connections are not limited by peer_connections, nor what they hold by a share. Applies to
 * connections that are accepted from now on. ST_BAD: `err` names the item. */
enum { HTTP_TRUSTED_MAX = 64 };
enum status http_set_trusted(struct http_server *s, char *const *items, uint32_t count,
                             struct err *err);

#endif
