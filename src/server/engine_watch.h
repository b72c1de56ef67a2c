/* server/engine_watch.h - the watchers of engines: GET /v1/engine/steps as server-sent events.
 *
 * A timer runs while there are watchers. It reads the new step records of each watched engine,
 * writes their text once, and sends it to all watchers that are at the same record. A watcher that
 * resumes an earlier record is sent what the ring has, some of it in every turn of the timer. A
 * watcher whose client reads too slowly is sent nothing while its bytes wait; if it is far behind
 * after that, it continues with the newest record and gets an event that says what was skipped. So
 * a watcher holds a bounded number of bytes, and the engine does not notice it.
 *
 * Lifetime: create, close (with the loop's other handles), destroy after the loop has run dry.
 * Thread: the I/O thread.
 */
#ifndef SERVER_ENGINE_WATCH_H
#define SERVER_ENGINE_WATCH_H

#include <stdint.h>

#include "base/status.h"

struct engine_watch; /* opaque */
struct http_request;
struct served_model;
struct server;

enum status engine_watch_create(struct server *s, struct engine_watch **out);
/* End the streams of all watchers: the server is shutting down. */
void engine_watch_drain(struct engine_watch *w);
/* End the streams of watchers whose keys were removed, or are no administrator's any more. */
void engine_watch_check_keys(struct engine_watch *w);
void engine_watch_close(struct engine_watch *w);   /* NULL is fine */
void engine_watch_destroy(struct engine_watch *w); /* NULL is fine */

/* Begin to send the records of `m` from number `from` on. Responds to the request in any case. */
void engine_watch_add(struct engine_watch *w, struct http_request *req, struct served_model *m,
                      uint64_t from);

#endif
