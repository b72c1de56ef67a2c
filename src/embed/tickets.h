/* embed/tickets.h - the requests of one open model, and the threads that wait for their events.
 *
 * A ticket is what the library keeps of a request: how far the engine has come with each choice,
 * and how much of that the caller has received. The engine's thread records which choices have new
 * tokens. A caller's thread waits, claims one such choice, fills an event without holding the lock,
 * and returns the ticket. One thread at a time can claim a ticket, so the events of a choice are
 * made in order, each once.
 *
 *     ready list:  unclaimed tickets with new tokens, in order of arrival
 *     table:       tickets by id, until the last event of their last choice was returned
 *
 * A ticket is freed when its last event was returned, the engine has finished with the request,
 * and no thread has claimed it or waits for it.
 *
 * Lifetime: one per open model. Thread: any. Memory: a ticket is one block, made by the thread
 * that submits.
 */
#ifndef EMBED_TICKETS_H
#define EMBED_TICKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"
#include "base/str.h"
#include "engine/request.h"
#include "engine/text_output.h"

struct tickets; /* opaque */

struct ticket_choice {
    /* What the engine has published; under the lock. */
    uint32_t ready; /* tokens, prompt included */
    uint32_t cached_tokens;
    enum finish_reason finish;
    /* Of the thread that has claimed the ticket. */
    uint32_t seen; /* tokens, prompt included, that events have contained */
    struct text_output output;
};

struct ticket {
    uint64_t id;
    void *user;
    struct request *request; /* a reference, once it is added */
    uint32_t choice_count;
    uint32_t top_count;
    struct str *stop_strings; /* heap, followed by their bytes */

    /* Under the lock. */
    bool is_added, is_claimed;
    uint32_t has_output; /* bit per choice: it has new tokens, or has finished */
    uint32_t open;       /* bit per choice: its last event was not returned yet */
    uint32_t running;    /* bit per choice: the engine has not finished with it */
    uint32_t turn;       /* the choice that is looked at first */
    uint32_t waiter_count;
    struct list_link in_ready, in_bucket;

    struct ticket_choice choices[]; /* choice_count */
};

/* NULL when out of memory. A ticket that was not added is freed by destroy. */
struct ticket *ticket_create(uint32_t choice_count);
void ticket_destroy(struct ticket *t); /* NULL is fine */

enum status tickets_create(struct tickets **out);
void tickets_destroy(struct tickets *ts); /* NULL is fine; frees what is left */

/* Every function of the library calls enter first and leave last. False: it was stopped. */
bool tickets_enter(struct tickets *ts);
void tickets_leave(struct tickets *ts);
/* From now on enter fails, and waiting threads return. */
void tickets_stop(struct tickets *ts);
/* After stop: wait until every thread has left. */
void tickets_empty(struct tickets *ts);

/* The engine has accepted it; takes the reference `request`. tickets_note may have been called
 * for it already. */
void tickets_add(struct tickets *ts, struct ticket *t, struct request *request);

/* The engine's thread: `c`, whose request's user is a ticket, has new tokens or has finished. */
void tickets_note(struct tickets *ts, const struct choice *c);

/* Wait for new tokens of ticket `id` (0: of any) and claim it. `until_us` is a time of clock_real:
 * a past time does not wait, INT64_MAX waits without limit. */
enum wait_result { WAIT_CLAIMED, WAIT_TIMEOUT, WAIT_IDLE, WAIT_CLOSED };
struct claim {
    struct ticket *ticket;
    uint32_t choice;
    /* What the engine had published when it was claimed. */
    uint32_t ready, cached_tokens;
    enum finish_reason finish;
};
enum wait_result tickets_claim(struct tickets *ts, uint64_t id, int64_t until_us,
                               struct claim *out);
/* Return it; `is_over`: that was the choice's last event. Do not use the ticket afterwards. */
void tickets_unclaim(struct tickets *ts, const struct claim *claim, bool is_over);

/* The request of ticket `id`, with a reference for the caller; NULL if there is none. */
struct request *tickets_find(struct tickets *ts, uint64_t id);

#endif
