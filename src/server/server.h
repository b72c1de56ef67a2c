/* server/server.h - the server: models behind names, on a socket.
 *
 * It listens first, loads the models on a thread of their own, answers 503 with progress until they
 * are ready, serves, drains on SIGTERM and ends. One I/O thread (the caller's) runs the event loop;
 * each model has its engine thread; long prompts are prepared in libuv's pool.
 *
 * Lifetime: server_run returns when the server has ended. Thread: the main one.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "base/status.h"
#include "config/settings.h"

/* ST_OK: it ended as requested. Otherwise `err` says what happened; ST_DEVICE: an engine hung or
 * failed, and the process must exit with a failure. */
enum status server_run(const struct settings *settings, struct err *err);

#endif
