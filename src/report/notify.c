/* report/notify.c - see report/notify.h. The protocol is that of sd_notify(3). */
#include "report/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "config/env.h"

enum { FIRST_FD = 3, MESSAGE_BYTES = 512 };

/* Every report of progress extends the manager's start-up timeout by so much. */
static const int64_t EXTEND_US = 120 * 1000000LL;

/* A variable as a number; 0 if it is absent or not a number. */
static uint64_t number_of(const char *name) {
    const char *text = env_find(name);
    uint64_t value = 0;
    return text && str_to_u64(str_of(text), &value) ? value : 0;
}

static bool is_for_us(const char *pid_name, bool if_absent) {
    return env_find(pid_name) ? number_of(pid_name) == (uint64_t)getpid() : if_absent;
}

static enum status take_sockets(struct notify *n, struct err *err) {
    uint64_t count = is_for_us("LISTEN_PID", false) ? number_of("LISTEN_FDS") : 0;
    if (count > NOTIFY_FDS_MAX)
        return err_set(err, ST_BAD, "LISTEN_FDS hands over %llu sockets; at most %d are taken",
                       (unsigned long long)count, NOTIFY_FDS_MAX);
    for (int i = 0; i < (int)count; i++) {
        int fd = FIRST_FD + i, flags = fcntl(fd, F_GETFD);
        if (flags < 0) return err_set(err, ST_BAD, "LISTEN_FDS: descriptor %d is not open", fd);
        fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
        n->listen_fds[n->listen_count++] = fd;
    }
    return ST_OK;
}

/* "/path", or "@name" for an abstract socket. */
static enum status open_socket(struct notify *n, const char *path, struct err *err) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || len >= sizeof(to.sun_path))
        return err_set(err, ST_BAD, "NOTIFY_SOCKET names no unix socket");
    memcpy(to.sun_path, path, len);
    if (path[0] == '@') to.sun_path[0] = 0;
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    if (n->fd >= 0 && connect(n->fd, (struct sockaddr *)&to, bytes) == 0) return ST_OK;
    enum status st = err_set(err, ST_UNAVAILABLE, "NOTIFY_SOCKET %s: %s", path, strerror(errno));
    if (n->fd >= 0) close(n->fd);
    n->fd = -1;
    return st;
}

enum status notify_open(struct notify *n, struct err *err) {
    *n = (struct notify){.fd = -1};
    enum status st = take_sockets(n, err);
    if (is_for_us("WATCHDOG_PID", true)) {
        uint64_t us = number_of("WATCHDOG_USEC");
        n->watchdog_us = us <= INT64_MAX ? (int64_t)us : 0;
    }
    const char *path = env_find("NOTIFY_SOCKET");
    if (st == ST_OK && path) st = open_socket(n, path, err);
    const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
                                 "LISTEN_FDS",    "LISTEN_PID",    "LISTEN_FDNAMES"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) env_remove(names[i]);
    return st;
}

void notify_close(struct notify *n) {
    if (n->fd >= 0) close(n->fd);
    n->fd = -1;
}

/* If the manager does not read, the message is dropped. */
static void send_state(const struct notify *n, const char *text) {
    if (n->fd < 0) return;
    ssize_t sent = send(n->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

void notify_status(const struct notify *n, const char *text) {
    char message[MESSAGE_BYTES];
    int len = snprintf(message, sizeof(message), "EXTEND_TIMEOUT_USEC=%lld\nSTATUS=%s",
                       (long long)EXTEND_US, text);
    /* A line break would start another variable. */
    char *status = len > 0 ? strstr(message, "STATUS=") : NULL;
    for (char *p = status; p && *p; p++)
        if (*p == '\n') *p = ' ';
    send_state(n, message);
}

void notify_ready(const struct notify *n) { send_state(n, "READY=1\nSTATUS=ready"); }

void notify_reloading(const struct notify *n) {
    char message[MESSAGE_BYTES];
    snprintf(message, sizeof(message), "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)clock_now(&clock_real));
    send_state(n, message);
}

void notify_stopping(const struct notify *n) {
    send_state(n, "STOPPING=1\nSTATUS=requests under way finish");
}

void notify_watchdog(const struct notify *n) { send_state(n, "WATCHDOG=1"); }
