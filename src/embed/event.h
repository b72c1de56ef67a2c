/* embed/event.h - from tokens to what a caller reads: text, log-probabilities, the end.
 *
 * Runs in the thread that asked for the event, while the engine computes. Tokens and their
 * log-probabilities are read where the engine put them: an event's memory holds a reference to
 * the request, so they stay as long as the caller keeps the event.
 *
 * Thread: whoever has claimed the ticket.
 */
#ifndef EMBED_EVENT_H
#define EMBED_EVENT_H

#include <stdbool.h>

#include "base/status.h"
#include "embed/tickets.h"

struct engine;
struct jitney_event;
struct tokenizer;

/* Before anything else: `ev` has memory now. ST_BAD: it was not made by jitney_event_default. */
enum status event_prepare(struct jitney_event *ev);

/* Fill `ev` with what is new of the claimed answer. A stop string ends the answer here, and the
 * engine is told. True if that was its last event. `has_news` false: there is nothing to tell. */
bool event_fill(struct jitney_event *ev, const struct claim *claim, const struct tokenizer *t,
                struct engine *engine, bool *has_news);

#endif
