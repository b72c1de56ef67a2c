/* report/notify.h - reports the server's state to a service manager (systemd's protocol).
 *
 * Datagrams to the socket that NOTIFY_SOCKET names; without one every function does nothing. Also
 * the sockets that the manager passes (LISTEN_FDS) and the watchdog interval that it expects.
 *
 * Lifetime: open reads the variables and removes them from the environment; close. Thread: any.
 */
#ifndef REPORT_NOTIFY_H
#define REPORT_NOTIFY_H

#include <stdint.h>

#include "base/status.h"

enum { NOTIFY_FDS_MAX = 16 };

struct notify {
    int fd;              /* -1: there is no service manager */
    int64_t watchdog_us; /* 0: no watchdog */
    int listen_fds[NOTIFY_FDS_MAX];
    uint32_t listen_count;
};

enum status notify_open(struct notify *n, struct err *err);
void notify_close(struct notify *n);

void notify_status(const struct notify *n, const char *text); /* STATUS=, EXTEND_TIMEOUT_USEC= */
void notify_ready(const struct notify *n);
void notify_reloading(const struct notify *n);
void notify_stopping(const struct notify *n);
void notify_watchdog(const struct notify *n);

#endif
