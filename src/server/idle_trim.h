/* server/idle_trim.h - returns free memory to the system when the server has become idle.
 *
 * The C library keeps freed memory for the next allocations, in an arena for each thread; free
 * pieces lie between those in use. When nothing has been under way for two seconds, the pages of
 * the free pieces are returned, in a thread of libuv's pool, and not again before there was new
 * work. (net/conn.c returns memory after a peak of what clients held, also while other requests are
 * served.)
 *
 * Lifetime: create, tick; destroy after the loop has run dry. Thread: the I/O thread.
 */
#ifndef SERVER_IDLE_TRIM_H
#define SERVER_IDLE_TRIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct idle_trim; /* opaque */
struct uv_loop_s;

enum status idle_trim_create(struct uv_loop_s *loop, struct idle_trim **out);
void idle_trim_destroy(struct idle_trim *t); /* NULL is fine */

/* Call it regularly. `is_idle`: nothing is under way now; `bytes_in`: received from clients since
 * the start (requests may come and end between two calls). */
void idle_trim_tick(struct idle_trim *t, bool is_idle, uint64_t bytes_in, int64_t now_us);

#endif
