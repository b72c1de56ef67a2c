/* embed/event.h - from the tokens of a choice to the event that a caller reads.
 *
 * An event is filled in the thread that waits for it, while the engine computes. Tokens and their
 * log-probabilities are not copied: the event's memory holds a reference to the request, so they
 * stay valid as long as the caller keeps the event.
 *
 * Thread: the one that has claimed the ticket.
 */
#ifndef EMBED_EVENT_H
#define EMBED_EVENT_H

#include <stdbool.h>

#include "base/status.h"
#include "embed/tickets.h"

struct engine;
struct jitney_event;

/* Call it first: gives `ev` its memory. ST_BAD: `ev` was not made by jitney_event_default. */
enum status event_prepare(struct jitney_event *ev);

/* Fills `ev` with what is new in the claimed choice. A stop string ends the choice here and
 * cancels it in the engine. True: this is the choice's last event. `is_empty`: there is nothing
 * new, and the caller gets no event. */
bool event_fill(struct jitney_event *ev, const struct claim *claim, struct engine *engine,
                bool *is_empty);

#endif
