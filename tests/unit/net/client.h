/* unit/net/client.h - clients on real sockets, in the same thread as the server's loop.
 *
 * Everything is non-blocking and bounded: client_wait runs the loop and reads until it has received
 * the expected bytes, the server has closed, or the time is up.
 */
#ifndef UNIT_NET_CLIENT_H
#define UNIT_NET_CLIENT_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "unit/net/fake.h"

enum { CLIENT_WAIT_MS = 3000, CLIENT_READ_MAX = 32 << 20 };

struct client {
    int fd;
    struct buf in;
    bool is_ended; /* the server has closed */
    bool is_reset; /* with a reset instead of a FIN */
    bool is_not_reading;
};

static inline int64_t client_now_ms(void) { return clock_now(&clock_real) / 1000; }

static inline void client_begin(struct client *c, int domain, const void *address,
                                socklen_t bytes) {
    *c = (struct client){.fd = socket(domain, SOCK_STREAM, 0)};
    CHECK(c->fd >= 0);
    buf_init(&c->in, CLIENT_READ_MAX);
    CHECK(connect(c->fd, address, bytes) == 0);
    CHECK(fcntl(c->fd, F_SETFL, O_NONBLOCK) == 0);
}

static inline void client_connect(struct client *c, uint16_t port) {
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    client_begin(c, AF_INET, &to, sizeof(to));
}

static inline void client_connect_unix(struct client *c, const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    CHECK(strlen(path) < sizeof(to.sun_path));
    memcpy(to.sun_path, path, strlen(path));
    client_begin(c, AF_UNIX, &to, sizeof(to));
}

static inline bool client_has(const struct client *c, const char *text) {
    const size_t len = strlen(text);
    for (size_t i = 0; i + len <= c->in.len; i++)
        if (memcmp(c->in.ptr + i, text, len) == 0) return true;
    return false;
}

static inline void client_read(struct client *c) {
    char bytes[65536];
    if (c->is_not_reading || c->is_ended) return;
    const ssize_t got = recv(c->fd, bytes, sizeof(bytes), 0);
    if (got > 0) buf_put(&c->in, bytes, (size_t)got);
    if (got == 0) c->is_ended = true;
    if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK) c->is_ended = c->is_reset = true;
}

/* Run the loop and this client once. */
static inline void client_step(struct fake *f, struct client *c) {
    uv_run(&f->loop, UV_RUN_NOWAIT);
    const size_t before = c ? c->in.len : 0;
    if (c) client_read(c);
    const struct timespec nap = {.tv_nsec = 200000};
    if (!c || c->in.len == before) nanosleep(&nap, NULL);
}

/* Until `text` has been received, or for NULL until the server has closed. */
static inline bool client_wait_ms(struct fake *f, struct client *c, const char *text, int64_t ms) {
    const int64_t end = client_now_ms() + ms;
    for (;;) {
        if (text ? client_has(c, text) : c->is_ended) return true;
        if (client_now_ms() > end || (text && c->is_ended)) return false;
        client_step(f, c);
    }
}

static inline bool client_wait(struct fake *f, struct client *c, const char *text) {
    return client_wait_ms(f, c, text, CLIENT_WAIT_MS);
}

static inline void client_run_ms(struct fake *f, int64_t ms) {
    const int64_t end = client_now_ms() + ms;
    while (client_now_ms() < end) client_step(f, NULL);
}

/* All of it; the loop runs while the server's side is full. */
static inline void client_send(struct fake *f, struct client *c, struct str bytes) {
    const int64_t end = client_now_ms() + CLIENT_WAIT_MS;
    while (bytes.len && client_now_ms() < end) {
        const ssize_t sent = send(c->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (sent > 0) bytes = str_skip(bytes, (size_t)sent);
        if (sent < 0 && errno != EAGAIN) return;
        if (sent < 0) client_step(f, NULL);
    }
}

static inline void client_close(struct client *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    buf_deinit(&c->in);
}

/* Close so that the kernel sends a reset. */
static inline void client_reset(struct client *c) {
    const struct linger linger = {.l_onoff = 1};
    CHECK(setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
    client_close(c);
}

/* Until a counter of `f` has the value, at most CLIENT_WAIT_MS. */
static inline bool client_until(struct fake *f, const uint32_t *counter, uint32_t value) {
    const int64_t end = client_now_ms() + CLIENT_WAIT_MS;
    while (*counter != value && client_now_ms() < end) client_step(f, NULL);
    return *counter == value;
}

#endif
