/* net/listen.c - listening sockets and accepting connections.
 *
 * Too many connections. A new connection is accepted before anything is decided, because only then
 * its peer is known. net/evict.c says whether it stays, and which other one is closed for it. The
 * limit is below that of descriptors. If
 * descriptors run out all the same, libuv uses one that it keeps in reserve to accept and close the
 * waiting connections, so that the loop does not spin on a listener that stays readable.
 *
 * A listener never stops. libuv listens on only after each connection has been accepted, so a
 * connection that the server has no memory for is accepted by a handle of the listener (`refuser`)
 * and closed.
 *
 * Entry points: http_listen_tcp, http_listen_unix, http_listen_fd, listeners_close.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "net/http_listen.h"
#include "net/http_int.h"

enum {
    BACKLOG = 4096,
    ACCEPTS_IN_TURN = 8, /* in a row before open connections are served */
    UNIX_MODE = 0660,
    LOCK_TRIES = 100, /* attempts to lock the folder of a socket file */
    LOCK_PAUSE_MS = 10,
    KEEPALIVE_AFTER_S = 30, /* of silence before the first probe */
    KEEPALIVE_EVERY_S = 10, /* between two probes */
    KEEPALIVE_PROBES = 3,   /* unanswered probes after which the connection is closed */
};

union stream {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct listener {
    struct http_server *server;
    struct tls_context *tls;
    union stream uv;
    union stream refuser; /* accepts connections only to close them */
    bool is_unix, is_refusing;
    bool has_waiting; /* one more connection is to be refused */
    uv_idle_t resume; /* active while a connection waits for the loop's next turn */
    uint32_t accepts; /* in this turn */
    uint64_t turn_ms; /* when the turn began, by the loop's clock */
    uint32_t open_handles;
    struct listener *next;
};

/* ---- accepting ---- */

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in4 = (const struct sockaddr_in *)(const void *)address;
        return ntohl(in4->sin_addr.s_addr) >> 24 == 127;
    }
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(in6) || (IN6_IS_ADDR_V4MAPPED(in6) && in6->s6_addr[12] == 127);
}

static void put_address(char *out, size_t out_bytes, const struct sockaddr *address) {
    char name[INET6_ADDRSTRLEN + 1] = "";
    uint16_t port;
    struct buf text;
    buf_init(&text, out_bytes - 1);
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
        uv_ip6_name(in6, name, sizeof(name));
        port = ntohs(in6->sin6_port);
        buf_printf(&text, "[%s]:%u", name, port);
    } else {
        const struct sockaddr_in *in4 = (const struct sockaddr_in *)(const void *)address;
        uv_ip4_name(in4, name, sizeof(name));
        port = ntohs(in4->sin_port);
        buf_printf(&text, "%s:%u", name, port);
    }
    if (buf_status(&text) == ST_OK) memcpy(out, text.ptr, text.len + 1);
    buf_deinit(&text);
}

static bool is_trusted(const struct http_server *s, const uint8_t address[16]) {
    for (uint32_t i = 0; i < s->trusted_count; i++)
        if (network_has(&s->trusted[i], address)) return true;
    return false;
}

enum status http_set_trusted(struct http_server *s, char *const *items, uint32_t count,
                             struct err *err) {
    struct network networks[HTTP_TRUSTED_MAX] = {0};
    CHECK(count <= HTTP_TRUSTED_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (!network_parse(items[i], &networks[i]))
            return err_set(err, ST_BAD,
                           "trusted proxy \"%s\" is neither an address nor a network; expected "
                           "for example 10.0.0.7, 10.0.0.0/8 or fd00::/8",
                           items[i]);
    memcpy(s->trusted, networks, count * sizeof(networks[0]));
    s->trusted_count = count;
    return ST_OK;
}

static void set_account(struct conn *c, const struct sockaddr *from) {
    uint8_t address[16];
    if (!network_address(from, address)) return;
    const bool is_exempt = is_trusted(c->server, address);
    struct account *a = accounts_get(&c->server->peers, network_id(address, is_exempt));
    if (!a) return;
    a->is_exempt = is_exempt;
    conn_set_account(c, a);
}

static void name_peer(struct conn *c, bool is_unix) {
    if (is_unix) {
        memcpy(c->peer, "unix", sizeof("unix"));
        c->is_local = true;
        return;
    }
    struct sockaddr_storage storage = {0};
    int bytes = sizeof(storage);
    struct sockaddr *address = (struct sockaddr *)&storage;
    if (uv_tcp_getpeername(&c->uv.tcp, address, &bytes) != 0) return;
    put_address(c->peer, sizeof(c->peer), address);
    c->is_local = is_loopback(address);
    set_account(c, address);
}

static void on_closed(uv_handle_t *handle) {
    struct listener *l = handle->data;
    struct http_server *s = l->server;
    l->open_handles--;
    s->open_handles--;
    if (l->open_handles == 0) mem_free(l);
}

static void close_listener(struct listener *l) {
    uv_close(&l->uv.handle, on_closed);
    uv_close((uv_handle_t *)&l->resume, on_closed);
}

static int init_stream(struct listener *l, uv_handle_t *handle) {
    return l->is_unix ? uv_pipe_init(l->server->loop, (uv_pipe_t *)handle, 0)
                      : uv_tcp_init(l->server->loop, (uv_tcp_t *)handle);
}

static void on_refused(uv_handle_t *handle);

/* Accept the waiting connection and close it. If the previous one is still being closed, on_refused
 * does it afterwards; the listener waits until then. */
static void refuse(struct listener *l) {
    if (l->is_refusing) {
        l->has_waiting = true;
        return;
    }
    CHECK(init_stream(l, &l->refuser.handle) == 0);
    l->refuser.handle.data = l;
    l->is_refusing = true;
    l->open_handles++;
    l->server->open_handles++;
    l->server->stats.refused++;
    uv_accept(&l->uv.stream, &l->refuser.stream);
    uv_close(&l->refuser.handle, on_refused);
}

static void on_refused(uv_handle_t *handle) {
    struct listener *l = handle->data;
    const bool has_waiting = l->has_waiting;
    l->is_refusing = l->has_waiting = false;
    if (has_waiting && !uv_is_closing(&l->uv.handle)) refuse(l);
    on_closed(handle);
}

static void accept_waiting(struct listener *l) {
    struct http_server *s = l->server;
    struct conn *c = conn_create(s, &transport_uv);
    if (!c) {
        refuse(l);
        return;
    }
    CHECK(init_stream(l, &c->uv.handle) == 0); /* creates no socket, so it cannot fail */
    c->uv.handle.data = c;
    if (uv_accept(&l->uv.stream, &c->uv.stream) != 0) {
        conn_close(c);
        return;
    }
    s->stats.accepted++;
    name_peer(c, l->is_unix);
    if (conn_admit(c))
        conn_open(c, l->tls);
    else
        conn_close(c);
}

static void on_resume(uv_idle_t *idle) {
    struct listener *l = idle->data;
    uv_idle_stop(idle);
    l->accepts = 1;
    l->turn_ms = uv_now(l->server->loop);
    accept_waiting(l);
}

/* libuv accepts until no connection waits, and clients that reconnect all the time can keep it
 * busy: each new connection may cost another one its place. So the listener takes a few, and
 * libuv stops at one that is not taken until the next turn of the loop. */
static void on_connection(uv_stream_t *stream, int status) {
    struct listener *l = stream->data;
    if (status < 0) { /* the client has disconnected, or there are no descriptors left */
        l->server->stats.refused++;
        return;
    }
    const uint64_t now_ms = uv_now(l->server->loop);
    if (now_ms != l->turn_ms) l->accepts = 0;
    l->turn_ms = now_ms;
    if (l->accepts++ < ACCEPTS_IN_TURN)
        accept_waiting(l);
    else
        uv_idle_start(&l->resume, on_resume);
}

/* ---- listening ---- */

static struct listener *create(struct http_server *s, bool is_unix, struct tls_context *tls) {
    struct listener *l = mem_zalloc(sizeof(*l));
    if (!l) return NULL;
    l->server = s;
    l->tls = tls;
    l->is_unix = is_unix;
    CHECK(init_stream(l, &l->uv.handle) == 0);
    uv_idle_init(s->loop, &l->resume);
    l->uv.handle.data = l->resume.data = l;
    l->open_handles += 2;
    s->open_handles += 2;
    return l;
}

static enum status no_memory(struct err *err) {
    return err_set(err, ST_NOMEM, "no memory for a listener");
}

/* Connections inherit these from the listening socket: no delay of small writes, and keep-alive
 * probes to silent peers. A machine that lost its power sends no FIN, and while nothing is sent to
 * it only the probes notice. Errors are ignored: the server works without these options too. */
static void set_options(const struct listener *l) {
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_AFTER_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
    };
    uv_os_fd_t fd;
    if (l->is_unix || uv_fileno(&l->uv.handle, &fd) != 0) return;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

/* Start listening, or close the handle on failure; `where` is the address in the message. */
static enum status start(struct listener *l, int bound, const char *where, struct err *err) {
    const int failure = bound ? bound : uv_listen(&l->uv.stream, BACKLOG, on_connection);
    if (failure == 0) {
        set_options(l);
        l->next = l->server->listeners;
        l->server->listeners = l;
        return ST_OK;
    }
    close_listener(l);
    if (failure == UV_EADDRINUSE)
        return err_set(err, ST_UNAVAILABLE,
                       "cannot listen on %s: the address is in use; stop the program that listens "
                       "there, or choose another port",
                       where);
    return err_set(err, ST_IO, "cannot listen on %s: %s", where, uv_strerror(failure));
}

/* Close the listeners that were added after `last`. */
static void close_until(struct http_server *s, const struct listener *last) {
    while (s->listeners != last) {
        struct listener *l = s->listeners;
        s->listeners = l->next;
        close_listener(l);
    }
}

void listeners_close(struct http_server *s) { close_until(s, NULL); }

static void set_port(struct sockaddr *address, uint16_t port) {
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)(void *)address)->sin_port = htons(port);
}

static uint16_t port_of(const uv_tcp_t *tcp) {
    struct sockaddr_storage storage = {0};
    int bytes = sizeof(storage);
    if (uv_tcp_getsockname(tcp, (struct sockaddr *)&storage, &bytes) != 0) return 0;
    return storage.ss_family == AF_INET6
               ? ntohs(((struct sockaddr_in6 *)(void *)&storage)->sin6_port)
               : ntohs(((struct sockaddr_in *)(void *)&storage)->sin_port);
}

static enum status listen_address(struct http_server *s, struct sockaddr *address, uint16_t *port,
                                  struct tls_context *tls, struct err *err) {
    char where[CONN_PEER_BYTES] = "";
    struct listener *l = create(s, false, tls);
    if (!l) return no_memory(err);
    set_port(address, *port);
    put_address(where, sizeof(where), address);
    const int bound = uv_tcp_bind(&l->uv.tcp, address, 0);
    TRY(start(l, bound, where, err));
    if (*port == 0) *port = port_of(&l->uv.tcp);
    return ST_OK;
}

/* A name may have several addresses (localhost: ::1 and 127.0.0.1). The server listens on all that
 * this machine has, at least one. If another program listens on one of them the call fails:
 * otherwise clients would reach one of the two programs by chance. */
enum status http_listen_tcp(struct http_server *s, const char *host, uint16_t *port,
                            struct tls_context *tls, struct err *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const struct listener *before = s->listeners;
    struct addrinfo *found = NULL;
    const int failure = getaddrinfo(host, NULL, &hints, &found);
    if (failure)
        return err_set(err, ST_BAD, "cannot resolve host \"%s\": %s", host, gai_strerror(failure));
    enum status st = ST_BAD;
    for (const struct addrinfo *a = found; a && st != ST_UNAVAILABLE; a = a->ai_next)
        if (a->ai_family == AF_INET || a->ai_family == AF_INET6)
            st = listen_address(s, a->ai_addr, port, tls, err);
    freeaddrinfo(found);
    if (st == ST_UNAVAILABLE) close_until(s, before);
    return s->listeners != before ? ST_OK : st;
}

/* Remove a socket file that a process left when it ended; an error if one listens on it. */
static enum status remove_stale_socket(const char *path, const struct sockaddr_un *address,
                                       struct err *err) {
    struct stat info;
    if (lstat(path, &info) != 0) return ST_OK;
    if (!S_ISSOCK(info.st_mode))
        return err_set(err, ST_CREATE,
                       "%s: the file exists and is not a socket; choose another path", path);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return err_set(err, ST_IO, "%s: %s", path, strerror(errno));
    const int result = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    const int reason = errno;
    close(fd);
    if (result == 0 || reason == EAGAIN)
        return err_set(err, ST_UNAVAILABLE, "%s: another process listens on this socket", path);
    if (reason != ECONNREFUSED) return err_set(err, ST_IO, "%s: %s", path, strerror(reason));
    if (unlink(path) != 0) return err_set(err, ST_CREATE, "%s: %s", path, strerror(errno));
    return ST_OK;
}

/* If two servers start at once, one could find the other's file after bind and before listen, and
 * remove it as stale. So the folder is locked meanwhile. If the lock cannot be taken within
 * LOCK_TRIES the server goes on without it. Returns the descriptor to close, or -1. */
static int lock_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)] = ".";
    const size_t bytes = slash ? (size_t)(slash - path) + 1 : 0;
    if (bytes) memcpy(folder, path, bytes);
    if (bytes) folder[bytes] = 0;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) != 0; i++)
        uv_sleep(LOCK_PAUSE_MS);
    return fd;
}

/* Called before the socket listens, so no client can connect with the wrong mode. The group may
 * connect only if the umask allows it to write. */
static int restrict_mode(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0 || chmod(path, info.st_mode & UNIX_MODE) != 0) return -errno;
    return 0;
}

static enum status bind_unix(struct http_server *s, const struct sockaddr_un *address,
                             struct err *err) {
    const char *path = address->sun_path;
    TRY(remove_stale_socket(path, address, err));
    struct listener *l = create(s, true, NULL);
    if (!l) return no_memory(err);
    int bound = uv_pipe_bind(&l->uv.pipe, path);
    if (bound == UV_EACCES && errno == ENOENT)
        bound = UV_ENOENT; /* libuv reports both as UV_EACCES */
    if (bound == 0) bound = restrict_mode(path);
    return start(l, bound, path, err);
}

enum status http_listen_unix(struct http_server *s, const char *path, struct err *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t bytes = strlen(path) + 1;
    if (bytes == 1 || bytes > sizeof(address.sun_path))
        return err_set(err, ST_BAD, "%s: the path of a unix socket must have 1 to %zu characters",
                       path, sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, path, bytes);
    const int lock = lock_folder(path);
    const enum status st = bind_unix(s, &address, err);
    if (lock >= 0) close(lock);
    return st;
}

/* Is it a listening stream socket of a family that libuv can accept from? */
static bool is_listening(int fd, int *family) {
    struct sockaddr_storage storage = {0};
    int listens = 0, type = 0;
    socklen_t bytes = sizeof(storage), listens_bytes = sizeof(listens), type_bytes = sizeof(type);
    if (getsockname(fd, (struct sockaddr *)&storage, &bytes) != 0) return false;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_bytes) != 0) return false;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) != 0) return false;
    *family = storage.ss_family;
    const bool is_known = *family == AF_INET || *family == AF_INET6 || *family == AF_UNIX;
    return listens && type == SOCK_STREAM && is_known;
}

enum status http_listen_fd(struct http_server *s, int fd, struct tls_context *tls,
                           struct err *err) {
    int family = AF_UNSPEC;
    if (!is_listening(fd, &family))
        return err_set(err, ST_BAD, "descriptor %d is not a listening socket", fd);
    const bool is_unix = family == AF_UNIX;
    struct listener *l = create(s, is_unix, is_unix ? NULL : tls);
    if (!l) return no_memory(err);
    const int opened = is_unix ? uv_pipe_open(&l->uv.pipe, fd) : uv_tcp_open(&l->uv.tcp, fd);
    return start(l, opened, is_unix ? "an inherited unix socket" : "an inherited socket", err);
}
