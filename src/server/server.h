/* server/server.h - models behind names, on a socket.
 *
 * Listens first, loads the models on a thread of their own, answers 503 with progress until they
 * are ready, serves, drains on SIGTERM and ends. One io thread (the caller's) runs the event
 * loop; each model has its engine thread; long prompts are prepared on libuv's pool.
 *
 * Lifetime: server_run returns when the server has ended. Thread: the main one.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "base/status.h"
#include "config/settings.h"

/* ST_OK: it was asked to end and has. Everything else: `err` says what happened; ST_DEVICE: the
 * engine hung or died and the process must end with a failure. */
enum status server_run(const struct settings *settings, struct err *err);

#endif
