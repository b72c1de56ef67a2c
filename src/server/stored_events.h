/* server/stored_events.h - the events of an answer as the store has them: server-sent events, each
 * with its number, "id: 7\nevent: TYPE\ndata: DATA\n\n" (the line "event:" only if it has a type).
 *
 * Thread: any.
 */
#ifndef SERVER_STORED_EVENTS_H
#define SERVER_STORED_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

/* The events after number `after`. Of an answer that has failed at least its error is given, and
 * what follows it, if nothing else is left or the error is event 1: a client may have seen more
 * events of a try before the one that failed. */
struct str stored_events_after(struct str events, uint32_t after, bool has_failed);
/* The same events as items of a JSON list, with commas between them, at most `limit`. Returns the
 * number of the last one, or `after`; *is_all: none is left. */
uint32_t stored_events_put_list(struct str events, uint32_t after, uint32_t limit, bool *is_all,
                                struct buf *out);
/* The data of the events, a line each: the stream of a format without events. */
void stored_events_put_lines(struct str events, struct buf *out);

#endif
