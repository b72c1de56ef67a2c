/* server/engine_ask.h - requests that are answered when an engine's thread has done what they ask.
 *
 * A timer looks whether it has, every few milliseconds while a request waits. An engine answers
 * between two steps; one whose step takes longer than ENGINE_ASK_MS is not waited for.
 *
 * Lifetime: create, close (with the loop's other handles), destroy after the loop has run dry.
 * Thread: the I/O thread.
 */
#ifndef SERVER_ENGINE_ASK_H
#define SERVER_ENGINE_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct engine_asks; /* opaque */
struct http_request;
struct served_model;
struct server;

enum { ENGINE_ASK_MS = 2000 };

enum status engine_asks_create(struct server *s, struct engine_asks **out);
void engine_asks_close(struct engine_asks *a);   /* NULL is fine */
void engine_asks_destroy(struct engine_asks *a); /* NULL is fine */

/* Calls `answer`, which answers the request, when the ticket of engine/control.h is done
 * (`is_done`) or it was waited for long enough. Not called if the client goes away. */
typedef void engine_respond_fn(struct http_request *req, struct served_model *m, bool is_done);
void engine_asks_wait(struct engine_asks *a, struct http_request *req, struct served_model *m,
                      uint64_t ticket, engine_respond_fn *answer);

#endif
